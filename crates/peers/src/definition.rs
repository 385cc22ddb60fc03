//! The definition of a shared table: its name, keys, expiry and columns, and the message that announces it (doc/peers.txt,
//! "Definition message format").
//!
//! Used by `row`, which reads and writes entries accordingly, and by the owner of the tables.

use base::varint;

use crate::integer::MessageReader;

/// Maximum array length (manual, section 11.1, `gpc(<nb>)`).
pub const LONGEST_ARRAY: u64 = 100;

/// The maximum length of a table name.
const LONGEST_NAME: usize = 1024;

/// The kind of a table's keys. The discriminants are the protocol's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// A signed 32-bit number, in network order.
    Integer = 2,
    /// An IPv4 address.
    Ipv4 = 4,
    /// An IPv6 address.
    Ipv6 = 5,
    /// A string.
    String = 6,
    /// Bytes, padded with zeros.
    Binary = 7,
}

/// The encoding of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A number.
    Number,
    /// A rate over a period.
    Rate,
    /// A string from a dictionary.
    Name,
}

/// The data types of an entry. The discriminants are the bits of a definition's bitfield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the manual's own names, section 11.1")]
#[rustfmt::skip]
pub enum DataKind {
    ServerId, Gpt0, Gpc0, Gpc0Rate, ConnCnt, ConnRate, ConnCur, SessCnt, SessRate, HttpReqCnt, HttpReqRate,
    HttpErrCnt, HttpErrRate, BytesInCnt, BytesInRate, BytesOutCnt, BytesOutRate, Gpc1, Gpc1Rate, ServerKey,
    HttpFailCnt, HttpFailRate, Gpt, Gpc, GpcRate, GlitchCnt, GlitchRate,
}

/// One row for each type, in bit order: the manual's name, the encoding, whether it is an array.
#[rustfmt::skip]
const KINDS: [(DataKind, &str, Shape, bool); 27] = [
    (DataKind::ServerId,     "server_id",      Shape::Number, false),
    (DataKind::Gpt0,         "gpt0",           Shape::Number, false),
    (DataKind::Gpc0,         "gpc0",           Shape::Number, false),
    (DataKind::Gpc0Rate,     "gpc0_rate",      Shape::Rate,   false),
    (DataKind::ConnCnt,      "conn_cnt",       Shape::Number, false),
    (DataKind::ConnRate,     "conn_rate",      Shape::Rate,   false),
    (DataKind::ConnCur,      "conn_cur",       Shape::Number, false),
    (DataKind::SessCnt,      "sess_cnt",       Shape::Number, false),
    (DataKind::SessRate,     "sess_rate",      Shape::Rate,   false),
    (DataKind::HttpReqCnt,   "http_req_cnt",   Shape::Number, false),
    (DataKind::HttpReqRate,  "http_req_rate",  Shape::Rate,   false),
    (DataKind::HttpErrCnt,   "http_err_cnt",   Shape::Number, false),
    (DataKind::HttpErrRate,  "http_err_rate",  Shape::Rate,   false),
    (DataKind::BytesInCnt,   "bytes_in_cnt",   Shape::Number, false),
    (DataKind::BytesInRate,  "bytes_in_rate",  Shape::Rate,   false),
    (DataKind::BytesOutCnt,  "bytes_out_cnt",  Shape::Number, false),
    (DataKind::BytesOutRate, "bytes_out_rate", Shape::Rate,   false),
    (DataKind::Gpc1,         "gpc1",           Shape::Number, false),
    (DataKind::Gpc1Rate,     "gpc1_rate",      Shape::Rate,   false),
    (DataKind::ServerKey,    "server_key",     Shape::Name,   false),
    (DataKind::HttpFailCnt,  "http_fail_cnt",  Shape::Number, false),
    (DataKind::HttpFailRate, "http_fail_rate", Shape::Rate,   false),
    (DataKind::Gpt,          "gpt",            Shape::Number, true),
    (DataKind::Gpc,          "gpc",            Shape::Number, true),
    (DataKind::GpcRate,      "gpc_rate",       Shape::Rate,   true),
    (DataKind::GlitchCnt,    "glitch_cnt",     Shape::Number, false),
    (DataKind::GlitchRate,   "glitch_rate",    Shape::Rate,   false),
];

impl DataKind {
    /// Returns all types, in the order in which values are sent.
    pub fn all() -> impl Iterator<Item = DataKind> {
        KINDS.iter().map(|row| row.0)
    }

    /// Returns the manual's name.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Returns the encoding.
    pub fn shape(self) -> Shape {
        KINDS[self as usize].2
    }

    /// Whether values of this type are arrays.
    pub fn is_array(self) -> bool {
        KINDS[self as usize].3
    }

    fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// A data column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataColumn {
    /// The type.
    pub kind: DataKind,
    /// The number of values: 1 except for arrays.
    pub count: u32,
    /// The period of a rate in milliseconds, otherwise 0.
    pub period: u32,
}

