//! Relaxations and limits of the parser.

/// Limits and relaxations.
#[derive(Debug, Clone)]
pub struct ParseOptions {
    /// The maximum number of header lines: `tune.http.maxhdr` minus one for the start line. Default 100.
    pub max_fields: usize,
    /// The maximum size of a head, including leading empty lines: the usable buffer size. Default 15360.
    pub max_bytes: usize,
    /// `option accept-unsafe-violations-in-http-request` or `-response`: exactly the relaxations listed in the manual.
    pub relaxed: bool,
    /// Whether LF alone ends a line. RFC 9112 section 2.2 allows this, and HAProxy accepts it; forwarded lines have CRLF. Default
    /// true.
    pub lone_lf: bool,
    /// Whether a line that begins with a space or tab continues the previous value (obs-fold). RFC 9112 section 5.2 allows a server
    /// to refuse such requests with 400. Default true.
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
