//! Reason phrases and the built-in error messages. They are the same as HAProxy's defaults without `errorfile`.

/// A built-in message, which is sent with `content-length`, `cache-control: no-cache` and `content-type: text/html`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Status code.
    pub code: u16,
    /// Reason phrase of the status line.
    pub reason: &'static str,
    /// The sentence in the body.
    pub text: &'static str,
}

const fn row(code: u16, reason: &'static str, text: &'static str) -> ErrorMessage {
    ErrorMessage { code, reason, text }
}

/// Every status supported by `errorfile` (manual 4.2), in order.
#[rustfmt::skip]
pub const ERROR_MESSAGES: &[ErrorMessage] = &[
    row(200, "OK",                              "Service ready."),
    row(400, "Bad request",                     "Your browser sent an invalid request."),
    row(401, "Unauthorized",                    "You need a valid user and password to access this content."),
    row(403, "Forbidden",                       "Request forbidden by administrative rules."),
    row(404, "Not Found",                       "The resource could not be found."),
    row(405, "Method Not Allowed",              "A request was made of a resource using a request method not supported by that resource."),
    row(407, "Unauthorized",                    "You need a valid user and password to access this content."),
    row(408, "Request Time-out",                "Your browser didn't send a complete request in time."),
    row(410, "Gone",                            "The resource is no longer available and will not be available again."),
    row(413, "Payload Too Large",               "The request entity exceeds the maximum allowed."),
    row(414, "URI Too Long",                    "The URI provided was too long for the server to process."),
    row(421, "Misdirected Request",             "Request sent to a non-authoritative server."),
    row(422, "Unprocessable Content",           "The server cannot process the contained instructions."),
    row(425, "Too Early",                       "Your browser sent early data."),
    row(429, "Too Many Requests",               "You have sent too many requests in a given amount of time."),
    row(431, "Request Header Fields Too Large", "Request Header Fields Too Large."),
    row(500, "Internal Server Error",           "An internal server error occurred."),
    row(501, "Not Implemented",                 "The server does not support the functionality required to fulfill the request."),
    row(502, "Bad Gateway",                     "The server returned an invalid or incomplete response."),
    row(503, "Service Unavailable",             "No server is available to handle this request."),
    row(504, "Gateway Time-out",                "The server didn't respond in time."),
];

/// The built-in message for a code, if it has one.
#[must_use]
pub fn error_message(code: u16) -> Option<&'static ErrorMessage> {
    ERROR_MESSAGES.binary_search_by_key(&code, |m| m.code).ok().map(|i| &ERROR_MESSAGES[i])
}

impl ErrorMessage {
    /// Appends the HTML body.
    pub fn write_body(&self, out: &mut Vec<u8>) {
        let ErrorMessage { code, reason, text } = self;
        out.extend_from_slice(
            format!("<html><body><h1>{code} {reason}</h1>\n{text}\n</body></html>\n").as_bytes(),
        );
    }
}

#[rustfmt::skip]
const REASONS: &[(u16, &str)] = &[
    (100, "Continue"), (101, "Switching Protocols"), (102, "Processing"), (103, "Early Hints"),
    (200, "OK"), (201, "Created"), (202, "Accepted"), (203, "Non-Authoritative Information"), (204, "No Content"),
    (205, "Reset Content"), (206, "Partial Content"), (207, "Multi-Status"), (210, "Content Different"),
    (226, "IM Used"),
    (300, "Multiple Choices"), (301, "Moved Permanently"), (302, "Found"), (303, "See Other"), (304, "Not Modified"),
    (305, "Use Proxy"), (307, "Temporary Redirect"), (308, "Permanent Redirect"), (310, "Too many Redirects"),
    (400, "Bad Request"), (401, "Unauthorized"), (402, "Payment Required"), (403, "Forbidden"), (404, "Not Found"),
    (405, "Method Not Allowed"), (406, "Not Acceptable"), (407, "Proxy Authentication Required"), (408, "Request Time-out"),
    (409, "Conflict"), (410, "Gone"), (411, "Length Required"), (412, "Precondition Failed"),
    (413, "Request Entity Too Large"), (414, "Request-URI Too Long"), (415, "Unsupported Media Type"),
    (416, "Requested range unsatisfiable"), (417, "Expectation failed"), (418, "I'm a teapot"),
    (421, "Misdirected Request"), (422, "Unprocessable Content"), (423, "Locked"), (424, "Method failure"),
    (425, "Too Early"), (426, "Upgrade Required"), (428, "Precondition Required"), (429, "Too Many Requests"),
    (431, "Request Header Fields Too Large"), (449, "Retry With"),
    (450, "Blocked by Windows Parental Controls"), (451, "Unavailable For Legal Reasons"), (456, "Unrecoverable Error"),
    (499, "client has closed connection"),
    (500, "Internal Server Error"), (501, "Not Implemented"), (502, "Bad Gateway or Proxy Error"),
    (503, "Service Unavailable"), (504, "Gateway Time-out"), (505, "HTTP Version not supported"),
    (506, "Variant also negotiate"), (507, "Insufficient storage"), (508, "Loop detected"),
    (509, "Bandwidth Limit Exceeded"), (510, "Not extended"), (511, "Network authentication required"),
    (520, "Web server is returning an unknown error"),
];

/// The reason phrase of a status. If the status has none, that of its class is used.
#[must_use]
pub fn reason(code: u16) -> &'static str {
    if let Ok(i) = REASONS.binary_search_by_key(&code, |r| r.0) {
        return REASONS[i].1;
    }
    match code / 100 {
        1 => "Informational",
        2 => "Success",
        3 => "Redirection",
        4 => "Client Error",
        5 => "Server Error",
        _ => "Other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_body_lengths_match_haproxy() {
        assert!(ERROR_MESSAGES.is_sorted_by_key(|m| m.code) && REASONS.is_sorted_by_key(|r| r.0));
        for (code, length) in [
            (200, 58),
            (400, 90),
            (401, 112),
            (403, 93),
            (408, 110),
            (413, 106),
            (429, 117),
            (503, 107),
            (504, 92),
        ] {
            let (mut head, mut body) = (crate::Head::new(), Vec::new());
            error_message(code).unwrap().response(&mut head, &mut body);
            assert_eq!(body.len(), length, "{code}");
            assert_eq!(head.content_length(), Some(length as u64));
        }
        assert_eq!((reason(404), reason(299), reason(599)), ("Not Found", "Success", "Server Error"));
        assert_eq!(
            (reason(208), reason(210), reason(310)),
            ("Success", "Content Different", "Too many Redirects")
        );
        assert_eq!(
            (reason(456), reason(450)),
            ("Unrecoverable Error", "Blocked by Windows Parental Controls")
        );
        assert_eq!(reason(520), "Web server is returning an unknown error");
        assert!(error_message(418).is_none());
    }
}
