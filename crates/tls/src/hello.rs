//! The ClientHello, taken apart before the engine sees it (RFC 8446, 4.1.2): what chooses the certificate, the protocol and
//! the engine, and what the `ssl_fc_…hello…` fetches show.
//!
//! Everything is borrowed from the message. What does not fit together is an error; what is unknown is passed over.

use std::borrow::Cow;

use crate::error::Reason;
use crate::record;

/// No ClientHello is longer: OpenSSL's own limit (`SSL3_RT_MAX_PLAIN_LENGTH` and its maximum of a message).
const LENGTH_MAX: usize = 131_396;

const CLIENT_HELLO: u8 = 1;

const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// A ClientHello. Lists of numbers are their bytes: see [`numbers`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello<'a> {
    /// The whole message, without its header.
    pub body: &'a [u8],
    /// The version before extensions: 0x0303 since TLS 1.2.
    pub legacy_version: u16,
    /// 32 bytes.
    pub random: &'a [u8],
    /// Up to 32 bytes.
    pub session_id: &'a [u8],
    /// Cipher suites, two bytes each.
    pub suites: &'a [u8],
    /// All extensions, each with its type and length.
    pub extensions: &'a [u8],
    /// The name of the server, as sent.
    pub server_name: Option<&'a [u8]>,
    /// Protocols (ALPN), each with its length.
    pub alpn: Option<&'a [u8]>,
    /// Signature schemes, two bytes each.
    pub signatures: Option<&'a [u8]>,
    /// Groups, two bytes each.
    pub groups: Option<&'a [u8]>,
    /// Versions, two bytes each; without them `legacy_version` counts.
    pub versions: Option<&'a [u8]>,
}

/// Numbers of two bytes each.
pub fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> + Clone + '_ {
    bytes.as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair))
}

/// Pieces that each stand behind their length of one byte.
pub fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first()?;
        let (piece, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        Some(piece)
    })
}

/// The body of the ClientHello that `received` begins with, once it is there to the end: joined where it came in several
/// records.
///
/// # Errors
/// Something else begins so, or it is longer than any.
pub fn body(received: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Reason> {
    let Some(first) = framed(received)? else { return Ok(None) };
    let [kind, a, b, c, ..] = *first else { return join(received, 0) };
    let length = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
    if kind != CLIENT_HELLO {
        return Err(Reason::UnexpectedMessage);
    }
    if length > LENGTH_MAX {
        return Err(Reason::PacketLengthTooLong);
    }
    match first.get(4..length) {
        Some(body) => Ok(Some(Cow::Borrowed(body))),
        None => join(received, length),
    }
}

/// The payload of the record at the front, once it is there to the end.
fn framed(received: &[u8]) -> Result<Option<&[u8]>, Reason> {
    let Some(framed) = record::frame(received).map_err(|reason| plain_text(received, reason))? else {
        return Ok(None);
    };
    if framed.content != record::HANDSHAKE {
        return Err(Reason::UnexpectedMessage);
    }
    if framed.length == record::HEADER {
        return Err(Reason::BadPacket);
    }
    Ok(received.get(record::HEADER..framed.length))
}

/// The message from several records; `length` is 0 while not even that is known.
fn join(received: &[u8], length: usize) -> Result<Option<Cow<'_, [u8]>>, Reason> {
    let mut message = Vec::with_capacity(length);
    let mut rest = received;
    while length == 0 || message.len() < length {
        let Some(payload) = framed(rest)? else { return Ok(None) };
        rest = &rest[record::HEADER + payload.len()..];
        message.extend_from_slice(payload);
        if let (0, [kind, a, b, c, ..]) = (length, &*message) {
            let length = 4 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if *kind != CLIENT_HELLO {
                return Err(Reason::UnexpectedMessage);
            }
            return if length > LENGTH_MAX {
                Err(Reason::PacketLengthTooLong)
            } else {
                join(received, length)
            };
        }
    }
    message.truncate(length);
    message.drain(..4);
    Ok(Some(Cow::Owned(message)))
}

