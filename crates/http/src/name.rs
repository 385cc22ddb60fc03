//! Header names: known names are represented by a number, other names by their bytes. A [`Name`] is prepared once, at configuration
//! time.

use crate::scan::same_token;

macro_rules! known_names {
    ($($variant:ident $text:literal)*) => {
        /// Header names that are recognized during parsing. Comparing two of them compares two bytes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum KnownName {
            /// Any name not in this table.
            Other,
            $($variant),*
        }

        /// The lower-case texts, by number. The first entry is for `Other`.
        const TEXTS: &[&[u8]] = &[b"", $($text),*];
        const KNOWN: &[KnownName] = &[KnownName::Other, $(KnownName::$variant),*];
    };
}

known_names! {
    Accept                  b"accept"
    AcceptCharset           b"accept-charset"
    AcceptEncoding          b"accept-encoding"
    AcceptLanguage          b"accept-language"
    AcceptRanges            b"accept-ranges"
    AccessControlAllowOrigin b"access-control-allow-origin"
    Age                     b"age"
    Allow                   b"allow"
    AltSvc                  b"alt-svc"
    Authorization           b"authorization"
    CacheControl            b"cache-control"
    Connection              b"connection"
    ContentDisposition      b"content-disposition"
    ContentEncoding         b"content-encoding"
    ContentLanguage         b"content-language"
    ContentLength           b"content-length"
    ContentLocation         b"content-location"
    ContentRange            b"content-range"
    ContentSecurityPolicy   b"content-security-policy"
    ContentType             b"content-type"
    Cookie                  b"cookie"
    Date                    b"date"
    Dnt                     b"dnt"
    EarlyData               b"early-data"
    Etag                    b"etag"
    Expect                  b"expect"
    Expires                 b"expires"
    Forwarded               b"forwarded"
    From                    b"from"
    Host                    b"host"
    Http2Settings           b"http2-settings"
    IfMatch                 b"if-match"
    IfModifiedSince         b"if-modified-since"
    IfNoneMatch             b"if-none-match"
    IfRange                 b"if-range"
    IfUnmodifiedSince       b"if-unmodified-since"
    KeepAlive               b"keep-alive"
    LastModified            b"last-modified"
    Link                    b"link"
    Location                b"location"
    MaxForwards             b"max-forwards"
    Origin                  b"origin"
    Pragma                  b"pragma"
    Priority                b"priority"
    ProxyAuthenticate       b"proxy-authenticate"
    ProxyAuthorization      b"proxy-authorization"
    ProxyConnection         b"proxy-connection"
    Range                   b"range"
    Referer                 b"referer"
    Refresh                 b"refresh"
    RetryAfter              b"retry-after"
    SecChUa                 b"sec-ch-ua"
    SecChUaMobile           b"sec-ch-ua-mobile"
    SecChUaPlatform         b"sec-ch-ua-platform"
    SecFetchDest            b"sec-fetch-dest"
    SecFetchMode            b"sec-fetch-mode"
    SecFetchSite            b"sec-fetch-site"
    SecFetchUser            b"sec-fetch-user"
    SecWebsocketAccept      b"sec-websocket-accept"
    SecWebsocketExtensions  b"sec-websocket-extensions"
    SecWebsocketKey         b"sec-websocket-key"
    SecWebsocketProtocol    b"sec-websocket-protocol"
    SecWebsocketVersion     b"sec-websocket-version"
    Server                  b"server"
    SetCookie               b"set-cookie"
    StrictTransportSecurity b"strict-transport-security"
    Te                      b"te"
    Trailer                 b"trailer"
    TransferEncoding        b"transfer-encoding"
    Upgrade                 b"upgrade"
    UpgradeInsecureRequests b"upgrade-insecure-requests"
    UserAgent               b"user-agent"
    Vary                    b"vary"
    Via                     b"via"
    WwwAuthenticate         b"www-authenticate"
    XClientIp               b"x-client-ip"
    XForwardedFor           b"x-forwarded-for"
    XForwardedHost          b"x-forwarded-host"
    XForwardedPort          b"x-forwarded-port"
    XForwardedProto         b"x-forwarded-proto"
    XOriginalTo             b"x-original-to"
    XPoweredBy              b"x-powered-by"
    XRealIp                 b"x-real-ip"
    XRequestId              b"x-request-id"
    XUniqueId               b"x-unique-id"
}

