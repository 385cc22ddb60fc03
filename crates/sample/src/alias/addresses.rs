//! Log format aliases for addresses and ports, of both ends of the client and server connections.

use std::net::IpAddr;

use super::{int, int_or_hex};
use crate::env::Env;
use crate::fetch;
use crate::flags::{Flags, quoted, write_bytes};
use crate::session::Endpoint;
use crate::value::write_ip4;

fn ip(end: Option<Endpoint>, flags: Flags, out: &mut Vec<u8>) {
    let address = match end {
        None | Some(Endpoint::Absent) => return write_bytes(b"", flags, out),
        Some(Endpoint::Local) => return write_bytes(b"unix", flags, out),
        Some(Endpoint::Ip(address)) => address.ip().to_canonical(),
    };
    match address {
        IpAddr::V4(v4) if flags.hex => v4.octets().iter().for_each(|byte| hex(*byte, out)),
        IpAddr::V6(v6) if flags.hex => v6.octets().iter().for_each(|byte| hex(*byte, out)),
        IpAddr::V4(v4) => quoted(flags, out, |out| write_ip4(out, v4)),
        IpAddr::V6(v6) => quoted(flags, out, |out| out.extend_from_slice(v6.to_string().as_bytes())),
    }
}

fn hex(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{byte:02X}").as_bytes());
}

fn port(end: Option<Endpoint>, env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    match end {
        None | Some(Endpoint::Absent) => write_bytes(b"", flags, out),
        // A socket without ports is identified by its listener.
        Some(Endpoint::Local) => int(env.session.map_or(0, |session| i64::from(session.listener.id)), out),
        Some(Endpoint::Ip(address)) => int_or_hex(u64::from(address.port()), flags, out),
    }
}

pub(super) fn client_ip(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    ip(fetch::source(env), flags, out);
}

pub(super) fn client_port(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    port(fetch::source(env), env, flags, out);
}

pub(super) fn frontend_ip(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    ip(fetch::destination(env), flags, out);
}

pub(super) fn frontend_port(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    port(fetch::destination(env), env, flags, out);
}

pub(super) fn backend_source_ip(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    ip(fetch::server_end(env, false), flags, out);
}

pub(super) fn backend_source_port(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    port(fetch::server_end(env, false), env, flags, out);
}

pub(super) fn server_ip(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    ip(fetch::server_end(env, true), flags, out);
}

pub(super) fn server_port(env: &Env<'_>, flags: Flags, out: &mut Vec<u8>) {
    port(fetch::server_end(env, true), env, flags, out);
}
