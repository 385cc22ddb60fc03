//! What only the kernel knows of connections, and how connections fail. The kernel is asked when an
//! expression wants to know, by `proxy`, which has the sockets; here is only what is asked and what
//! it means.

use std::io;

/// What the kernel measured of a TCP connection (`TCP_INFO` of tcp(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpFacts {
    /// The smoothed round trip time, in µs.
    pub rtt_us: u32,
    /// Its variance, in µs.
    pub rttvar_us: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments acknowledged selectively.
    pub sacked: u32,
    /// Segments thought lost.
    pub lost: u32,
    /// Segments sent again and not acknowledged yet.
    pub retrans: u32,
    /// Segments acknowledged forward.
    pub fackets: u32,
    /// How far segments are reordered on the way.
    pub reordering: u32,
}

/// Why a connection failed: a number of the table in the manual, `fc_err_str`. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionError(pub u8);

impl ConnectionError {
    /// As many connections as were allowed.
    pub const CONFIGURED_LIMIT: Self = Self(1);
    /// Too many descriptors of the process.
    pub const PROCESS_LIMIT: Self = Self(2);
    /// Too many descriptors of the system.
    pub const SYSTEM_LIMIT: Self = Self(3);
    /// The kernel has no room for another socket.
    pub const SYSTEM_MEMORY: Self = Self(4);
    /// The address is of a family that cannot be connected to.
    pub const NO_PROTOCOL: Self = Self(5);
    /// Something that has no better name.
    pub const SOCKET: Self = Self(6);
    /// Every port of the range to connect from is in use.
    pub const PORT_RANGE: Self = Self(7);
    /// The address to connect from cannot be had.
    pub const CANNOT_BIND: Self = Self(8);
    /// No port is left to connect from.
    pub const NO_PORTS: Self = Self(9);
    /// The address to connect from is in use.
    pub const ADDRESS_IN_USE: Self = Self(10);
    /// The client closed before it sent its PROXY header.
    pub const PROXY_EMPTY: Self = Self(11);
    /// Its connection broke before.
    pub const PROXY_ABORT: Self = Self(12);
    /// It did not send the header in time.
    pub const PROXY_TIMEOUT: Self = Self(13);
    /// It left within the header.
    pub const PROXY_TRUNCATED: Self = Self(14);
    /// It sent something else.
    pub const PROXY_OTHER: Self = Self(15);
    /// It sent a header that is wrong.
    pub const PROXY_INVALID: Self = Self(16);
    /// It sent a header of a protocol that is unknown.
    pub const PROXY_PROTOCOL: Self = Self(17);
    /// The client closed before it sent its NetScaler Client IP header.
    pub const NETSCALER_EMPTY: Self = Self(18);
    /// Its connection broke before.
    pub const NETSCALER_ABORT: Self = Self(19);
    /// It did not send the header in time.
    pub const NETSCALER_TIMEOUT: Self = Self(20);
    /// It left within the header, or the header is too short for what it holds.
    pub const NETSCALER_TRUNCATED: Self = Self(21);
    /// It sent another magic number.
    pub const NETSCALER_MAGIC: Self = Self(22);
    /// It sent a header of a protocol that is unknown.
    pub const NETSCALER_PROTOCOL: Self = Self(23);
    /// The client closed before it said anything in TLS.
    pub const TLS_EMPTY: Self = Self(24);
    /// The connection broke within the handshake of TLS.
    pub const TLS_ABORT: Self = Self(25);
    /// The handshake of TLS took too long.
    pub const TLS_TIMEOUT: Self = Self(26);
    /// The server refused early data.
    pub const TLS_EARLY_FAILED: Self = Self(38);
    /// Asking the SOCKS4 proxy failed.
    pub const SOCKS4_SEND: Self = Self(39);
    /// Its answer could not be read.
    pub const SOCKS4_RECEIVE: Self = Self(40);
    /// It refused.
    pub const SOCKS4_DENY: Self = Self(41);
    /// It closed instead of answering.
    pub const SOCKS4_ABORT: Self = Self(42);
    /// The peer refused.
    pub const REFUSED: Self = Self(46);
    /// The peer reset the connection.
    pub const RESET: Self = Self(47);
    /// No way leads there.
    pub const UNREACHABLE: Self = Self(48);
    /// The kernel has no memory.
    pub const NO_MEMORY: Self = Self(49);
    /// The peer takes nothing more.
    pub const BROKEN_PIPE: Self = Self(56);

    /// What the kernel said of a connection that was being made, or that was there.
    pub fn of_kernel(error: &io::Error) -> Self {
        if let Some(broken) = error.get_ref().and_then(|inner| inner.downcast_ref::<tls::Error>()) {
            return Self(broken.kind.facts().0);
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::REFUSED,
            io::ErrorKind::ConnectionReset => Self::RESET,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => Self::UNREACHABLE,
            io::ErrorKind::OutOfMemory => Self::NO_MEMORY,
            io::ErrorKind::BrokenPipe => Self::BROKEN_PIPE,
            io::ErrorKind::Unsupported => Self::NO_PROTOCOL,
            _ => Self::SOCKET,
        }
    }

    /// Its name in one word; empty for none.
    pub fn name(self) -> &'static str {
        ERRORS.get(usize::from(self.0)).map_or("", |(name, _)| name)
    }

    /// It in words.
    pub fn message(self) -> &'static str {
        ERRORS.get(usize::from(self.0)).map_or("", |(_, message)| message)
    }
}

