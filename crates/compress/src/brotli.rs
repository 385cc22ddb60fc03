//! The coding `br`, by the same crate that decodes it in other places.

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};

use crate::Until;

/// The window size in bits.
const WINDOW: u32 = 17;

/// The memory of a state.
pub(crate) const MEMORY: usize = 1024 * 1024;

const SCRATCH: usize = 8 * 1024;

/// Compresses `data` as one message with `quality` from 0 to 11.
///
/// Certificates are also compressed by this function, because the encoder is large, and each crate that instantiates its generic
/// types would have a copy.
pub fn compress_brotli(data: &[u8], quality: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() / 2);
    Brotli::new(quality).write(data, Until::Finished, &mut out);
    out
}

/// The state of a stream, which cannot be reset.
pub(crate) struct Brotli {
    state: Box<BrotliEncoderStateStruct<StandardAlloc>>,
    scratch: Box<[u8]>,
}

impl Brotli {
    pub(crate) fn new(level: u8) -> Self {
        let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, level.into());
        state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, WINDOW);
        Self { state, scratch: vec![0; SCRATCH].into() }
    }

    pub(crate) fn write(&mut self, data: &[u8], until: Until, out: &mut Vec<u8>) {
        let operation = match until {
            Until::Later => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
            Until::Flushed => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
            Until::Finished => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
        };
        let (mut left, mut at) = (data.len(), 0);
        loop {
            let (mut room, mut made) = (self.scratch.len(), 0);
            let went = self.state.compress_stream(
                operation,
                &mut left,
                data,
                &mut at,
                &mut room,
                &mut self.scratch,
                &mut made,
                &mut None,
                &mut |_, _, _, _| (),
            );
            out.extend_from_slice(&self.scratch[..made]);
            if !went || left == 0 && !self.state.has_more_output() {
                return;
            }
        }
    }
}
