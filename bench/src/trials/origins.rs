//! Origins that are killed and restarted under load, with every `http-reuse`: each response belongs to its request, and clients see
//! few errors.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::trials::load::{Clients, Origin};
use crate::trials::subject::{Outcome, Program, Subject};

pub(crate) const REUSES: &[&str] = &["never", "safe", "aggressive", "always"];

/// Returns one row.
pub(crate) fn run(program: &Program, reuse: &str, seconds: u64) -> Outcome<String> {
    let mut origins = [Origin::start()?, Origin::start()?];
    let configuration = format!(
        "global\n    nbthread 2\ndefaults\n    mode http\n    timeout client 20s\n    timeout server 5s\n    timeout connect 2s\n\
         frontend f\n    bind BIND\n    default_backend b\n\
         backend b\n    balance roundrobin\n    http-reuse {reuse}\n    option redispatch 1\n    server s0 {}\n    server s1 {}\n",
        origins[0].address, origins[1].address
    );
    let mut subject = Subject::start(program, &configuration, &["-db"], None)?;
    let clients = Clients::start(subject.address, 16, true);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut kills = 0;
    while Instant::now() < end {
        let origin = &mut origins[kills % 2];
        origin.kill(kills % 4 < 2);
        std::thread::sleep(Duration::from_millis(60));
        origin.restart()?;
        std::thread::sleep(Duration::from_millis(140));
        kills += 1;
    }
    let tally = clients.stop();
    if !subject.is_running() {
        return Err(format!("{} ended by itself", program.name));
    }
    Ok(format!(
        "| {reuse} | {} | {kills} | {} | {} | {} | {} |",
        program.name,
        tally.good.load(Relaxed),
        tally.errors.load(Relaxed),
        tally.lost(),
        tally.foreign.load(Relaxed)
    ))
}
