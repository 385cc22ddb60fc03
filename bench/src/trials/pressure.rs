//! Single connections with excessive demands, and a process without descriptors.

use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::trials::load::{Origin, read_answer};
use crate::trials::subject::{Outcome, Program, Subject, shown};

/// Time limit for one of these.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns a configuration in front of one server, with one thread.
pub(crate) fn configuration(origin: std::net::SocketAddr) -> String {
    format!(
        "global\n    nbthread 1\n    stats socket DIRECTORY/socket level admin\n\
         defaults\n    mode http\n    timeout client 20s\n    timeout server 20s\n    timeout connect 5s\n\
         frontend f\n    bind BIND\n    default_backend b\nbackend b\n    server s {origin}\n"
    )
}

fn connect(subject: &Subject) -> Outcome<TcpStream> {
    let socket = TcpStream::connect(subject.address).map_err(shown)?;
    socket.set_read_timeout(Some(LIMIT)).map_err(shown)?;
    socket.set_write_timeout(Some(LIMIT)).map_err(shown)?;
    Ok(socket)
}

/// Returns whether the proxy still serves.
pub(crate) fn serves(subject: &Subject) -> bool {
    let ask = || -> std::io::Result<u16> {
        let mut socket = TcpStream::connect(subject.address)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.write_all(b"GET /well HTTP/1.1\r\nHost: trial\r\nConnection: close\r\n\r\n")?;
        let mut reader = BufReader::new(socket);
        loop {
            let status = read_answer(&mut reader)?.status;
            if status >= 200 {
                return Ok(status);
            }
        }
    };
    ask().is_ok_and(|status| status == 200)
}

/// Runs `trial` against a proxy in front of `origin`; returns one row.
fn measured(
    program: &Program,
    origin: std::net::SocketAddr,
    what: &str,
    trial: impl FnOnce(&Subject, &mut u64) -> Outcome<String>,
) -> Outcome<String> {
    let mut subject = Subject::start(program, &configuration(origin), &["-db"], None)?;
    std::thread::sleep(Duration::from_millis(200));
    let (before, cpu, start) = (subject.memory(), subject.cpu(), Instant::now());
    let mut most = before;
    let result = trial(&subject, &mut most)?;
    let (took, cpu) = (start.elapsed().as_millis(), subject.cpu() - cpu);
    most = most.max(subject.memory());
    let after = if subject.is_running() && serves(&subject) { "serves" } else { "does not serve" };
    Ok(format!(
        "| {what} | {} | {result} | {} | {cpu} | {took} | {after} |",
        program.name,
        most - before.min(most)
    ))
}

/// Returns the status of a response, or how the connection ended.
fn verdict(socket: &TcpStream) -> String {
    match read_answer(&mut BufReader::new(socket)) {
        Ok(answer) => answer.status.to_string(),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => "closed".into(),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => "reset".into(),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn slow_reader(program: &Program) -> Outcome<String> {
    let origin = Origin::start()?;
    measured(program, origin.address, "slow reader of 64 MiB", |subject, most| {
        let mut socket = connect(subject)?;
        socket.write_all(b"GET /bytes/67108864 HTTP/1.1\r\nHost: trial\r\n\r\n").map_err(shown)?;
        let mut part = vec![0; 16384];
        let mut count = 0;
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(50));
            count += socket.read(&mut part).map_err(shown)?;
            *most = (*most).max(subject.memory());
        }
        Ok(format!("{} KiB read", count / 1024))
    })
}

pub(crate) fn small_chunks(program: &Program, count: usize) -> Outcome<String> {
    let origin = Origin::start()?;
    measured(program, origin.address, &format!("{count} chunks of one byte"), |subject, _| {
        let mut socket = connect(subject)?;
        let head = b"POST /chunks HTTP/1.1\r\nHost: trial\r\nTransfer-Encoding: chunked\r\n\r\n";
        socket.write_all(head).map_err(shown)?;
        let batch = b"1\r\nx\r\n".repeat(1000);
        for _ in 0..count / 1000 {
            socket.write_all(&batch).map_err(shown)?;
        }
        socket.write_all(b"0\r\n\r\n").map_err(shown)?;
        Ok(verdict(&socket))
    })
}

