//! When a source reports: which of its events are told, begin, pause or end a trace, and what it is
//! locked on. One state each, for the whole process; any thread may read and change it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use super::{ACTIVE, Keys, TraceLevel, TraceOutput, TraceSource, Verbosity};

/// Whether a source is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceRun {
    /// No.
    Stopped,
    /// From its next event that begins a trace.
    Waiting,
    /// Yes.
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

    /// As lists show it.
    pub fn sign(self) -> char {
        match self {
            Self::Stopped => '.',
            Self::Waiting => 'w',
            Self::Running => 'R',
        }
    }
}

/// What an event may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceAction {
    /// It is told.
    Report,
    /// It begins a trace that waits.
    Start,
    /// It ends the trace for good.
    Stop,
    /// It has the trace wait again.
    Pause,
}

/// What a trace may be locked on.
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
    /// What the source has of its own.
    Own,
    /// What holds several of those.
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

/// No source is followed.
const NONE: u8 = u8::MAX;

/// What is asked of one source.
pub(super) struct SourceState {
    run: AtomicU8,
    /// By [`TraceAction`].
    events: [AtomicU64; 4],
    level: AtomicU8,
    verbosity: AtomicU8,
    lock: AtomicU8,
    /// What it is locked on; 0 while that is not known.
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

/// Held while [`ACTIVE`] is made anew.
static CHANGING: Mutex<()> = Mutex::new(());

/// The state of a source.
pub(super) fn of(source: TraceSource) -> &'static SourceState {
    &STATES[source as usize]
}

/// Says anew which sources somebody listens to.
fn refresh() {
    // A panic while one changed left nothing half done.
    let _changing: MutexGuard<'_, ()> = CHANGING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut active = 0;
    for source in TraceSource::ALL {
        let state = of(source);
        let follows = state.followed().is_some_and(|other| of(other).run() != TraceRun::Stopped);
        if state.run() != TraceRun::Stopped || follows {
            active |= source.bit();
        }
    }
    ACTIVE.store(active, Relaxed);
}

/// Ends all traces.
pub fn stop_all() {
    for source in TraceSource::ALL {
        of(source).set_run(TraceRun::Stopped);
    }
}

impl SourceState {
    pub(super) fn run(&self) -> TraceRun {
        TraceRun::of(self.run.load(Relaxed))
    }

    /// Changes whether it is traced: what it was locked on is forgotten.
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

    /// Whether a source that this one follows is locked on what `keys` name.
    fn is_followed(&self, keys: &Keys) -> bool {
        self.followed().is_some_and(|other| {
            let other = of(other);
            let locked = other.locked.load(Relaxed);
            other.run() == TraceRun::Running && locked != 0 && other.lock().of(keys) == locked
        })
    }

    /// Whether `keys` name what the source is locked on; the first that can be locked on is.
    fn is_locked_on(&self, keys: &Keys) -> bool {
        let own = self.lock().of(keys);
        let locked = self.locked.load(Relaxed);
        if locked != 0 || own == 0 {
            return locked == 0 || locked == own;
        }
        match self.locked.compare_exchange(0, own, Relaxed, Relaxed) {
            Ok(_) => true,
            // Another thread was first.
            Err(other) => other == own,
        }
    }

    /// An event: tells it where it is to be told, and does what it is to do.
    pub(super) fn happen(
        &self,
        source: TraceSource,
        events: u64,
        level: TraceLevel,
        keys: &Keys,
        tell: impl FnOnce(&dyn TraceOutput, Verbosity),
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
            tell(&*output, source.verbosity(self.verbosity()));
        }
        if is_mine && has(TraceAction::Stop) {
            self.set_run(TraceRun::Stopped);
        } else if is_mine && has(TraceAction::Pause) {
            self.set_run(TraceRun::Waiting);
        }
    }
}

impl TraceSource {
    /// The verbosity of this number: a source with two has all there is in the second.
    fn verbosity(self, number: u8) -> Verbosity {
        match (self, number) {
            (Self::Session, 1..) => Verbosity::Complete,
            _ => Verbosity::of(number),
        }
    }
}
