//! The settings of a `cache` section (manual, 6.2.1). Created by `config`.

/// The value of `early-hints`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hints {
    /// No hints are stored.
    #[default]
    Off,
    /// The hints of stored responses.
    On,
    /// Only hints are stored, but no responses.
    Only,
}

/// `disk`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The directory.
    pub directory: Box<str>,
    /// The maximum size of the files, in bytes.
    pub size: u64,
}

/// A `cache` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// The name of the section.
    pub name: Box<str>,
    /// `total-max-size`, in blocks.
    pub blocks: u32,
    /// `max-object-size`: the maximum memory of a response in bytes, including head and key.
    pub max_object: u64,
    /// `max-age`, in seconds.
    pub max_age: u32,
    /// `process-vary`.
    pub vary: bool,
    /// `max-secondary-entries`: maximum number of variants per resource.
    pub max_variants: usize,
    /// `early-hints`.
    pub hints: Hints,
    /// Maximum share of blocks for hint-only entries, in percent (`early-hints … ratio`).
    pub hints_ratio: u8,
    /// `stale-while-revalidate`: how long after its lifetime a response is used during a refresh, in seconds.
    pub stale_while_revalidate: u32,
    /// `stale-if-error`: how long after its lifetime a response is used after errors, in seconds.
    pub stale_if_error: u32,
    /// `collapsed-forwarding`: how long a request waits for the response to another one, in ms; 0 to disable it.
    pub wait_ms: u64,
    /// `process-range`.
    pub ranges: bool,
    /// `revalidation`: whether stale responses are revalidated at the server.
    pub revalidation: bool,
    /// `disk`: the directory for responses that do not fit in memory.
    pub disk: Option<Disk>,
    /// `purge-tags`: the response field that contains the tags, in lower case.
    pub tags: Option<Box<str>>,
}

impl CacheSettings {
    /// The unit of memory accounting, in bytes.
    pub const BLOCK: u64 = 1024;

    /// Returns the default settings for a section with that name and size.
    pub fn new(name: &str, blocks: u32) -> Self {
        Self {
            name: name.into(),
            blocks,
            max_object: u64::from(blocks) * Self::BLOCK / 256,
            max_age: 60,
            vary: false,
            max_variants: 10,
            hints: Hints::Off,
            hints_ratio: 25,
            stale_while_revalidate: 0,
            stale_if_error: 0,
            wait_ms: 0,
            ranges: false,
            revalidation: false,
            disk: None,
            tags: None,
        }
    }

    /// Returns the maximum number of blocks for hint-only entries.
    pub fn hint_blocks(&self) -> u32 {
        match self.hints {
            Hints::Off => 0,
            Hints::On => (u64::from(self.blocks) * u64::from(self.hints_ratio) / 100) as u32,
            Hints::Only => self.blocks,
        }
    }
}
