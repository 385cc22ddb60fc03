//! The address families to query (`dns-accept-family`; manual, section 3.1).

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

use plan::resolvers::AcceptFamily;

use crate::engine::Families;

/// How long the result of the check is cached, in ms.
pub(crate) const GOOD_FOR: u64 = 30_000;

/// Returns the families that are accepted at this time.
pub(crate) fn accepted(accept: AcceptFamily) -> Families {
    match accept {
        AcceptFamily::V4 => Families { v4: true, v6: false },
        AcceptFamily::V6 => Families { v4: false, v6: true },
        AcceptFamily::Both => Families { v4: true, v6: true },
        AcceptFamily::Auto => Families { v4: true, v6: has_ipv6_route() },
    }
}

/// Returns whether the system has a route to the IPv6 internet. Nothing is sent; the kernel only looks up a route.
fn has_ipv6_route() -> bool {
    // The address of a root name server, certain to be public.
    let far = Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30);
    let socket = UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
    socket.and_then(|socket| socket.connect((far, 53))).is_ok()
}
