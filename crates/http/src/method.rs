//! Request methods by number. The head also keeps the bytes of the method; comparing numbers is faster.

/// A request method. The numbers are those returned by the sample fetch `method` (manual 7.3.6); 9 stands for any other token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Method {
    Options = 0,
    Get = 1,
    Head = 2,
    Post = 3,
    Put = 4,
    Delete = 5,
    Trace = 6,
    Connect = 7,
    /// Any other token. The bytes are in [`crate::Head::method`].
    #[default]
    Other = 9,
}

impl Method {
    /// The method with these bytes; case-sensitive (RFC 9110 section 9.1).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Method {
        match bytes {
            b"GET" => Method::Get,
            b"POST" => Method::Post,
            b"HEAD" => Method::Head,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// HAProxy's number for the method.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Whether the method is safe or idempotent (RFC 9110 sections 9.2.1 and 9.2.2). Such requests may be retried after an empty
    /// response.
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        matches!(
            self,
            Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Trace
        )
    }
}
