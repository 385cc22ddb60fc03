//! Reload storms: the successor requests the listening sockets (`-x`), or binds its own and stops its predecessor (`-sf` only), or
//! is started by the master. Weir can also reload in place.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::trials::load::{Clients, Origin};
use crate::trials::subject::{Outcome, Program, Subject, eventually, signal};

/// The ways to reload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Passed,
    Bound,
    Master,
    /// In-place reload, which only Weir has.
    InPlace,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Passed => "`-sf` with `-x`",
            Self::Bound => "`-sf` alone",
            Self::Master => "master",
            Self::InPlace => "in place",
        }
    }
}

impl Way {
    /// Returns the word that selects this way.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Bound => "bound",
            Self::Master => "master",
            Self::InPlace => "in-place",
        }
    }
}

/// The traffic through the proxy in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Persistent connections.
    KeptAlive,
    /// One connection for each request.
    OneEach,
    /// One connection for each request, relayed as TCP.
    Tcp,
    /// Persistent connections, with most requests queued for a server that accepts two at a time.
    Queued,
}

impl Traffic {
    pub(crate) const ALL: [Self; 4] = [Self::KeptAlive, Self::OneEach, Self::Tcp, Self::Queued];

    fn name(self) -> &'static str {
        match self {
            Self::KeptAlive => "keep-alive",
            Self::OneEach => "one a request",
            Self::Tcp => "TCP, one a request",
            Self::Queued => "keep-alive, queues full",
        }
    }

    fn keeps_alive(self) -> bool {
        matches!(self, Self::KeptAlive | Self::Queued)
    }
}

fn configuration(origin: &Origin, traffic: Traffic) -> String {
    let mode = if traffic == Traffic::Tcp { "tcp" } else { "http" };
    let limit = if traffic == Traffic::Queued { " maxconn 2" } else { "" };
    format!(
        "global\n    stats socket DIRECTORY/socket level admin expose-fd listeners\n    nbthread 2\n    hard-stop-after 10s\n\
         defaults\n    mode {mode}\n    timeout client 20s\n    timeout server 20s\n    timeout connect 5s\n    timeout queue 20s\n\
         frontend f\n    bind BIND\n    default_backend b\nbackend b\n    server s {}{limit}\n",
        origin.address
    )
}

/// Returns one row: the number of requests, and of lost ones; the growth of memory and descriptors from the first tenth of the
/// reloads to the last, both measured without clients.
pub(crate) fn run(program: &Program, way: Way, traffic: Traffic, reloads: usize) -> Outcome<String> {
    let origin = Origin::start()?;
    let arguments: &[&str] = if matches!(way, Way::Master) { &["-W"] } else { &["-db"] };
    let mut subject = Subject::start(program, &configuration(&origin, traffic), arguments, None)?;
    let first = (reloads / 10).max(1);
    let mut counts = [0; 5];
    let mut held = Vec::new();
    let began = Instant::now();
    for some in [first, reloads - first] {
        let clients = Clients::start(subject.address, 8, traffic.keeps_alive());
        for _ in 0..some {
            std::thread::sleep(Duration::from_millis(20));
            reload(&mut subject, way)?;
        }
        let tally = clients.stop();
        let of = [
            tally.good.load(Relaxed),
            tally.reset.load(Relaxed),
            tally.cut.load(Relaxed),
            tally.refused.load(Relaxed) + tally.late.load(Relaxed),
            tally.errors.load(Relaxed) + tally.foreign.load(Relaxed),
        ];
        counts.iter_mut().zip(of).for_each(|(count, more)| *count += more);
        // A replaced process has no more connections to serve.
        eventually(|| subject.processes() <= 1 + usize::from(matches!(way, Way::Master)));
        held.push((subject.memory_of_all(), subject.descriptors_of_all()));
    }
    if !subject.is_running() {
        return Err(format!("{} ended by itself", program.name));
    }
    let [answered, reset, cut, refused, wrong] = counts;
    let grown = |early: u64, late: u64| late as i64 - early as i64;
    Ok(format!(
        "| {} | {} | {} | {reloads} | {} | {answered} | {reset} | {cut} | {refused} | {wrong} | {:+} | {:+} |",
        way.name(),
        traffic.name(),
        program.name,
        began.elapsed().as_millis() / reloads as u128,
        grown(held[0].0, held[1].0),
        grown(held[0].1 as u64, held[1].1 as u64),
    ))
}

fn reload(subject: &mut Subject, way: Way) -> Outcome<()> {
    match way {
        Way::Master => reload_by_master(subject),
        Way::InPlace => match subject.ask("reload")? {
            said if said.trim() == "nothing has changed" => Ok(()),
            said => Err(said),
        },
        Way::Passed | Way::Bound => {
            let old = subject.pid().to_string();
            let socket = subject.directory.join("socket").display().to_string();
            let mut words = vec!["-db", "-sf", old.as_str()];
            if matches!(way, Way::Passed) {
                words.extend(["-x", socket.as_str()]);
            }
            let mut before = subject.replace(&words)?;
            if !eventually(|| before.try_wait().is_ok_and(|status| status.is_some())) {
                signal(before.id(), "KILL");
                let _ = before.wait();
            }
            Ok(())
        }
    }
}

/// Sends SIGUSR2 to the master, and waits for another worker to answer.
fn reload_by_master(subject: &Subject) -> Outcome<()> {
    let pid = |answer: Outcome<String>| {
        let answer = answer.unwrap_or_default();
        answer.lines().find_map(|line| line.strip_prefix("Pid: ")).map(str::to_owned)
    };
    let before = pid(subject.ask("show info"));
    signal(subject.pid(), "USR2");
    eventually(|| {
        let now = pid(subject.ask("show info"));
        now.is_some() && now != before
    });
    Ok(())
}