/// A shared table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name of the table among peers. For a table in a `peers` section, it has a leading `/`.
    pub name: Box<[u8]>,
    /// The kind of keys.
    pub key: KeyKind,
    /// The length of keys: 4 and 16 for numbers and addresses, the maximum for strings.
    pub key_length: usize,
    /// The lifetime of entries, in milliseconds; 0 if they do not expire.
    pub expire: u32,
    /// The columns, in the order of the types.
    pub columns: Box<[DataColumn]>,
    /// Whether the name of the peer follows the name of the table, after `@`.
    pub of_peer: bool,
}

/// A peer's announcement of one of its tables.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The number by which the peer refers to the table from here on.
    pub(crate) id: u64,
    /// The kind of keys as a number, because it may be unknown in this protocol.
    pub(crate) key: u64,
    pub(crate) definition: Definition,
}

impl Definition {
    /// Creates a table, and sorts its columns.
    pub fn new(
        name: &[u8],
        key: KeyKind,
        key_length: usize,
        expire: u32,
        mut columns: Vec<DataColumn>,
    ) -> Definition {
        columns.sort_by_key(|column| column.kind);
        columns.dedup_by_key(|column| column.kind);
        Definition { name: name.into(), key, key_length, expire, columns: columns.into(), of_peer: false }
    }

    /// Returns the number of values in an entry.
    pub fn values(&self) -> usize {
        self.columns.iter().map(|column| column.count as usize).sum()
    }

    /// Returns the types of the columns, as bits.
    pub(crate) fn bits(&self) -> u64 {
        self.columns.iter().map(|column| column.kind.bit()).sum()
    }

    /// Returns the length of keys on the wire. For strings, it includes the terminating zero.
    fn wire_key_length(&self) -> u64 {
        self.key_length as u64 + u64::from(self.key == KeyKind::String)
    }

    /// Whether this is the name of the table in a session with a peer.
    pub(crate) fn has_name(&self, name: &[u8], peer: &[u8]) -> bool {
        if !self.of_peer {
            return *self.name == *name;
        }
        let rest = name.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix(b"@"));
        rest == Some(peer)
    }

    /// Appends the content of the definition message in a session with a peer.
    pub(crate) fn write(&self, id: u64, peer: &[u8], out: &mut Vec<u8>) {
        varint::write(out, id);
        let member = if self.of_peer { [&b"@"[..], peer] } else { [&b""[..]; 2] };
        varint::write(out, (self.name.len() + member[0].len() + member[1].len()) as u64);
        out.extend_from_slice(&self.name);
        member.iter().for_each(|part| out.extend_from_slice(part));
        varint::write(out, self.key as u64);
        varint::write(out, self.wire_key_length());
        varint::write(out, self.bits());
        varint::write(out, u64::from(self.expire));
        for column in &self.columns {
            let (array, rate) = (column.kind.is_array(), column.kind.shape() == Shape::Rate);
            if array || rate {
                varint::write(out, column.kind as u64);
            }
            if array {
                varint::write(out, u64::from(column.count));
            }
            if rate {
                varint::write(out, u64::from(column.period));
            }
        }
    }

    /// Parses a definition message. The columns end at the first unknown type: the values of the remaining columns
    /// come last in each entry, and are skipped.
    pub(crate) fn read(body: &[u8]) -> Option<Announced> {
        let mut body = MessageReader::new(body);
        let id = body.number()?;
        let name = body.counted()?;
        let key = body.number()?;
        let told = usize::try_from(body.number()?).ok()?;
        let bits = body.number()?;
        // Older peers end the message here.
        let expire = if body.is_empty() { 0 } else { body.number()? };
        if name.is_empty() || name.len() > LONGEST_NAME {
            return None;
        }
        let known = [KeyKind::Integer, KeyKind::Ipv4, KeyKind::Ipv6, KeyKind::String, KeyKind::Binary];
        let kind = known.into_iter().find(|kind| *kind as u64 == key).unwrap_or(KeyKind::Binary);
        let definition = Definition {
            name: name.into(),
            key: kind,
            key_length: told.saturating_sub(usize::from(kind == KeyKind::String)),
            expire: u32::try_from(expire).unwrap_or(u32::MAX),
            columns: read_columns(bits, &mut body)?,
            of_peer: false,
        };
        Some(Announced { id, key, definition })
    }
}

fn read_columns(bits: u64, body: &mut MessageReader<'_>) -> Option<Box<[DataColumn]>> {
    let mut columns = Vec::new();
    for kind in DataKind::all().filter(|kind| bits & kind.bit() != 0) {
        let (array, rate) = (kind.is_array(), kind.shape() == Shape::Rate);
        let mut column = DataColumn { kind, count: 1, period: 0 };
        // Peers with the previous version do not send periods.
        if array || rate && !body.is_empty() {
            if body.number()? != kind as u64 {
                return None;
            }
            if array {
                column.count = body.number().filter(|count| (1..=LONGEST_ARRAY).contains(count))? as u32;
            }
            if rate {
                column.period = u32::try_from(body.number()?).unwrap_or(u32::MAX);
            }
        }
        columns.push(column);
    }
    Some(columns.into())
}

#[cfg(test)]
pub(crate) mod tests;