const SLOTS: usize = 1024;

/// The key of a name: a hash of its length and of its first and last eight bytes (four for short names) in lower case. Names with
/// equal keys are nearly always equal.
#[inline(always)]
const fn key(name: &[u8]) -> u32 {
    const CASE: u64 = 0x2020_2020_2020_2020;
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let n = name.len();
    let (first, last) = match n {
        8.. => (eight(name, 0), eight(name, n - 8)),
        4..8 => (four(name, 0), four(name, n - 4)),
        _ => (name[0] as u64, ((name[n / 2] as u64) << 8) | name[n - 1] as u64),
    };
    let mixed = ((first | CASE) ^ (last | CASE).rotate_left(29)).wrapping_add(n as u64).wrapping_mul(MIX);
    (mixed >> 32) as u32
}

#[inline(always)]
const fn four(name: &[u8], at: usize) -> u64 {
    match name.split_at(at).1.first_chunk() {
        Some(bytes) => u32::from_le_bytes(*bytes) as u64,
        None => 0,
    }
}

#[inline(always)]
const fn eight(name: &[u8], at: usize) -> u64 {
    match name.split_at(at).1.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

const fn slot(key: u32, seed: u32) -> usize {
    (key.wrapping_mul(seed) >> 22) as usize
}

/// The beginnings of lines with known names, by number, and their lengths. They have a fixed size, so that they can be copied
/// without a call.
static BEGINNINGS: [([u8; 32], u8); TEXTS.len()] = {
    let mut beginnings = [([0; 32], 0); TEXTS.len()];
    let mut i = 1;
    while i < TEXTS.len() {
        let name = TEXTS[i];
        let mut at = 0;
        while at < name.len() {
            beginnings[i].0[at] = name[at];
            at += 1;
        }
        beginnings[i].0[at] = b':';
        beginnings[i].0[at + 1] = b' ';
        beginnings[i].1 = at as u8 + 2;
        i += 1;
    }
    beginnings
};

/// The keys of the known names, by number.
static KEYS: [u32; TEXTS.len()] = {
    let mut keys = [0; TEXTS.len()];
    let mut i = 1;
    while i < TEXTS.len() {
        keys[i] = key(TEXTS[i]);
        i += 1;
    }
    keys
};

/// A multiplier that gives every known name a distinct slot, and the slots. Computed at compile time.
const PERFECT: (u32, [u8; SLOTS]) = {
    let mut seed: u32 = 0x9e37_79b1;
    loop {
        let mut slots = [0u8; SLOTS];
        let mut i = 1;
        let mut clash = false;
        while i < TEXTS.len() {
            let s = slot(key(TEXTS[i]), seed);
            if slots[s] != 0 {
                clash = true;
                break;
            }
            slots[s] = i as u8;
            i += 1;
        }
        if !clash {
            break (seed, slots);
        }
        seed = seed.wrapping_mul(1_664_525).wrapping_add(0x3c6e_f35e);
    }
};
const SEED: u32 = PERFECT.0;
static SLOT_OF: [u8; SLOTS] = PERFECT.1;

impl KnownName {
    /// The known name that equals these token bytes, in any case.
    #[inline(always)]
    #[must_use]
    pub fn from_token(name: &[u8]) -> KnownName {
        KnownName::with_key(name).0
    }

    /// The name and its key. Names with different keys are different.
    #[inline(always)]
    pub(crate) fn with_key(name: &[u8]) -> (KnownName, u32) {
        if name.is_empty() {
            return (KnownName::Other, 0);
        }
        let key = key(name);
        let i = SLOT_OF[slot(key, SEED)] as usize;
        (if i != 0 && same_token(name, TEXTS[i]) { KNOWN[i] } else { KnownName::Other }, key)
    }

    /// The text in lower case; empty for `Other`.
    #[must_use]
    pub fn text(self) -> &'static [u8] {
        TEXTS[self as usize]
    }

    /// The key, as returned by [`KnownName::with_key`].
    #[inline(always)]
    pub(crate) fn key(self) -> u32 {
        KEYS[self as usize]
    }

    /// The beginning of a line with this name, and its length: the name is followed by colon and space.
    #[inline(always)]
    pub(crate) fn beginning(self) -> (&'static [u8; 32], usize) {
        let (bytes, length) = &BEGINNINGS[self as usize];
        (bytes, *length as usize)
    }

    /// Whether fields of this name frame the message.
    #[inline(always)]
    pub(crate) fn is_framing(self) -> bool {
        matches!(self, Self::ContentLength | Self::TransferEncoding)
    }

    #[inline(always)]
    pub(crate) fn bit(self) -> u128 {
        1u128 << (self as u8)
    }
}

