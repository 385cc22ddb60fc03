//! The runtime socket under abuse, and servers that are added, removed and moved under load.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::trials::load::{Clients, Origin};
use crate::trials::subject::{Outcome, Program, Subject, shown};

fn configuration(origin: &Origin) -> String {
    format!(
        "global\n    nbthread 2\n    stats socket DIRECTORY/socket level admin\n    stats maxconn 200\n    stats timeout 5s\n\
         defaults\n    mode http\n    timeout client 20s\n    timeout server 20s\n    timeout connect 5s\n\
         frontend f\n    bind BIND\n    default_backend b\n\
         backend b\n    balance roundrobin\n    server s {0}\n    server t {0} weight 10\n",
        origin.address
    )
}

/// Garbage, an endless line, a hundred clients, and a client that never reads. Requests continue in the meantime.
pub(crate) fn abused(program: &Program) -> Outcome<String> {
    let origin = Origin::start()?;
    let mut subject = Subject::start(program, &configuration(&origin), &["-db"], None)?;
    let clients = Clients::start(subject.address, 4, true);
    std::thread::sleep(Duration::from_millis(300));
    let (before, cpu) = (subject.memory(), subject.cpu());
    let path = subject.directory.join("socket");
    let connect = || UnixStream::connect(&path).map_err(shown);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..50 {
        let bytes: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
        let mut socket = connect()?;
        let _ = socket.write_all(&bytes);
    }
    let mut endless = connect()?;
    endless.set_write_timeout(Some(Duration::from_secs(1))).map_err(shown)?;
    let line = vec![b'x'; 65536];
    let mut sent = 0;
    while sent < 16 << 20 && endless.write_all(&line).is_ok() {
        sent += line.len();
    }
    let mut deaf = connect()?;
    deaf.set_write_timeout(Some(Duration::from_secs(1))).map_err(shown)?;
    for _ in 0..20_000 {
        if deaf.write_all(b"prompt i;show stat;show info;help\n").is_err() {
            break;
        }
    }
    let mut hundred = (0..100).map(|_| connect()).collect::<Outcome<Vec<_>>>()?;
    let mut answered = 0;
    for socket in &mut hundred {
        socket.set_read_timeout(Some(Duration::from_secs(10))).map_err(shown)?;
        let _ = socket.write_all(b"show stat\n");
    }
    for socket in &mut hundred {
        let mut answer = String::new();
        answered += usize::from(socket.read_to_string(&mut answer).is_ok() && answer.contains("b,BACKEND"));
    }
    let most = subject.memory();
    let cpu = subject.cpu() - cpu;
    let tally = clients.stop();
    let state = if subject.is_running() && subject.ask("show info").is_ok() { "answers" } else { "does not" };
    Ok(format!(
        "| {} | {answered} of 100 | {} | {} | {} | {cpu} | {state} |",
        program.name,
        most.saturating_sub(before),
        tally.good.load(Relaxed),
        tally.lost() + tally.errors.load(Relaxed)
    ))
}

/// Servers added, removed, weighted and moved in a loop.
pub(crate) fn servers(program: &Program, seconds: u64) -> Outcome<String> {
    let (origin, other) = (Origin::start()?, Origin::start()?);
    let mut subject = Subject::start(program, &configuration(&origin), &["-db"], None)?;
    let clients = Clients::start(subject.address, 8, true);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut refused) = (0_u32, 0_u32);
    let before = subject.memory();
    while Instant::now() < end {
        let target = if rounds % 2 == 0 { &other } else { &origin };
        let mut ask = |command: String, word: &str| -> Outcome<()> {
            let answer = subject.ask(&command)?;
            refused += u32::from(!word.is_empty() && !answer.contains(word));
            Ok(())
        };
        let (ip, port) = (target.address.ip(), target.address.port());
        ask(format!("add server b/new {}", target.address), "New server registered")?;
        ask("enable server b/new".into(), "")?;
        ask(format!("set weight b/new {}", rounds % 200 + 1), "")?;
        ask(format!("set server b/t addr {ip} port {port}"), "")?;
        ask(format!("set server b/t weight {}", rounds % 50 + 1), "")?;
        ask("set server b/new state maint".into(), "")?;
        ask("wait 5s srv-removable b/new".into(), "Done")?;
        ask("del server b/new".into(), "Server deleted")?;
        rounds += 1;
    }
    let tally = clients.stop();
    let state = if subject.is_running() { "runs" } else { "ended" };
    Ok(format!(
        "| {} | {rounds} | {refused} | {} | {} | {} | {} | {state} |",
        program.name,
        tally.good.load(Relaxed),
        tally.errors.load(Relaxed),
        tally.lost() + tally.foreign.load(Relaxed),
        subject.memory().saturating_sub(before),
    ))
}
