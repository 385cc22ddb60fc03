//! A server's health state, as set by checks and agents, and the effect of real traffic on it (`observe`).
//!
//! Part of [`crate::Server`]. The checking task and the runtime socket write the state; statistics read it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex};

use arc_swap::{ArcSwap, ArcSwapOption};

/// A server's health check state (`check_status`, `check_code`, `check_duration`, …).
#[derive(Debug)]
pub struct Health {
    /// The counter for `rise` and `fall`: 0 to rise + fall - 1. The server is up if the value is at least `rise`.
    pub level: AtomicU32,
    /// The number of successful checks needed to come up.
    pub rise: AtomicU32,
    /// Failures needed to go down.
    pub fall: AtomicU32,
    /// Total number of failed checks (`chkfail`).
    pub failed: AtomicU32,
    /// Whether errors in real traffic are counted (`observe`). Set by the configuration.
    pub observes: AtomicBool,
    /// How often `error-limit` consecutive errors occurred (`hanafail`).
    pub observed: AtomicU32,
    /// Whether a check is in progress (`* ` before the status).
    pub running: AtomicBool,
    /// Whether checks are configured, so that `enable health` can turn them on.
    pub configured: AtomicBool,
    /// The address for checks or the agent: `addr` or `agent-addr` of the configuration, or an address set on the runtime socket.
    /// `None` for the server's own address.
    pub address: ArcSwapOption<IpAddr>,
    /// The port for checks or the agent, from the configuration or the runtime socket; 0 for the server's own port.
    pub port: AtomicU32,
    /// The text to send to an agent first (`agent-send`), from the configuration or the runtime socket.
    pub send: ArcSwapOption<Box<[u8]>>,
    /// Consecutive errors in real traffic (`observe`).
    pub errors: AtomicU32,
    /// `init-state`: the initial level, which is also used after maintenance. 0 means that it is not set; otherwise, one more
    /// than the level. Written when the checks start.
    initial: AtomicU32,
    /// The last error in real traffic, as a number of [`Trouble`].
    trouble: AtomicU8,
    /// The pending demand from the traffic; see [`Health::demand`].
    demand: AtomicU8,
    waiting: Mutex<Option<std::task::Waker>>,
    /// The last result as shown in the statistics (`L4OK`, `L7STS` …), and its explanation.
    pub last: ArcSwap<CheckResult>,
}

impl Default for Health {
    fn default() -> Self {
        /// Shared by all servers before their first check.
        static NO_RESULT: LazyLock<Arc<CheckResult>> = LazyLock::new(Arc::default);
        Self {
            level: AtomicU32::new(0),
            rise: AtomicU32::new(0),
            fall: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            observes: AtomicBool::new(false),
            observed: AtomicU32::new(0),
            running: AtomicBool::new(false),
            configured: AtomicBool::new(false),
            address: ArcSwapOption::empty(),
            port: AtomicU32::new(0),
            send: ArcSwapOption::empty(),
            errors: AtomicU32::new(0),
            initial: AtomicU32::new(0),
            trouble: AtomicU8::new(0),
            demand: AtomicU8::new(0),
            waiting: Mutex::new(None),
            last: ArcSwap::new(NO_RESULT.clone()),
        }
    }
}

/// A demand of real traffic to a server's checks (`on-error`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Demand {
    /// Check sooner.
    FastInter = 1,
    /// Count a failed check.
    FailCheck = 2,
    /// Count failed checks, but leave the server one failure away from going down.
    SuddenDeath = 3,
    /// Mark the server down.
    MarkDown = 4,
    /// The server was removed, so the checks must end.
    End = 5,
}

