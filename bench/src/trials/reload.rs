//! Storms of reloads under load: the successor asks for the listening sockets (`-x`), binds its own
//! and tells its predecessor to stop (`-sf` alone), or is made by the master. Weir also reads its configuration anew in place.

use std::time::Duration;

use crate::load::{Clients, Origin};
use crate::subject::{Outcome, Program, Subject, eventually, signal};

/// The ways to reload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Passed,
    Bound,
    Master,
    /// The running process reads its configuration anew: Weir's own.
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

fn configuration(origin: &Origin) -> String {
    format!(
        "global\n    stats socket DIRECTORY/socket level admin expose-fd listeners\n    nbthread 2\n    hard-stop-after 10s\n\
         defaults\n    mode http\n    timeout client 20s\n    timeout server 20s\n    timeout connect 5s\n\
         frontend f\n    bind BIND\n    default_backend b\nbackend b\n    server s {}\n",
        origin.address
    )
}

/// One row: how many requests, how many of them lost.
pub(crate) fn run(program: &Program, way: Way, keeps_alive: bool, reloads: usize) -> Outcome<String> {
    let origin = Origin::start()?;
    let arguments: &[&str] = if matches!(way, Way::Master) { &["-W"] } else { &["-db"] };
    let mut subject = Subject::start(program, &configuration(&origin), arguments, None)?;
    let clients = Clients::start(subject.address, 8, keeps_alive);
    for _ in 0..reloads {
        std::thread::sleep(Duration::from_millis(20));
        match way {
            Way::Master => reload_by_master(&subject)?,
            Way::InPlace => {
                let said = subject.ask("reload")?;
                if said.trim() != "nothing has changed" {
                    return Err(said);
                }
            }
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
            }
        }
    }
    let tally = clients.stop();
    if !subject.is_running() {
        return Err(format!("{} ended by itself", program.name));
    }
    let count = |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
    Ok(format!(
        "| {} | {} | {} | {reloads} | {} | {} | {} | {} | {} |",
        way.name(),
        if keeps_alive { "keep-alive" } else { "one a request" },
        program.name,
        count(&tally.good),
        count(&tally.reset),
        count(&tally.cut),
        count(&tally.refused) + count(&tally.late),
        count(&tally.errors) + count(&tally.foreign),
    ))
}

/// Sends the master SIGUSR2, and waits for another worker to answer.
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
