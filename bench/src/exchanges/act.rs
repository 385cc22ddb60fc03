//! Runs the clients and servers of a case, and records what they receive. There is a thread for each of them, and for each
//! connection of a server; all waits are bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use crate::exchanges::case::{Answer, Case, Server, Step, When};
use crate::exchanges::message::{self, Direction, Stream};

/// Limit for every wait.
const PATIENCE: Duration = Duration::from_millis(3500);
/// How long a connection is watched for its end when all steps are done.
const AFTERWARDS: Duration = Duration::from_millis(100);
/// How long the servers of a case stay when its clients have left.
const LINGERING: Duration = Duration::from_millis(250);

/// How a connection ended, as seen from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Closed,
    Reset,
}

/// A connection and the bytes received on it.
struct Wire {
    socket: TcpStream,
    received: Vec<u8>,
    /// The read buffer. It is large, because everything received is examined after each read.
    part: Vec<u8>,
    end: End,
}

impl Wire {
    fn new(socket: TcpStream) -> Self {
        let _ = socket.set_nodelay(true);
        Self { socket, received: Vec::new(), part: vec![0; 1 << 18], end: End::Open }
    }

    /// Reads until `done`, the end, or `deadline`.
    fn read_until(&mut self, deadline: Instant, mut done: impl FnMut(&[u8], bool) -> bool) {
        while !done(&self.received, self.end != End::Open) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if self.end != End::Open {
                std::thread::sleep(left.min(Duration::from_millis(5)));
                continue;
            }
            let _ = self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            match self.socket.read(&mut self.part) {
                Ok(0) => self.end = End::Closed,
                Ok(count) => self.received.extend_from_slice(&self.part[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.end = End::Reset,
            }
        }
    }

    /// Sends bytes, and reads while the peer does not accept them. Errors show up when reading.
    fn send(&mut self, mut bytes: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        let _ = self.socket.set_write_timeout(Some(Duration::from_millis(20)));
        while !bytes.is_empty() && Instant::now() < deadline {
            match self.socket.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.read_until(Instant::now() + Duration::from_millis(2), |_, _| false);
                }
                Err(_) => return,
            }
        }
    }

    /// Performs a step; returns false when the connection has ended.
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Send(bytes) => self.send(bytes),
            Step::Pause(ms) => {
                self.read_until(Instant::now() + Duration::from_millis(*ms), |_, _| false);
            }
            Step::Idle(ms) => std::thread::sleep(Duration::from_millis(*ms)),
            Step::Await(_) => {}
            Step::Shut => {
                let _ = self.socket.shutdown(std::net::Shutdown::Write);
            }
            Step::Reset => {
                let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
                return false;
            }
            Step::Close => return false,
        }
        true
    }
}

/// The messages received by both sides of a case, as lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) clients: Vec<Vec<String>>,
    /// Connections of each server, in the order they were accepted.
    pub(crate) servers: Vec<Vec<Vec<String>>>,
}

/// Returns the methods of the requests that a client's steps send.
fn methods(steps: &[Step]) -> Vec<String> {
    let mut all = Vec::new();
    for step in steps {
        if let Step::Send(bytes) = step {
            all.extend_from_slice(bytes);
        }
    }
    let stream = message::parse(&all, Direction::Requests, true);
    stream.messages.iter().map(message::Message::method).collect()
}

/// Returns a condition on a stream. The stream is parsed again only when the missing bytes of its last message have arrived.
/// Otherwise, copying a body of 12 MiB for each received part would take longer than the exchange itself and keep the machine busy,
/// which would distort the compared times.
fn patiently(direction: Direction<'_>, is_so: impl Fn(&Stream) -> bool) -> impl FnMut(&[u8], bool) -> bool {
    let mut enough = 0;
    move |bytes, ended| {
        if bytes.len() < enough && !ended {
            return false;
        }
        let stream = message::parse(bytes, direction, ended);
        enough = bytes.len() + stream.lacks;
        is_so(&stream)
    }
}

fn run_client(address: SocketAddr, steps: &[Step]) -> Vec<String> {
    let methods = methods(steps);
    let responses = Direction::Responses(&methods);
    let mut waited = 0;
    while let Some(Step::Pause(ms)) = steps.get(waited) {
        std::thread::sleep(Duration::from_millis(*ms));
        waited += 1;
    }
    let socket = match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(socket) => socket,
        Err(error) => return vec![format!("(no connection: {:?})", error.kind())],
    };
    let mut wire = Wire::new(socket);
    for step in &steps[waited..] {
        if let Step::Await(count) = step {
            let mut whole = patiently(responses, |stream| stream.whole() >= *count);
            wire.read_until(Instant::now() + PATIENCE, |bytes, ended| ended || whole(bytes, ended));
        } else if !wire.step(step) {
            // Which data arrived before the client left depends on chance.
            return vec!["(left)".into()];
        }
    }
    wire.read_until(Instant::now() + AFTERWARDS, |_, ended| ended);
    let mut lines = message::parse(&wire.received, responses, wire.end != End::Open).lines();
    lines.push(format!("({:?})", wire.end));
    lines
}

