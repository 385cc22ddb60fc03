//! `Vary` (RFC 9111, 4.1; manual, `process-vary`): responses that vary on `accept-encoding`, `referer` and `origin` are stored with
//! the request's values. Others are not stored.
//!
//! Content codings are compared as sets: clients that accept all codings of a response can use it.

use http::{Head, KnownName, list_values};

/// Codings as bits; the last is for unregistered ones.
pub(crate) type Codings = u16;

const IDENTITY: Codings = 1;
const UNKNOWN: Codings = 1 << 15;

/// The registered codings and their aliases.
const CODINGS: &[(&[u8], Codings)] = &[
    (b"identity", IDENTITY),
    (b"gzip", 1 << 1),
    (b"x-gzip", 1 << 1),
    (b"deflate", 1 << 2),
    (b"br", 1 << 3),
    (b"zstd", 1 << 4),
    (b"compress", 1 << 5),
    (b"x-compress", 1 << 5),
    (b"aes128gcm", 1 << 6),
    (b"exi", 1 << 7),
    (b"pack200-gzip", 1 << 8),
    (b"dcb", 1 << 9),
    (b"dcz", 1 << 10),
];

/// Requests with more codings are not evaluated.
const MOST_CODINGS: usize = 16;

/// The codings that a request accepts; `None` if there are too many.
pub(crate) type AcceptedCodings = Option<Codings>;

fn coding(token: &[u8]) -> Codings {
    let found = CODINGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(token));
    found.map_or(UNKNOWN, |(_, bit)| *bit)
}

/// Returns the codings that a request accepts (RFC 9110, 12.5.3): all of them if it has no such field.
pub(crate) fn accepted(request: &Head) -> AcceptedCodings {
    let name = KnownName::AcceptEncoding.into();
    let mut lines = request.get_all(&name).peekable();
    if lines.peek().is_none() {
        return Some(Codings::MAX);
    }
    let (mut taken, mut refused, mut others) = (0, 0, None);
    for (at, value) in lines.flat_map(list_values).filter(|value| !value.is_empty()).enumerate() {
        if at >= MOST_CODINGS {
            return None;
        }
        let mut parts = value.split(|byte| *byte == b';');
        let token = parts.next().unwrap_or_default().trim_ascii();
        let is_refused = parts.any(is_zero_weight);
        match token {
            b"*" => others = Some(!is_refused),
            _ if is_refused => refused |= coding(token),
            _ => taken |= coding(token),
        }
    }
    let named = taken | refused;
    if others == Some(true) {
        taken |= !named;
    }
    if named & IDENTITY == 0 && others != Some(false) {
        taken |= IDENTITY;
    }
    Some(taken)
}

/// Whether this is `q=0`, `q=0.0` and so on.
fn is_zero_weight(parameter: &[u8]) -> bool {
    let parameter = parameter.trim_ascii();
    let Some(value) = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q=")) else {
        return false;
    };
    value.first() == Some(&b'0') && value.iter().all(|byte| matches!(byte, b'0' | b'.'))
}

/// Returns the codings of a response; `None` if one of them is unknown.
pub(crate) fn content_codings(response: &Head) -> Option<Codings> {
    let mut all = 0;
    for value in response.values(&KnownName::ContentEncoding.into()) {
        match coding(value) {
            UNKNOWN => return None,
            bit => all |= bit,
        }
    }
    Some(if all == 0 { IDENTITY } else { all })
}

/// The variant of a stored response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variant {
    /// The codings of the response, if it varies on `accept-encoding`.
    pub codings: Option<Codings>,
    /// The request's `referer`, if the response varies on it.
    pub referer: Option<Box<[u8]>>,
    /// The request's `origin`, if the response varies on that.
    pub origin: Option<Box<[u8]>>,
}

impl Variant {
    /// Returns the variant of `response` to `request`; `None` if it cannot be determined, or if `request` itself does not accept
    /// the response.
    pub fn of(request: &Head, response: &Head) -> Option<Self> {
        let mut variant = Self::default();
        for value in response.values(&KnownName::Vary.into()) {
            if value.eq_ignore_ascii_case(b"accept-encoding") {
                let codings = content_codings(response)?;
                if accepted(request)? & codings != codings {
                    return None;
                }
                variant.codings = Some(codings);
            } else if value.eq_ignore_ascii_case(b"referer") {
                variant.referer = Some(joined_value(request, KnownName::Referer).into());
            } else if value.eq_ignore_ascii_case(b"origin") {
                variant.origin = Some(joined_value(request, KnownName::Origin).into());
            } else if !value.is_empty() {
                return None;
            }
        }
        Some(variant)
    }

