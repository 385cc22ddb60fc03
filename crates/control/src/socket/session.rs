//! A connection to the runtime socket: reads lines, runs commands, writes responses (management manual, 9.3).

use std::future::poll_fn;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};

use base::clock::now_ms;
use base::raw;
use runtime::Local;
use runtime::timer::timeout;
use state::Proxy;
use state::process::ProcessCounters;
use state::proxy::{Mode, ProxySeed};
use state::sessions::{self, Activity};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use crate::access::{AccessLevel, SeverityOutput};
use crate::invocation::{CommandReply, ConnectionSettings, Follow, Severity};
use crate::process::Runtime;
use crate::socket::{line, table};

/// One of the permitted concurrent connections (`stats maxconn`). Dropping it releases the slot.
pub struct ClientSlot(Arc<Runtime>);

impl ClientSlot {
    /// Returns a slot even if all are taken, for connections accepted by the master.
    #[must_use]
    pub fn beyond_the_limit(runtime: Arc<Runtime>) -> Self {
        runtime.statistics.commanders.fetch_add(1, Relaxed);
        Self(runtime)
    }

    /// Waits until a slot is free, without taking it.
    pub async fn free(runtime: &Runtime) {
        loop {
            let left = runtime.left.notified();
            if runtime.statistics.commanders.load(Relaxed) < runtime.view().max_sessions {
                return;
            }
            left.await;
        }
    }

    /// Waits for a slot and takes it.
    pub async fn take(runtime: Arc<Runtime>) -> Self {
        loop {
            let left = runtime.left.notified();
            let limit = runtime.view().max_sessions;
            let taken = runtime
                .statistics
                .commanders
                .fetch_update(Relaxed, Relaxed, |n| (n < limit).then_some(n + 1));
            if taken.is_ok() {
                return Self(runtime.clone());
            }
            left.await;
        }
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.statistics.commanders.fetch_sub(1, Relaxed);
        self.0.left.notify_waiters();
    }
}

/// Passes the listening sockets over the connection itself (`expose-fd listeners`).
pub type HandOver = Box<dyn FnOnce() -> std::pin::Pin<Box<dyn Future<Output = ()>>>>;

/// The command that passes the listening sockets. Its response is not text.
const GET_SOCKETS: &str = "_getsocks";

/// Serves one connection of a runtime socket until it is closed, is idle for too long, or its single command line is done.
///
/// # Errors
/// An error of the socket, which the caller can ignore.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    level: AccessLevel,
    severity: SeverityOutput,
    place: ClientSlot,
    hand_over: Option<HandOver>,
) -> io::Result<()> {
    let runtime = place.0.clone();
    let view = runtime.view();
    runtime.statistics.process.commanded.fetch_add(1, Relaxed);
    runtime.statistics.process.streams.fetch_add(1, Relaxed);
    let settings = ConnectionSettings::new(level, severity, view.timeout);
    // The connection is a stream like any other: `show sess` lists it, `shutdown session` ends it.
    let entry = sessions::register(&frontend(), None, None, now_ms());
    entry.activity.set(Activity::Tunnel);
    let session = RuntimeSession {
        socket: BufReader::new(socket),
        runtime: runtime.clone(),
        settings,
        longest: view.line_length,
        longest_payload: view.payload_length,
        hand_over,
    };
    tokio::select! {
        done = session.run() => done,
        _ = poll_fn(|context| entry.poll_killed(context)) => Ok(()),
    }
}

/// The frontend shown for streams of runtime sockets.
fn frontend() -> Local<Proxy> {
    static FRONTEND: LazyLock<Arc<Proxy>> = LazyLock::new(|| {
        Arc::new(Proxy::new(ProxySeed {
            id: 0,
            name: "GLOBAL".into(),
            mode: Mode::Tcp,
            is_frontend: true,
            is_backend: false,
            maxconn: 0,
            session_limit: 0,
            disabled: false,
        }))
    });
    Local::new(FRONTEND.clone())
}

struct RuntimeSession<S> {
    socket: BufReader<S>,
    runtime: Arc<Runtime>,
    settings: ConnectionSettings,
    longest: usize,
    longest_payload: usize,
    hand_over: Option<HandOver>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> RuntimeSession<S> {
    async fn run(mut self) -> io::Result<()> {
        loop {
            let Some(text) = self.read_line(self.longest).await? else { return Ok(()) };
            let line = line::parse(&text);
            let payload = match &line.payload_end {
                Some(end) => match self.read_payload(end).await? {
                    Some(payload) => Some(payload),
                    None => return Ok(()),
                },
                None => None,
            };
            let count = line.commands.len();
            for (i, words) in line.commands.iter().enumerate() {
                let payload = payload.as_deref().filter(|_| i + 1 == count);
                if !self.command(words, payload).await? {
                    return Ok(());
                }
            }
            if !self.settings.interactive {
                return self.socket.shutdown().await;
            }
            self.prompt().await?;
        }
    }

    /// Reads one line including its terminator. Returns `None` at the end of the connection. An unterminated line is not run,
    /// because it may be truncated. Bytes that are not UTF-8 are represented as in the configuration ([`base::raw`]).
    async fn read_line(&mut self, longest: usize) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        loop {
            let chunk = match timeout(self.settings.timeout, self.socket.fill_buf()).await {
                Ok(chunk) => chunk?,
                Err(_) => return Ok(None),
            };
            if chunk.is_empty() {
                return Ok(None);
            }
            let end = chunk.iter().position(|&b| b == b'\n');
            let taken = end.map_or(chunk.len(), |end| end + 1);
            bytes.extend_from_slice(&chunk[..taken]);
            self.socket.consume(taken);
            if bytes.len() > longest {
                self.write("Command too long\n").await?;
                return Ok(None);
            }
            if end.is_some() {
                return Ok(Some(raw::text_of(&bytes).into_owned()));
            }
        }
    }

