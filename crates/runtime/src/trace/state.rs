//! The trace state of each source: which events are reported, which events start, pause or stop a trace, and the object on which
//! the trace is locked. Each source has one process-wide state; any thread may read and change it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use super::{ACTIVE, Keys, TraceLevel, TraceOutput, TraceSource, Verbosity};

/// Whether a source is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceRun {
    /// Not traced.
    Stopped,
    /// The trace starts at the next start event.
    Waiting,
    /// Traced.
    Running,
}

impl TraceRun {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::Stopped,
            1 => Self::Waiting,
            _ => Self::Running,
        }
    }

    /// The symbol in lists.
    pub fn sign(self) -> char {
        match self {
            Self::Stopped => '.',
            Self::Waiting => 'w',
            Self::Running => 'R',
        }
    }
}

/// The effect of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceAction {
    /// Is reported.
    Report,
    /// Starts a waiting trace.
    Start,
    /// Stops the trace for good.
    Stop,
    /// The trace is paused and waits for the next start event.
    Pause,
}

/// The kind of object that a trace is locked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Nothing.
    Nothing,
    /// The backend.
    Backend,
    /// The connection.
    Connection,
    /// The frontend.
    Frontend,
    /// The listener.
    Listener,
    /// The server.
    Server,
    /// The session.
    Session,
    /// The thread.
    Thread,
    /// The stream.
    Stream,
    /// An object specific to the source.
    Own,
    /// A group of objects specific to the source.
    Group,
}

impl Lock {
    const ALL: [Self; 11] = [
        Self::Nothing,
        Self::Backend,
        Self::Connection,
        Self::Frontend,
        Self::Listener,
        Self::Server,
        Self::Session,
        Self::Thread,
        Self::Stream,
        Self::Own,
        Self::Group,
    ];

    fn of(self, keys: &Keys) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Backend => keys.backend,
            Self::Connection => keys.connection,
            Self::Frontend => keys.frontend,
            Self::Listener => keys.listener,
            Self::Server => keys.server,
            Self::Session => keys.session,
            Self::Thread => crate::current_worker() as u64 + 1,
            Self::Stream => keys.stream,
            Self::Own => keys.own,
            Self::Group => keys.group,
        }
    }
}

/// The value for "no other source is followed".
const NONE: u8 = u8::MAX;

/// The state of one source.
pub(super) struct SourceState {
    run: AtomicU8,
    /// By [`TraceAction`].
    events: [AtomicU64; 4],
    level: AtomicU8,
    verbosity: AtomicU8,
    lock: AtomicU8,
    /// The object on which the trace is locked; 0 until an object has matched.
    locked: AtomicU64,
    follow: AtomicU8,
    output: RwLock<Option<Arc<dyn TraceOutput>>>,
}

static STATES: [SourceState; TraceSource::ALL.len()] = [const {
    SourceState {
        run: AtomicU8::new(0),
        events: [AtomicU64::new(u64::MAX), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
        level: AtomicU8::new(TraceLevel::User as u8),
        verbosity: AtomicU8::new(Verbosity::Clean as u8),
        lock: AtomicU8::new(0),
        locked: AtomicU64::new(0),
        follow: AtomicU8::new(NONE),
        output: RwLock::new(None),
    }
}; TraceSource::ALL.len()];

/// Held while [`ACTIVE`] is recomputed.
static CHANGING: Mutex<()> = Mutex::new(());

/// The state of a source.
pub(super) fn of(source: TraceSource) -> &'static SourceState {
    &STATES[source as usize]
}

/// Recomputes the set of traced sources.
fn refresh() {
    // A panic while the lock is held leaves a consistent state.
    let _changing: MutexGuard<'_, ()> = CHANGING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut active = ACTIVE.load(Relaxed) & super::MESSAGES;
    for source in TraceSource::ALL {
        let state = of(source);
        let follows = state.followed().is_some_and(|other| of(other).run() != TraceRun::Stopped);
        if state.run() != TraceRun::Stopped || follows {
            active |= source.bit();
        }
    }
    ACTIVE.store(active, Relaxed);
}

/// Stops all traces.
pub fn stop_all() {
    for source in TraceSource::ALL {
        of(source).set_run(TraceRun::Stopped);
    }
}

