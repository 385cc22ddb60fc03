//! Kernel metrics of connections, and the errors of failed connections. `proxy`, which owns the sockets, queries the kernel on
//! demand; this module only defines the results.

use std::io;

use state::FaultCause;

/// The kernel's metrics of a TCP connection (`TCP_INFO` in tcp(7)), or those of a QUIC connection, which lacks some.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpFacts {
    /// The smoothed round trip time, in µs.
    pub rtt_us: u32,
    /// The round trip time's variance, in µs.
    pub rttvar_us: u32,
    /// Segments sent but not acknowledged.
    pub unacked: Option<u32>,
    /// Segments acknowledged selectively.
    pub sacked: Option<u32>,
    /// Segments presumed lost.
    pub lost: u32,
    /// Retransmitted segments that are not acknowledged.
    pub retrans: Option<u32>,
    /// Segments acknowledged forward.
    pub fackets: Option<u32>,
    /// The reordering distance.
    pub reordering: u32,
}

/// The reason for a connection's failure, with the number in the manual's table at `fc_err_str`. 0 stands for no error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionError(pub u8);

impl ConnectionError {
    /// The configured connection limit was reached.
    pub const CONFIGURED_LIMIT: Self = Self(1);
    /// The process is out of file descriptors.
    pub const PROCESS_LIMIT: Self = Self(2);
    /// The system is out of file descriptors.
    pub const SYSTEM_LIMIT: Self = Self(3);
    /// The kernel has no memory for another socket.
    pub const SYSTEM_MEMORY: Self = Self(4);
    /// The address family does not support connections.
    pub const NO_PROTOCOL: Self = Self(5);
    /// An unclassified socket error.
    pub const SOCKET: Self = Self(6);
    /// All ports of the source port range are in use.
    pub const PORT_RANGE: Self = Self(7);
    /// The source address cannot be bound.
    pub const CANNOT_BIND: Self = Self(8);
    /// No source port is left.
    pub const NO_PORTS: Self = Self(9);
    /// The source address is in use.
    pub const ADDRESS_IN_USE: Self = Self(10);
    /// The client closed the connection before it sent its PROXY header.
    pub const PROXY_EMPTY: Self = Self(11);
    /// The connection broke before the PROXY header.
    pub const PROXY_ABORT: Self = Self(12);
    /// The PROXY header did not arrive in time.
    pub const PROXY_TIMEOUT: Self = Self(13);
    /// The client closed in the middle of the header.
    pub const PROXY_TRUNCATED: Self = Self(14);
    /// The client sent something other than a PROXY header.
    pub const PROXY_OTHER: Self = Self(15);
    /// The PROXY header is invalid.
    pub const PROXY_INVALID: Self = Self(16);
    /// The PROXY header names an unknown protocol.
    pub const PROXY_PROTOCOL: Self = Self(17);
    /// The client closed the connection before it sent its NetScaler Client IP header.
    pub const NETSCALER_EMPTY: Self = Self(18);
    /// The connection broke before the NetScaler header.
    pub const NETSCALER_ABORT: Self = Self(19);
    /// The NetScaler header did not arrive in time.
    pub const NETSCALER_TIMEOUT: Self = Self(20);
    /// The client closed the connection in the middle of the header, or the header is too short for its contents.
    pub const NETSCALER_TRUNCATED: Self = Self(21);
    /// The magic number is wrong.
    pub const NETSCALER_MAGIC: Self = Self(22);
    /// The NetScaler header names an unknown protocol.
    pub const NETSCALER_PROTOCOL: Self = Self(23);
    /// The client closed the connection before its first TLS message.
    pub const TLS_EMPTY: Self = Self(24);
    /// The connection broke during the TLS handshake.
    pub const TLS_ABORT: Self = Self(25);
    /// The TLS handshake timed out.
    pub const TLS_TIMEOUT: Self = Self(26);
    /// The server refused early data.
    pub const TLS_EARLY_FAILED: Self = Self(38);
    /// Sending the SOCKS4 request failed.
    pub const SOCKS4_SEND: Self = Self(39);
    /// The SOCKS4 response could not be read.
    pub const SOCKS4_RECEIVE: Self = Self(40);
    /// The SOCKS4 proxy refused the request.
    pub const SOCKS4_DENY: Self = Self(41);
    /// The SOCKS4 proxy closed the connection without a response.
    pub const SOCKS4_ABORT: Self = Self(42);
    /// Connection refused.
    pub const REFUSED: Self = Self(46);
    /// Connection reset.
    pub const RESET: Self = Self(47);
    /// The destination is unreachable.
    pub const UNREACHABLE: Self = Self(48);
    /// The kernel is out of memory.
    pub const NO_MEMORY: Self = Self(49);
    /// The peer no longer accepts data.
    pub const BROKEN_PIPE: Self = Self(56);
    /// The exchange of QMux's transport parameters failed. The manual's table does not have it.
    pub const QMUX: Self = Self(57);

    /// Classifies an I/O error of a connecting or established socket.
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

    /// Whether the error occurred in a TLS handshake.
    pub fn is_of_tls(self) -> bool {
        (Self::TLS_EMPTY.0..=Self::TLS_EARLY_FAILED.0).contains(&self.0)
    }

    /// Returns the cause for which a client connection with this error ended before it had a stream, or `None` for no error.
    pub fn fault(self) -> Option<FaultCause> {
        match self.0 {
            0 => None,
            11..24 => Some(FaultCause::ProxyHeader),
            _ if self.is_of_tls() => Some(FaultCause::ClientTls),
            _ => Some(FaultCause::ClientReset),
        }
    }

    /// The name of the error, as one word; empty for no error.
    pub fn name(self) -> &'static str {
        ERRORS.get(usize::from(self.0)).map_or("", |(name, _)| name)
    }

    /// The error message.
    pub fn message(self) -> &'static str {
        ERRORS.get(usize::from(self.0)).map_or("", |(_, message)| message)
    }
}

/// Names and messages by number. They have HAProxy's wording, because log parsers depend on it.
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
    ("QMUX",             "Error during QMux transport parameters initial exchange"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_numbers_of_the_manual() {
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
