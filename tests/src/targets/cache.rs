//! Fuzz targets for the crate `cache`: keys and `Vary`. Their inputs are sequences of HTTP/1 messages.

use cache::{CacheSettings, Clocks, Disk, FileHeader, HEADER, Lookup, Now, Store};
use http::{Head, KnownName, ParseOptions, ParseStatus, uri};

/// Returns the head at the start of `bytes`, and the rest.
fn head_of(bytes: &[u8], is_response: bool) -> Option<(Head, &[u8])> {
    let mut head = Head::new();
    let parse = if is_response { http::parse_response } else { http::parse_request };
    match parse(bytes, &mut head, &ParseOptions::default()) {
        Ok(ParseStatus::Complete { len }) => Some((head, &bytes[len..])),
        _ => None,
    }
}

/// Returns the resource of a request, computed independently of cache keys.
fn resource(head: &Head) -> Option<(Vec<u8>, Vec<u8>)> {
    let split = uri::split(head.target());
    let host = match split.authority() {
        b"" => head.get_known(KnownName::Host).unwrap_or_default(),
        authority => authority,
    };
    Some((host.to_ascii_lowercase(), split.pathq()?.to_vec()))
}

/// Checks that two requests have the same key if and only if they have the same host and target.
pub fn cache_key(bytes: &[u8]) {
    let Some((one, rest)) = head_of(bytes, false) else { return };
    let Some((other, _)) = head_of(rest, false) else { return };
    let key = |head: &Head| {
        let mut key = Vec::new();
        cache::write_key(head, &mut key).then_some(key)
    };
    let (keys, resources) = ([key(&one), key(&other)], [resource(&one), resource(&other)]);
    assert_eq!(keys.each_ref().map(Option::is_some), resources.each_ref().map(Option::is_some));
    assert_eq!(keys[0] == keys[1], resources[0] == resources[1], "{resources:?}");
}

/// Checks that a cache file is only accepted in the form in which it would be written. The input is a file; the part after its
/// header is also tried with a valid header.
pub fn cache_file(bytes: &[u8]) {
    file(bytes);
    if let Some(described) = bytes.get(HEADER..) {
        file(&[&cache::header(1, 0, described), described].concat());
    }
}

fn file(bytes: &[u8]) {
    let now = Clocks { ms: 1_000_000, wall_ms: 1_700_000_000_000 };
    let Ok(header) = FileHeader::read(bytes) else { return };
    let described = bytes.get(HEADER..).and_then(|rest| rest.get(..header.described as usize));
    let Some(Ok(described)) = described.map(|text| cache::read(&header, text, now)) else { return };
    let settings = CacheSettings {
        disk: Some(Disk { directory: "/".into(), size: 1 << 40 }),
        ..CacheSettings::new("fuzz", 1024)
    };
    let store = Store::new(settings);
    if store.found_file(&described, &header, now.ms) {
        let entry = store.files.iter().flat_map(|files| files.entries()).next().expect("the file");
        assert_eq!((entry.number, entry.size), (header.number, header.size()));
    }
}

/// Checks that a stored response is only reused for a request with the same values of all fields in `Vary`, and whose accepted
/// codings, if listed plainly, include that of the response.
pub fn cache_vary(bytes: &[u8]) {
    let Some((first, rest)) = head_of(bytes, false) else { return };
    let Some((response, rest)) = head_of(rest, true) else { return };
    let Some((second, _)) = head_of(rest, false) else { return };
    let store = Store::new(CacheSettings { vary: true, ..CacheSettings::new("fuzz", 1024) });
    let Some(mut request) = store.request(&first) else { return };
    store.prepare(&mut request, &first);
    let now = Now { ms: 1, wall: 1_700_000_000 };
    let Some(mut filling) = store.begin(&request, &response, Some(4), now) else { return };
    filling.push(b"body", 1);
    filling.finish(1);
    let Some(asked) = store.request(&second) else { return };
    let Lookup::Fresh(object) = store.find(&asked, &second, 2) else { return };
    assert_eq!(&object.body[..], b"body");
    assert_eq!(resource(&first), resource(&second));
    assert_eq!(response.status(), 200);
    assert!(first.get_known(KnownName::Authorization).is_none());
    for value in response.values(&KnownName::Vary.into()) {
        let same = |name: KnownName| {
            let name = name.into();
            assert!(first.get_all(&name).eq(second.get_all(&name)), "another {value:?}");
        };
        match value.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"origin" => same(KnownName::Origin),
            b"referer" => same(KnownName::Referer),
            b"accept-encoding" => accepts(&second, &response),
            _ => panic!("varies on {}", value.escape_ascii()),
        }
    }
}

/// Checks that a request with a plain list of codings accepts each coding of the response.
fn accepts(request: &Head, response: &Head) {
    let name = KnownName::AcceptEncoding.into();
    if request.get_all(&name).next().is_none() {
        return;
    }
    let list: Vec<Vec<u8>> = request.values(&name).map(<[u8]>::to_ascii_lowercase).collect();
    if list.iter().any(|value| value.contains(&b'*') || value.contains(&b';')) {
        return;
    }
    for coding in response.values(&KnownName::ContentEncoding.into()) {
        let coding = coding.to_ascii_lowercase();
        let plain = coding.strip_prefix(b"x-").unwrap_or(&coding);
        let is_same = |value: &Vec<u8>| value.strip_prefix(b"x-").unwrap_or(value) == plain;
        assert!(plain == b"identity" || list.iter().any(is_same), "{}", coding.escape_ascii());
    }
}
