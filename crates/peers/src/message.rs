//! The messages of a session: classes, types and framing (doc/peers.txt). `definition` and `row` parse the content of definitions
//! and updates.

use base::varint::{self, Flaw};

use crate::integer::MessageReader;

/// The maximum length of a message's content.
pub const LONGEST: usize = 16384;

/// Why a session is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    /// The peer violated the protocol; the text is a short description.
    Protocol(&'static str),
    /// The peer sent a message that is too long.
    Size,
}

/// Messages without content: resync states, and heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Requests a resync.
    ResyncRequest = 0,
    /// The resync is complete.
    ResyncFinished = 1,
    /// The sender has sent all its data, which may be incomplete.
    ResyncPartial = 2,
    /// Confirms the end of the resync.
    ResyncConfirm = 3,
    /// A heartbeat.
    Heartbeat = 4,
}

/// A received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// A message without content.
    Control(Control),
    /// The peer reports a protocol violation.
    ProtocolError,
    /// The peer reports a message that was too long.
    SizeError,
    /// An entry.
    Update {
        /// Whether the number is omitted, in which case it is one more than the last.
        incremental: bool,
        /// Whether it contains the remaining lifetime of the entry.
        timed: bool,
        /// The content, for `row`.
        body: &'a [u8],
    },
    /// A table definition; its entries follow.
    Define(&'a [u8]),
    /// Entries of a known table follow; this is its number.
    Switch(u64),
    /// The peer has received entries of one of the local tables.
    Ack {
        /// The number of the table on this side.
        table: u64,
        /// The number of the last entry.
        update: u32,
    },
    /// A message of Weir.
    Extension(Extension),
    /// A message that is unknown in this version.
    Unknown,
}

/// Messages that only Weir sends. They have a separate class, which other programs ignore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// Requests the counts that an earlier process of the sender has made ([`Tables::is_part_of`](crate::Tables::is_part_of)).
    PartsRequest,
    /// The requested counts are complete.
    PartsFinished,
    /// The first message of a session: the features of the sender, as bits.
    Features(u64),
}

const CONTROL: u8 = 0;
const ERROR: u8 = 1;
const TABLES: u8 = 10;
const WEIR: u8 = 87;

const PARTS_REQUEST: u8 = 0;
const PARTS_FINISHED: u8 = 1;
const FEATURES: u8 = 128;

const UPDATE: u8 = 128;
const UPDATE_INCREMENTAL: u8 = 129;
const DEFINE: u8 = 130;
const SWITCH: u8 = 131;
const ACK: u8 = 132;
const UPDATE_TIMED: u8 = 133;
const UPDATE_INCREMENTAL_TIMED: u8 = 134;

/// Parses the first message in `bytes`, and returns its length, or `None` while it is incomplete.
pub fn read(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, Breach> {
    let [class, kind, rest @ ..] = bytes else { return Ok(None) };
    if *kind < 128 {
        return Ok(Some((short(*class, *kind), 2)));
    }
    let (length, taken) = match varint::read(rest) {
        Ok(read) => read,
        Err(Flaw::Short) => return Ok(None),
        Err(Flaw::Big) => return Err(Breach::Size),
    };
    if length > LONGEST as u64 {
        return Err(Breach::Size);
    }
    let length = length as usize;
    let Some(body) = rest.get(taken..taken + length) else { return Ok(None) };
    Ok(Some((long(*class, *kind, body)?, 2 + taken + length)))
}

fn short(class: u8, kind: u8) -> Message<'static> {
    match (class, kind) {
        (CONTROL, 0) => Message::Control(Control::ResyncRequest),
        (CONTROL, 1) => Message::Control(Control::ResyncFinished),
        (CONTROL, 2) => Message::Control(Control::ResyncPartial),
        (CONTROL, 3) => Message::Control(Control::ResyncConfirm),
        (CONTROL, 4) => Message::Control(Control::Heartbeat),
        (ERROR, 0) => Message::ProtocolError,
        (ERROR, 1) => Message::SizeError,
        (WEIR, PARTS_REQUEST) => Message::Extension(Extension::PartsRequest),
        (WEIR, PARTS_FINISHED) => Message::Extension(Extension::PartsFinished),
        _ => Message::Unknown,
    }
}

fn long(class: u8, kind: u8, body: &[u8]) -> Result<Message<'_>, Breach> {
    let mut fields = MessageReader::new(body);
    if class == WEIR && kind == FEATURES {
        let bits = fields.number().ok_or(Breach::Protocol("truncated features"))?;
        return Ok(Message::Extension(Extension::Features(bits)));
    }
    if class != TABLES {
        return Ok(Message::Unknown);
    }
    Ok(match kind {
        UPDATE => Message::Update { incremental: false, timed: false, body },
        UPDATE_INCREMENTAL => Message::Update { incremental: true, timed: false, body },
        UPDATE_TIMED => Message::Update { incremental: false, timed: true, body },
        UPDATE_INCREMENTAL_TIMED => Message::Update { incremental: true, timed: true, body },
        DEFINE => Message::Define(body),
        SWITCH => Message::Switch(fields.number().ok_or(Breach::Protocol("switch without a table"))?),
        ACK => {
            let (table, update) = (fields.number(), fields.word());
            let (table, update) = table.zip(update).ok_or(Breach::Protocol("truncated acknowledgement"))?;
            Message::Ack { table, update }
        }
        _ => Message::Unknown,
    })
}

