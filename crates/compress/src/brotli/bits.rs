//! Bits of a Brotli stream, the first one lowest.

/// Writes bits to the end of a buffer.
#[derive(Debug, Clone, Default)]
pub(crate) struct BitWriter {
    bits: u64,
    count: u32,
}

impl BitWriter {
    /// Adds up to 32 bits.
    #[inline(always)]
    pub(crate) fn add(&mut self, bits: u32, count: u32, out: &mut Vec<u8>) {
        self.bits |= u64::from(bits) << self.count;
        self.count += count;
        if self.count >= 32 {
            out.extend_from_slice(&(self.bits as u32).to_le_bytes());
            self.bits >>= 32;
            self.count -= 32;
        }
    }

    /// Flushes whole bytes, and returns how many bits of the next one remain.
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) -> u32 {
        while self.count >= 8 {
            out.push(self.bits as u8);
            self.bits >>= 8;
            self.count -= 8;
        }
        self.count
    }

    /// Fills the current byte with zeros and flushes it.
    pub(crate) fn align(&mut self, out: &mut Vec<u8>) {
        if self.flush(out) > 0 {
            out.push(self.bits as u8);
        }
        (self.bits, self.count) = (0, 0);
    }
}