impl SourceState {
    pub(super) fn run(&self) -> TraceRun {
        TraceRun::of(self.run.load(Relaxed))
    }

    /// Changes the state and releases the lock.
    pub(super) fn set_run(&self, run: TraceRun) {
        self.locked.store(0, Relaxed);
        self.run.store(run as u8, Relaxed);
        refresh();
    }

    pub(super) fn events(&self, action: TraceAction) -> u64 {
        self.events[action as usize].load(Relaxed)
    }

    pub(super) fn set_events(&self, action: TraceAction, bits: u64) {
        self.events[action as usize].store(bits, Relaxed);
    }

    pub(super) fn level(&self) -> u8 {
        self.level.load(Relaxed)
    }

    pub(super) fn set_level(&self, level: u8) {
        self.level.store(level, Relaxed);
    }

    pub(super) fn verbosity(&self) -> u8 {
        self.verbosity.load(Relaxed)
    }

    pub(super) fn set_verbosity(&self, verbosity: u8) {
        self.verbosity.store(verbosity, Relaxed);
    }

    pub(super) fn lock(&self) -> Lock {
        Lock::ALL.get(usize::from(self.lock.load(Relaxed))).copied().unwrap_or(Lock::Nothing)
    }

    pub(super) fn set_lock(&self, lock: Lock) {
        self.locked.store(0, Relaxed);
        self.lock.store(lock as u8, Relaxed);
    }

    pub(super) fn followed(&self) -> Option<TraceSource> {
        TraceSource::ALL.get(usize::from(self.follow.load(Relaxed))).copied()
    }

    pub(super) fn set_followed(&self, other: Option<TraceSource>) {
        self.follow.store(other.map_or(NONE, |other| other as u8), Relaxed);
        refresh();
    }

    pub(super) fn output(&self) -> Option<Arc<dyn TraceOutput>> {
        self.output.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(super) fn set_output(&self, output: Option<Arc<dyn TraceOutput>>) {
        *self.output.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = output;
    }

    /// Whether the followed source, if any, is locked on an object in `keys`.
    fn is_followed(&self, keys: &Keys) -> bool {
        self.followed().is_some_and(|other| {
            let other = of(other);
            let locked = other.locked.load(Relaxed);
            other.run() == TraceRun::Running && locked != 0 && other.lock().of(keys) == locked
        })
    }

    /// Whether `keys` match the lock. The trace is locked on the first object that can be locked.
    fn is_locked_on(&self, keys: &Keys) -> bool {
        let own = self.lock().of(keys);
        let locked = self.locked.load(Relaxed);
        if locked != 0 || own == 0 {
            return locked == 0 || locked == own;
        }
        match self.locked.compare_exchange(0, own, Relaxed, Relaxed) {
            Ok(_) => true,
            // Another thread has locked the trace first.
            Err(other) => other == own,
        }
    }

    /// Processes an event: reports the event if required, and applies its effects on the trace.
    pub(super) fn happen(
        &self,
        source: TraceSource,
        events: u64,
        level: TraceLevel,
        keys: &Keys,
        write: impl FnOnce(&dyn TraceOutput, Verbosity),
    ) {
        let has = |action: TraceAction| self.events(action) & events != 0;
        let follows = self.is_followed(keys);
        let mut run = self.run();
        if run == TraceRun::Waiting && has(TraceAction::Start) {
            self.set_run(TraceRun::Running);
            run = TraceRun::Running;
        }
        let is_mine = run == TraceRun::Running && self.is_locked_on(keys);
        let is_told = (is_mine || follows) && has(TraceAction::Report) && level as u8 <= self.level();
        if let Some(output) = self.output().filter(|_| is_told) {
            write(&*output, source.verbosity(self.verbosity()));
        }
        if is_mine && has(TraceAction::Stop) {
            self.set_run(TraceRun::Stopped);
        } else if is_mine && has(TraceAction::Pause) {
            self.set_run(TraceRun::Waiting);
        }
    }
}

impl TraceSource {
    /// The verbosity with this number. For sources with two levels, the second is the most verbose one.
    fn verbosity(self, number: u8) -> Verbosity {
        match (self, number) {
            (Self::Session, 1..) => Verbosity::Complete,
            _ => Verbosity::of(number),
        }
    }
}
