//! What the parser accepts beyond the rules, and how much.

/// Limits and relaxations.
#[derive(Debug, Clone)]
pub struct ParseOptions {
    /// Header lines accepted: `tune.http.maxhdr` less one for the start line. Default 100.
    pub max_fields: usize,
    /// Bytes a head may take, leading empty lines included: the usable buffer size. Default 15360.
    pub max_bytes: usize,
    /// `option accept-unsafe-violations-in-http-request` or `-response`: exactly what the manual
    /// lists for it.
    pub relaxed: bool,
    /// LF alone ends a line (RFC 9112 section 2.2 allows it, HAProxy does it; what is sent on has
    /// CRLF). Default true.
    pub lone_lf: bool,
    /// A line that begins with a space or tab goes on with the value before it (obs-fold, RFC 9112
    /// section 5.2, which lets a server refuse such requests with 400). Default true.
    pub folding: bool,
    /// Global `h1-accept-payload-with-any-method`.
    pub any_method_payload: bool,
    /// Global `h1-do-not-close-on-insecure-transfer-encoding`.
    pub keep_insecure: bool,
}

impl Default for ParseOptions {
    fn default() -> ParseOptions {
        ParseOptions {
            max_fields: 100,
            max_bytes: 15 * 1024,
            relaxed: false,
            lone_lf: true,
            folding: true,
            any_method_payload: false,
            keep_insecure: false,
        }
    }
}
