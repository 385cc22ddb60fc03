//! Request methods by number. The head keeps the method's bytes; this is the fast form.

/// A request method. The numbers are those the sample fetch `method` returns (manual 7.3.6); 9 is
/// any other token.
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
    /// Any other token; its bytes are in [`crate::Head::method`].
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

    /// HAProxy's number for it.
    #[must_use]
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Whether it is safe in the sense of RFC 9110 section 9.2.1, or idempotent: such requests may be retried after an empty
    /// response.
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        matches!(
            self,
            Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Trace
        )
    }
}
