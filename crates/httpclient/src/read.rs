//! Reads a response: its head, then its body with the framing that the head announces, within the caller's limits.

use std::future::poll_fn;

use http::{BodyLength, ChunkDecoder, ChunkEvent, Head, Method, ParseOptions, ParseStatus};
use net::Stream;
use runtime::timer;
use tls::PeerEnd;

use crate::error::{Error, ErrorKind};
use crate::message::Response;
use crate::settings::ClientSettings;

/// The number of bytes that are read at once.
pub(crate) const PART: usize = 16 << 10;

/// Maximum number of interim responses before the final one.
const INTERIM_MAX: usize = 16;

pub(crate) struct ResponseReader<'a> {
    settings: &'a ClientSettings,
    stream: &'a mut Stream,
    /// Received but not consumed.
    bytes: Vec<u8>,
    heard: bool,
    /// Whether the server keeps the connection open after the response.
    keeps: bool,
}

impl<'a> ResponseReader<'a> {
    pub(crate) fn new(settings: &'a ClientSettings, stream: &'a mut Stream) -> Self {
        Self { settings, stream, bytes: Vec::new(), heard: false, keeps: false }
    }

    /// Continues after the head, with the bytes that were received but not consumed.
    pub(crate) fn resumed(settings: &'a ClientSettings, stream: &'a mut Stream, bytes: Vec<u8>) -> Self {
        Self { settings, stream, bytes, heard: true, keeps: false }
    }

    /// Returns the bytes that were received but not consumed.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns whether the server has sent anything.
    pub(crate) fn heard(&self) -> bool {
        self.heard
    }

    /// Returns whether the connection can be used again after the response.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps && self.bytes.is_empty()
    }

    /// Receives more bytes, up to `limit` unconsumed ones; returns `false` at the end of the connection.
    pub(crate) async fn more(&mut self, limit: usize) -> Result<bool, Error> {
        let begin = self.bytes.len();
        self.bytes.resize(begin + PART.min(limit.saturating_sub(begin)).max(1), 0);
        let (stream, room) = (&mut *self.stream, &mut self.bytes[begin..]);
        let read = poll_fn(|context| stream.poll_read(context, room));
        let read = timer::timeout(self.settings.idle_timeout, read).await;
        let n = match &read {
            Ok(Ok(n)) => *n,
            _ => 0,
        };
        self.bytes.truncate(begin + n);
        self.heard |= n > 0;
        match read {
            Ok(Ok(n)) => Ok(n > 0),
            Ok(Err(error)) => Err(Error::new(ErrorKind::Broken, error)),
            Err(_) => Err(Error::new(ErrorKind::Timeout, "the server sends no more data")),
        }
    }

    pub(crate) async fn response(&mut self, method: Method) -> Result<Response, Error> {
        let head = self.final_head().await?;
        let framing = head.response_body(method);
        self.keeps = head.keep_alive() && !matches!(framing, BodyLength::UntilClose);
        let body = match framing {
            BodyLength::None => Vec::new(),
            BodyLength::Length(length) => self.exactly(length).await?,
            BodyLength::Chunked => self.chunked().await?,
            BodyLength::UntilClose => self.until_close().await?,
        };
        Ok(response(&head, body))
    }

    /// Receives the head of the response after any interim responses.
    pub(crate) async fn final_head(&mut self) -> Result<Head, Error> {
        for _ in 0..INTERIM_MAX {
            let head = self.head().await?;
            if head.status() == 101 {
                return Err(Error::new(ErrorKind::Protocol, "the server switched to another protocol"));
            }
            if head.status() >= 200 {
                return Ok(head);
            }
        }
        Err(Error::new(ErrorKind::Protocol, "too many interim responses"))
    }

    async fn head(&mut self) -> Result<Head, Error> {
        let limit = self.settings.max_head;
        let options = ParseOptions { max_bytes: limit, ..ParseOptions::default() };
        let mut head = Head::new();
        loop {
            let parsed = http::parse_response(&self.bytes, &mut head, &options);
            match parsed.map_err(|error| malformed(&error))? {
                ParseStatus::Complete { len } => {
                    self.bytes.drain(..len);
                    return Ok(head);
                }
                ParseStatus::Partial if self.bytes.len() >= limit => {
                    return Err(Error::new(
                        ErrorKind::TooLarge,
                        format!("header section larger than {limit} bytes"),
                    ));
                }
                ParseStatus::Partial => {}
            }
            if !self.more(limit).await? {
                return Err(self.cut());
            }
        }
    }

    pub(crate) fn cut(&self) -> Error {
        Error::new(ErrorKind::Broken, if self.heard { "" } else { "the server sent no response" })
    }

    fn too_large(&self) -> Error {
        Error::new(ErrorKind::TooLarge, format!("body larger than {} bytes", self.settings.max_body))
    }

    async fn exactly(&mut self, length: u64) -> Result<Vec<u8>, Error> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.settings.max_body);
        let length = length.ok_or_else(|| self.too_large())?;
        while self.bytes.len() < length {
            if !self.more(length).await? {
                return Err(self.cut());
            }
        }
        let rest = self.bytes.split_off(length);
        Ok(std::mem::replace(&mut self.bytes, rest))
    }

    async fn chunked(&mut self) -> Result<Vec<u8>, Error> {
        let (mut decoder, mut body) = (ChunkDecoder::new(), Vec::new());
        loop {
            let mut at = 0;
            loop {
                match decoder
                    .decode(&self.bytes, at)
                    .map_err(|error| Error::new(ErrorKind::Protocol, error))?
                {
                    ChunkEvent::Data { range } => {
                        at = range.end;
                        body.extend_from_slice(&self.bytes[range]);
                        if body.len() > self.settings.max_body {
                            return Err(self.too_large());
                        }
                    }
                    ChunkEvent::More => break,
                    ChunkEvent::Done { consumed } => {
                        self.bytes.drain(..consumed);
                        return Ok(body);
                    }
                }
            }
            self.bytes.clear();
            if !self.more(PART).await? {
                return Err(self.cut());
            }
        }
    }

    async fn until_close(&mut self) -> Result<Vec<u8>, Error> {
        let limit = self.settings.max_body;
        loop {
            if self.bytes.len() > limit {
                return Err(self.too_large());
            }
            if !self.more(limit + 1).await? {
                break;
            }
        }
        // Without a close_notify, anybody may have ended the TLS connection (RFC 9112, 9.8).
        if self.stream.tls().is_some_and(|tls| tls.ended() == PeerEnd::Cut) {
            return Err(self.cut());
        }
        Ok(std::mem::take(&mut self.bytes))
    }
}

fn malformed(error: &http::ParseError) -> Error {
    let kind = match error.kind {
        http::ErrorKind::HeadTooLarge | http::ErrorKind::TooManyFields => ErrorKind::TooLarge,
        _ => ErrorKind::Protocol,
    };
    Error::new(kind, error)
}

pub(crate) fn response(head: &Head, body: Vec<u8>) -> Response {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Response {
        status: head.status(),
        reason: text(head.reason()),
        headers: head.fields().map(|(name, value)| (text(name), text(value))).collect(),
        body,
    }
}
