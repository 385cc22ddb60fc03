//! The poll loop that serves both ends. Called by `main`; runs one command at a time.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;
use socket2::{Domain, Socket, Type};

use crate::generator::client::{Client, Outcome};
use crate::generator::command::Load;
use crate::generator::origin::{Origin, PIECE_SIZE};
use crate::generator::report::Report;

const LISTENER: Token = Token(usize::MAX - 1);
const WAKER: Token = Token(usize::MAX - 2);
/// Bytes read by one call.
const BUFFER: usize = 1 << 18;

/// One end of a connection.
enum End {
    Origin(Origin),
    Client(Client),
}

/// The state of the clients.
struct Running {
    load: Load,
    report: Report,
    /// Whether new requests are made.
    going: bool,
    /// Whether each connection makes only one request and stays open.
    hold: bool,
}

/// Both ends and the loop.
pub(crate) struct Engine {
    poll: Poll,
    events: Option<Events>,
    waker: Arc<Waker>,
    listener: TcpListener,
    ends: Slab<End>,
    clients: usize,
    running: Option<Running>,
    delay: Duration,
    /// Responses of a slow origin, in the order in which they are due.
    late: VecDeque<usize>,
    buffer: Box<[u8; BUFFER]>,
    filling: Box<[u8; PIECE_SIZE]>,
}

