//! The choice that a picker would make, without a picker: for explanations of requests that are not sent.

use crate::picker::PickMethod;
use crate::settings::BalanceSettings;
use crate::table::{self, Member, Shape};

/// The servers from which the next request would get one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The indexes of the eligible servers: the active ones, or the backups if no active server is left.
    pub usable: Vec<usize>,
    /// The server for the hash, if the algorithm uses one; a full server counts as usable.
    pub by_hash: Option<usize>,
}

/// Computes the servers for a request with this hash of its key.
pub fn preview(settings: &BalanceSettings, members: &[Member], hash: Option<u32>) -> Preview {
    let shape = PickMethod::of(settings).shape();
    let max_ejected = settings.outliers.as_ref().map_or(0, |outliers| outliers.max_ejected);
    let table = table::work_out(shape, members, settings.all_backups, max_ejected, 0);
    let by_hash = hash.filter(|_| settings.algorithm.hashes()).and_then(|hash| match shape {
        Shape::Ring => table.ring.find(hash, |_| true),
        Shape::Map if !table.order.is_empty() => {
            Some(table.order[hash as usize % table.order.len()] as usize)
        }
        _ => None,
    });
    Preview { usable: table.usable.iter().map(|index| *index as usize).collect(), by_hash }
}
