//! The process as runtime sockets see it: its statistics, and the parts of the binary that execute commands.

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use base::event_counter::EventCounter;
use statistics::{ConfigView, Statistics};

use crate::runtime_edit::{Keeper, Reloader, Scripts};
use crate::versions::Versions;

/// Receives messages about changes. The arguments are the proxy concerned, the syslog level and the text.
pub type Notify = Arc<dyn Fn(&state::Proxy, u8, &str) + Send + Sync>;

/// Shows one `peers` section or all of them, optionally with the dictionaries of their sessions, or `None` if the section does
/// not exist.
pub type ShowPeers =
    Box<dyn Fn(Option<&str>, bool) -> Option<Pin<Box<dyn Future<Output = String>>>> + Send + Sync>;

/// Everything that commands read and change. One per process; it outlives reloads.
pub struct Runtime {
    /// The statistics, with the view of the configuration.
    pub statistics: Arc<Statistics>,
    /// The key of anonymized output on connections that have not set one (`set anon global-key`); 0 for none.
    pub anonymous_key: AtomicU32,
    /// Shows `peers` sections. Set once.
    pub peers: OnceLock<ShowPeers>,
    /// Notified whenever a connection to a runtime socket ends.
    pub(crate) left: tokio::sync::Notify,
    pub(crate) notify: Option<Notify>,
    /// Versions of lists under preparation.
    pub(crate) versions: Mutex<Versions>,
    /// Adds and removes servers and backends.
    keeper: RwLock<Option<Arc<dyn Keeper>>>,
    /// Runs the commands that scripts registered.
    scripts: RwLock<Option<Arc<dyn Scripts>>>,
    /// Reads the configuration again.
    pub(crate) reloader: OnceLock<Arc<dyn Reloader>>,
    /// Whether commands may have changed something that a reload resets, since the configuration was last resolved.
    is_edited: AtomicBool,
    /// Counters of rare events. Set once.
    rare: OnceLock<Vec<&'static EventCounter>>,
}

impl Runtime {
    /// Reports a change of a server or frontend to the loggers of its proxy.
    pub fn report(&self, proxy: &state::Proxy, level: u8, text: &str) {
        if let Some(notify) = &self.notify {
            notify(proxy, level, text);
        }
    }

    /// Creates a runtime with these statistics and nothing registered.
    pub fn new(statistics: Arc<Statistics>) -> Self {
        Self {
            statistics,
            anonymous_key: AtomicU32::new(0),
            peers: OnceLock::new(),
            left: tokio::sync::Notify::new(),
            notify: None,
            versions: Mutex::default(),
            keeper: RwLock::default(),
            scripts: RwLock::default(),
            reloader: OnceLock::new(),
            is_edited: AtomicBool::new(false),
            rare: OnceLock::new(),
        }
    }

    /// Sets `notify`, which reports changes of servers.
    #[must_use]
    pub fn with_notify(self, notify: Notify) -> Self {
        Self { notify: Some(notify), ..self }
    }

    /// Registers the keeper of a new plan, which replaces the last one.
    pub fn keep(&self, keeper: Arc<dyn Keeper>) {
        *self.keeper.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(keeper);
    }

    /// Registers the scripts of a new plan, which replace the last ones.
    pub fn set_scripts(&self, scripts: Arc<dyn Scripts>) {
        *self.scripts.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(scripts);
    }

    pub(crate) fn scripts(&self) -> Option<Arc<dyn Scripts>> {
        self.scripts.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(crate) fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        self.keeper.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Registers the reloader. Only the first call has an effect.
    pub fn reload_by(&self, reloader: Arc<dyn Reloader>) {
        let _ = self.reloader.set(reloader);
    }

    /// Registers the counters of rare events. Only the first call has an effect.
    pub fn count_rare(&self, known: Vec<&'static EventCounter>) {
        let _ = self.rare.set(known);
    }

    pub(crate) fn rare(&self) -> &[&'static EventCounter] {
        self.rare.get().map_or(&[], Vec::as_slice)
    }

    /// Whether commands may have changed something that a reload resets.
    pub fn is_edited(&self) -> bool {
        self.is_edited.load(Relaxed)
    }

    /// Sets whether commands may have changed something that a reload resets; returns the previous value.
    pub fn set_edited(&self, edited: bool) -> bool {
        self.is_edited.swap(edited, Relaxed)
    }

    /// The current view of the configuration.
    pub fn view(&self) -> Arc<ConfigView> {
        self.statistics.view()
    }
}