    /// Whether the response varies on nothing.
    pub fn is_for_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the variant may answer `request`. `accepts` caches the codings that the request accepts.
    #[inline]
    pub fn suits(&self, request: &Head, accepts: &mut Option<AcceptedCodings>) -> bool {
        let same = |kept: &Option<Box<[u8]>>, name| {
            kept.as_ref().is_none_or(|kept| **kept == *joined_value(request, name))
        };
        self.codings.is_none_or(|codings| {
            accepts.get_or_insert_with(|| accepted(request)).is_some_and(|all| all & codings == codings)
        }) && same(&self.referer, KnownName::Referer)
            && same(&self.origin, KnownName::Origin)
    }

    /// Returns the memory size excluding the structure.
    pub(crate) fn memory(&self) -> usize {
        [&self.referer, &self.origin].into_iter().flatten().map(|kept| kept.len()).sum()
    }

    /// Returns the variant as a number, for `show cache`.
    pub fn number(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        if self.is_for_all() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (self.codings, &self.referer, &self.origin).hash(&mut hasher);
        hasher.finish()
    }
}

/// Joins all lines of a field, with a separator that no value contains.
fn joined_value(request: &Head, name: KnownName) -> std::borrow::Cow<'_, [u8]> {
    let name = name.into();
    let mut lines = request.get_all(&name);
    match (lines.next(), lines.next()) {
        // No field value equals this.
        (None, _) => (&b"\0"[..]).into(),
        (Some(only), None) => only.into(),
        (Some(first), Some(second)) => {
            let mut all = first.to_vec();
            for line in std::iter::once(second).chain(lines) {
                all.push(0);
                all.extend_from_slice(line);
            }
            all.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(lines: &[&str]) -> Head {
        let mut head = Head::new();
        head.start_request(b"GET", b"/");
        for line in lines {
            head.append(b"Accept-Encoding", line.as_bytes());
        }
        head
    }

    #[test]
    fn accepted_codings_follow_the_field() {
        let all = |names: &[&[u8]]| names.iter().map(|name| coding(name)).fold(0, |all, bit| all | bit);
        let cases: &[(&[&str], AcceptedCodings)] = &[
            (&[], Some(Codings::MAX)),
            (&[""], Some(IDENTITY)),
            (&["GZIP"], Some(all(&[b"gzip", b"identity"]))),
            (&["gzip", "br , deflate"], Some(all(&[b"gzip", b"br", b"deflate", b"identity"]))),
            (&["gzip  ; q=0.8, br;q=0"], Some(all(&[b"gzip", b"identity"]))),
            (&["deflate, identity;q=0.000"], Some(all(&[b"deflate"]))),
            (&["*"], Some(Codings::MAX)),
            (&["gzip;q=0, deflate,*;q=0.1"], Some(!all(&[b"gzip"]))),
            (&["gzip;q=0, deflate,*;q=0"], Some(all(&[b"deflate"]))),
            (&["*;q=0, identity"], Some(IDENTITY)),
            (&["a1,a2,a3,a4,a5,a6,a7,a8,a9,a10,a11,a12,a13,a14,a15,a16,a17"], None),
        ];
        for (lines, wanted) in cases {
            assert_eq!(accepted(&asking(lines)), *wanted, "{lines:?}");
        }
    }

    #[test]
    fn responses_with_unaccepted_codings_do_not_match() {
        let mut gzipped = Head::new();
        gzipped.start_response(200, None);
        gzipped.append(b"Content-Encoding", b"gzip");
        gzipped.append(b"Vary", b"accept-encoding");
        assert_eq!(Variant::of(&asking(&["br"]), &gzipped), None);
        let variant = Variant::of(&asking(&["gzip"]), &gzipped).unwrap();
        assert!(variant.suits(&asking(&["gzip, br"]), &mut None));
        assert!(variant.suits(&asking(&[]), &mut None));
        assert!(!variant.suits(&asking(&[""]), &mut None));
        gzipped.append(b"Vary", b"Cookie");
        assert_eq!(Variant::of(&asking(&["gzip"]), &gzipped), None);
    }
}
