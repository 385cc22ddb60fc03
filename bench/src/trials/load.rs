//! Clients and origins of the trials: one thread per connection, blocking sockets, every response checked.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::trials::subject::{Outcome, shown};

/// How long a client waits for a response.
const ANSWER: Duration = Duration::from_secs(10);

/// The results of requests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) good: AtomicU64,
    /// The connection was refused.
    pub(crate) refused: AtomicU64,
    /// The connection was reset before the response had arrived.
    pub(crate) reset: AtomicU64,
    /// The connection ended before the response had arrived.
    pub(crate) cut: AtomicU64,
    /// No response in time.
    pub(crate) late: AtomicU64,
    /// 5xx responses.
    pub(crate) errors: AtomicU64,
    /// Responses to another request.
    pub(crate) foreign: AtomicU64,
}

impl Tally {
    pub(crate) fn lost(&self) -> u64 {
        [&self.refused, &self.reset, &self.cut, &self.late].map(|count| count.load(Relaxed)).iter().sum()
    }

    fn fault(&self, error: &std::io::Error) {
        let count = match error.kind() {
            ErrorKind::ConnectionRefused => &self.refused,
            ErrorKind::UnexpectedEof => &self.cut,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => &self.late,
            _ => &self.reset,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// Head and body of a response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) closes: bool,
}

/// Reads a response with a Content-Length.
pub(crate) fn read_answer(from: &mut impl BufRead) -> std::io::Result<Answer> {
    let mut line = String::new();
    let mut answer = Answer { status: 0, body: Vec::new(), closes: false };
    let mut length = 0;
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let text = line.trim_end().to_ascii_lowercase();
        if answer.status == 0 {
            answer.status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        } else if let Some(value) = text.strip_prefix("content-length: ") {
            length = value.parse().unwrap_or(0);
        } else if text == "connection: close" {
            answer.closes = true;
        } else if text.is_empty() {
            break;
        }
    }
    answer.body.resize(length, 0);
    from.read_exact(&mut answer.body)?;
    Ok(answer)
}

/// Clients that send requests without a pause, each for its own paths, until stopped.
pub(crate) struct Clients {
    pub(crate) tally: Arc<Tally>,
    over: Arc<AtomicBool>,
    running: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts `count` clients, which use a connection for each request or one for many.
    pub(crate) fn start(address: SocketAddr, count: usize, keeps_alive: bool) -> Self {
        let (tally, over) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let run = |number: usize| {
            let (tally, over) = (tally.clone(), over.clone());
            std::thread::spawn(move || ask_on(address, number, keeps_alive, &tally, &over))
        };
        let running = (0..count).map(run).collect();
        Self { tally, over, running }
    }

    pub(crate) fn stop(self) -> Arc<Tally> {
        self.over.store(true, Relaxed);
        for thread in self.running {
            let _ = thread.join();
        }
        self.tally
    }
}

fn connect(address: SocketAddr) -> std::io::Result<BufReader<TcpStream>> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.set_nodelay(true)?;
    Ok(BufReader::new(socket))
}

