//! A response that is read as it arrives, for servers that answer with one line after the other.

use http::{BodyLength, ChunkDecoder, ChunkEvent, Method};
use net::Stream;
use runtime::timer;

use crate::error::{Error, ErrorKind};
use crate::exchange::{begin, open};
use crate::message::{Request, Response};
use crate::read::{PART, ResponseReader, response};
use crate::settings::ClientSettings;

/// The framing of the rest of a body.
#[derive(Debug)]
enum Rest {
    Length(u64),
    Chunked(ChunkDecoder),
    UntilClose,
    Done,
}

/// A response with a body that is still arriving. Dropping it closes the connection.
pub struct ResponseStream {
    settings: ClientSettings,
    stream: Stream,
    bytes: Vec<u8>,
    rest: Rest,
    /// The status and the headers; the body is empty.
    pub head: Response,
}

/// Sends `request` once, and returns when the head of the response has arrived, within `total_timeout` of the settings.
///
/// # Errors
/// The connection failed, or the head is invalid. A response with any status is a success.
pub async fn stream(settings: &ClientSettings, request: &Request) -> Result<ResponseStream, Error> {
    let overdue = Error::new(ErrorKind::Timeout, "the request timed out");
    timer::timeout(settings.total_timeout, start(settings, request)).await.unwrap_or(Err(overdue))
}

async fn start(settings: &ClientSettings, request: &Request) -> Result<ResponseStream, Error> {
    let bytes = request.write(false)?;
    let method = Method::from_bytes(request.method.as_bytes());
    let mut stream = open(settings, &request.url).await?;
    begin(settings, &bytes, &mut stream).await?;
    let mut reader = ResponseReader::new(settings, &mut stream);
    let head = reader.final_head().await?;
    let bytes = reader.into_bytes();
    let rest = match head.response_body(method) {
        BodyLength::None => Rest::Done,
        BodyLength::Length(length) => Rest::Length(length),
        BodyLength::Chunked => Rest::Chunked(ChunkDecoder::new()),
        BodyLength::UntilClose => Rest::UntilClose,
    };
    let head = response(&head, Vec::new());
    Ok(ResponseStream { settings: settings.clone(), stream, bytes, rest, head })
}

impl ResponseStream {
    /// Appends the next bytes of the body to `body`. Returns `false` at the end of the body, and then appends nothing.
    ///
    /// # Errors
    /// The connection ended within the body, the framing is invalid, or nothing arrived within `idle_timeout`.
    pub async fn read(&mut self, body: &mut Vec<u8>) -> Result<bool, Error> {
        loop {
            let before = body.len();
            self.take(body)?;
            if body.len() > before {
                return Ok(true);
            }
            if matches!(self.rest, Rest::Done | Rest::Length(0)) {
                return Ok(false);
            }
            let mut reader =
                ResponseReader::resumed(&self.settings, &mut self.stream, std::mem::take(&mut self.bytes));
            let is_open = reader.more(PART).await?;
            if !is_open && !matches!(self.rest, Rest::UntilClose) {
                return Err(reader.cut());
            }
            self.bytes = reader.into_bytes();
            if !is_open {
                self.rest = Rest::Done;
            }
        }
    }

    /// Moves the received part of the body.
    fn take(&mut self, body: &mut Vec<u8>) -> Result<(), Error> {
        match &mut self.rest {
            Rest::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.bytes.len());
                body.extend(self.bytes.drain(..count));
                *left -= count as u64;
            }
            Rest::Chunked(decoder) => {
                let mut at = 0;
                loop {
                    let event = decoder.decode(&self.bytes, at);
                    match event.map_err(|error| Error::new(ErrorKind::Protocol, error))? {
                        ChunkEvent::Data { range } => {
                            at = range.end;
                            body.extend_from_slice(&self.bytes[range]);
                        }
                        ChunkEvent::More => break,
                        ChunkEvent::Done { .. } => {
                            self.rest = Rest::Done;
                            break;
                        }
                    }
                }
                self.bytes.clear();
            }
            Rest::UntilClose => body.append(&mut self.bytes),
            Rest::Done => {}
        }
        Ok(())
    }
}
