//! Certificate compression (RFC 8879), for peers that support it (`tune.ssl.certificate-compression`).
//!
//! Our certificates are compressed with Brotli, which browsers support, or zlib. Peers may only use zlib: with Brotli the sender
//! determines how much memory decompression takes. Called by [`super::side`].

use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{
    BROTLI_COMPRESSOR, CertCompressor, CertDecompressor, CompressionFailed, CompressionLevel,
    ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR,
};

/// A compressor that always uses the fast level: it runs during a handshake while other connections wait.
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

/// Returns the compressors for our own certificates, best first.
pub(super) fn compressors(allowed: bool) -> Vec<&'static dyn CertCompressor> {
    if allowed { vec![&BROTLI, &ZLIB] } else { Vec::new() }
}

/// Returns the decompressors for peers' certificates.
pub(super) fn decompressors(allowed: bool) -> Vec<&'static dyn CertDecompressor> {
    if allowed { vec![ZLIB_DECOMPRESSOR] } else { Vec::new() }
}
