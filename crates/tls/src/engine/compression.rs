//! Compression of certificates (RFC 8879) for peers that offer it (`tune.ssl.certificate-compression`).
//!
//! Local certificates are compressed with Brotli, which browsers support, or with zlib. Peers may compress theirs only with zlib,
//! because with Brotli, the sender decides how much memory decompression takes. Called by [`super::side`].

use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{
    CertCompressor, CertDecompressor, CompressionFailed, CompressionLevel, ZLIB_COMPRESSOR, ZLIB_DECOMPRESSOR,
};

/// The Brotli quality. High qualities take too long, because the handshakes of one worker wait for each other.
const QUALITY: u8 = 4;

#[derive(Debug)]
struct Brotli;

impl CertCompressor for Brotli {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        Ok(compress::compress_brotli(&input, QUALITY))
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

/// zlib at the fastest level, for the same reason.
#[derive(Debug)]
struct Zlib;

impl CertCompressor for Zlib {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        ZLIB_COMPRESSOR.compress(input, CompressionLevel::Interactive)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}

/// Returns the compressors for the certificates of this side, best first.
pub(super) fn compressors(allowed: bool) -> Vec<&'static dyn CertCompressor> {
    if allowed { vec![&Brotli, &Zlib] } else { Vec::new() }
}

/// Returns the decompressors for certificates of peers.
pub(super) fn decompressors(allowed: bool) -> Vec<&'static dyn CertDecompressor> {
    if allowed { vec![ZLIB_DECOMPRESSOR] } else { Vec::new() }
}
