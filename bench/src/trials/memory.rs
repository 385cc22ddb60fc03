//! Memory and CPU time of many requests and of mostly idle connections: idle ones, slow uploads, slow heads.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::trials::load::{Clients, Origin, read_answer};
use crate::trials::subject::{Outcome, Program, Subject, eventually, shown};

fn configuration(origin: &Origin) -> String {
    format!(
        "global\n    nbthread 1\n    maxconn 6000\n    stats socket DIRECTORY/socket level admin\n\
         defaults\n    mode http\n    timeout client 60s\n    timeout server 60s\n    timeout connect 5s\n\
         frontend f\n    bind BIND\n    default_backend b\nbackend b\n    server s {}\n",
        origin.address
    )
}

fn row(what: &str, subject: &Subject, before: u64, during: u64, cpu: u64, note: &str) -> String {
    format!(
        "| {what} | {} | {before} | {during} | {} | {cpu} | {note} |",
        subject.program.name,
        subject.memory()
    )
}

/// Sends requests over `clients` connections; without `keeps_alive`, a connection for each request.
pub(crate) fn requests(program: &Program, count: u64, keeps_alive: bool) -> Outcome<String> {
    let origin = Origin::start()?;
    let subject = Subject::start(program, &configuration(&origin), &["-db"], None)?;
    let clients = Clients::start(subject.address, 8, keeps_alive);
    let tally = clients.tally.clone();
    let done = |wanted: u64| tally.good.load(Relaxed) + tally.lost() >= wanted;
    while !done(count / 10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (before, cpu) = (subject.memory(), subject.cpu());
    while !done(count) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let during = subject.memory();
    let cpu = subject.cpu() - cpu;
    clients.stop();
    let what = if keeps_alive { "requests" } else { "connections" };
    let note = format!("{} lost", tally.lost());
    Ok(row(&format!("{count} {what}"), &subject, before, during, cpu, &note))
}

/// Opens connections that send `first` and then nothing. If `first` is a complete request (`is_answered`), they are silent after
/// the response.
pub(crate) fn held(
    program: &Program,
    what: &str,
    count: usize,
    first: &[u8],
    is_answered: bool,
) -> Outcome<String> {
    let origin = Origin::start()?;
    let subject = Subject::start(program, &configuration(&origin), &["-db"], None)?;
    std::thread::sleep(Duration::from_millis(200));
    let (before, cpu) = (subject.memory(), subject.cpu());
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut socket = TcpStream::connect(subject.address).map_err(shown)?;
        socket.write_all(first).map_err(shown)?;
        if is_answered {
            socket.set_read_timeout(Some(Duration::from_secs(10))).map_err(shown)?;
            let mut reader = BufReader::with_capacity(512, socket);
            read_answer(&mut reader).map_err(shown)?;
            socket = reader.into_inner();
        }
        held.push(socket);
    }
    // Single bytes, as a slow client sends them.
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        if !is_answered {
            held.iter_mut().for_each(|socket| drop(socket.write(b"x")));
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let during = subject.memory();
    let cpu = subject.cpu() - cpu;
    let open = subject.descriptors();
    drop(held);
    eventually(|| subject.descriptors() < open / 10 + 50);
    let each = during.saturating_sub(before) * 1024 / count as u64;
    Ok(row(&format!("{count} {what}"), &subject, before, during, cpu, &format!("{each} bytes each")))
}
