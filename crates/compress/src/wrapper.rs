//! The wrapper of a deflate body: none, or the header and checksum of gzip (RFC 1952) or zlib (RFC 1950).

use zlib_rs::adler32::adler32;
use zlib_rs::crc32::crc32;

/// The kind of wrapper, with its checksum so far.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wrapper {
    Raw,
    Gzip { crc: u32, length: u32 },
    Zlib { adler: u32 },
}

/// A header without a name and time, and with an unknown system: ten bytes.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A window of 32 KiB, the fastest method.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];

impl Wrapper {
    pub(crate) const GZIP: Self = Self::Gzip { crc: 0, length: 0 };
    pub(crate) const ZLIB: Self = Self::Zlib { adler: 1 };

    pub(crate) fn begin(self, out: &mut Vec<u8>) {
        match self {
            Self::Raw => {}
            Self::Gzip { .. } => out.extend_from_slice(&GZIP_HEADER),
            Self::Zlib { .. } => out.extend_from_slice(&ZLIB_HEADER),
        }
    }

    pub(crate) fn add(&mut self, data: &[u8]) {
        match self {
            Self::Raw => {}
            Self::Gzip { crc, length } => {
                *crc = crc32(*crc, data);
                *length = length.wrapping_add(data.len() as u32);
            }
            Self::Zlib { adler } => *adler = adler32(*adler, data),
        }
    }

    pub(crate) fn end(self, out: &mut Vec<u8>) {
        match self {
            Self::Raw => {}
            Self::Gzip { crc, length } => {
                out.extend_from_slice(&crc.to_le_bytes());
                out.extend_from_slice(&length.to_le_bytes());
            }
            Self::Zlib { adler } => out.extend_from_slice(&adler.to_be_bytes()),
        }
    }
}
