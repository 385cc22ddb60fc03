//! Unary gRPC calls (gRPC over HTTP/2): one message, one response.
//!
//! The engine is the crate `h2`; the connection is made as for HTTP/1 requests.

use std::future::poll_fn;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::Poll;

use fields::Scheme;
use h2::{Config, Connection, Event, Role, StreamKey};
use http::{Head, Name};
use net::Stream;
use runtime::timer;

use crate::error::{Error, ErrorKind};
use crate::exchange::open;
use crate::message::AGENT;
use crate::settings::ClientSettings;
use crate::url::Url;

/// The number of bytes that are read at once.
const PART: usize = 16 << 10;

/// The response to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcReply {
    /// `grpc-status`.
    pub status: u16,
    /// `grpc-message`; empty for none. It is not decoded.
    pub message: String,
    /// `grpc-status-details-bin`, in base64.
    pub details: Option<String>,
    /// The response message, without its framing; may be empty.
    pub body: Vec<u8>,
}

/// A call.
#[derive(Debug, Clone)]
pub struct GrpcRequest {
    /// The server, and the path of the method.
    pub url: Url,
    /// Metadata: names in lower case, and values.
    pub metadata: Vec<(String, String)>,
    /// The request message.
    pub message: Vec<u8>,
    /// Whether the message is already compressed with gzip.
    pub is_gzip: bool,
}

/// Makes one call on a new connection, and waits for the response. Failed connections are not retried. Dropping the future
/// closes the connection.
///
/// # Errors
/// The connection failed, or the response is not one of gRPC. A response with any gRPC status is a success.
pub async fn call(settings: &ClientSettings, request: &GrpcRequest) -> Result<GrpcReply, Error> {
    let overdue = Error::new(ErrorKind::Timeout, "the request timed out");
    timer::timeout(settings.total_timeout, make(settings, request)).await.unwrap_or(Err(overdue))
}

async fn make(settings: &ClientSettings, request: &GrpcRequest) -> Result<GrpcReply, Error> {
    let mut stream = open(settings, &request.url).await?;
    let mut link = GrpcLink::default();
    let outcome = link.call(settings, request, &mut stream).await;
    stream.close();
    outcome.map_err(|(error, _)| error)
}

/// The HTTP/2 state of a connection.
pub(crate) struct GrpcLink {
    engine: Connection<Vec<u8>>,
    /// Received but not decoded.
    input: Vec<u8>,
}

impl Default for GrpcLink {
    fn default() -> Self {
        Self { engine: Connection::new(Role::Client, &Arc::new(Config::default())), input: Vec::new() }
    }
}

impl GrpcLink {
    /// Makes a call on the connection. With an error, also returns whether the server had sent anything.
    pub(crate) async fn call(
        &mut self,
        settings: &ClientSettings,
        request: &GrpcRequest,
        stream: &mut Stream,
    ) -> Result<GrpcReply, (Error, bool)> {
        let mut call = Call::begin(request, self).map_err(|error| (error, false))?;
        let outcome = call.run(settings, stream).await;
        let (key, heard) = (call.key, call.heard);
        let reply = outcome.and_then(|()| call.reply());
        self.engine.release(key);
        reply.map_err(|error| (error, heard))
    }

    /// Decodes what the server has sent since the last call, and returns whether another call can be made.
    pub(crate) async fn is_usable(&mut self, stream: &mut Stream) -> bool {
        loop {
            let begin = self.input.len();
            self.input.resize(begin + PART, 0);
            let room = &mut self.input[begin..];
            let read = poll_fn(|context| Poll::Ready(stream.poll_read(context, room))).await;
            let length = match read {
                Poll::Ready(Ok(length)) => length,
                Poll::Ready(Err(_)) => 0,
                Poll::Pending => {
                    self.input.truncate(begin);
                    return self.engine.free() > 0;
                }
            };
            self.input.truncate(begin + length);
            if length == 0 || !self.decode_idle() {
                return false;
            }
        }
    }

