//! Access to the configuration for scripts that are being loaded.

use sample::pattern::{MatchMethod, View};
use scoped_tls_hkt::scoped_thread_local;

/// Access to the configuration while files are loaded.
pub trait Loading {
    /// Returns the map in that file, with this match method.
    ///
    /// # Errors
    /// The file cannot be read.
    fn map(&self, file: &str, method: MatchMethod) -> Result<View, String>;
}

scoped_thread_local!(static LOADING: for<'a> &'a (dyn Loading + 'a));

/// Calls `ask` with the configuration being loaded, if there is one.
pub(crate) fn loading<R>(ask: impl FnOnce(&dyn Loading) -> R) -> Option<R> {
    LOADING.is_set().then(|| LOADING.with(|loading| ask(loading)))
}

/// Lends the configuration being loaded to scripts loaded by `run`.
pub(crate) fn lend<R>(names: &dyn Loading, run: impl FnOnce() -> R) -> R {
    LOADING.set(names, run)
}
