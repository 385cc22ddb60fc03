//! The key of a stored response: the host and the target of its request (manual, chapter 6; RFC 9111, 2). Keys are compared as a
//! whole, so that resources are never confused.

use http::{Head, KnownName, uri};

/// Appends the key of `request` to `out`. Returns false and appends nothing if the request has no resource.
pub fn write_key(request: &Head, out: &mut Vec<u8>) -> bool {
    let split = uri::split(request.target());
    let Some(path) = split.pathq() else { return false };
    let host = match split.authority() {
        b"" => request.get_known(KnownName::Host).unwrap_or_default(),
        // The host of an absolute target takes precedence (RFC 9112, 3.2.2).
        authority => authority,
    };
    out.reserve(host.len() + 1 + path.len());
    out.extend(host.iter().map(u8::to_ascii_lowercase));
    // A host cannot contain this byte, so its end is unambiguous.
    out.push(0);
    out.extend_from_slice(path);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(target: &str, host: Option<&str>) -> Option<Vec<u8>> {
        let mut head = Head::new();
        head.start_request(b"GET", target.as_bytes());
        if let Some(host) = host {
            head.append(b"Host", host.as_bytes());
        }
        let mut out = Vec::new();
        write_key(&head, &mut out).then_some(out)
    }

    #[test]
    fn a_key_is_the_host_and_the_target() {
        assert_eq!(key("/a?b", Some("Example.COM:80")), Some(b"example.com:80\0/a?b".to_vec()));
        assert_eq!(key("http://example.com/a", Some("other")), key("/a", Some("example.com")));
        assert_ne!(key("/a", Some("b")), key("/A", Some("b")));
        assert_ne!(key("/a", Some("b")), key("/a", Some("c")));
        assert_eq!(key("/a", None), Some(b"\0/a".to_vec()));
        assert_eq!(key("*", Some("b")), None);
    }
}