/// Plain HTTP on a port for TLS has names of its own in OpenSSL.
fn plain_text(received: &[u8], reason: Reason) -> Reason {
    let begins = |words: &[&str]| words.iter().any(|word| received.starts_with(word.as_bytes()));
    if begins(&["GET ", "POST ", "HEAD ", "PUT "]) {
        Reason::HttpRequest
    } else if begins(&["CONNE"]) {
        Reason::HttpsProxyRequest
    } else {
        reason
    }
}

impl<'a> Hello<'a> {
    /// Takes the body of a ClientHello apart.
    ///
    /// # Errors
    /// Lengths that do not fit, or an extension that is there twice.
    pub fn parse(body: &'a [u8]) -> Result<Self, Reason> {
        let mut rest = Reader(body);
        let mut hello = Hello {
            body,
            legacy_version: rest.number()?,
            random: rest.take(32)?,
            session_id: rest.vector8()?,
            suites: rest.vector16()?,
            ..Self::default()
        };
        let compressions = rest.vector8()?;
        if hello.session_id.len() > 32 || !hello.suites.len().is_multiple_of(2) || compressions.is_empty() {
            return Err(Reason::LengthMismatch);
        }
        if rest.0.is_empty() {
            return Ok(hello);
        }
        hello.extensions = rest.vector16()?;
        if !rest.0.is_empty() {
            return Err(Reason::LengthMismatch);
        }
        for extension in extensions(hello.extensions) {
            let (kind, data) = extension?;
            hello.note(kind, data)?;
        }
        Ok(hello)
    }

    fn note(&mut self, kind: u16, data: &'a [u8]) -> Result<(), Reason> {
        let mut data = Reader(data);
        let slot = match kind {
            SERVER_NAME => &mut self.server_name,
            SUPPORTED_GROUPS => &mut self.groups,
            SIGNATURE_ALGORITHMS => &mut self.signatures,
            ALPN => &mut self.alpn,
            SUPPORTED_VERSIONS => &mut self.versions,
            _ => return Ok(()),
        };
        if slot.is_some() {
            return Err(Reason::BadExtension);
        }
        let list = if kind == SUPPORTED_VERSIONS { data.vector8()? } else { data.vector16()? };
        *slot = Some(match kind {
            SERVER_NAME => {
                let mut names = Reader(list);
                // The one kind of name there is: a host's.
                if names.take(1)? != [0] {
                    return Err(Reason::BadExtension);
                }
                names.vector16()?
            }
            ALPN => list,
            _ if list.len().is_multiple_of(2) => list,
            _ => return Err(Reason::LengthMismatch),
        });
        Ok(())
    }

    /// The newest version that the client speaks, of those that are no more than `max`; 0 where there is none.
    pub fn version_up_to(&self, max: u16) -> u16 {
        match self.versions {
            Some(versions) => {
                numbers(versions).filter(|version| (0x0300..=max).contains(version)).max().unwrap_or(0)
            }
            None => self.legacy_version.min(0x0303).min(max),
        }
    }

    /// Whether the client named one of the protocols.
    pub fn speaks_any(&self, protocols: &[Box<[u8]>]) -> bool {
        self.alpn.is_some_and(|offered| {
            pieces(offered).any(|offered| protocols.iter().any(|own| **own == *offered))
        })
    }
}

/// The extensions, one after the other.
pub fn extensions(bytes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), Reason>> {
    let mut rest = Reader(bytes);
    std::iter::from_fn(move || {
        if rest.0.is_empty() {
            return None;
        }
        let one = rest.number().and_then(|kind| Ok((kind, rest.vector16()?)));
        if one.is_err() {
            rest.0 = &[];
        }
        Some(one)
    })
}

/// Reads from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Reason> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Reason::LengthMismatch)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, Reason> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector8(&mut self) -> Result<&'a [u8], Reason> {
        let length = self.take(1)?[0];
        self.take(usize::from(length))
    }

    fn vector16(&mut self) -> Result<&'a [u8], Reason> {
        let length = self.number()?;
        self.take(usize::from(length))
    }
}
