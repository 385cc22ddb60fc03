//! An [`Encoder`] codes one body. Each thread keeps a few coder states of each kind that it has used, for later bodies.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::brotli::Brotli;
use crate::deflate::{PIECE, Quick};
use crate::wrapper::Wrapper;
use crate::zlib::Zlib;
use crate::zstd::Zstd;
use crate::{Algorithm, Until, brotli, deflate, zlib, zstd};

/// The memory of all states, in use and kept. Changed when a state is created or freed, which does not happen for a warm body.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The number of idle states kept per thread.
const KEPT: usize = 16;

/// The memory of all states in bytes.
pub fn memory_used() -> usize {
    USED.load(Relaxed)
}

/// The settings of a coder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoderSettings {
    /// From 1 (fast) to 9 (small).
    pub level: u8,
    /// `tune.zlib.windowsize`, in bits.
    pub window_bits: u8,
    /// `tune.zlib.memlevel`.
    pub memory_level: u8,
    /// The limit for the memory of all states in bytes; 0 for none.
    pub most_memory: usize,
}

enum CoderState {
    Quick(Box<Quick>),
    Zlib(Box<Zlib>),
    Zstd(Box<Zstd>),
    Brotli(Box<Brotli>),
}

impl CoderState {
    fn kind(&self) -> CoderKind {
        match self {
            Self::Quick(_) => CoderKind::Quick,
            Self::Zlib(_) => CoderKind::Zlib,
            Self::Zstd(_) => CoderKind::Zstd,
            Self::Brotli(_) => CoderKind::Brotli,
        }
    }
}

impl Drop for CoderState {
    fn drop(&mut self) {
        USED.fetch_sub(self.kind().memory(), Relaxed);
    }
}

thread_local! {
    static FREE: RefCell<Vec<CoderState>> = const { RefCell::new(Vec::new()) };
}

/// One body's coder.
pub struct Encoder {
    algorithm: Algorithm,
    wrapper: Wrapper,
    state: Option<CoderState>,
    /// Whether input was written since the last flush.
    is_dirty: bool,
    has_begun: bool,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The implementation for an algorithm and level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CoderKind {
    Quick,
    Zlib,
    Zstd,
    Brotli,
}

impl CoderKind {
    fn of(algorithm: Algorithm, level: u8) -> Option<Self> {
        match algorithm {
            Algorithm::Identity => None,
            Algorithm::Zstd => Some(Self::Zstd),
            Algorithm::Brotli => Some(Self::Brotli),
            _ if level <= 1 => Some(Self::Quick),
            _ => Some(Self::Zlib),
        }
    }

    fn memory(self) -> usize {
        match self {
            Self::Quick => deflate::MEMORY,
            Self::Zlib => zlib::MEMORY,
            Self::Zstd => zstd::MEMORY,
            Self::Brotli => brotli::MEMORY,
        }
    }
}

/// Returns a reset state from the thread's pool, or a new one; `None` if the limit forbids that.
fn take(kind: CoderKind, settings: &CoderSettings) -> Option<CoderState> {
    let kept = FREE.with_borrow_mut(|free| {
        free.iter().rposition(|state| state.kind() == kind).map(|index| free.swap_remove(index))
    });
    if let Some(mut state) = kept {
        match &mut state {
            CoderState::Quick(quick) => quick.reset(),
            CoderState::Zlib(zlib) => zlib.reset(settings.level),
            CoderState::Zstd(zstd) => zstd.reset(settings.level),
            CoderState::Brotli(brotli) => brotli.reset(settings.level),
        }
        return Some(state);
    }
    let memory = kind.memory();
    let before = USED.fetch_add(memory, Relaxed);
    if settings.most_memory > 0 && before + memory > settings.most_memory {
        USED.fetch_sub(memory, Relaxed);
        return None;
    }
    Some(match kind {
        CoderKind::Quick => CoderState::Quick(Box::new(Quick::new())),
        CoderKind::Zlib => {
            CoderState::Zlib(Box::new(Zlib::new(settings.level, settings.window_bits, settings.memory_level)))
        }
        CoderKind::Zstd => CoderState::Zstd(Box::new(Zstd::new(settings.level))),
        CoderKind::Brotli => CoderState::Brotli(Box::new(Brotli::new(settings.level))),
    })
}

impl Encoder {
    /// Creates a coder for one body; `None` if the memory limit is reached.
    pub fn new(algorithm: Algorithm, settings: &CoderSettings) -> Option<Self> {
        let state = match CoderKind::of(algorithm, settings.level) {
            None => None,
            Some(kind) => Some(take(kind, settings)?),
        };
        let wrapper = match algorithm {
            Algorithm::Gzip => Wrapper::GZIP,
            Algorithm::Deflate => Wrapper::ZLIB,
            _ => Wrapper::Raw,
        };
        Some(Self { algorithm, wrapper, state, is_dirty: false, has_begun: false })
    }

    /// Codes `data` and appends to `out` as much as suits the coder.
    pub fn write(&mut self, data: &[u8], out: &mut Vec<u8>) {
        if !data.is_empty() {
            self.is_dirty = true;
            self.code(data, Until::Later, out);
        }
    }

    /// Makes all input so far available to a decoder. Has no effect if it already is.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_dirty) {
            self.code(&[], Until::Flushed, out);
        }
    }

    /// Ends the body with `data`.
    pub fn finish(mut self, data: &[u8], out: &mut Vec<u8>) {
        self.code(data, Until::Finished, out);
        self.wrapper.end(out);
    }

    fn code(&mut self, data: &[u8], until: Until, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.wrapper.begin(out);
        }
        // Data is coded directly after its checksum is computed, so that it is fetched from memory only once.
        let last = data.len().saturating_sub(1) / PIECE * PIECE;
        for piece in data[..last].chunks(PIECE) {
            self.code_piece(piece, Until::Later, out);
        }
        self.code_piece(&data[last..], until, out);
    }

    fn code_piece(&mut self, data: &[u8], until: Until, out: &mut Vec<u8>) {
        self.wrapper.add(data);
        match &mut self.state {
            None => out.extend_from_slice(data),
            Some(CoderState::Quick(quick)) => quick.write(data, until, out),
            Some(CoderState::Zlib(zlib)) => zlib.write(data, until, out),
            Some(CoderState::Zstd(zstd)) => zstd.write(data, until, out),
            Some(CoderState::Brotli(brotli)) => brotli.write(data, until, out),
        }
    }
}

impl Drop for Encoder {
    /// Keeps the state for the next body.
    fn drop(&mut self) {
        let Some(state) = self.state.take() else { return };
        // The pool no longer exists when a thread is torn down.
        let _ = FREE.try_with(|free| {
            if let Ok(mut free) = free.try_borrow_mut()
                && free.len() < KEPT
            {
                free.push(state);
            }
        });
    }
}
