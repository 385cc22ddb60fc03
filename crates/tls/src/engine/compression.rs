//! Certificates that are compressed on their way (RFC 8879), for peers that say that they take them
//! so (`tune.ssl.certificate-compression`).
//!
//! Ours go out by Brotli, which browsers take, or by zlib. Those of peers come by zlib alone:
//! Brotli lets the sender say how much memory reading takes. Called by [`super::side`].

use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{
    BROTLI_COMPRESSOR, CertCompressor, CertDecompressor, CompressionFailed, CompressionLevel,
    ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR,
};

/// A compressor that is never thorough: it runs in the midst of a handshake, and others wait.
#[derive(Debug)]
struct Quick(&'static dyn CertCompressor);

impl CertCompressor for Quick {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        self.0.compress(input, CompressionLevel::Interactive)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        self.0.algorithm()
    }
}

static BROTLI: Quick = Quick(BROTLI_COMPRESSOR);
static ZLIB: Quick = Quick(ZLIB_COMPRESSOR);

/// What our own certificates are compressed with, best first.
pub(super) fn compressors(allowed: bool) -> Vec<&'static dyn CertCompressor> {
    if allowed { vec![&BROTLI, &ZLIB] } else { Vec::new() }
}

/// What a peer's may be compressed with.
pub(super) fn decompressors(allowed: bool) -> Vec<&'static dyn CertDecompressor> {
    if allowed { vec![ZLIB_DECOMPRESSOR] } else { Vec::new() }
}