pub(crate) fn pipelined(program: &Program, count: usize) -> Outcome<String> {
    let origin = Origin::start()?;
    measured(program, origin.address, &format!("{count} requests at once"), |subject, _| {
        let socket = connect(subject)?;
        let mut writing = socket.try_clone().map_err(shown)?;
        let sender = std::thread::spawn(move || {
            for number in 0..count {
                let request = format!("GET /{number} HTTP/1.1\r\nHost: trial\r\n\r\n");
                if writing.write_all(request.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let mut reader = BufReader::new(socket);
        let mut good = 0;
        for number in 0..count {
            match read_answer(&mut reader) {
                Ok(answer) if answer.body == format!("/{number}").as_bytes() => good += 1,
                _ => break,
            }
        }
        drop(reader);
        let _ = sender.join();
        Ok(format!("{good} answered in order"))
    })
}

pub(crate) fn interim(program: &Program, count: usize) -> Outcome<String> {
    let listener = TcpListener::bind(("127.0.4.1", 0)).map_err(shown)?;
    let address = listener.local_addr().map_err(shown)?;
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            std::thread::spawn(move || {
                let mut part = [0; 4096];
                let mut turn = 0;
                while socket.read(&mut part).is_ok_and(|read| read > 0) {
                    let batch = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(100);
                    let batches = if turn == 0 { count / 100 } else { 0 };
                    turn += 1;
                    for _ in 0..batches {
                        if socket.write_all(&batch).is_err() {
                            return;
                        }
                    }
                    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            });
        }
    });
    measured(program, address, &format!("{count} interim responses"), |subject, _| {
        let mut socket = connect(subject)?;
        socket.write_all(b"GET / HTTP/1.1\r\nHost: trial\r\n\r\n").map_err(shown)?;
        let mut reader = BufReader::new(socket);
        let mut passed = 0;
        loop {
            match read_answer(&mut reader) {
                Ok(answer) if answer.status == 103 => passed += 1,
                Ok(answer) => return Ok(format!("{passed} passed, then {}", answer.status)),
                Err(error) => return Ok(format!("{passed} passed, then {error}")),
            }
        }
    })
}

/// Sends `head` and then `line` repeatedly, up to `most` bytes.
pub(crate) fn flood(
    program: &Program,
    what: &str,
    head: &[u8],
    line: &[u8],
    bytes: usize,
) -> Outcome<String> {
    let origin = Origin::start()?;
    measured(program, origin.address, what, |subject, most| {
        let mut socket = connect(subject)?;
        socket.set_write_timeout(Some(Duration::from_secs(2))).map_err(shown)?;
        socket.write_all(head).map_err(shown)?;
        let batch = line.repeat(4096 / line.len());
        let mut sent = 0;
        while sent < bytes && socket.write_all(&batch).is_ok() {
            sent += batch.len();
            *most = (*most).max(subject.memory());
        }
        Ok(format!("{} after {} KiB", verdict(&socket), sent / 1024))
    })
}

/// Three times as many clients as descriptors, then few clients again.
pub(crate) fn descriptors(program: &Program) -> Outcome<String> {
    let origin = Origin::start()?;
    let text = configuration(origin.address)
        .replace("nbthread 1", "nbthread 1\n    maxconn 400\n    no strict-limits");
    let mut subject = Subject::start(program, &text, &["-db"], Some(100))?;
    let mut clients = Vec::new();
    for number in 0..300 {
        let mut socket = connect(&subject)?;
        socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(shown)?;
        let request = format!("GET /{number} HTTP/1.1\r\nHost: trial\r\n\r\n");
        let _ = socket.write_all(request.as_bytes());
        clients.push(socket);
    }
    std::thread::sleep(Duration::from_secs(1));
    let cpu = subject.cpu();
    let mut statuses = std::collections::BTreeMap::<String, usize>::new();
    for socket in &clients {
        *statuses.entry(verdict(socket)).or_default() += 1;
    }
    let cpu = subject.cpu() - cpu;
    drop(clients);
    std::thread::sleep(Duration::from_millis(300));
    let good = (0..50).filter(|_| serves(&subject)).count();
    let shown: Vec<String> = statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
    let alive = if subject.is_running() { "runs" } else { "ended" };
    Ok(format!("| {} | {} | {cpu} | {good} of 50 | {alive} |", program.name, shown.join(", ")))
}