/// A server that listens or refuses.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    listener: Option<TcpListener>,
    /// Reserves the port of a server that refuses.
    _kept: Option<Socket>,
}

impl Listening {
    pub(crate) fn new(server: &Server) -> std::io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([127, 0, 2, 1], 0)).into())?;
        let address = socket.local_addr()?.as_socket().ok_or(ErrorKind::AddrNotAvailable)?;
        if server.is_refused {
            return Ok(Self { address, listener: None, _kept: Some(socket) });
        }
        socket.listen(64)?;
        Ok(Self { address, listener: Some(socket.into()), _kept: None })
    }
}

type Recorded = Arc<Mutex<Vec<Vec<String>>>>;

/// Serves one connection until the client leaves or the case has ended.
fn serve(socket: TcpStream, answers: &[Answer], turn: &AtomicUsize, over: &AtomicBool) -> Vec<String> {
    let mut wire = Wire::new(socket);
    let step_of_time = Duration::from_millis(40);
    let mut served = 0;
    let mut left = false;
    'requests: loop {
        let place = turn.load(Ordering::Relaxed).min(answers.len() - 1);
        let when = answers[place].when;
        let mut is_due = patiently(Direction::Requests, |stream| match when {
            When::Connected => true,
            When::Head => stream.messages.len() > served,
            When::Body => stream.whole() > served,
        });
        while !over.load(Ordering::Relaxed) && wire.end == End::Open && !is_due(&wire.received, false) {
            wire.read_until(Instant::now() + step_of_time, |bytes, ended| ended || is_due(bytes, ended));
        }
        if !is_due(&wire.received, wire.end != End::Open) {
            break;
        }
        let place = turn.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
        drop(is_due);
        served += 1;
        for step in &answers[place].steps {
            if !wire.step(step) {
                left = true;
                break 'requests;
            }
        }
        if when == When::Connected {
            while !over.load(Ordering::Relaxed) && wire.end == End::Open {
                wire.read_until(Instant::now() + step_of_time, |_, ended| ended);
            }
            break;
        }
    }
    let mut lines = message::parse(&wire.received, Direction::Requests, wire.end != End::Open).lines();
    // Whether a finished connection was reset only shows whether something was unread.
    let end = if wire.end == End::Open { "(open)" } else { "(over)" };
    lines.push(if left { "(left)".into() } else { end.into() });
    lines
}

fn run_server(listener: TcpListener, answers: Vec<Answer>, over: Arc<AtomicBool>) -> JoinHandle<Recorded> {
    std::thread::spawn(move || {
        let recorded = Recorded::default();
        let (turn, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(answers));
        let mut running = Vec::new();
        while let Ok((socket, _)) = listener.accept() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let place = running.len();
            let all = || recorded.lock().unwrap_or_else(PoisonError::into_inner);
            all().push(Vec::new());
            let (recorded, answers, turn, over) =
                (recorded.clone(), answers.clone(), turn.clone(), over.clone());
            running.push(std::thread::spawn(move || {
                let lines = serve(socket, &answers, &turn, &over);
                recorded.lock().unwrap_or_else(PoisonError::into_inner)[place] = lines;
            }));
        }
        for thread in running {
            let _ = thread.join();
        }
        recorded
    })
}

/// Runs a case against the program that listens at `address`.
pub(crate) fn run(case: &Case, address: SocketAddr, servers: Vec<Listening>) -> Received {
    let over = Arc::new(AtomicBool::new(false));
    let mut running = Vec::new();
    for (server, listening) in case.servers.iter().zip(servers) {
        let thread = listening
            .listener
            .map(|listener| run_server(listener, server.answers.clone(), Arc::clone(&over)));
        running.push((listening.address, thread));
    }
    let clients = std::thread::scope(|scope| {
        let clients: Vec<_> =
            case.clients.iter().map(|steps| scope.spawn(|| run_client(address, steps))).collect();
        clients.into_iter().map(|client| client.join().unwrap_or_default()).collect()
    });
    std::thread::sleep(LINGERING);
    over.store(true, Ordering::Relaxed);
    let servers = running.into_iter().map(|(address, thread)| {
        // The thread waits for a connection; this connection wakes it.
        let _ = TcpStream::connect_timeout(&address, PATIENCE);
        let recorded = thread.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let mut all = recorded.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *all)
    });
    Received { clients, servers: servers.collect() }
}
