//! zstd, by its reference library, with a window and tables suitable for many streams at once.

use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::Until;

/// The window, far smaller than the sizes that RFC 9659 permits decoders to refuse.
const WINDOW_LOG: u32 = 17;
/// The sizes of the hash and chain tables.
const HASH_LOG: u32 = 15;

/// The memory of a state.
pub(crate) const MEMORY: usize = 768 * 1024;

const SCRATCH: usize = 8 * 1024;

/// The state of a stream.
pub(crate) struct Zstd {
    state: CCtx<'static>,
    scratch: Box<[u8]>,
}

impl Zstd {
    pub(crate) fn new(level: u8) -> Self {
        let mut own = Self { state: CCtx::create(), scratch: vec![0; SCRATCH].into() };
        own.reset(level);
        own
    }

    pub(crate) fn reset(&mut self, level: u8) {
        let parameters = [
            CParameter::CompressionLevel(level.into()),
            CParameter::WindowLog(WINDOW_LOG),
            CParameter::HashLog(HASH_LOG),
            CParameter::ChainLog(HASH_LOG),
        ];
        // These values are within the limits of every build of the library.
        let _ = self.state.reset(ResetDirective::SessionAndParameters);
        for parameter in parameters {
            let _ = self.state.set_parameter(parameter);
        }
    }

    pub(crate) fn write(&mut self, data: &[u8], until: Until, out: &mut Vec<u8>) {
        let mut input = InBuffer::around(data);
        while input.pos() < data.len() {
            let mut scratch = OutBuffer::around(&mut self.scratch[..]);
            let written = self.state.compress_stream(&mut scratch, &mut input);
            out.extend_from_slice(scratch.as_slice());
            if written.is_err() {
                return;
            }
        }
        loop {
            let mut scratch = OutBuffer::around(&mut self.scratch[..]);
            let left = match until {
                Until::Later => return,
                Until::Flushed => self.state.flush_stream(&mut scratch),
                Until::Finished => self.state.end_stream(&mut scratch),
            };
            out.extend_from_slice(scratch.as_slice());
            if !matches!(left, Ok(1..)) {
                return;
            }
        }
    }
}
