//! Keeps `Host` equal to the authority of a target in absolute form (RFC 9112, 3.2.2). As in HAProxy, when a rule changes one, the
//! other is updated, because a server may use either.

use http::{Head, KnownName, uri};

/// Updates `Host` after a change of the target, if the target has an authority.
pub(crate) fn host_follows(head: &mut Head) {
    let authority = uri::split(head.target()).host_port().to_vec();
    let first = head.indices(&KnownName::Host.into()).next();
    if let Some(index) = first.filter(|_| !authority.is_empty()) {
        let length = head.value_at(index).map_or(0, <[u8]>::len);
        head.splice_value_at(index, 0..length, &authority);
    }
}

/// Updates the target's authority, if it has one, after the header `name` was set to `value`, if that header is `Host`.
pub(crate) fn target_follows(head: &mut Head, name: &[u8], value: &[u8]) {
    if !name.eq_ignore_ascii_case(b"host") {
        return;
    }
    let target = head.target();
    let split = uri::split(target);
    if split.authority().is_empty() || split.scheme().is_empty() {
        return;
    }
    let start = split.authority_end() - split.authority().len();
    let changed = [&target[..start], value, &target[split.authority_end()..]].concat();
    head.set_target(&changed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, host: &str) -> Head {
        let mut head = Head::new();
        head.start_request(b"GET", target.as_bytes());
        head.append(b"Host", host.as_bytes());
        head
    }

    #[test]
    fn the_authority_and_host_follow_each_other() {
        for (target, name, value, wanted) in [
            ("http://h:81/p?q", "HOST", "new", "http://new/p?q"),
            ("http://u@h:81", "host", "new:2", "http://new:2"),
            ("http://h/p", "x", "new", "http://h/p"),
            ("/p", "host", "new", "/p"),
            ("*", "host", "new", "*"),
            ("h:80", "host", "new", "h:80"),
        ] {
            let mut head = request(target, "old");
            target_follows(&mut head, name.as_bytes(), value.as_bytes());
            assert_eq!(head.target(), wanted.as_bytes(), "{target} {name}");
        }
        for (target, wanted) in
            [("http://u@o:9/u", "o:9"), ("o:9", "o:9"), ("/p", "old"), ("*", "old"), ("http:///p", "old")]
        {
            let mut head = request(target, "old");
            host_follows(&mut head);
            assert_eq!(head.get_known(KnownName::Host), Some(wanted.as_bytes()), "{target}");
        }
    }
}
