//! Fetches about the stream as a whole: which side aborted it, what its rules decided, and the state of its layers (manual, 7.3.2
//! and 7.3.4).

use std::io::Write;

use state::FaultCause;

use super::connection::connection;
use super::{Cursor, Fetch, row};
use crate::args::{ArgKind, Args, Spec, opt};
use crate::env::Env;
use crate::place::Columns;
use crate::session::Endpoint;
use crate::transaction::Cause;
use crate::value::{Scratch, Type, Value};

const LAYERS: &[Spec] = &[opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name              arguments  gives       where                    description
    row("fs.aborted",     &[],       Type::Bool, Columns::CLIENT_SESSION, "whether the client aborted the stream",              fs_aborted),
    row("fs.id",          &[],       Type::Int,  Columns::CLIENT_SESSION, "ID of the stream on the client connection",          fs_id),
    row("fs.debug_str",   LAYERS,    Type::Str,  Columns::CLIENT_SESSION, "debug output of the client side, layer by layer",    fs_debug_str),
    row("fs.rst_code",    &[],       Type::Int,  Columns::CLIENT_SESSION, "reset code sent by the client, with HTTP/2",         fs_rst_code),
    row("bs.aborted",     &[],       Type::Bool, Columns::RESPONSE_KEPT,  "whether the server aborted the stream",              bs_aborted),
    row("bs.id",          &[],       Type::Int,  Columns::RESPONSE_KEPT,  "ID of the stream on the server connection",          bs_id),
    row("bs.debug_str",   LAYERS,    Type::Str,  Columns::RESPONSE_KEPT,  "debug output of the server side",                          bs_debug_str),
    row("bs.rst_code",    &[],       Type::Int,  Columns::RESPONSE_KEPT,  "reset code sent by the server, with HTTP/2",         bs_rst_code),
    row("last_entity",    &[],       Type::Str,  Columns::INTERNAL,       "file and line of the rule that ended the evaluation", last_entity),
    row("waiting_entity", &[],       Type::Str,  Columns::INTERNAL,       "file and line of the rule that processing waits for", waiting_entity),
    row("fault",          &[],       Type::Str,  Columns::INTERNAL,       "name of the cause of an abnormal end, empty otherwise; Weir extension", fault).late(),
    row("term_events",    &[],       Type::Str,  Columns::INTERNAL,       "termination events of each layer, from the client connection to the server connection", term_events),
];

fn fs_aborted<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    connection(env)?;
    Some(Value::Bool(env.transaction?.termination.cause == Cause::Client))
}

/// An unreachable server does not abort anything, because there was no server stream yet.
fn bs_aborted<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    transaction.server_ends?;
    Some(Value::Bool(transaction.termination.cause == Cause::Server))
}

/// The number of the stream. HTTP/1 does not number streams, so this is the number of earlier requests on the connection. 0 for
/// TCP.
fn fs_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    if let Some(stream) = env.transaction?.client_stream {
        return Some(Value::Int(stream.id.cast_signed()));
    }
    Some(Value::Int(i64::from(connection(env)?.requests.get().saturating_sub(1))))
}

fn bs_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    transaction.server_ends?;
    if let Some(stream) = transaction.server_stream {
        return Some(Value::Int(stream.id.cast_signed()));
    }
    Some(Value::Int(i64::from(transaction.server_uses.saturating_sub(1))))
}

fn fs_rst_code<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(env.transaction?.client_stream?.reset?.cast_signed()))
}

fn bs_rst_code<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(env.transaction?.server_stream?.reset?.cast_signed()))
}

/// Describes one side in `name=value` words, from the stream down to the socket.
struct Layers {
    text: Scratch,
    wanted: i64,
}

impl Layers {
    /// Selects the layers by the bits in the argument. 0 or no argument selects all.
    fn new(args: &Args) -> Self {
        let wanted = args.int(0).filter(|layers| *layers != 0).unwrap_or(31);
        Self { text: Scratch::new(), wanted }
    }

    fn add(&mut self, layer: i64, text: std::fmt::Arguments<'_>) {
        if self.wanted & layer != 0 {
            let blank = if self.text.is_empty() { "" } else { " " };
            // Writing to a vector cannot fail.
            let _ = write!(*self.text, "{blank}{text}");
        }
    }

    fn ends(&mut self, ours: &str, source: Endpoint, destination: Endpoint) {
        let show = |end: Endpoint| match end {
            Endpoint::Ip(address) => address.to_string(),
            Endpoint::Local | Endpoint::Absent => "local".to_owned(),
        };
        self.add(8, format_args!("{ours}.src={} {ours}.dst={}", show(source), show(destination)));
    }
}

fn fs_debug_str<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let (session, transaction) = (connection(env)?, env.transaction?);
    let mut layers = Layers::new(args);
    let (cause, phase) = (transaction.termination.cause as u8, transaction.termination.phase as u8);
    layers.add(
        1,
        format_args!(
            "strm.id={} strm.in={} strm.out={} strm.term={}{}",
            transaction.id, transaction.bytes_in, transaction.bytes_out, cause as char, phase as char
        ),
    );
    let protocol = if transaction.is_http { "h1" } else { "raw" };
    layers.add(2, format_args!("mux={protocol} mux.reqs={}", session.requests.get()));
    layers.add(4, format_args!("xprt=raw"));
    layers.ends("conn", session.connection_source(), session.connection_destination());
    if let Some([Some(number), _]) = env.sockets.map(|sockets| sockets.descriptors()) {
        layers.add(16, format_args!("fd={number}"));
    }
    Some(Value::made(layers.text))
}

fn bs_debug_str<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    let (source, destination) = transaction.server_ends?;
    let mut layers = Layers::new(args);
    layers.add(
        1,
        format_args!("strm.status={} strm.retries={}", transaction.server_status, transaction.retries),
    );
    let protocol = if transaction.is_http { "h1" } else { "raw" };
    layers.add(2, format_args!("mux={protocol} mux.reqs={}", transaction.server_uses));
    layers.add(4, format_args!("xprt=raw"));
    layers.ends("conn", source, destination);
    if let Some([_, Some(number)]) = env.sockets.map(|sockets| sockets.descriptors()) {
        layers.add(16, format_args!("fd={number}"));
    }
    Some(Value::made(layers.text))
}

/// A rule, identified by its file and line.
fn place<'a>(rule: Option<(&'static str, u32)>) -> Option<Value<'a>> {
    let (file, line) = rule?;
    let mut text = Scratch::copy(file.as_bytes());
    text.push(b':');
    crate::value::write_int(&mut text, i64::from(line));
    Some(Value::made(text))
}

fn last_entity<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    place(env.transaction?.last_rule)
}

fn waiting_entity<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    place(env.transaction?.waiting_rule)
}

fn term_events<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let transaction = env.transaction?;
    Some(Value::made(transaction.ending.events(transaction.is_http)))
}

fn fault<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let Some(transaction) = env.transaction else {
        // The connection failed before it had a stream.
        let cause = env.session.and_then(|session| session.error.get().fault());
        return Some(Value::str(cause.map_or("", FaultCause::name).as_bytes()));
    };
    let name = transaction.fault.map_or("", FaultCause::name);
    match (transaction.fault, &transaction.unknown_backend) {
        (Some(FaultCause::BackendUnknown), Some(backend)) => {
            let mut text = Scratch::copy(name.as_bytes());
            text.push(b':');
            text.extend_from_slice(backend.as_bytes());
            Some(Value::made(text))
        }
        _ => Some(Value::str(name.as_bytes())),
    }
}
