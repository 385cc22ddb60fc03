//! What a `cache` section says (manual, 6.2.1). Made by `config`.

/// `early-hints`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hints {
    /// None are remembered.
    #[default]
    Off,
    /// Those of responses that are kept.
    On,
    /// Hints alone are kept, no response.
    Only,
}

/// `disk`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The directory.
    pub directory: Box<str>,
    /// Bytes that its files may take.
    pub size: u64,
}

/// A section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// Its name.
    pub name: Box<str>,
    /// `total-max-size`, in blocks.
    pub blocks: u32,
    /// `max-object-size`: bytes of memory that one takes, head and key with it.
    pub max_object: u64,
    /// `max-age`, in seconds.
    pub max_age: u32,
    /// `process-vary`.
    pub vary: bool,
    /// `max-secondary-entries`: variants of one resource.
    pub max_variants: usize,
    /// `early-hints`.
    pub hints: Hints,
    /// Of all blocks, the percentage that entries of hints alone may take (`early-hints … ratio`).
    pub hints_ratio: u8,
    /// `stale-while-revalidate`: how long beyond its lifetime a response is used while a fresh one
    /// is fetched, in seconds.
    pub stale_while_revalidate: u32,
    /// `stale-if-error`: the same where none can be fetched.
    pub stale_if_error: u32,
    /// `collapsed-forwarding`: how long a request waits for the response to another one, in ms; 0
    /// for not at all.
    pub wait_ms: u64,
    /// `process-range`.
    pub ranges: bool,
    /// `revalidation`: servers are asked whether what is stale is still what it was.
    pub revalidation: bool,
    /// `disk`: where responses stand that memory does not hold.
    pub disk: Option<Disk>,
    /// `purge-tags`: the field of responses that names their tags, in lower case.
    pub tags: Option<Box<str>>,
}

impl CacheSettings {
    /// The unit in which memory is counted, in bytes.
    pub const BLOCK: u64 = 1024;

    /// What is said by default, for a section of that name and size.
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

    /// Blocks that entries of hints alone may take.
    pub fn hint_blocks(&self) -> u32 {
        match self.hints {
            Hints::Off => 0,
            Hints::On => (u64::from(self.blocks) * u64::from(self.hints_ratio) / 100) as u32,
            Hints::Only => self.blocks,
        }
    }
}