fn ask_on(address: SocketAddr, number: usize, keeps_alive: bool, tally: &Tally, over: &AtomicBool) {
    let mut connection: Option<BufReader<TcpStream>> = None;
    let mut turn = 0;
    while !over.load(Relaxed) {
        turn += 1;
        let mut own = match connection.take().map_or_else(|| connect(address), Ok) {
            Ok(own) => own,
            Err(error) => {
                tally.fault(&error);
                continue;
            }
        };
        let path = format!("/{number}/{turn}");
        let last = if keeps_alive { "" } else { "Connection: close\r\n" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: trial\r\n{last}\r\n");
        let asked = own.get_mut().write_all(request.as_bytes());
        match asked.and_then(|()| read_answer(&mut own)) {
            Ok(answer) if answer.status == 200 && answer.body == path.as_bytes() => {
                tally.good.fetch_add(1, Relaxed);
                connection = Some(own).filter(|_| keeps_alive && !answer.closes);
            }
            Ok(answer) => {
                let count = if answer.status >= 500 { &tally.errors } else { &tally.foreign };
                count.fetch_add(1, Relaxed);
                connection = Some(own).filter(|_| keeps_alive && !answer.closes);
            }
            Err(error) => tally.fault(&error),
        }
    }
}

/// A server that responds with the requested path. It can be killed and restarted at the same address.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    alive: Arc<AtomicBool>,
    connections: Arc<Mutex<HashMap<u64, TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    pub(crate) fn start() -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.4.1", 0)).map_err(shown)?;
        let address = listener.local_addr().map_err(shown)?;
        let mut origin = Self { address, alive: Arc::default(), connections: Arc::default(), thread: None };
        origin.serve(listener);
        Ok(origin)
    }

    fn serve(&mut self, listener: TcpListener) {
        self.alive = Arc::new(AtomicBool::new(true));
        let (alive, connections) = (self.alive.clone(), self.connections.clone());
        self.thread = Some(std::thread::spawn(move || {
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            while let Ok((socket, _)) = listener.accept() {
                if !alive.load(Relaxed) {
                    return;
                }
                let number = NUMBER.fetch_add(1, Relaxed);
                if let (Ok(copy), Ok(mut all)) = (socket.try_clone(), connections.lock()) {
                    all.insert(number, copy);
                }
                let connections = connections.clone();
                let small = std::thread::Builder::new().stack_size(96 * 1024);
                let _ = small.spawn(move || {
                    echo(socket);
                    connections.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                });
            }
        }));
    }

    /// Stops the server and all its connections, with a reset if `resets`.
    pub(crate) fn kill(&mut self, resets: bool) {
        self.alive.store(false, Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let mut all = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, socket) in all.drain() {
            if resets {
                let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            }
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(crate) fn restart(&mut self) -> Outcome<()> {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).map_err(shown)?;
        socket.set_reuse_address(true).map_err(shown)?;
        socket.bind(&self.address.into()).map_err(shown)?;
        socket.listen(256).map_err(shown)?;
        self.serve(socket.into());
        Ok(())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.kill(false);
    }
}

/// Answers requests on one connection: with their path, or with the number of bytes in `/bytes/N`. Bodies are read and discarded.
fn echo(socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let Ok(reading) = socket.try_clone() else { return };
    let (mut reader, mut socket) = (BufReader::new(reading), socket);
    let mut line = String::new();
    loop {
        let (mut path, mut length, mut is_chunked) = (String::new(), 0_u64, false);
        loop {
            line.clear();
            if !reader.read_line(&mut line).is_ok_and(|count| count > 0) {
                return;
            }
            if line == "\r\n" {
                break;
            }
            if path.is_empty() {
                path = line.split(' ').nth(1).unwrap_or_default().to_owned();
            } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap_or(0);
            } else if line.to_ascii_lowercase().starts_with("transfer-encoding: chunked") {
                is_chunked = true;
            }
        }
        if is_chunked && !drop_chunks(&mut reader) {
            return;
        }
        if std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink()).is_err() {
            return;
        }
        let body = match path.strip_prefix("/bytes/").and_then(|count| count.parse::<usize>().ok()) {
            Some(count) => vec![b'x'; count],
            None => path.into_bytes(),
        };
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(&body);
        if socket.write_all(&answer).is_err() {
            return;
        }
    }
}

/// Reads a chunked body to its end; returns false if the connection ends first.
fn drop_chunks(reader: &mut impl BufRead) -> bool {
    let mut line = String::new();
    loop {
        line.clear();
        if !reader.read_line(&mut line).is_ok_and(|count| count > 0) {
            return false;
        }
        let Ok(size) = u64::from_str_radix(line.trim(), 16) else { return false };
        if size == 0 {
            // The trailers.
            while line != "\r\n" {
                line.clear();
                if !reader.read_line(&mut line).is_ok_and(|count| count > 0) {
                    return false;
                }
            }
            return true;
        }
        if !std::io::copy(&mut reader.take(size + 2), &mut std::io::sink())
            .is_ok_and(|count| count == size + 2)
        {
            return false;
        }
    }
}
