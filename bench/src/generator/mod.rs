//! Load generator and origin of the benchmarks: one thread, one poll loop, both ends of the proxy under test.
//!
//! With one process instead of two, the other core has no context switches between client and origin, so the proxy reaches its
//! limit before the load generator does. The origin listens on a port chosen by the kernel and prints it; then commands are read
//! from standard input, one per line, and each is answered with one line:
//!
//! ```text
//! < listening 127.0.0.1:40001
//! > run target=127.0.0.1:5000 path=/16384 connections=64 seconds=3 header=x-a:1
//! < requests=180000 seconds=3.000 rate=60000 errors=0 p50=1000 p90=1200 p99=1500 p99.9=2000 … p99.9999=2400 max=2500      (times in µs)
//! > hold target=127.0.0.1:5000 connections=4000
//! < held 4000
//! > release
//! < released
//! > slow 2000
//! < answers after 2000 us
//! ```
//!
//! `run` accepts `close` (a connection for each request), `poll` (never sleep), `requests=N` instead of `seconds=`, and `tls=1.3`
//! (or 1.2) with or without `resume`; so does `hold`. The origin answers `/N` with N bytes and any other path with 100. Called by
//! `bench/*.sh`; not by tests.
mod client;
mod command;
mod engine;
mod forwarder;
mod origin;
mod report;
mod wire;

use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::sync::mpsc;

use crate::generator::command::Command;
use crate::generator::engine::Engine;

/// Forwards connections from one address to another: `LISTEN ORIGIN`.
pub(crate) fn forward(words: &[String]) -> io::Result<()> {
    forwarder::run(address(words.first())?, address(words.get(1))?)
}

/// Runs until standard input ends.
pub(crate) fn run() -> io::Result<()> {
    let mut engine = Engine::new()?;
    say(&format!("listening {}", engine.origin_address()?))?;
    let (sender, commands) = mpsc::channel();
    let waker = engine.waker();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() || waker.wake().is_err() {
                return;
            }
        }
        drop(sender);
        let _ = waker.wake();
    });
    loop {
        let line = match commands.try_recv() {
            Ok(line) => line,
            Err(mpsc::TryRecvError::Empty) => {
                engine.turn(None)?;
                continue;
            }
            Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
        };
        let answer = match Command::parse(&line) {
            Ok(Command::Run(load)) => engine.run(&load)?,
            Ok(Command::Hold(load)) => engine.hold(&load)?,
            Ok(Command::Release) => engine.release(),
            Ok(Command::Slow(delay)) => engine.slow(delay),
            Err(error) => format!("error: {error}"),
        };
        say(&answer)?;
    }
}

fn address(word: Option<&String>) -> io::Result<SocketAddr> {
    let address = word.and_then(|word| word.parse().ok());
    address.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "`forward` takes two addresses"))
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
