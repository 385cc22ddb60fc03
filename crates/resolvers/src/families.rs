//! Which families of addresses are asked for (`dns-accept-family`; manual, section 3.1).

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

use plan::resolvers::AcceptFamily;

use crate::engine::Families;

/// How long the answer is good, in ms.
pub(crate) const GOOD_FOR: u64 = 30_000;

/// The families that are accepted now.
pub(crate) fn accepted(accept: AcceptFamily) -> Families {
    match accept {
        AcceptFamily::V4 => Families { v4: true, v6: false },
        AcceptFamily::V6 => Families { v4: false, v6: true },
        AcceptFamily::Both => Families { v4: true, v6: true },
        AcceptFamily::Auto => Families { v4: true, v6: has_ipv6_route() },
    }
}

/// Whether the system has a way to the IPv6 internet: nothing is sent, the kernel only looks for a
/// route.
fn has_ipv6_route() -> bool {
    // An address of a root name server, which is as public as can be.
    let far = Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30);
    let socket = UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
    socket.and_then(|socket| socket.connect((far, 53))).is_ok()
}
