//! The keywords that only `udp-lb` sections have.

use std::rc::Rc;

use base::units::DefaultUnit::Milliseconds;
use plan::udp::LARGEST_PAYLOAD;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, proxy, rule};
use crate::draft::row::{Outcome, Where};
use crate::draft::settings::ProxySettings;

const UDP: Where = Where::UDP_LB;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("dgram-bind",            UDP, "[<address>]:<port_range> [, ...] [param*]", "address on which to receive datagrams", |s, a| { s.binds.push(a.statement); a.rest(); Ok(()) }),
    proxy("accepted-payload-size", UDP, "<bytes>",   "size above which datagrams are dropped; 1472 by default",      payload_size),
    proxy("proxy-requests",        UDP, "<number>",  "number of datagrams after which a client begins another session", requests),
    proxy("proxy-responses",       UDP, "<number>",  "number of datagrams with which a server answers each datagram; a session ends when all are answered", responses),
    proxy("timeout session",       UDP, "<timeout>", "time without datagrams after which a session ends",            session),
    rule("udp-request",            UDP, "<action> [ { if | unless } <condition> ]", "rule applied to the first datagram of a session"),
];

fn payload_size<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let size = args.integer("a number of bytes", 1, LARGEST_PAYLOAD)?;
    Rc::make_mut(&mut settings.udp).payload_size = Some(size);
    args.finish()
}

fn requests<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let number = args.integer("a number of datagrams", 0, i32::MAX as u32)?;
    Rc::make_mut(&mut settings.udp).requests = Some(number).filter(|number| *number > 0);
    args.finish()
}

fn responses<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let number = args.integer("a number of datagrams", 0, i32::MAX as u32)?;
    Rc::make_mut(&mut settings.udp).responses = Some(number);
    args.finish()
}

fn session<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let time = args.duration(Milliseconds)?;
    if time.is_zero() {
        return Err(args
            .wrong("`timeout session` must be longer than 0")
            .help("a session of datagrams has no other end than its timeout"));
    }
    Rc::make_mut(&mut settings.udp).session = Some(time);
    args.finish()
}
