//! What a proxy compresses, and how (manual, 4.2 `compression …`, 9.2).

use compress::Algorithm;

use crate::filter::FilterPlaces;

/// The settings of a proxy that has a filter of compression.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compression {
    /// Requests, where they are compressed: the algorithm, at most one.
    pub request: Option<CompressionSide>,
    /// Responses, where they are: the algorithms, best first.
    pub response: Option<CompressionSide>,
    /// Where among the filters of the proxy bodies are compressed, in each direction that is.
    pub places: FilterPlaces,
    /// `compression offload`: servers are not asked to compress.
    pub offload: bool,
}

/// One direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompressionSide {
    /// What bodies may be coded with.
    pub algorithms: Vec<Algorithm>,
    /// How the types of content begin that are compressed; none for all.
    pub types: Vec<Box<str>>,
    /// Bodies that are shorter are not compressed.
    pub min_size: u64,
}

/// What the process allows compression (`maxcomprate` and the like).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressionLimits {
    /// `maxcomprate`, in bytes a second; 0 for none.
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