    async fn read_payload(&mut self, end: &str) -> io::Result<Option<String>> {
        let (mut payload, mut length) = (String::new(), 0);
        loop {
            if self.settings.prompt {
                self.write("+ ").await?;
            }
            let Some(line) = self.read_line(self.longest_payload).await? else { return Ok(None) };
            let line = line.strip_suffix('\n').unwrap_or(&line);
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line == end {
                return Ok(Some(payload));
            }
            payload.push_str(line);
            payload.push('\n');
            length += raw::bytes_of(line).len() + 1;
            if length > self.longest_payload {
                self.write("Payload too large\n").await?;
                return Ok(None);
            }
        }
    }

    /// Writes text, with the bytes that its placeholders represent.
    async fn write(&mut self, text: &str) -> io::Result<()> {
        self.write_bytes(&raw::bytes_of(text)).await
    }

    async fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match timeout(self.settings.timeout, self.socket.write_all(bytes)).await {
            Ok(Ok(())) => {
                let process = self.runtime.statistics.process.counters.mine();
                process.bytes_out.add(bytes.len() as u64);
                process.bytes_out_rate.tick_by(now_ms(), ProcessCounters::rate_units(bytes.len() as u64));
                Ok(())
            }
            Ok(failed) => failed,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Runs one command and writes its response, followed by an empty line. Returns `false` if the connection must be closed.
    async fn command(&mut self, words: &[String], payload: Option<&str>) -> io::Result<bool> {
        if words == [GET_SOCKETS] {
            if let Some(hand_over) = self.hand_over.take() {
                hand_over().await;
            }
            return Ok(false);
        }
        if words.is_empty() {
            self.write("\n").await?;
            return Ok(true);
        }
        let mut reply = table::run(&self.runtime, words, payload, &mut self.settings);
        while let CommandReply::Later(answer) = reply {
            reply = answer.await;
        }
        let mut text = match reply {
            CommandReply::Quit => return Ok(false),
            CommandReply::Done | CommandReply::Later(_) => String::new(),
            CommandReply::Text(text) => text,
            CommandReply::Bytes(bytes) => {
                self.write_bytes(&bytes).await?;
                String::new()
            }
            CommandReply::Message(severity, text) => self.label(severity) + &text,
            CommandReply::Follow(follow, wait) => {
                self.follow(follow, wait).await?;
                String::new()
            }
            CommandReply::Pieces(pieces) => {
                for piece in pieces {
                    self.write(&piece).await?;
                    // Lets other connections of this worker proceed between pieces.
                    tokio::task::yield_now().await;
                }
                String::new()
            }
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push('\n');
        self.write(&text).await?;
        Ok(true)
    }

    /// Writes the messages in a ring. If `wait` is set, new messages follow until the client sends anything or disconnects.
    async fn follow(&mut self, mut follow: Follow, wait: bool) -> io::Result<()> {
        loop {
            let batch = follow.next_batch();
            if !batch.is_empty() {
                self.write_bytes(&batch).await?;
                tokio::task::yield_now().await;
                continue;
            }
            if !wait {
                return Ok(());
            }
            let available = tokio::select! {
                () = follow.more() => None,
                available = self.socket.fill_buf() => Some(available?.len()),
            };
            if let Some(length) = available {
                self.socket.consume(length);
                return Ok(());
            }
        }
    }

    fn label(&self, severity: Severity) -> String {
        let (number, word) = severity.names();
        match self.settings.severity {
            SeverityOutput::None => String::new(),
            SeverityOutput::Number => format!("[{number}]: "),
            SeverityOutput::String => format!("[{word}]: "),
        }
    }

    async fn prompt(&mut self) -> io::Result<()> {
        if !self.settings.prompt {
            return Ok(());
        }
        let up = self.runtime.statistics.uptime();
        let prompt = if self.settings.timed {
            format!("[{}:{:02}:{:02}:{:02}]> ", up / 86_400, up / 3600 % 24, up / 60 % 60, up % 60)
        } else {
            "> ".to_owned()
        };
        self.write(&prompt).await
    }
}
