//! What files reach of the configuration while they are loaded.

use sample::pattern::{MatchMethod, View};
use scoped_tls_hkt::scoped_thread_local;

/// What files may ask of the configuration while they are loaded.
pub trait Loading {
    /// The map in that file, to be looked into in this way.
    ///
    /// # Errors
    /// It cannot be read.
    fn map(&self, file: &str, method: MatchMethod) -> Result<View, String>;
}

scoped_thread_local!(static LOADING: for<'a> &'a (dyn Loading + 'a));

/// Asks the configuration that is being loaded, if one is.
pub(crate) fn loading<R>(ask: impl FnOnce(&dyn Loading) -> R) -> Option<R> {
    LOADING.is_set().then(|| LOADING.with(|loading| ask(loading)))
}

/// Lends the configuration that is being loaded to what `run` loads.
pub(crate) fn lend<R>(names: &dyn Loading, run: impl FnOnce() -> R) -> R {
    LOADING.set(names, run)
}