/// Appends a message without content.
pub fn control(control: Control, out: &mut Vec<u8>) {
    out.extend_from_slice(&[CONTROL, control as u8]);
}

/// Appends the reason for ending the session.
pub fn error(breach: Breach, out: &mut Vec<u8>) {
    out.extend_from_slice(&[ERROR, u8::from(breach == Breach::Size)]);
}

/// Appends a message of Weir.
pub(crate) fn extension(extension: Extension, out: &mut Vec<u8>) {
    match extension {
        Extension::PartsRequest => out.extend_from_slice(&[WEIR, PARTS_REQUEST]),
        Extension::PartsFinished => out.extend_from_slice(&[WEIR, PARTS_FINISHED]),
        Extension::Features(bits) => framed(WEIR, FEATURES, out, |out| varint::write(out, bits)),
    }
}

/// Appends the definition of a table with this content.
pub(crate) fn define(body: &[u8], out: &mut Vec<u8>) {
    framed(TABLES, DEFINE, out, |out| out.extend_from_slice(body));
}

/// Appends an entry; `write` appends its content.
pub(crate) fn update(incremental: bool, timed: bool, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let kind = match (incremental, timed) {
        (false, false) => UPDATE,
        (true, false) => UPDATE_INCREMENTAL,
        (false, true) => UPDATE_TIMED,
        (true, true) => UPDATE_INCREMENTAL_TIMED,
    };
    framed(TABLES, kind, out, write);
}

/// Appends an acknowledgement of the peer's entries.
pub fn ack(table: u64, update: u32, out: &mut Vec<u8>) {
    framed(TABLES, ACK, out, |out| {
        varint::write(out, table);
        out.extend_from_slice(&update.to_be_bytes());
    });
}

/// Appends a message with content. The length of nearly all messages takes one byte, which is reserved before `write` appends the content.
fn framed(class: u8, kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[class, kind, 0]);
    let start = out.len();
    write(out);
    let length = (out.len() - start) as u64;
    if varint::is_short(length) {
        out[start - 1] = length as u8;
        return;
    }
    let mut told = Vec::with_capacity(varint::LONGEST);
    varint::write(&mut told, length);
    out.splice(start - 1..start, told);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_distinguished_by_class_and_type() {
        let cases: [(&[u8], Message<'_>); 13] = [
            (&[0, 0], Message::Control(Control::ResyncRequest)),
            (&[0, 4], Message::Control(Control::Heartbeat)),
            (&[1, 0], Message::ProtocolError),
            (&[1, 1], Message::SizeError),
            (&[0, 9], Message::Unknown),
            (&[255, 200, 1, 7], Message::Unknown),
            (&[87, 0], Message::Extension(Extension::PartsRequest)),
            (&[87, 1], Message::Extension(Extension::PartsFinished)),
            (&[87, 128, 1, 3], Message::Extension(Extension::Features(3))),
            (&[10, 131, 1, 9], Message::Switch(9)),
            (&[10, 132, 5, 3, 0, 0, 1, 2], Message::Ack { table: 3, update: 258 }),
            (&[10, 134, 2, 8, 9], Message::Update { incremental: true, timed: true, body: &[8, 9] }),
            (&[10, 128, 0], Message::Update { incremental: false, timed: false, body: &[] }),
        ];
        for (bytes, message) in cases {
            assert_eq!(read(bytes), Ok(Some((message, bytes.len()))), "{bytes:?}");
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut]), Ok(None), "{bytes:?} up to {cut}");
            }
        }
    }

    #[test]
    fn oversized_lengths_are_rejected_before_the_content_arrives() {
        let mut bytes = vec![10, 128];
        varint::write(&mut bytes, LONGEST as u64 + 1);
        assert_eq!(read(&bytes), Err(Breach::Size));
        assert_eq!(read(&[10, 130, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]), Err(Breach::Size));
    }

    #[test]
    fn messages_round_trip() {
        let mut out = Vec::new();
        ack(300, 7, &mut out);
        control(Control::ResyncPartial, &mut out);
        error(Breach::Size, &mut out);
        update(true, false, &mut out, |out| out.extend_from_slice(b"abc"));
        update(true, true, &mut out, |out| out.extend_from_slice(&[7; 239]));
        update(false, true, &mut out, |out| out.extend_from_slice(&[8; 240]));
        update(false, false, &mut out, |out| out.extend_from_slice(&[9; LONGEST]));
        let mut rest = &out[..];
        let mut seen = Vec::new();
        while let Some((message, length)) = read(rest).unwrap() {
            seen.push(message);
            rest = &rest[length..];
        }
        let body: &[u8] = b"abc";
        assert_eq!(
            seen,
            [
                Message::Ack { table: 300, update: 7 },
                Message::Control(Control::ResyncPartial),
                Message::SizeError,
                Message::Update { incremental: true, timed: false, body },
                Message::Update { incremental: true, timed: true, body: &[7; 239] },
                Message::Update { incremental: false, timed: true, body: &[8; 240] },
                Message::Update { incremental: false, timed: false, body: &[9; LONGEST] },
            ]
        );
    }
}
