//! What stands in a payload's way and changes it: filters, in their order. A [`Flow`](super::Flow)
//! without any pays for none of this.
//!
//! A filter gets payload as it comes, apart from any coding of transfer, and gives payload. What it
//! holds back leaves when the sender pauses, so that who waits for a slow stream does not wait for
//! more of it. Which filters there are is decided before a direction begins
//! ([`compression`](crate::message::compression)).

use std::cell::RefCell;

use compress::Encoder;

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
    filter: Filter,
    /// What came out of them and is not staged yet.
    made: Vec<u8>,
}

impl Filters {
    /// With one filter.
    pub(crate) fn one(filter: Filter) -> Self {
        Self { filter, made: MADE.with_borrow_mut(Vec::pop).unwrap_or_default() }
    }

    /// What is counted of it.
    pub(crate) fn compressor(&self) -> &Compressor {
        match &self.filter {
            Filter::Compress(own) => own,
        }
    }

    pub(super) fn data(&mut self, data: &[u8]) {
        self.filter.data(data, &mut self.made);
    }

    pub(super) fn flush(&mut self) {
        self.filter.flush(&mut self.made);
    }

    pub(super) fn end(&mut self) {
        self.filter.end(&mut self.made);
    }

    /// What is ready to leave.
    pub(super) fn made(&mut self) -> &mut Vec<u8> {
        &mut self.made
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
