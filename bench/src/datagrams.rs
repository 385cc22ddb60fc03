//! A UDP server and a client for `bench/udp.sh`. Both are single threads that use ordinary system calls: only the proxy between them
//! is measured.
//!
//!     weir-bench datagrams echo PORT
//!     weir-bench datagrams sink PORT
//!     weir-bench datagrams exchanges PORT COUNT SOCKETS
//!     weir-bench datagrams stream PORT COUNT PER_SECOND

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// The size of a question and of its answer, in bytes.
const QUESTION: usize = 100;

/// The size of a datagram of a stream, in bytes.
const PIECE: usize = 1200;

/// How many sockets of the client wait for their answers at the same time.
const WINDOW: usize = 32;

/// How many datagrams of a stream are sent at once.
const BURST: u64 = 32;

/// How many sockets of the client share an address.
const PORTS: u64 = 20_000;

/// When a datagram counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// The receive buffer of the server, which must not be the limit.
const RECEIVE_BUFFER: usize = 32 << 20;

/// Runs a part of the benchmark.
///
/// # Errors
/// The words are not valid, or a socket fails.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let usage =
        || "usage: datagrams echo|sink PORT, exchanges PORT COUNT SOCKETS, stream PORT COUNT PER_SECOND";
    let port = number(1).and_then(|port| u16::try_from(port).ok()).ok_or_else(usage)?;
    let outcome = match (words[0].as_str(), number(2), number(3)) {
        ("echo", ..) => serve(port, true),
        ("sink", ..) => serve(port, false),
        ("exchanges", Some(count), Some(sockets)) => exchanges(port, count, sockets),
        ("stream", Some(count), Some(rate)) => stream(port, count, rate.max(1)),
        _ => return Err(usage().to_owned()),
    };
    outcome.map_err(|error| error.to_string())
}

/// Answers each datagram with a copy, or prints the number of datagrams received whenever none has arrived for a while.
fn serve(port: u16, answers: bool) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let (mut bytes, mut count) = ([0; 2048], 0_u64);
    loop {
        match socket.recv_from(&mut bytes) {
            Ok((length, from)) if answers => drop(socket.send_to(&bytes[..length], from)),
            Ok(_) => count += 1,
            Err(_) if count > 0 => println!("{}", std::mem::take(&mut count)),
            Err(_) => {}
        }
    }
}

/// Sends `count` questions from `sockets` ports and waits for the answers; prints how many were lost.
fn exchanges(port: u16, count: u64, sockets: u64) -> io::Result<()> {
    let open = |number: u64| {
        // One address does not have enough ports for 100,000 sockets.
        let source = Ipv4Addr::new(127, 0, 0, 1 + (number / PORTS) as u8);
        let socket = UdpSocket::bind((source, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    };
    let all: Vec<UdpSocket> = (0..sockets).map(open).collect::<io::Result<_>>()?;
    let (question, mut answer) = ([7; QUESTION], [0; 2048]);
    let (mut sent, mut lost) = (0, 0_u64);
    'all: loop {
        for window in all.chunks(WINDOW) {
            if sent >= count {
                break 'all;
            }
            for socket in window {
                socket.send(&question)?;
            }
            for socket in window {
                lost += u64::from(socket.recv(&mut answer).is_err());
            }
            sent += window.len() as u64;
        }
    }
    println!("{sent} sent, {lost} lost");
    Ok(())
}

/// Sends `count` datagrams at `rate` a second.
fn stream(port: u16, count: u64, rate: u64) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    let (piece, begun) = ([7; PIECE], Instant::now());
    for number in 0..count {
        if number % BURST == 0 {
            let due = begun + Duration::from_nanos(number * 1_000_000_000 / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        match socket.send(&piece) {
            Err(error) if error.kind() != ErrorKind::ConnectionRefused => return Err(error),
            _ => {}
        }
    }
    println!("{count} sent in {:.2} s", begun.elapsed().as_secs_f64());
    Ok(())
}
