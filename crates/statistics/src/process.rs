//! The process that the statistics describe: its counters, the current configuration, and facts known only to the binary.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use arc_swap::ArcSwap;
use base::clock::{WallTime, now_ms};

use crate::collected::Collected;
use crate::config_view::ConfigView;

use crate::sharing::SharedCounters;

/// The source of all statistics. One per process; it outlives reloads, which replace its [`ConfigView`].
pub struct Statistics {
    /// The process's counters and limits.
    pub process: Arc<state::Process>,
    /// Product name in `show info`.
    pub name: &'static str,
    /// The version shown.
    pub version: &'static str,
    /// The release date shown, `YYYY/MM/DD`.
    pub date: &'static str,
    /// The number of pipes for splicing: the limit, those in use and those kept. All zero if the configuration does not enable
    /// splicing.
    pub pipes: fn() -> [usize; 3],
    /// The memory that compression uses, in bytes.
    pub compression_memory: fn() -> u64,
    /// The number of warnings written to standard error (`TotalWarnings`).
    pub warnings: fn() -> u64,
    /// When the process started.
    pub started: WallTime,
    /// `started` in ms of the monotonic clock. That clock starts with the program, so this is the time taken by
    /// reading the configuration.
    pub started_ms: u64,
    /// Current connections to the runtime socket. Written by the runtime socket.
    pub commanders: AtomicU32,
    /// Patterns in list versions that are prepared but not committed yet. Updated by the runtime socket.
    pub waiting_patterns: AtomicU64,
    /// The number of rounds of the sampler.
    pub(crate) rounds: AtomicU32,
    /// Whether the sampler records histories.
    pub(crate) keeps_history: AtomicBool,
    /// When a page was last shown, in ms of the monotonic clock; 0 for never. Written by every page.
    pub(crate) shown_at: AtomicU64,
    /// Facts that the sampler collected for the page.
    pub(crate) collected: ArcSwap<Collected>,
    /// CPU time and instant of the last `show info`, for `Idle_pct`.
    pub(crate) cpu_seen: Mutex<(u64, u64)>,
    /// Counters shared with other processes (`shm-stats-file`). Set once.
    sharing: OnceLock<Arc<SharedCounters>>,
    view: ArcSwap<ConfigView>,
}

impl Statistics {
    /// Creates the statistics of a starting process.
    pub fn new(process: Arc<state::Process>, view: ConfigView) -> Self {
        Self {
            process,
            name: "HAProxy",
            version: concat!("3.5.0-weir", env!("CARGO_PKG_VERSION")),
            date: "2026/11/21",
            pipes: || [0; 3],
            compression_memory: || 0,
            warnings: || 0,
            started: WallTime::now(),
            started_ms: now_ms(),
            commanders: AtomicU32::new(0),
            waiting_patterns: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
            keeps_history: AtomicBool::new(false),
            shown_at: AtomicU64::new(0),
            collected: ArcSwap::default(),
            cpu_seen: Mutex::default(),
            sharing: OnceLock::new(),
            view: ArcSwap::from_pointee(view),
        }
    }

    /// Sets the counters shared with other processes. Only the first call has an effect.
    pub fn share_counters(&self, shared: Arc<SharedCounters>) {
        let _ = self.sharing.set(shared);
    }

    /// The counters shared with other processes, if `shm-stats-file` is set.
    pub fn shared_counters(&self) -> Option<&Arc<SharedCounters>> {
        self.sharing.get()
    }

    /// Reads the counters of other processes before counters are displayed. Never blocks.
    pub fn refresh_counters(&self) {
        if let Some(shared) = self.sharing.get() {
            shared.refresh(self.view().states());
        }
    }

    /// The view of the current configuration.
    pub fn view(&self) -> Arc<ConfigView> {
        self.view.load_full()
    }

    /// Replaces the view after a reload.
    pub fn replace(&self, view: ConfigView) {
        // The counts of removed objects up to this moment are included.
        self.refresh_counters();
        self.view.store(Arc::new(view));
    }

    /// Seconds since the start.
    pub fn uptime(&self) -> u64 {
        now_ms().saturating_sub(self.started_ms) / 1000
    }
}