    /// Decodes frames that do not belong to a call. Returns `false` after a violation of the protocol.
    fn decode_idle(&mut self) -> bool {
        let mut at = 0;
        self.engine.begin_turn(false);
        loop {
            let Ok((taken, event)) = self.engine.receive(&self.input[at..]) else { return false };
            at += taken;
            match event {
                Some(_) => {}
                None if taken > 0 && self.engine.is_turn_over() => self.engine.begin_turn(false),
                None => break,
            }
        }
        self.input.drain(..at);
        true
    }
}

/// A call in progress.
struct Call<'a> {
    engine: &'a mut Connection<Vec<u8>>,
    input: &'a mut Vec<u8>,
    key: StreamKey,
    /// Whether the server has sent anything since the call began.
    heard: bool,
    /// The message with its framing, and how much of it was sent.
    body: (Vec<u8>, usize),
    head: Option<Head>,
    trailers: Option<Head>,
    received: Vec<u8>,
    is_over: bool,
}

impl<'a> Call<'a> {
    fn begin(request: &GrpcRequest, link: &'a mut GrpcLink) -> Result<Self, Error> {
        let mut head = Head::new();
        head.start_request(b"POST", request.url.path().as_bytes());
        let fixed = [
            ("host", &*request.url.host_header()),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", AGENT),
        ];
        let coding = request.is_gzip.then_some(("grpc-encoding", "gzip"));
        let own = request.metadata.iter().map(|(name, value)| (&**name, &**value));
        for (name, value) in fixed.into_iter().chain(coding).chain(own) {
            head.append(name.as_bytes(), value.as_bytes());
        }
        let GrpcLink { engine, input } = link;
        let scheme = if request.url.is_tls { Scheme::Https } else { Scheme::Http };
        let opened = engine.open(&head, scheme, false);
        let key =
            opened.map_err(|_| Error::new(ErrorKind::Request, "the request cannot be sent with HTTP/2"))?;
        let mut body = vec![u8::from(request.is_gzip)];
        body.extend_from_slice(&(request.message.len() as u32).to_be_bytes());
        body.extend_from_slice(&request.message);
        Ok(Self {
            engine,
            input,
            key,
            heard: false,
            body: (body, 0),
            head: None,
            trailers: None,
            received: Vec::new(),
            is_over: false,
        })
    }

    async fn run(&mut self, settings: &ClientSettings, stream: &mut Stream) -> Result<(), Error> {
        loop {
            self.send();
            self.write(settings, stream).await?;
            if self.is_over {
                return Ok(());
            }
            let begin = self.input.len();
            self.input.resize(begin + PART, 0);
            let room = &mut self.input[begin..];
            let read = poll_fn(|context| stream.poll_read(context, room));
            let read = timer::timeout(settings.idle_timeout, read).await;
            let read = read.map_err(|_| Error::new(ErrorKind::Timeout, "the server sends no more data"))?;
            let length = read.map_err(|error| Error::new(ErrorKind::Broken, error))?;
            self.input.truncate(begin + length);
            if length == 0 {
                return Err(Error::new(ErrorKind::Broken, "the server closed the connection"));
            }
            self.heard = true;
            let input = std::mem::take(self.input);
            let taken = self.receive(&input, settings.max_body)?;
            *self.input = input;
            self.input.drain(..taken);
        }
    }

    /// Passes as much of the message to the engine as the windows allow.
    fn send(&mut self) {
        let (body, sent) = &mut self.body;
        if *sent < body.len() {
            *sent += self.engine.send_data(self.key, &body[*sent..], true);
        }
    }

