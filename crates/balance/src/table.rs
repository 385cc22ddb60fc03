//! Tables that are computed for a state of the servers, so that a pick only does lookups.
//!
//! A table is immutable; [`crate::picker`] replaces it when a weight or state changes. The computation has no side effects and may
//! take long for many servers (a ring of 10,000 servers with weight 100 has 16 million points), so the picker queries the [`cost`]
//! first.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::{Performance, Server};

use crate::draw::Draw;
use crate::map::map;
use crate::outliers;
use crate::ring::{self, Ring};
use crate::settings::HashKey;
use crate::turns::turns;

/// A server of a backend, as passed to the picker.
#[derive(Debug, Clone)]
pub struct Member {
    /// The state of the server.
    pub server: Arc<Server>,
    /// `hash-key`.
    pub hash_key: HashKey,
    /// `guid`, for `hash-key guid`.
    pub guid: Option<Box<str>>,
}

impl From<Arc<Server>> for Member {
    fn from(server: Arc<Server>) -> Self {
        Self { server, hash_key: HashKey::Id, guid: None }
    }
}

/// The data structure used by a pick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The order of round robin turns.
    Turns,
    /// The static map.
    Map,
    /// The ring.
    Ring,
    /// Weighted draws.
    Draw,
    /// Only the usable servers and their weights.
    Weights,
    /// The server that has been up longest.
    Longest,
}

/// A precomputed table.
#[derive(Debug, Default)]
pub struct BalanceTable {
    /// The sum of the servers' versions when the table was computed.
    pub version: u64,
    /// The eligible servers: the active ones, or the backups if no active server is left.
    pub usable: Vec<u32>,
    /// Weights in sixteenths by server; 0 for servers that must not be chosen.
    pub weights: Vec<u32>,
    /// By server, the weight and the total weight of the usable servers before it, for `hash-balance-factor`.
    pub shares: Vec<(u32, u32)>,
    /// The sum of the weights.
    pub total: u32,
    /// Whether any server has a `maxconn`.
    pub limited: bool,
    /// Servers by turn, or by slot of the map.
    pub order: Vec<u32>,
    /// The ring.
    pub ring: Ring,
    /// Draws.
    pub draw: Draw,
}

/// The cost of computing a table, in units of some ten nanoseconds.
pub fn cost(shape: Shape, members: &[Member]) -> u64 {
    let weights = || members.iter().map(|member| u64::from(member.server.initial_weight()));
    4 * members.len() as u64
        + match shape {
            Shape::Turns | Shape::Map => {
                let divisor = members
                    .iter()
                    .fold(0, |divisor, member| crate::map::gcd(divisor, member.server.initial_weight()));
                4 * weights().sum::<u64>() / u64::from(divisor.max(1))
            }
            Shape::Ring => 16 * weights().sum::<u64>(),
            Shape::Draw | Shape::Weights | Shape::Longest => 0,
        }
}

/// Computes a table. Up to `max_ejected` percent of the usable servers are omitted because they are ejected.
pub fn work_out(
    shape: Shape,
    members: &[Member],
    all_backups: bool,
    max_ejected: u32,
    version: u64,
) -> BalanceTable {
    let group = |backup: bool| -> Vec<(usize, u32)> {
        let wanted = members.iter().enumerate().filter(|(_, member)| member.server.backup == backup);
        wanted
            .map(|(index, member)| (index, weight(shape, &member.server)))
            .filter(|(_, weight)| *weight > 0)
            .collect()
    };
    let mut usable = group(false);
    leave_out(&mut usable, shape, members, max_ejected);
    if usable.is_empty() {
        usable = group(true);
        leave_out(&mut usable, shape, members, max_ejected);
        if !all_backups {
            usable.truncate(1);
        }
    }
    if shape == Shape::Longest {
        usable.sort_by_key(|(index, _)| members[*index].server.turn.load(Relaxed));
        usable.truncate(1);
    }
    let mut table = BalanceTable {
        version,
        usable: usable.iter().map(|(index, _)| *index as u32).collect(),
        weights: vec![0; members.len()],
        shares: vec![(0, 0); members.len()],
        limited: members.iter().any(|member| member.server.maxconn.load(Relaxed) > 0),
        ..BalanceTable::default()
    };
    for &(index, weight) in &usable {
        table.weights[index] = weight;
        table.shares[index] = (weight, table.total);
        table.total += weight;
    }
    match shape {
        Shape::Turns => table.order = turns(&usable),
        Shape::Map => {
            table.order = map(&usable, members.iter().map(|member| member.server.initial_weight()));
        }
        Shape::Ring => {
            table.ring = Ring::new(usable.iter().map(|&(index, weight)| {
                let member = &members[index];
                (index, ring::base_of(&member.server, member.hash_key, member.guid.as_deref()), weight)
            }));
        }
        Shape::Draw => table.draw = Draw::new(&usable),
        Shape::Weights | Shape::Longest => {}
    }
    table
}

/// Omits ejected servers, unless they are more than `max_ejected` percent: in that case other servers are down, and all remaining
/// servers are used. A recovering server has part of its weight, except in a map, in which it has either all of its weight or none.
fn leave_out(usable: &mut Vec<(usize, u32)>, shape: Shape, members: &[Member], max_ejected: u32) {
    let trust = |index: usize| members[index].server.performance().map_or(100, Performance::trust);
    if max_ejected == 0 || usable.iter().all(|(index, _)| trust(*index) == 100) {
        return;
    }
    let ejected = usable.iter().filter(|(index, _)| trust(*index) == 0).count();
    if ejected > outliers::allowed(usable.len(), max_ejected) {
        return;
    }
    usable.retain(|(index, _)| trust(*index) > 0);
    if shape != Shape::Map {
        usable.iter_mut().for_each(|(index, weight)| *weight = (*weight * trust(*index) / 100).max(1));
    }
}

/// The effective weight; for a map, the initial weight or 0.
fn weight(shape: Shape, server: &Server) -> u32 {
    match (shape, server.fine_weight()) {
        (Shape::Map, 1..) => server.initial_weight(),
        (_, fine) => fine,
    }
}
