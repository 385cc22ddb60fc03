//! The ClientHello, taken apart before the engine sees it (RFC 8446, 4.1.2): what chooses the
//! certificate, the protocol and the engine, and what the `ssl_fc_…hello…` fetches show.
//!
//! Everything is borrowed from the message. What does not fit together is an error; what is unknown
//! is passed over.

use crate::error::Reason;
use crate::record;

/// No ClientHello is longer: OpenSSL's own limit (`SSL3_RT_MAX_PLAIN_LENGTH` and its maximum of a
/// message).
const LENGTH_MAX: usize = 131_396;

/// Nor does it come in records that are longer together.
const RECEIVED_MAX: usize = 1 << 18;

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

/// A ClientHello on its way, perhaps in many records. Each byte is looked at once, however few come
/// at a time.
#[derive(Debug, Default)]
pub struct Arriving {
    /// All that was received, for whoever makes the handshake.
    received: Vec<u8>,
    /// Where the first record begins that is not in `message`.
    next: usize,
    /// The message with its header, so far.
    message: Vec<u8>,
}

impl Arriving {
    /// One whose first bytes were received already; [`take`](Self::take) looks at them.
    pub fn begun(received: &[u8]) -> Self {
        Self { received: received.to_vec(), ..Self::default() }
    }

    /// Takes more of what was received: the body of the ClientHello once it is there to the end.
    ///
    /// # Errors
    /// Something else begins so, or it is longer than any.
    pub fn take(&mut self, received: &[u8]) -> Result<Option<&[u8]>, Reason> {
        self.received.extend_from_slice(received);
        if self.received.len() > RECEIVED_MAX {
            return Err(Reason::PacketLengthTooLong);
        }
        loop {
            if let [kind, a, b, c, ..] = *self.message {
                let length = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
                if kind != CLIENT_HELLO {
                    return Err(Reason::UnexpectedMessage);
                }
                if length > LENGTH_MAX {
                    return Err(Reason::PacketLengthTooLong);
                }
                if self.message.len() >= length {
                    return Ok(self.message.get(4..length));
                }
            }
            let rest = &self.received[self.next..];
            let framed = record::frame(rest).map_err(|reason| plain_text(&self.received, reason))?;
            let Some(framed) = framed else { return Ok(None) };
            if framed.content != record::HANDSHAKE {
                return Err(Reason::UnexpectedMessage);
            }
            if framed.length == record::HEADER {
                return Err(Reason::BadPacket);
            }
            let Some(payload) = rest.get(record::HEADER..framed.length) else { return Ok(None) };
            self.message.extend_from_slice(payload);
            self.next += framed.length;
        }
    }

    /// Whether nothing was received.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// All that was received.
    pub fn into_received(self) -> Vec<u8> {
        self.received
    }
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

    /// The newest version that the client speaks, of those that are no more than `max`; 0 where
    /// there is none.
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