    async fn write(&mut self, settings: &ClientSettings, stream: &mut Stream) -> Result<(), Error> {
        loop {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = self.engine.output(&mut slices);
            let out: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
            if out.is_empty() {
                break;
            }
            let mut at = 0;
            while at < out.len() {
                let written = poll_fn(|context| stream.poll_write(context, &out[at..]));
                let written = timer::timeout(settings.idle_timeout, written).await;
                let written = written
                    .map_err(|_| Error::new(ErrorKind::Timeout, "the server does not accept the request"))?;
                at += written.map_err(|error| Error::new(ErrorKind::Broken, error))?;
            }
            self.engine.sent(out.len());
            while self.engine.next_writable().is_some() {
                self.send();
            }
        }
        poll_fn(|context| stream.poll_flush(context))
            .await
            .map_err(|error| Error::new(ErrorKind::Broken, error))?;
        stream.push();
        Ok(())
    }

    /// Decodes `input` and returns how much of it was consumed.
    fn receive(&mut self, input: &[u8], most: usize) -> Result<usize, Error> {
        let mut at = 0;
        self.engine.begin_turn(false);
        while !self.is_over {
            let received = self.engine.receive(&input[at..]);
            let (taken, event) =
                received.map_err(|_| Error::new(ErrorKind::Protocol, "the server violates HTTP/2"))?;
            let from = at;
            at += taken;
            match event {
                Some(event) => self.happen(event, &input[from..], most)?,
                None if taken > 0 && self.engine.is_turn_over() => self.engine.begin_turn(false),
                None => break,
            }
        }
        while self.engine.next_writable().is_some() {
            self.send();
        }
        Ok(at)
    }

    /// Handles an event; `input` contains its ranges.
    fn happen(&mut self, event: Event, input: &[u8], most: usize) -> Result<(), Error> {
        match event {
            // The rest of an earlier call.
            Event::Head { key, .. }
            | Event::Data { key, .. }
            | Event::Trailers { key, .. }
            | Event::End { key }
                if key != self.key => {}
            Event::Head { end, .. } => {
                let head = self.engine.head_mut();
                if head.status() < 200 {
                    return Ok(());
                }
                self.head = Some(std::mem::replace(head, Head::new()));
                self.is_over = end;
            }
            Event::Data { key, range, end } => {
                let payload = input.get(range).unwrap_or_default();
                if self.received.len() + payload.len() > most {
                    return Err(Error::new(ErrorKind::TooLarge, "the response is too large"));
                }
                self.received.extend_from_slice(payload);
                self.engine.consume(key, payload.len());
                self.is_over = end;
            }
            Event::Trailers { .. } => {
                self.trailers = Some(std::mem::replace(self.engine.head_mut(), Head::new()));
                self.is_over = true;
            }
            Event::End { .. } => self.is_over = true,
            Event::Reset { .. } | Event::Refused { .. } => {
                return Err(Error::new(ErrorKind::Broken, "the server reset the request"));
            }
            Event::Goaway { .. } | Event::Settings | Event::Pong => {}
        }
        Ok(())
    }

    /// The response. A call that fails at once has its status in its head.
    fn reply(self) -> Result<GrpcReply, Error> {
        let head = self.head.ok_or_else(|| Error::new(ErrorKind::Protocol, "the response has no head"))?;
        let field = |name: &[u8]| {
            let name = Name::new(name);
            let found =
                self.trailers.as_ref().and_then(|trailers| trailers.get(&name)).or_else(|| head.get(&name));
            found.map(|value| String::from_utf8_lossy(value).into_owned())
        };
        let status = match (field(b"grpc-status").map(|code| code.parse::<u16>()), head.status()) {
            (Some(Ok(status)), _) => status,
            // The mapping that gRPC defines for servers that do not speak it.
            (_, 400) => 13,
            (_, 401) => 16,
            (_, 403) => 7,
            (_, 404) => 12,
            (_, 429 | 502 | 503 | 504) => 14,
            (_, _) => 2,
        };
        let body = match self.received.split_at_checked(5) {
            // A compressed response was not requested.
            Some(([0, length @ ..], message)) => {
                let length = length.iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
                message.get(..length).unwrap_or_default().to_vec()
            }
            _ => Vec::new(),
        };
        let message = field(b"grpc-message").unwrap_or_default();
        Ok(GrpcReply { status, message, details: field(b"grpc-status-details-bin"), body })
    }
}
