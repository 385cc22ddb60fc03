//! Header fields of multiplexed HTTP: the rules that HTTP/2 and HTTP/3 share.
//!
//! [`read_request`], [`read_response`] and [`read_trailers`] turn decoded field sections into an
//! [`http::Head`] and refuse every message that an HTTP/1 server could read differently (RFC 9113
//! section 8, RFC 9114 section 4, RFC 8441). [`write_request`], [`write_response`] and
//! [`write_trailers`] do the reverse. A [`FieldSource`] decodes the section and a [`FieldSink`] encodes
//! it, so this crate does not depend on a particular header compression. [`huffman`], [`integer`],
//! [`string`] and [`DynamicTable`] are the parts that HPACK (RFC 7541) and QPACK (RFC 9204) have in common.
//!
//! No I/O, no frames, no connection state. Callers: `h2`, `h3`.

#![forbid(unsafe_code)]

mod cause;
mod coding;
mod dynamic;
mod fingerprint;
pub mod huffman;
mod indexing;
pub mod integer;
mod memo;
mod name;
mod priority;
mod read;
mod request;
mod response;
mod role;
pub mod string;
mod write;

pub use cause::{Cause, Refusal, rare};
pub use coding::{CodingError, Field, FieldSink, FieldSource};
pub use dynamic::{DynamicTable, EntryView};
pub use fingerprint::fingerprint;
pub use indexing::Indexing;
pub use memo::Memo;
pub use name::{FieldName, NameKind, Pseudo};
pub use priority::Priority;
pub use request::{Request, read_request};
pub use response::{read_response, read_trailers};
pub use role::Role;
pub use write::{Scheme, is_extended_connect, write_request, write_response, write_trailers};

/// Limits and options for messages that are read.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Maximum total size of the names and values of a section, in bytes. Four bytes are added for each field: the punctuation of
    /// an HTTP/1 field line.
    pub max_bytes: usize,
    /// Maximum number of fields, without pseudo-fields. Each `cookie` field counts.
    pub max_fields: usize,
    /// Whether to accept a fragment in the path, the only violation listed for `option accept-unsafe-violations-in-http-request`
    /// that is relevant here.
    pub relaxed: bool,
    /// Whether to accept extended CONNECT (RFC 8441, RFC 9220), which the SETTINGS of this side enabled.
    pub connect_protocol: bool,
}
