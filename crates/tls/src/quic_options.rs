//! The options of a listener's line as QUIC requires them.

use crate::TLS13;
use crate::entry::EntryOptions;
use crate::settings::Parameters;

/// The protocols that QUIC clients may negotiate: HTTP/3, and HTTP/0.9 for interoperability tests.
pub const PROTOCOLS: [&str; 2] = ["h3", "hq-interop"];

/// The limit for early data that QUIC requires: the transport has limits of its own (RFC 9001, 4.6.1).
const EARLY_DATA: u32 = u32::MAX;

/// Returns the options of a listener's line as QUIC requires them, or `None` if they are: TLS 1.3, protocols over QUIC, and early
/// data without a limit (RFC 9001, 4.2, 4.6.1 and 8.1). Lines of a crt-list may be shared with TCP listeners.
pub(crate) fn fitted(options: &EntryOptions) -> Option<EntryOptions> {
    let is_known = |name: &[u8]| PROTOCOLS.iter().any(|known| known.as_bytes() == name);
    let fits_early = matches!(options.early_data, 0 | EARLY_DATA);
    let Parameters { min, max, legacy, .. } = &options.parameters;
    let fits_version = (*min, *max) == (TLS13, TLS13) && legacy.is_none();
    if fits_early && fits_version && options.alpn.iter().all(|name| is_known(name)) {
        return None;
    }
    let mut options = options.clone();
    options.early_data = if options.early_data == 0 { 0 } else { EARLY_DATA };
    (options.parameters.min, options.parameters.max) = (TLS13, TLS13);
    options.parameters.legacy = None;
    if !options.alpn.is_empty() {
        options.alpn.retain(|name| is_known(name));
        if options.alpn.is_empty() {
            options.alpn.push(PROTOCOLS[0].as_bytes().into());
        }
    }
    Some(options)
}
