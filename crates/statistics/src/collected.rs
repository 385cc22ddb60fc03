//! Facts for the statistics page that the sampler collects, because they are too slow to read for each page.

use std::sync::Arc;

use base::clock::WallTime;
use state::table::{Column, Table};

/// When a certificate ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateTerm {
    /// The name under which it was loaded, usually a path.
    pub(crate) file: Box<str>,
    /// The first name for which it is valid; empty if it has none.
    pub(crate) name: Box<str>,
    /// The end of its validity, in seconds since 1970.
    pub(crate) ends: i64,
    /// Whether a listener or server uses it.
    pub(crate) is_used: bool,
    /// Whether it is renewed by an `acme` section.
    pub(crate) is_ordered: bool,
}

/// The entries of a table with the highest values.
#[derive(Debug, Clone)]
pub(crate) struct TableTop {
    pub(crate) table: Arc<Table>,
    /// The column by which the entries are ordered.
    pub(crate) column: Column,
    /// Key and value, the highest value first.
    pub(crate) entries: Vec<(Box<str>, u64)>,
}

/// The results of the sampler that are not histories. Replaced as a whole.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// The certificates that end first, in that order.
    pub(crate) certificates: Arc<[CertificateTerm]>,
    /// The busiest entries of stick tables.
    pub(crate) tops: Vec<TableTop>,
    /// When the certificates were read, in ms; 0 for never.
    pub(crate) read_at: u64,
}

impl CertificateTerm {
    /// Whole days until it ends; negative if it has ended.
    pub(crate) fn days(&self) -> i64 {
        (self.ends - WallTime::now().seconds).div_euclid(86_400)
    }
}
