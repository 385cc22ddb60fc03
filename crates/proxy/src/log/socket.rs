//! Targets that either accept a log line immediately or lose it: datagram sockets and descriptors. Called by [`super::Outbox`].
//!
//! The lines for a descriptor are written together at the end of the worker's turn.

use std::collections::HashMap;
use std::io;
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::sync::Arc;
use std::task::Waker;

use base::output::{self, Output};
use plan::Plan;
use plan::log::{LogAddress, LogTarget};

/// The socket for a target.
enum LogSocket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
    Inherited(Arc<Output>),
}

/// The maximum number of bytes that are written together: what a pipe takes completely or not at all (pipe(7)).
const TOGETHER: usize = 4096;

/// The lines for a descriptor that were not written yet.
struct PendingLines {
    output: Arc<Output>,
    text: Vec<u8>,
    /// The ends of the lines in the text.
    ends: Vec<usize>,
    /// The index of the logger of the first line.
    logger: usize,
}

/// Lines that could not be written, and the last error with the index of its logger.
#[derive(Default)]
pub(super) struct LostLines {
    pub(super) count: u64,
    pub(super) error: Option<(usize, io::Error)>,
}

/// The open sockets of one worker.
pub(super) struct LogSockets {
    open: HashMap<LogAddress, LogSocket>,
    /// The value of `tune.sndbuf.backend`. 0 stands for the kernel's default.
    send_buffer: usize,
    /// The descriptors to which lines were written, and whether any has pending lines.
    pending: Vec<PendingLines>,
    is_pending: bool,
    /// Wakes the task that writes pending lines. Without it, each line is written immediately.
    flusher: Option<Waker>,
    lost: LostLines,
}

impl LogSockets {
    pub(super) fn new(send_buffer: usize) -> Self {
        Self {
            open: HashMap::new(),
            send_buffer,
            pending: Vec::new(),
            is_pending: false,
            flusher: None,
            lost: LostLines::default(),
        }
    }

    /// Sends a line of a logger without blocking, or keeps it until the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// An error from opening the target or from sending to it. `WouldBlock` means that its reader has fallen behind.
    pub(super) fn send(&mut self, address: &LogAddress, bytes: &[u8], logger: usize) -> io::Result<()> {
        if !self.open.contains_key(address) {
            // The next line tries again, because the target may be up by then.
            self.open.insert(address.clone(), open(address, self.send_buffer)?);
        }
        let Some(socket) = self.open.get(address) else { return Ok(()) };
        if let (LogSocket::Inherited(output), Some(flusher)) = (socket, &self.flusher)
            && bytes.len() < TOGETHER
        {
            let known = self.pending.iter().position(|pending| Arc::ptr_eq(&pending.output, output));
            let at = known.unwrap_or_else(|| {
                let (output, text, ends) = (output.clone(), Vec::with_capacity(TOGETHER), Vec::new());
                self.pending.push(PendingLines { output, text, ends, logger });
                self.pending.len() - 1
            });
            let pending = &mut self.pending[at];
            if pending.text.len() + bytes.len() > TOGETHER {
                pending.write(&mut self.lost);
            }
            if pending.text.is_empty() {
                pending.logger = logger;
            }
            pending.text.extend_from_slice(bytes);
            pending.ends.push(pending.text.len());
            if !std::mem::replace(&mut self.is_pending, true) {
                flusher.wake_by_ref();
            }
            return Ok(());
        }
        let Err(error) = socket.send(bytes) else { return Ok(()) };
        let gone = matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected | io::ErrorKind::NotFound
        );
        if gone && matches!(socket, LogSocket::Unix(_)) {
            // The daemon behind the UNIX socket was restarted. Reconnects and tries once more.
            self.open.remove(address);
            let socket = open(address, self.send_buffer)?;
            let sent = socket.send(bytes);
            self.open.insert(address.clone(), socket);
            return sent;
        }
        // A refusal is about an earlier datagram; the current one may have been sent.
        match (error.kind(), address) {
            (io::ErrorKind::ConnectionRefused, LogAddress::Udp(_)) => Ok(()),
            _ => Err(error),
        }
    }

    /// Writes the pending lines. From now on, lines for descriptors are kept, and `flusher` is woken for the first of them.
    pub(super) fn flush(&mut self, flusher: &Waker) {
        match &mut self.flusher {
            Some(known) => known.clone_from(flusher),
            none => *none = Some(flusher.clone()),
        }
        if std::mem::take(&mut self.is_pending) {
            self.pending.iter_mut().for_each(|pending| pending.write(&mut self.lost));
        }
    }

    /// Returns the lines lost since the last call.
    pub(super) fn take_lost(&mut self) -> Option<LostLines> {
        (self.lost.count > 0).then(|| std::mem::take(&mut self.lost))
    }
}

