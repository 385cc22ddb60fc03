//! A request's use of a cache (RFC 9111, 5.2.1), and its key.

use http::{BodyLength, Head, KnownName, Method, begins_ignore_case};

use crate::key::write_key;

/// A request, as seen by a cache.
#[derive(Debug, Clone)]
pub struct CacheRequest {
    /// The key for the response.
    pub(crate) key: Box<[u8]>,
    /// The key's hash in the store of the lookup.
    pub(crate) hash: u64,
    /// The request fields on which responses may vary, if needed.
    pub(crate) varying: Option<Box<Head>>,
    /// Whether a stored response may answer the request.
    pub may_use: bool,
    /// Whether the response may be stored.
    pub may_store: bool,
}

impl CacheRequest {
    /// Reads `head`; returns `None` if the request has no resource.
    pub(crate) fn read(head: &Head) -> Option<Self> {
        let mut key = Vec::new();
        if !write_key(head, &mut key) {
            return None;
        }
        let method = head.method_id();
        let mut own = Self {
            key: key.into(),
            hash: 0,
            varying: None,
            may_use: matches!(method, Method::Get | Method::Head),
            may_store: method == Method::Get,
        };
        if !head.version().is_11_or_above() {
            (own.may_use, own.may_store) = (false, false);
        }
        // A request body is not part of the key.
        if head.request_body() != BodyLength::None {
            (own.may_use, own.may_store) = (false, false);
        }
        // RFC 9111, 3.5.
        if head.get_known(KnownName::Authorization).is_some() {
            (own.may_use, own.may_store) = (false, false);
        }
        own.heed(head);
        Some(own)
    }

    fn heed(&mut self, head: &Head) {
        if head.get_known(KnownName::CacheControl).is_none() {
            let says = |value: &[u8]| value.eq_ignore_ascii_case(b"no-cache");
            if head.get_known(KnownName::Pragma).is_some() && head.any_value(&KnownName::Pragma.into(), says)
            {
                self.may_use = false;
            }
            return;
        }
        for value in head.values(&KnownName::CacheControl.into()) {
            let begins = |word: &[u8]| begins_ignore_case(value, word);
            // A request with other requirements on freshness is not answered from the cache, as in HAProxy.
            if [&b"no-cache"[..], b"max-age", b"max-stale", b"min-fresh"].into_iter().any(begins) {
                self.may_use = false;
            } else if begins(b"no-store") {
                (self.may_use, self.may_store) = (false, false);
            }
        }
    }

    /// Keeps the fields on which responses may vary, because rules may change them later.
    pub(crate) fn keep_varying(&mut self, head: &Head) {
        let mut kept = Head::new();
        kept.start_request(b"GET", b"/");
        for name in [KnownName::AcceptEncoding, KnownName::Referer, KnownName::Origin] {
            for value in head.get_all(&name.into()) {
                kept.push_known(name, value, false);
            }
        }
        self.varying = Some(Box::new(kept));
    }

    /// Whether a successful request with this method invalidates stored responses (RFC 9111, 4.4).
    pub fn is_unsafe(method: Method) -> bool {
        !matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace)
    }
}

/// Whether a field is specific to the connection (RFC 9110, 7.6.1), or belongs to the message's framing.
pub(crate) fn is_of_message(name: &[u8]) -> bool {
    const OWN: &[&[u8]] = &[
        b"age",
        b"connection",
        b"content-length",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ];
    OWN.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(method: &str, fields: &[(&str, &str)]) -> (bool, bool) {
        let mut head = Head::new();
        head.start_request(method.as_bytes(), b"/");
        for (name, value) in fields {
            head.append(name.as_bytes(), value.as_bytes());
        }
        let own = CacheRequest::read(&head).unwrap();
        (own.may_use, own.may_store)
    }

    #[test]
    fn request_directives_control_the_use_of_caches() {
        assert_eq!(wants("GET", &[]), (true, true));
        assert_eq!(wants("HEAD", &[]), (true, false));
        assert_eq!(wants("POST", &[]), (false, false));
        assert_eq!(wants("GET", &[("Authorization", "Basic x")]), (false, false));
        for directive in ["no-cache", "max-age=0", "max-stale", "min-fresh=3"] {
            assert_eq!(wants("GET", &[("Cache-Control", directive)]), (false, true), "{directive}");
        }
        assert_eq!(wants("GET", &[("Cache-Control", "no-store")]), (false, false));
        assert_eq!(wants("GET", &[("Pragma", "no-cache")]), (false, true));
        assert_eq!(wants("GET", &[("Pragma", "no-cache"), ("Cache-Control", "x")]), (true, true));
    }
}