/// Names and messages by number: an interface to those who read logs, and therefore in HAProxy's
/// words.
#[rustfmt::skip]
const ERRORS: &[(&str, &str)] = &[
    ("",                 "Success"),
    ("CONF_FDLIM",       "Reached configured maxconn value"),
    ("PROC_FDLIM",       "Too many sockets on the process"),
    ("SYS_FDLIM",        "Too many sockets on the system"),
    ("SYS_MEMLIM",       "Out of system buffers"),
    ("NOPROTO",          "Protocol or address family not supported"),
    ("SOCK_ERR",         "General socket error"),
    ("PORT_RANGE",       "Source port range exhausted"),
    ("CANT_BIND",        "Can't bind to source address"),
    ("FREE_PORTS",       "Out of local source ports on the system"),
    ("ADDR_INUSE",       "Local source address already in use"),
    ("PRX_EMPTY",        "Connection closed while waiting for PROXY protocol header"),
    ("PRX_ABORT",        "Connection error while waiting for PROXY protocol header"),
    ("PRX_TIMEOUT",      "Timeout while waiting for PROXY protocol header"),
    ("PRX_TRUNCATED",    "Truncated PROXY protocol header received"),
    ("PRX_NOT_HDR",      "Received something which does not look like a PROXY protocol header"),
    ("PRX_BAD_HDR",      "Received an invalid PROXY protocol header"),
    ("PRX_BAD_PROTO",    "Received an unhandled protocol in the PROXY protocol header"),
    ("CIP_EMPTY",        "Connection closed while waiting for NetScaler Client IP header"),
    ("CIP_ABORT",        "Connection error while waiting for NetScaler Client IP header"),
    ("CIP_TIMEOUT",      "Timeout while waiting for a NetScaler Client IP header"),
    ("CIP_TRUNCATED",    "Truncated NetScaler Client IP header received"),
    ("CIP_BAD_MAGIC",    "Received an invalid NetScaler Client IP magic number"),
    ("CIP_BAD_PROTO",    "Received an unhandled protocol in the NetScaler Client IP header"),
    ("SSL_EMPTY",        "Connection closed during SSL handshake"),
    ("SSL_ABORT",        "Connection error during SSL handshake"),
    ("SSL_TIMEOUT",      "Timeout during SSL handshake"),
    ("SSL_TOO_MANY",     "Too many SSL connections"),
    ("SSL_NO_MEM",       "Out of memory when initializing an SSL connection"),
    ("SSL_RENEG",        "Rejected a client-initiated SSL renegotiation attempt"),
    ("SSL_CA_FAIL",      "SSL client CA chain cannot be verified"),
    ("SSL_CRT_FAIL",     "SSL client certificate not trusted"),
    ("SSL_MISMATCH",     "Server presented an SSL certificate different from the configured one"),
    ("SSL_MISMATCH_SNI", "Server presented an SSL certificate different from the expected one"),
    ("SSL_HANDSHAKE",    "SSL handshake failure"),
    ("SSL_HANDSHAKE_HB", "SSL handshake failure after heartbeat"),
    ("SSL_KILLED_HB",    "Stopped a TLSv1 heartbeat attack (CVE-2014-0160)"),
    ("SSL_NO_TARGET",    "Attempt to use SSL on an unknown target (internal error)"),
    ("SSL_EARLY_FAILED", "Server refused early data"),
    ("SOCKS4_SEND",      "SOCKS4 Proxy write error during handshake"),
    ("SOCKS4_RECV",      "SOCKS4 Proxy read error during handshake"),
    ("SOCKS4_DENY",      "SOCKS4 Proxy deny the request"),
    ("SOCKS4_ABORT",     "SOCKS4 Proxy handshake aborted by server"),
    ("SSL_FATAL",        "SSL fatal error"),
    ("REVERSE",          "Reverse connect failure"),
    ("POLLERR",          "Poller reported POLLERR"),
    ("EREFUSED",         "ECONNREFUSED returned by OS"),
    ("ERESET",           "ECONNRESET returned by OS"),
    ("EUNREACH",         "ENETUNREACH returned by OS"),
    ("ENOMEM",           "ENOMEM returned by OS"),
    ("EBADF",            "EBADF returned by OS"),
    ("EFAULT",           "EFAULT returned by OS"),
    ("EINVAL",           "EINVAL returned by OS"),
    ("ENCONN",           "ENCONN returned by OS"),
    ("ENSOCK",           "ENSOCK returned by OS"),
    ("ENOBUFS",          "ENOBUFS returned by OS"),
    ("EPIPE",            "EPIPE returned by OS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_number_that_the_manual_gives_it() {
        let cases = [
            (ConnectionError::default(), "", "Success"),
            (ConnectionError::CANNOT_BIND, "CANT_BIND", "Can't bind to source address"),
            (ConnectionError(16), "PRX_BAD_HDR", "Received an invalid PROXY protocol header"),
            (ConnectionError(41), "SOCKS4_DENY", "SOCKS4 Proxy deny the request"),
            (ConnectionError::REFUSED, "EREFUSED", "ECONNREFUSED returned by OS"),
            (ConnectionError(56), "EPIPE", "EPIPE returned by OS"),
            (ConnectionError(200), "", ""),
        ];
        for (error, name, message) in cases {
            assert_eq!((error.name(), error.message()), (name, message), "{error:?}");
        }
    }
}
