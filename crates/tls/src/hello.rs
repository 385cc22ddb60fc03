//! The ClientHello (RFC 8446 section 4.1.2), parsed before an engine sees it.
//!
//! [`crate::Acceptor::choose`] uses it to select the certificate, the protocol and the engine, and the `ssl_fc_…hello…` fetches
//! show its contents. The input is a handshake message: over TCP, [`crate::deframer`] extracts it from records; over QUIC, it
//! arrives in CRYPTO frames without records (RFC 9001 section 4.1.3).
//!
//! All fields borrow from the message. Inconsistent lengths are errors; unknown extensions are ignored.

use crate::error::Reason;

/// The maximum size of an accepted message, including its header, as in OpenSSL.
const LENGTH_MAX: usize = 131_396;

/// Size of a handshake message's header: the type and the length.
const HEADER: usize = 4;

const CLIENT_HELLO: u8 = 1;

const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// A parsed ClientHello. Lists of numbers are kept as bytes for [`numbers`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello<'a> {
    /// The version in the fixed part of the message: 0x0303 since TLS 1.2.
    pub legacy_version: u16,
    /// 32 bytes.
    pub random: &'a [u8],
    /// The session ID, up to 32 bytes.
    pub session_id: &'a [u8],
    /// Cipher suites, two bytes each.
    pub suites: &'a [u8],
    /// All extensions, each with its type and length.
    pub extensions: &'a [u8],
    /// The server name, as sent.
    pub server_name: Option<&'a [u8]>,
    /// Protocols (ALPN), each with its length.
    pub alpn: Option<&'a [u8]>,
    /// Signature schemes, two bytes each.
    pub signatures: Option<&'a [u8]>,
    /// Groups, two bytes each.
    pub groups: Option<&'a [u8]>,
    /// Versions, two bytes each. Without them, `legacy_version` applies.
    pub versions: Option<&'a [u8]>,
}

/// Iterates over two-byte numbers.
pub fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> + Clone + '_ {
    bytes.as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair))
}

/// Iterates over pieces with a one-byte length prefix.
pub fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first()?;
        let (piece, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        Some(piece)
    })
}

impl<'a> Hello<'a> {
    /// Returns the length of the ClientHello that starts with `begin`, including the header. Returns `None` if `begin` is shorter
    /// than a header.
    ///
    /// # Errors
    /// The message is not a ClientHello, or exceeds the maximum size.
    pub fn length(begin: &[u8]) -> Result<Option<usize>, Reason> {
        let [kind, a, b, c, ..] = *begin else { return Ok(None) };
        let length = HEADER + u32::from_be_bytes([0, a, b, c]) as usize;
        if kind != CLIENT_HELLO {
            return Err(Reason::UnexpectedMessage);
        }
        if length > LENGTH_MAX {
            return Err(Reason::PacketLengthTooLong);
        }
        Ok(Some(length))
    }

    /// Parses a ClientHello. `message` is exactly the handshake message with its header.
    ///
    /// # Errors
    /// The message is not a ClientHello, its lengths contradict each other, or an extension occurs twice.
    pub fn parse(message: &'a [u8]) -> Result<Self, Reason> {
        if Self::length(message)? != Some(message.len()) {
            return Err(Reason::LengthMismatch);
        }
        let mut rest = HelloReader(&message[HEADER..]);
        let mut hello = Hello {
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
        let mut data = HelloReader(data);
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
                let mut names = HelloReader(list);
                // The only name type is a host name.
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

    /// Returns the newest version that the client supports, up to `max`; 0 if there is none.
    pub fn version_up_to(&self, max: u16) -> u16 {
        match self.versions {
            Some(versions) => {
                numbers(versions).filter(|version| (0x0300..=max).contains(version)).max().unwrap_or(0)
            }
            None => self.legacy_version.min(0x0303).min(max),
        }
    }

    /// Whether the client offered one of the protocols.
    pub fn speaks_any(&self, protocols: &[Box<[u8]>]) -> bool {
        self.alpn.is_some_and(|offered| {
            pieces(offered).any(|offered| protocols.iter().any(|own| **own == *offered))
        })
    }
}

/// Iterates over the extensions.
pub fn extensions(bytes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), Reason>> {
    let mut rest = HelloReader(bytes);
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
struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
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
