//! Message heads, the HTTP/1 codec, chunked coding, cookies, URIs, dates and status texts.
//!
//! This crate has no I/O, clock or async code. [`parse_request`] and [`parse_response`] fill a reusable [`Head`]. Rules then read
//! and edit the head, and [`Head::write_to`] serialises it. [`BodyLength`] describes the framing of a body, and [`ChunkDecoder`]
//! decodes chunked bodies.
//!
//! Messages are accepted by the rules of RFC 9112 as HAProxy 3.5 applies them (its manual, section 4.2, `option
//! accept-unsafe-violations-in-http-request`, defines possible relaxations). Callers: `proxy`, `health`, `sample`.

#![forbid(unsafe_code)]

pub mod chunk;
mod compose;
pub mod cookie;
pub mod date;
mod framing;
mod head;
mod lines;
mod method;
mod name;
mod options;
mod outcome;
mod parse;
mod scan;
mod size;
mod start_line;
pub mod status;
mod target;
pub mod uri;
mod values;
mod write;

pub use chunk::{ChunkDecoder, ChunkError, ChunkEvent, Normalized};
pub use compose::{HeaderLine, StartLineRoom, is_line};
pub use framing::BodyLength;
pub use head::{Head, Version};
pub use method::Method;
pub use name::{KnownName, Name};
pub use options::ParseOptions;
pub use outcome::{ErrorKind, ParseError, ParseStatus};
pub use parse::{parse_request, parse_response};
pub use scan::{begins_ignore_case, eq_ignore_case, is_host_value, is_token, target_stop};
pub use values::{ListValues, list_values};
pub use write::RestrictNames;