impl Engine {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
        socket.listen(4096)?;
        socket.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(socket.into());
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        Ok(Self {
            poll,
            events: Some(Events::with_capacity(1024)),
            waker,
            listener,
            ends: Slab::new(),
            clients: 0,
            running: None,
            delay: Duration::ZERO,
            late: VecDeque::new(),
            buffer: Box::new([0; BUFFER]),
            filling: Box::new([b'x'; PIECE_SIZE]),
        })
    }

    pub(crate) fn origin_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Runs the requests of `load` and returns the report.
    pub(crate) fn run(&mut self, load: &Load) -> io::Result<String> {
        let started = Instant::now();
        self.begin(load, false)?;
        let end = started + load.time;
        loop {
            let now = Instant::now();
            let running = self.running.as_mut().expect("a load is running");
            let over = match load.requests {
                Some(requests) => running.report.requests + running.report.errors >= requests,
                None => now >= end,
            };
            if over {
                running.going = false;
                break;
            }
            let patience = if load.polls { Duration::ZERO } else { Duration::from_millis(100) };
            self.turn(Some(end.saturating_duration_since(now).min(patience)))?;
        }
        let elapsed = started.elapsed();
        // Requests in progress may finish, so that proxies see no broken connections at the end of a run.
        let patience = Instant::now() + Duration::from_secs(2);
        while self.clients > 0 && Instant::now() < patience {
            self.turn(Some(Duration::from_millis(20)))?;
        }
        let line = self.running.take().map_or_else(String::new, |running| running.report.line(elapsed));
        self.release();
        Ok(line)
    }

    /// Opens connections that make one request each and stay open.
    pub(crate) fn hold(&mut self, load: &Load) -> io::Result<String> {
        for _ in 0..load.connections {
            let one = Load { connections: 1, ..load.clone() };
            self.begin(&one, true)?;
            while self
                .running
                .as_ref()
                .is_some_and(|running| running.report.requests + running.report.errors == 0)
            {
                self.turn(Some(Duration::from_millis(100)))?;
            }
            let errors = self.running.take().map_or(0, |running| running.report.errors);
            if errors > 0 {
                return Ok(format!("error: only {} connections could be held", self.clients));
            }
        }
        Ok(format!("held {}", self.clients))
    }

    /// Closes all client connections.
    pub(crate) fn release(&mut self) -> String {
        self.ends.retain(|_, end| matches!(end, End::Origin(_)));
        self.clients = 0;
        "released".to_owned()
    }

    /// Delays the origin's responses.
    pub(crate) fn slow(&mut self, delay: Duration) -> String {
        self.delay = delay;
        format!("answers after {} us", delay.as_micros())
    }

    fn begin(&mut self, load: &Load, hold: bool) -> io::Result<()> {
        self.running = Some(Running { load: load.clone(), report: Report::new(), going: true, hold });
        for _ in 0..load.connections {
            self.connect()?;
        }
        Ok(())
    }

    fn connect(&mut self) -> io::Result<()> {
        let Some(running) = &self.running else { return Ok(()) };
        let client = Client::connect(running.load.target, running.load.tls.as_ref())?;
        let key = self.ends.insert(End::Client(client));
        if let Some(End::Client(client)) = self.ends.get_mut(key) {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(client.stream(), Token(key), interest)?;
        }
        self.clients += 1;
        Ok(())
    }

    /// Runs one round of the loop: waits at most `limit`, and handles what is ready.
    pub(crate) fn turn(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let Some(mut events) = self.events.take() else { return Ok(()) };
        let wait = match self.late_in() {
            Some(late) => Some(limit.map_or(late, |limit| limit.min(late))),
            None => limit,
        };
        if let Err(error) = self.poll.poll(&mut events, wait)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        for event in &events {
            match event.token() {
                LISTENER => self.accept()?,
                WAKER => {}
                Token(key) => self.serve(key)?,
            }
        }
        self.events = Some(events);
        self.send_late();
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn admit(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let key = self.ends.insert(End::Origin(Origin::new(stream)));
        if let Some(End::Origin(origin)) = self.ends.get_mut(key) {
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(origin.stream(), Token(key), interest)?;
        }
        Ok(())
    }

    fn serve(&mut self, key: usize) -> io::Result<()> {
        match self.ends.get_mut(key) {
            Some(End::Origin(origin)) => {
                let waited = origin.due.is_some();
                let alive = origin.receive(&mut self.buffer[..]).unwrap_or(false);
                let alive = if !alive || !origin.has_answer() || waited {
                    alive
                } else if self.delay > Duration::ZERO {
                    origin.due = Some(Instant::now() + self.delay);
                    self.late.push_back(key);
                    true
                } else {
                    origin.send(&self.filling).unwrap_or(false)
                };
                if !alive {
                    self.ends.remove(key);
                }
                Ok(())
            }
            Some(End::Client(_)) => self.serve_client(key),
            None => Ok(()),
        }
    }

    fn serve_client(&mut self, key: usize) -> io::Result<()> {
        let Some(End::Client(client)) = self.ends.get_mut(key) else { return Ok(()) };
        let Some(running) = &mut self.running else { return Ok(()) }; // held, or left over
        let sent = client.send(&running.load.request);
        match sent.and_then(|()| client.receive(&mut self.buffer[..])) {
            Ok(Outcome::Waiting) => Ok(()),
            Ok(Outcome::Answered(after)) => {
                running.report.answered(after);
                if running.hold {
                    return Ok(());
                }
                if running.load.close {
                    // The peer's close may have arrived together with the response, and then causes no separate event.
                    return match client.receive(&mut self.buffer[..]) {
                        Ok(Outcome::Waiting) => Ok(()),
                        _ => self.finish(key),
                    };
                }
                if !running.going {
                    return self.finish(key);
                }
                client.again();
                if client.send(&running.load.request).is_err() {
                    running.report.errors += 1;
                    return self.finish(key);
                }
                Ok(())
            }
            Ok(Outcome::Closed) => self.finish(key),
            Err(_) => {
                running.report.errors += 1;
                self.finish(key)
            }
        }
    }

    /// Ends a client's connection, and opens another while the run continues.
    fn finish(&mut self, key: usize) -> io::Result<()> {
        self.ends.remove(key);
        self.clients -= 1;
        if self.running.as_ref().is_some_and(|running| running.going && !running.hold) {
            return self.connect();
        }
        Ok(())
    }

    /// Returns the time until a response of the slow origin is due.
    fn late_in(&self) -> Option<Duration> {
        let due = self.late.iter().find_map(|key| match self.ends.get(*key) {
            Some(End::Origin(origin)) => origin.due,
            _ => None,
        })?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn send_late(&mut self) {
        let now = Instant::now();
        while let Some(&key) = self.late.front() {
            let Some(End::Origin(origin)) = self.ends.get_mut(key) else {
                self.late.pop_front();
                continue;
            };
            match origin.due {
                Some(due) if due > now => return,
                Some(_) => {
                    self.late.pop_front();
                    if !origin.send(&self.filling).unwrap_or(false) {
                        self.ends.remove(key);
                    }
                }
                None => {
                    self.late.pop_front();
                }
            }
        }
    }
}
