//! The sockets of one name server. Queries use one connected datagram socket. A stream connection, over TCP or a Unix socket, is
//! used if configured, and for answers that do not fit into a datagram. Both are opened for the first query; an idle connection is
//! closed.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plan::resolvers::{NameServer, NameServerAddress};
use runtime::timer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::secure;

/// An outgoing query.
pub(crate) struct OutgoingQuestion {
    pub(crate) id: u16,
    pub(crate) bytes: Arc<[u8]>,
}

/// Receives answers, and queries that could not be sent.
pub(crate) trait Hear {
    /// Called with received bytes; `stream` if a stream connection received them.
    fn received(&self, nameserver: usize, bytes: &[u8], stream: bool);
    /// Called for a query that was not sent.
    fn not_sent(&self, nameserver: usize, id: u16);
}

/// The transports of one name server.
pub(crate) struct Ways {
    datagrams: UnboundedSender<OutgoingQuestion>,
    stream: UnboundedSender<OutgoingQuestion>,
}

impl Ways {
    /// Returns transports that open on first use and report to `hear`.
    pub(crate) fn new<H: Hear + 'static>(
        nameserver: usize,
        server: &NameServer,
        size: u16,
        hear: &Rc<H>,
    ) -> Self {
        let (stream, questions) = unbounded_channel();
        tokio::task::spawn_local(stream_way(nameserver, server.clone(), hear.clone(), questions));
        let NameServerAddress::Ip(address) = server.address else {
            // A name server at a Unix socket is only queried over stream connections.
            return Self { datagrams: stream.clone(), stream };
        };
        let (datagrams, questions) = unbounded_channel();
        tokio::task::spawn_local(datagram_way(nameserver, address, size, hear.clone(), questions));
        Self { datagrams, stream }
    }

    /// Sends a query.
    pub(crate) fn send(&self, question: OutgoingQuestion, stream: bool) {
        // The tasks run as long as the thread, so this cannot fail before the thread ends.
        let _ = if stream { self.stream.send(question) } else { self.datagrams.send(question) };
    }
}

async fn open_datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let own: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own).await?;
    socket.connect(address).await?;
    Ok(socket)
}

async fn datagram_way<H: Hear>(
    nameserver: usize,
    address: SocketAddr,
    size: u16,
    hear: Rc<H>,
    mut questions: UnboundedReceiver<OutgoingQuestion>,
) {
    // If the extra byte is filled, the answer is too big.
    let mut buffer = vec![0; usize::from(size) + 1];
    let mut socket = None;
    loop {
        let question = match &socket {
            None => questions.recv().await,
            Some(open) => match either(&mut questions, open, &mut buffer).await {
                TransportEvent::Question(question) => question,
                TransportEvent::Answer(Ok(length)) => {
                    hear.received(nameserver, &buffer[..length], false);
                    continue;
                }
                // Nothing is listening there. The query times out, and the socket remains usable.
                TransportEvent::Answer(Err(_)) => continue,
            },
        };
        let Some(question) = question else { return };
        if socket.is_none() {
            socket = open_datagrams(address).await.ok();
        }
        let sent = match &socket {
            Some(open) => send_datagram(open, &question.bytes).await,
            None => false,
        };
        if !sent {
            hear.not_sent(nameserver, question.id);
            socket = None;
        }
    }
}

/// Sends a datagram. The kernel reports the refusal of an earlier datagram at the next send, which then sends nothing and is
/// retried.
async fn send_datagram(socket: &UdpSocket, bytes: &[u8]) -> bool {
    match socket.send(bytes).await {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket.send(bytes).await.is_ok(),
        Err(_) => false,
    }
}

enum TransportEvent {
    Question(Option<OutgoingQuestion>),
    Answer(io::Result<usize>),
}

async fn either(
    questions: &mut UnboundedReceiver<OutgoingQuestion>,
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> TransportEvent {
    tokio::select! {
        question = questions.recv() => TransportEvent::Question(question),
        answer = socket.recv(buffer) => TransportEvent::Answer(answer),
    }
}

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(5);

async fn stream_way<H: Hear + 'static>(
    nameserver: usize,
    server: NameServer,
    hear: Rc<H>,
    mut questions: UnboundedReceiver<OutgoingQuestion>,
) {
    while let Some(first) = questions.recv().await {
        let id = first.id;
        let asked = match &server.address {
            address if server.secure.is_some() => match secure::connect(address, &server).await {
                Ok(stream) => {
                    converse(nameserver, stream, first, &hear, &mut questions).await;
                    true
                }
                Err(_) => false,
            },
            NameServerAddress::Ip(address) => match TcpStream::connect(address).await {
                Ok(stream) => {
                    // The connection also works without TCP_NODELAY.
                    let _ = stream.set_nodelay(true);
                    converse(nameserver, stream, first, &hear, &mut questions).await;
                    true
                }
                Err(_) => false,
            },
            NameServerAddress::Unix(path) => match UnixStream::connect(path).await {
                Ok(stream) => {
                    converse(nameserver, stream, first, &hear, &mut questions).await;
                    true
                }
                Err(_) => false,
            },
        };
        if !asked {
            hear.not_sent(nameserver, id);
        }
    }
}

/// Runs one connection: sends queries and receives answers until it breaks or is idle for too long.
async fn converse<H: Hear + 'static, S: AsyncRead + AsyncWrite + 'static>(
    nameserver: usize,
    stream: S,
    first: OutgoingQuestion,
    hear: &Rc<H>,
    questions: &mut UnboundedReceiver<OutgoingQuestion>,
) {
    let (read, mut write) = tokio::io::split(stream);
    let mut reader = tokio::task::spawn_local(read_answers(nameserver, read, hear.clone()));
    let mut next = Some(first);
    while let Some(question) = next {
        if write_question(&mut write, &question.bytes).await.is_err() {
            hear.not_sent(nameserver, question.id);
            break;
        }
        next = tokio::select! {
            question = questions.recv() => question,
            _ = &mut reader => return,
            () = timer::sleep(IDLE) => None,
        };
    }
    reader.abort();
}

async fn write_question(write: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let mut framed = Vec::with_capacity(bytes.len() + 2);
    framed.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    framed.extend_from_slice(bytes);
    write.write_all(&framed).await?;
    // Encrypted bytes may still be buffered.
    write.flush().await
}

async fn read_answers<H: Hear>(nameserver: usize, mut read: impl AsyncRead + Unpin, hear: Rc<H>) {
    let mut buffer = Vec::new();
    while let Ok(length) = read.read_u16().await {
        buffer.resize(usize::from(length), 0);
        if read.read_exact(&mut buffer).await.is_err() {
            return;
        }
        hear.received(nameserver, &buffer, true);
    }
}
