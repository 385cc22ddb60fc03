//! Deflate at the higher levels, for better compression: zlib's algorithm, by `zlib-rs`.

use zlib_rs::{Deflate, DeflateConfig, DeflateFlush, Status};

use crate::Until;

/// The memory of a state at level 2 and above: twice the window, hash chains, and pending symbols.
pub(crate) const MEMORY: usize = 272 * 1024;

/// The buffer for coded bytes.
const SCRATCH: usize = 8 * 1024;

/// The state of a stream, with the parameters it was created for.
pub(crate) struct Zlib {
    state: Deflate,
    level: u8,
    scratch: Box<[u8]>,
}

impl Zlib {
    pub(crate) fn new(level: u8, window_bits: u8, memory_level: u8) -> Self {
        let config = DeflateConfig {
            level: level.into(),
            // A negative value means no wrapper.
            window_bits: -i32::from(window_bits.max(9)),
            mem_level: memory_level.into(),
            ..DeflateConfig::default()
        };
        Self { state: Deflate::new_with_config(config), level, scratch: vec![0; SCRATCH].into() }
    }

    /// Resets the state.
    pub(crate) fn reset(&mut self, level: u8) {
        self.state.reset();
        if self.level != level {
            self.level = level;
            // No pending output can prevent this.
            let _ = self.state.set_level(level.into());
        }
    }

    pub(crate) fn write(&mut self, mut data: &[u8], until: Until, out: &mut Vec<u8>) {
        let flush = match until {
            Until::Later => DeflateFlush::NoFlush,
            Until::Flushed => DeflateFlush::SyncFlush,
            Until::Finished => DeflateFlush::Finish,
        };
        loop {
            let (taken, given) = (self.state.total_in(), self.state.total_out());
            let status = self.state.compress(data, &mut self.scratch, flush);
            data = &data[(self.state.total_in() - taken) as usize..];
            let made = (self.state.total_out() - given) as usize;
            out.extend_from_slice(&self.scratch[..made]);
            match status {
                Ok(Status::Ok) if !data.is_empty() || made == SCRATCH => {}
                Ok(Status::Ok) if until == Until::Finished => {}
                _ => return,
            }
        }
    }
}
