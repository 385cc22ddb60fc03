//! What stands in a payload's way and changes it: filters, in their order. A [`Flow`](super::Flow)
//! without any pays for none of this.
//!
//! A filter gets payload as it comes, apart from any coding of transfer, and gives payload. What it
//! holds back leaves when the sender pauses, so that who waits for a slow stream does not wait for
//! more of it. A cache keeps what comes before any other filter changes it. Which filters there are
//! is decided before a direction begins ([`compression`](crate::message::compression),
//! [`caching`](crate::message::caching)).

use std::cell::RefCell;
use std::rc::Rc;

use cache::Filling;
use compress::Encoder;
use runtime::timer::now_ms;

use super::{Coding, Tap};

/// A kind of filter.
#[derive(Debug)]
pub(crate) enum Filter {
    /// Codes the content.
    Compress(Box<Compressor>),
}

/// A coder and what went through it.
#[derive(Debug)]
pub(crate) struct Compressor {
    /// Gone once the body has ended.
    encoder: Option<Encoder>,
    /// Bytes that it was given.
    pub(crate) taken: u64,
    /// Bytes that it gave.
    pub(crate) given: u64,
}

impl Filter {
    /// What compresses with `encoder`.
    pub(crate) fn compress(encoder: Encoder) -> Self {
        Self::Compress(Box::new(Compressor { encoder: Some(encoder), taken: 0, given: 0 }))
    }

    /// Takes `data` and writes what comes of it behind what `out` holds.
    pub(crate) fn data(&mut self, data: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Compress(own) => own.run(out, |encoder, out| encoder.write(data, out), data.len()),
        }
    }

    /// Writes what it held back.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Compress(own) => own.run(out, Encoder::flush, 0),
        }
    }

    /// The payload has ended: writes the last of it.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Compress(own) => {
                let before = out.len();
                if let Some(encoder) = own.encoder.take() {
                    encoder.finish(&[], out);
                }
                own.given += (out.len() - before) as u64;
            }
        }
    }
}

impl Compressor {
    fn run(&mut self, out: &mut Vec<u8>, code: impl FnOnce(&mut Encoder, &mut Vec<u8>), taken: usize) {
        let before = out.len();
        if let Some(encoder) = &mut self.encoder {
            code(encoder, out);
        }
        self.taken += taken as u64;
        self.given += (out.len() - before) as u64;
    }
}

/// Longer ones are not kept.
const KEPT_LENGTH: usize = 64 * 1024;

thread_local! {
    /// Memory for what comes out of filters, for the next direction that has any.
    static MADE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The filters of one direction.
#[derive(Debug)]
pub(crate) struct Filters {
    /// What a cache keeps of the payload, which passes it as it is.
    kept: Option<Box<Keeping>>,
    /// Who else reads the payload, which passes as it is.
    taps: Vec<Rc<Tap>>,
    /// What waits for filters of scripts, which come before the other.
    pub(super) scripts: Option<Box<Waiting>>,
    filter: Option<Filter>,
    /// What came out of them and is not staged yet.
    made: Vec<u8>,
}

/// What waits for filters of scripts ([`super::scripted`]).
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) taken: Vec<u8>,
    /// Whether the sender has said all.
    pub(super) is_ended: bool,
    /// Whether that was told.
    pub(super) is_told: bool,
    /// Whether they hold back as much as they may.
    pub(super) is_full: bool,
}

/// What a cache keeps.
#[derive(Debug)]
struct Keeping {
    filling: Filling,
    /// Whether only its sender's closing in good order tells that a body is whole.
    until_close: bool,
}

impl Filters {
    /// What there is of both kinds; `None` where that is nothing. Of a body that ends with its
    /// connection, `until_close`, nothing is kept before [`keep`](Self::keep).
    pub(crate) fn of(
        filling: Option<Filling>,
        until_close: bool,
        filter: Option<Filter>,
    ) -> Option<Box<Self>> {
        let kept = filling.map(|filling| Box::new(Keeping { filling, until_close }));
        if kept.is_none() && filter.is_none() {
            return None;
        }
        let made = MADE.with_borrow_mut(Vec::pop).unwrap_or_default();
        Some(Box::new(Self { kept, taps: Vec::new(), scripts: None, filter, made }))
    }