impl Health {
    /// Makes the checking task, which may be on any worker, act now.
    pub fn demand(&self, demand: Demand) {
        self.demand.store(demand as u8, Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(waker) = waiting.take() {
            waker.wake();
        }
    }

    /// Ready if a demand is pending. Otherwise the checking task is woken by the next demand.
    pub fn poll_demand(&self, context: &mut std::task::Context<'_>) -> std::task::Poll<Demand> {
        let mut waiting = self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let demand = match self.demand.swap(0, Relaxed) {
            1 => Demand::FastInter,
            2 => Demand::FailCheck,
            3 => Demand::SuddenDeath,
            4 => Demand::MarkDown,
            5 => Demand::End,
            _ => {
                *waiting = Some(context.waker().clone());
                return std::task::Poll::Pending;
            }
        };
        std::task::Poll::Ready(demand)
    }

    /// Ready once the checks must end. Other demands are left for [`Health::poll_demand`]; every demand wakes the checking task.
    pub fn poll_end(&self, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.demand.load(Relaxed) == Demand::End as u8 {
            return std::task::Poll::Ready(());
        }
        *waiting = Some(context.waker().clone());
        std::task::Poll::Pending
    }

    /// Sets the level of `init-state`, or `None` if it is not configured.
    pub fn set_initial(&self, level: Option<u32>) {
        self.initial.store(level.map_or(0, |level| level + 1), Relaxed);
    }

    /// Returns the level of `init-state`, or `None` if it is not configured.
    pub fn initial(&self) -> Option<u32> {
        self.initial.load(Relaxed).checked_sub(1)
    }

    /// Records the outcome of an exchange or a connection (`observe`). A success resets the error count. The `limit`-th
    /// consecutive error triggers `action`.
    #[inline]
    pub fn observe(&self, seen: Result<(), Trouble>, limit: u32, action: Demand) {
        let Err(trouble) = seen else {
            // The count is read first: it is nearly always zero, and the cache line stays shared if it is not written.
            if self.errors.load(Relaxed) != 0 {
                self.errors.store(0, Relaxed);
            }
            return;
        };
        if self.errors.fetch_add(1, Relaxed) + 1 >= limit {
            self.observed.fetch_add(1, Relaxed);
            self.trouble.store(trouble as u8, Relaxed);
            self.demand(action);
        }
    }

    /// Resets the error count. Returns the count that caused a demand, and the last error.
    pub fn take_errors(&self) -> (u32, Trouble) {
        let trouble = TROUBLES.iter().find(|trouble| **trouble as u8 == self.trouble.load(Relaxed));
        (self.errors.swap(0, Relaxed), trouble.copied().unwrap_or(Trouble::Connection))
    }
}

/// An error seen by `observe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Trouble {
    /// Connecting failed.
    Connection = 0,
    /// A status that indicates a server error.
    Status = 1,
    /// A malformed body.
    Body = 2,
    /// The connection ended or broke before a response.
    Read = 3,
    /// No response in time.
    Timeout = 4,
    /// A malformed or incomplete response head.
    Head = 5,
}

const TROUBLES: [Trouble; 6] =
    [Trouble::Connection, Trouble::Status, Trouble::Body, Trouble::Read, Trouble::Timeout, Trouble::Head];

impl Trouble {
    /// Returns the name of the error in messages.
    pub fn text(self) -> &'static str {
        match self {
            Self::Connection => "L4 unsuccessful connection",
            Self::Status => "Wrong http response",
            Self::Body => "Invalid http response",
            Self::Read => "Read error (http)",
            Self::Timeout => "Read timeout (http)",
            Self::Head => "Invalid http response (headers)",
        }
    }
}

/// The result of one check.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// `L4OK`, `L7STS`, `UNK` …; empty before the first check.
    pub status: &'static str,
    /// The layer's code (HTTP status, exit status), if any.
    pub code: Option<i32>,
    /// The duration of the check in ms.
    pub duration_ms: u64,
    /// A description for people.
    pub description: String,
}

/// All check results in the statistics (management manual, 9.1 `check_status`): name, meaning, number in `show servers state`, and
/// whether it is a success.
pub const CHECK_STATUSES: &[(&str, &str, u32, bool)] = &[
    ("UNK", "Unknown", 0, false),
    ("INI", "Initializing", 1, false),
    ("CHECKED", "No status change", 3, false),
    ("HANA", "Health analyze", 4, false),
    ("SOCKERR", "Socket error", 5, false),
    ("L4OK", "Layer4 check passed", 6, true),
    ("L4TOUT", "Layer4 timeout", 7, false),
    ("L4CON", "Layer4 connection problem", 8, false),
    ("L6OK", "Layer6 check passed", 9, true),
    ("L6TOUT", "Layer6 timeout", 10, false),
    ("L6RSP", "Layer6 invalid response", 11, false),
    ("L7TOUT", "Layer7 timeout", 12, false),
    ("L7RSP", "Layer7 invalid response", 13, false),
    ("L7OK", "Layer7 check passed", 15, true),
    ("L7OKC", "Layer7 check conditionally passed", 16, true),
    ("L7STS", "Layer7 wrong status", 17, false),
    ("PROCERR", "External check error", 18, false),
    ("PROCTOUT", "External check timeout", 19, false),
    ("PROCOK", "External check passed", 20, true),
];

impl CheckResult {
    /// Returns the row of [`CHECK_STATUSES`] for this result. Before the first check, this is the row of `INI`.
    pub fn meaning(&self) -> &'static (&'static str, &'static str, u32, bool) {
        CHECK_STATUSES.iter().find(|row| row.0 == self.status).unwrap_or(&CHECK_STATUSES[1])
    }
}