impl Drop for LogSockets {
    fn drop(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.write(&mut self.lost));
        // The task ends.
        self.flusher.iter().for_each(Waker::wake_by_ref);
    }
}

impl PendingLines {
    fn write(&mut self, lost: &mut LostLines) {
        if self.text.is_empty() {
            return;
        }
        if let Err(error) = self.output.write(&self.text) {
            if error.kind() == io::ErrorKind::WouldBlock && self.ends.len() > 1 {
                // There may be room for some of them.
                let mut start = 0;
                for &end in &self.ends {
                    lost.note(self.output.write(&self.text[start..end]), 1, self.logger);
                    start = end;
                }
            } else {
                lost.note(Err(error), self.ends.len() as u64, self.logger);
            }
        }
        self.text.clear();
        self.ends.clear();
    }
}

impl LostLines {
    fn note(&mut self, written: io::Result<()>, count: u64, logger: usize) {
        if let Err(error) = written {
            self.count += count;
            self.error = Some((logger, error));
        }
    }
}

impl LogSocket {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(bytes).map(|_| ()),
            Self::Unix(socket) => socket.send(bytes).map(|_| ()),
            Self::Inherited(output) => output.write(bytes),
        }
    }
}

/// Opens the inherited descriptors that are used for log lines, while the process still has its initial privileges. The standard
/// streams of a background process are replaced later, so they are opened when their first line is sent.
pub fn open_inherited(plan: &Plan) {
    let mut numbers = Vec::new();
    let of_proxies = plan.proxies.iter().flat_map(|proxy| &proxy.loggers);
    for logger in plan.global.loggers.iter().chain(of_proxies) {
        if let LogTarget::Address(LogAddress::Descriptor(number)) = &logger.target
            && !numbers.contains(number)
            && !(plan.global.daemon && *number <= 2)
        {
            numbers.push(*number);
            // If the descriptor is not open, this is reported with the first line sent to it.
            let _ = inherited(*number);
        }
    }
}

fn inherited(number: i32) -> io::Result<Arc<Output>> {
    output::shared(number, || net::sys::duplicate_inherited(number))
}

fn open(address: &LogAddress, send_buffer: usize) -> io::Result<LogSocket> {
    Ok(match address {
        LogAddress::Udp(address) => {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
            if send_buffer > 0 {
                rustix::net::sockopt::set_socket_send_buffer_size(&socket, send_buffer)?;
            }
            LogSocket::Udp(socket)
        }
        LogAddress::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            socket.set_nonblocking(true)?;
            LogSocket::Unix(socket)
        }
        LogAddress::Abstract(name) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&UnixAddress::from_abstract_name(name)?)?;
            socket.set_nonblocking(true)?;
            LogSocket::Unix(socket)
        }
        LogAddress::Descriptor(number) => LogSocket::Inherited(inherited(*number)?),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn lines_that_no_longer_fit_are_counted() {
        let (mut reader, writer) = io::pipe().unwrap();
        let output = Arc::new(Output::new(OwnedFd::from(writer)).unwrap());
        // Leaves room for 1000 bytes in the last page of the pipe.
        let mut filled = 0;
        while filled < 15 * TOGETHER {
            output.write(&[b'x'; TOGETHER]).unwrap();
            filled += TOGETHER;
        }
        output.write(&[b'x'; TOGETHER - 1000]).unwrap();
        let mut pending = PendingLines { output, text: Vec::new(), ends: Vec::new(), logger: 3 };
        for line in [[b'a'; 600], [b'b'; 600], [b'c'; 600]] {
            pending.text.extend_from_slice(&line);
            pending.ends.push(pending.text.len());
        }
        let mut lost = LostLines::default();
        pending.write(&mut lost);
        assert_eq!((lost.count, lost.error.map(|(logger, _)| logger)), (2, Some(3)));
        assert!(pending.text.is_empty() && pending.ends.is_empty());
        drop(pending);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 16 * TOGETHER - 1000 + 600);
        assert!(all.ends_with(&[b'a'; 600]));
    }
}
