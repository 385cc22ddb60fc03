//! The sockets to one name server: questions go out, answers come in. Datagrams over one connected
//! socket; a connection, of TCP or of a socket of the system, where the section says so, and for
//! answers that did not fit into a datagram. Both are opened when the first question comes; an idle
//! connection is closed.

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

/// A question on its way out.
pub(crate) struct OutgoingQuestion {
    pub(crate) id: u16,
    pub(crate) bytes: Arc<[u8]>,
}

/// Who hears of answers, and of questions that could not be sent.
pub(crate) trait Hear {
    /// Bytes came, over a connection if `stream`.
    fn received(&self, nameserver: usize, bytes: &[u8], stream: bool);
    /// A question was not sent.
    fn not_sent(&self, nameserver: usize, id: u16);
}

/// The ways to one name server.
pub(crate) struct Ways {
    datagrams: UnboundedSender<OutgoingQuestion>,
    stream: UnboundedSender<OutgoingQuestion>,
}

impl Ways {
    /// Ways that open when they are first used; what comes back is told to `hear`.
    pub(crate) fn new<H: Hear + 'static>(
        nameserver: usize,
        server: &NameServer,
        size: u16,
        hear: &Rc<H>,
    ) -> Self {
        let (stream, questions) = unbounded_channel();
        tokio::task::spawn_local(stream_way(nameserver, server.clone(), hear.clone(), questions));
        let NameServerAddress::Ip(address) = server.address else {
            // A name server of the system's sockets is asked over connections alone.
            return Self { datagrams: stream.clone(), stream };
        };
        let (datagrams, questions) = unbounded_channel();
        tokio::task::spawn_local(datagram_way(nameserver, address, size, hear.clone(), questions));
        Self { datagrams, stream }
    }

    /// Sends a question.
    pub(crate) fn send(&self, question: OutgoingQuestion, stream: bool) {
        // The tasks live as long as the thread.
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
    // One byte more shows an answer that is too big.
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
                // Nobody listens there now. The question's time runs out; the socket stays good.
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

/// A refusal that an earlier datagram met is told to the next one, which is then not sent: that one
/// is tried again.
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
                    // A delay of small writes is no reason not to ask.
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

/// One connection's life: questions as they come, answers as they come, until it breaks or nothing
/// is asked for a while.
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
    // What is sealed may not have left yet.
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
