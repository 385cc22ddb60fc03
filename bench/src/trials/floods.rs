//! HTTP/2 floods (`weir_bench::floods`): the CPU time and memory per MiB of each.
//!
//! The attacker reconnects when its connection is ended, until enough bytes are sent or connections are used up, so that a proxy
//! that ends a flood early does not look cheaper because it was attacked less.

use std::time::Instant;

use weir_bench::floods::Flood;

use crate::trials::load::Origin;
use crate::trials::pressure::{configuration, serves};
use crate::trials::subject::{Outcome, Program, Subject, shown};

/// Maximum number of connections of one flood.
const CONNECTIONS: usize = 400;

/// Sends `bytes` of `flood`; returns one row.
pub(crate) fn run(program: &Program, flood: &Flood, bytes: usize) -> Outcome<String> {
    let origin = Origin::start()?;
    let mut subject = Subject::start(program, &configuration(origin.address), &["-db"], None)?;
    let (before, cpu, start) = (subject.memory(), subject.cpu(), Instant::now());
    let (mut sent, mut connections, mut most) = (0, 0, before);
    while sent < bytes && connections < CONNECTIONS {
        let watch = || most = most.max(subject.memory());
        sent += flood.send(subject.address, bytes - sent, watch).map_err(shown)?.1;
        connections += 1;
    }
    let (took, cpu) = (start.elapsed().as_millis(), subject.cpu() - cpu);
    let after = if subject.is_running() && serves(&subject) { "serves" } else { "does not serve" };
    Ok(format!(
        "| {} | {} | {} | {connections} | {} | {cpu} | {:.1} | {took} | {after} |",
        flood.name,
        program.name,
        sent >> 10,
        most - before,
        cpu as f64 * f64::from(1 << 20) / sent.max(1) as f64,
    ))
}
