//! The worker's own hold of the proxies and servers that its requests go to, so that no request counts itself among the
//! users of what all workers share ([`runtime::Local`]).

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use config::plan::{Grown, Proxy, ServerSettings};
use runtime::Local;

use crate::worker::Shared;

/// One worker's handles: made when they are first asked for.
pub(crate) struct Handles(Grown<OnceCell<OfProxy>>);

/// A proxy that this worker had a request for.
pub(crate) struct OfProxy {
    pub(crate) plan: Local<Proxy>,
    pub(crate) state: Local<state::Proxy>,
    binds: Vec<OnceCell<Local<state::Listener>>>,
    servers: RefCell<Vec<Option<Local<state::Server>>>>,
}

impl Handles {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self(shared.proxies.iter().map(|_| OnceCell::new()).collect::<Vec<_>>().into())
    }

    /// Those of `proxy`.
    #[inline]
    pub(crate) fn of(&self, proxy: &Arc<Proxy>) -> &OfProxy {
        let place = self.0.get(proxy.index).unwrap_or_else(|| self.grow(proxy.index));
        place.get_or_init(|| OfProxy {
            plan: Local::new(proxy.clone()),
            state: Local::new(proxy.state.clone()),
            binds: proxy.binds.iter().map(|_| OnceCell::new()).collect(),
            servers: RefCell::default(),
        })
    }

    /// The place of a backend that was added at run time.
    #[cold]
    fn grow(&self, index: usize) -> &OnceCell<OfProxy> {
        while self.0.len() <= index && self.0.add(|_| OnceCell::new()).is_some() {}
        &self.0[index]
    }
}

impl OfProxy {
    /// The hold of the listener of bind line `index`.
    pub(crate) fn listener(&self, index: usize) -> &Local<state::Listener> {
        self.binds[index].get_or_init(|| Local::new(self.plan.binds[index].listener.clone()))
    }

    /// The hold of one of the proxy's servers.
    #[inline]
    pub(crate) fn server(&self, settings: &ServerSettings) -> Local<state::Server> {
        let mut servers = self.servers.borrow_mut();
        if servers.len() <= settings.index {
            servers.resize(settings.index + 1, None);
        }
        let held = &mut servers[settings.index];
        match held {
            Some(held) if Arc::ptr_eq(held.shared(), &settings.state) => held.clone(),
            _ => held.insert(Local::new(settings.state.clone())).clone(),
        }
    }
}