/// A header name prepared for lookups: the number of a known name, otherwise the lower-case bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    known: KnownName,
    /// Whether the name is a token that can be compared word by word.
    plain: bool,
    key: u32,
    lower: Box<[u8]>,
}

impl Name {
    /// Prepares `name`. Any bytes are accepted; a name that is not a token never matches a parsed field.
    #[must_use]
    pub fn new(name: &[u8]) -> Name {
        let lower = name.to_ascii_lowercase().into_boxed_slice();
        let is_token = crate::is_token(&lower);
        let (known, key) = if is_token { KnownName::with_key(&lower) } else { (KnownName::Other, 0) };
        let plain = is_token && !lower.iter().any(|b| matches!(b, b'^' | b'~'));
        Name { known, plain, key, lower }
    }

    /// A name that matches every field, for `hdr_cnt` without an argument and similar fetches.
    #[must_use]
    pub fn any() -> Name {
        Name { known: KnownName::Other, plain: false, key: 0, lower: Box::default() }
    }

    /// Whether this is [`Name::any`].
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.lower.is_empty()
    }

    /// The number of the name; `Other` if it has none.
    #[must_use]
    pub fn known(&self) -> KnownName {
        self.known
    }

    /// Whether the name is a token that can be compared word by word.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Whether `token`, which has the same key, is this name.
    #[inline(always)]
    pub(crate) fn is(&self, token: &[u8]) -> bool {
        if self.plain { same_token(token, &self.lower) } else { token.eq_ignore_ascii_case(&self.lower) }
    }

    /// The bytes in lower case.
    #[must_use]
    pub fn lower(&self) -> &[u8] {
        &self.lower
    }
}

impl From<KnownName> for Name {
    fn from(known: KnownName) -> Name {
        Name { known, plain: true, key: known.key(), lower: known.text().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_found_in_any_case() {
        assert!(TEXTS.len() <= 128, "a bit of a u128 each");
        for (i, text) in TEXTS.iter().enumerate().skip(1) {
            assert_eq!(KnownName::from_token(text) as usize, i);
            let (beginning, length) = KNOWN[i].beginning();
            assert_eq!(beginning[..length], *[text, &b": "[..]].concat());
            assert_eq!(KnownName::with_key(text), (KNOWN[i], KNOWN[i].key()));
            assert_eq!(KnownName::from_token(&text.to_ascii_uppercase()) as usize, i);
            let mut near = text.to_vec();
            near[0] = b'_';
            assert_eq!(KnownName::from_token(&near), KnownName::Other);
        }
        assert_eq!(KnownName::from_token(b"x-forwarded-fox"), KnownName::Other);
        assert_eq!(Name::new(b"HOST").known(), KnownName::Host);
        assert_eq!(Name::new(b"ho st").known(), KnownName::Other);
    }
}