    /// None yet.
    fn none() -> Box<Self> {
        let made = MADE.with_borrow_mut(Vec::pop).unwrap_or_default();
        Box::new(Self { kept: None, taps: Vec::new(), scripts: None, filter: None, made })
    }

    /// Those, if there are any, with filters of scripts before them.
    pub(crate) fn with_scripts(own: Option<Box<Self>>) -> Box<Self> {
        let mut own = own.unwrap_or_else(Self::none);
        own.scripts = Some(Box::default());
        own
    }

    /// Those, if there are any, with others who read the payload as it comes.
    pub(crate) fn with_taps(own: Option<Box<Self>>, taps: &[Rc<Tap>]) -> Box<Self> {
        let mut own = own.unwrap_or_else(Self::none);
        taps.iter().for_each(|tap| tap.start());
        own.taps.extend_from_slice(taps);
        own
    }

    /// Whether other tasks should have their turn before more is taken.
    pub(super) fn take_turns(&self) -> bool {
        self.taps.iter().any(|tap| tap.takes_turn())
    }

    /// Takes what filters of scripts gave.
    pub(super) fn behind_scripts(&mut self, data: &[u8]) {
        match &mut self.filter {
            Some(filter) => filter.data(data, &mut self.made),
            None => self.made.extend_from_slice(data),
        }
    }

    /// What is counted of compression, if there is any.
    pub(crate) fn compressor(&self) -> Option<&Compressor> {
        match &self.filter {
            Some(Filter::Compress(own)) => Some(own),
            None => None,
        }
    }

    /// Whether payload passes as it is.
    pub(super) fn changes_nothing(&self) -> bool {
        self.filter.is_none() && self.scripts.is_none()
    }

    /// Has the cache, and who else reads it, take `data`, which passes as it is.
    pub(super) fn pass(&mut self, data: &[u8]) {
        self.taps.iter().for_each(|tap| tap.pass(data));
        if let Some(kept) = &mut self.kept {
            kept.filling.push(data, now_ms());
        }
    }

    /// Takes `data`, where something changes it ([`changes_nothing`](Self::changes_nothing)).
    pub(super) fn data(&mut self, data: &[u8]) {
        self.pass(data);
        if let Some(waiting) = &mut self.scripts {
            waiting.taken.extend_from_slice(data);
        } else if let Some(filter) = &mut self.filter {
            filter.data(data, &mut self.made);
        }
    }

    pub(super) fn flush(&mut self) {
        if let Some(filter) = &mut self.filter {
            filter.flush(&mut self.made);
        }
    }

    pub(super) fn end(&mut self) {
        self.taps.iter().for_each(|tap| tap.end());
        if let Some(filter) = &mut self.filter {
            filter.end(&mut self.made);
        }
        if self.kept.as_ref().is_some_and(|kept| !kept.until_close) {
            self.keep();
        }
    }

    /// The response came to its end: the cache has it from now on.
    pub(crate) fn keep(&mut self) {
        if let Some(mut kept) = self.kept.take() {
            kept.filling.finish(now_ms());
        }
    }

    /// Writes what came out of them behind what is staged; whether that is anything.
    pub(super) fn give(&mut self, coding: Coding, staged: &mut Vec<u8>) -> bool {
        let has_made = !self.made.is_empty();
        coding.write(&self.made, staged);
        self.made.clear();
        has_made
    }
}

impl Drop for Filters {
    /// Keeps the memory for the next.
    fn drop(&mut self) {
        let mut made = std::mem::take(&mut self.made);
        made.clear();
        // At the end of a thread there is no pool any more.
        let _ = MADE.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut()
                && kept.len() < 16
                && made.capacity() <= KEPT_LENGTH
            {
                kept.push(made);
            }
        });
    }
}
