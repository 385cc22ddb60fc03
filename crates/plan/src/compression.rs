//! The compression settings of a proxy (manual, 4.2 `compression …`, 9.2).

use compress::Algorithm;

use crate::filter::FilterPlaces;

/// The settings of a proxy with a compression filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compression {
    /// The settings for requests, if requests are compressed: at most one algorithm.
    pub request: Option<CompressionSide>,
    /// The settings for responses, if responses are compressed: the algorithms, best first.
    pub response: Option<CompressionSide>,
    /// The position of compression among the proxy's filters, for each direction.
    pub places: FilterPlaces,
    /// `compression offload`: servers are not asked to compress.
    pub offload: bool,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompressionSide {
    /// The allowed algorithms.
    pub algorithms: Vec<Algorithm>,
    /// Prefixes of content types to compress; empty for all.
    pub types: Vec<Box<[u8]>>,
    /// Shorter bodies are not compressed.
    pub min_size: u64,
}

/// The process limits for compression (`maxcomprate` and similar keywords).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressionLimits {
    /// `maxcomprate`, in bytes per second; 0 for none.
    pub rate: u64,
    /// `maxcompcpuusage`, in percent; 100 for none.
    pub cpu: u32,
    /// `maxzlibmem`, in bytes; 0 for none.
    pub memory: usize,
    /// `tune.comp.maxlevel`.
    pub level: u8,
    /// `tune.zlib.windowsize`.
    pub window_bits: u8,
    /// `tune.zlib.memlevel`.
    pub memory_level: u8,
}

impl Default for CompressionLimits {
    fn default() -> Self {
        Self { rate: 0, cpu: 100, memory: 0, level: 1, window_bits: 15, memory_level: 8 }
    }
}
