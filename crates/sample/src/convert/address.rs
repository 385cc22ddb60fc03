//! Converters for addresses, and for values that name servers and proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, arg, opt};
use crate::env::Env;
use crate::value::{Type, Value};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    // name      arguments                              takes       gives       description
    row("ipmask", &[arg(ArgKind::Mask4), opt(ArgKind::Mask6)], Type::Addr, Type::Addr, "applies a network mask",           ipmask),
];

fn ipmask<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    // An IPv6 address that embeds an IPv4 address, in any of the three ways, is masked with the IPv4 mask.
    match (value.to_addr()?, value.to_ip4(), args.get(0), args.get(1)) {
        (_, Some(address), Arg::Ip4(mask), _) => {
            Some(Value::Ip4(Ipv4Addr::from(u32::from(address) & u32::from(*mask))))
        }
        (IpAddr::V6(address), _, _, Arg::Ip6(mask)) => {
            Some(Value::Ip6(Ipv6Addr::from(u128::from(address) & u128::from(*mask))))
        }
        _ => None,
    }
}
