//! The engines that query agents about an exchange or a TCP stream (SPOE), with their results so far. `evaluate::spoe` makes the
//! queries.

use std::sync::Arc;

use plan::Proxy;
use plan::spoe::SpoeEngine;

/// The engines. Those of the frontend are first.
#[derive(Default)]
pub(crate) struct Engaged(pub(crate) Vec<EngagedEngine>);

/// An engine and its state.
pub(crate) struct EngagedEngine {
    pub(crate) engine: Arc<SpoeEngine>,
    /// Whether the engine is disabled after an error.
    pub(crate) is_off: bool,
    /// How long the queries took in total, in ms.
    pub(crate) total_ms: u64,
}

impl Engaged {
    /// Adds the engines of a proxy.
    pub(crate) fn add(&mut self, proxy: &Proxy) {
        let own =
            |engine: &Arc<SpoeEngine>| EngagedEngine { engine: engine.clone(), is_off: false, total_ms: 0 };
        self.0.extend(proxy.engines.iter().map(own));
    }

    /// Returns the index of an engine.
    pub(crate) fn position(&self, engine: &Arc<SpoeEngine>) -> Option<usize> {
        self.0.iter().position(|own| Arc::ptr_eq(&own.engine, engine))
    }
}
