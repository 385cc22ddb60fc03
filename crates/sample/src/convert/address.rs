//! Addresses, and the servers and proxies that a value names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Convert, row};
use crate::args::{Arg, Args, Kind, arg, opt};
use crate::env::Env;
use crate::value::{Type, Value, embedded_ip4};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name      arguments                              takes       gives       what it does
    row("ipmask", &[arg(Kind::Mask4), opt(Kind::Mask6)], Type::Addr, Type::Addr, "an address under a mask",          ipmask),
];

fn ipmask<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    // An IPv6 address that holds an IPv4 one takes that one's mask.
    let address = match value.to_addr()? {
        IpAddr::V6(v6) => embedded_ip4(v6).map_or(IpAddr::V6(v6), IpAddr::V4),
        v4 => v4,
    };
    match (address, args.get(0), args.get(1)) {
        (IpAddr::V4(address), Arg::Ip4(mask), _) => {
            Some(Value::Ip4(Ipv4Addr::from(u32::from(address) & u32::from(*mask))))
        }
        (IpAddr::V6(address), _, Arg::Ip6(mask)) => {
            Some(Value::Ip6(Ipv6Addr::from(u128::from(address) & u128::from(*mask))))
        }
        _ => None,
    }
}
