//! Fuzz targets for input of expressions: requests, JSON, tokens, addresses and cookies from clients.

use std::sync::{Arc, OnceLock};

use config::Loaded;
use http::{Head, Method, ParseOptions, ParseStatus, cookie, parse_request, uri};
use plan::Plan;
use rules::Reply;
use sample::{Env, Transaction};

use super::{load, quoted};

/// Returns a reply with `format` as its text, or why the configuration is refused.
fn answer(format: &str) -> Result<Arc<Reply>, String> {
    let quoted = quoted(format);
    let Loaded { plan, diagnostics, .. } = load(&format!(
        "frontend f\n mode http\n bind 127.0.0.1:1\n timeout client 1s\n \
         http-error status 404 content-type text/plain lf-string {quoted}\n"
    ));
    let of_plan = |plan: Plan| {
        let mut errors = plan.proxies.iter().flat_map(|proxy| proxy.errors.iter());
        errors.find(|(status, _)| *status == 404).map(|(_, reply)| Arc::clone(reply))
    };
    plan.and_then(of_plan).ok_or_else(|| diagnostics.iter().map(|one| format!("{one:?} ")).collect())
}

/// Returns the text of `reply` for a request with that head and body.
fn text(reply: &Reply, head: &[u8], body: &[u8]) -> Vec<u8> {
    let process = state::Process::default();
    let mut transaction = Transaction { is_http: true, ..Transaction::default() };
    // The parsed part of an invalid request is visible.
    let _ = parse_request(head, &mut transaction.request, &ParseOptions::default());
    let env = Env { transaction: Some(&transaction), request_bytes: body, ..Env::new(&process, 1_000) };
    let (mut head, mut out) = (Head::new(), Vec::new());
    reply.render(&env, &mut head, &mut out);
    out
}

/// Separates values; a fuzzer is unlikely to produce it.
const BETWEEN: &str = "|between|";

/// Several fixed expressions, evaluated on fuzzed input.
pub(super) struct Fixed {
    expressions: &'static [&'static str],
    reply: OnceLock<Arc<Reply>>,
}

impl Fixed {
    pub(super) const fn new(expressions: &'static [&'static str]) -> Self {
        Self { expressions, reply: OnceLock::new() }
    }

    /// Returns their values.
    pub(super) fn values(&self, head: &[u8], body: &[u8]) -> Vec<Vec<u8>> {
        let reply = self.reply.get_or_init(|| {
            let format: Vec<String> = self.expressions.iter().map(|one| format!("%[{one}]")).collect();
            let made = answer(&format.join(BETWEEN));
            made.unwrap_or_else(|why| panic!("the expressions of a target are right: {why}"))
        });
        let text = text(reply, head, body);
        let (mut values, mut rest) = (Vec::new(), &text[..]);
        while let Some(at) = memchr::memmem::find(rest, BETWEEN.as_bytes()) {
            values.push(rest[..at].to_vec());
            rest = &rest[at + BETWEEN.len()..];
        }
        values.push(rest.to_vec());
        values
    }
}

const PLAIN: &[u8] = b"POST / HTTP/1.1\r\nhost: h\r\n\r\n";

/// Checks that an expression (the first line) is refused, or has a value for the request that follows, the same one each time.
pub fn expression(bytes: &[u8]) {
    let (line, request) = bytes.split_at(memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1));
    let line = String::from_utf8_lossy(line);
    // Files named in an expression are read, and tables may have any size.
    if line.contains('/') || line.contains("..") {
        return;
    }
    let Ok(reply) = answer(&format!("%[{}]", line.trim_end())) else { return };
    let end = memchr::memmem::find(request, b"\r\n\r\n").map_or(request.len(), |at| at + 4);
    let (head, body) = request.split_at(end);
    let first = text(&reply, head, body);
    let changing = ["rand", "uuid", "date", "cpu_", "lat_", "_usage", "pid", "uptime"];
    if !changing.iter().any(|name| line.contains(name)) {
        assert_eq!(first.escape_ascii().to_string(), text(&reply, head, body).escape_ascii().to_string());
    }
}

/// Checks that only objects have members, and that bytes after the requested ones are not examined. Any bytes can be encoded in a
/// JSON string.
pub fn json(bytes: &[u8]) {
    static VALUES: Fixed = Fixed::new(&[
        "req.body,json_query('$.a')",
        "req.body,json_query('$.a[0].b',int)",
        "req.body,json_query('$..b')",
        "req.body,json(utf8s)",
    ]);
    let values = VALUES.values(PLAIN, bytes);
    if !bytes.trim_ascii_start().starts_with(b"{") {
        assert!(values[..3].iter().all(Vec::is_empty), "a value of {}", bytes.escape_ascii());
    }
    let string = [b"\"", &values[3][..], b"\""].concat();
    let read = serde_json::from_slice::<String>(&string);
    assert!(read.is_ok(), "{} of {}", string.escape_ascii(), bytes.escape_ascii());
}

/// Checks that a token with these bytes as payload is verified with its key and no other, and that the bytes as a token never are.
pub fn jwt(bytes: &[u8]) {
    static SIGNED: Fixed = Fixed::new(&["req.body,ub64enc"]);
    static SIGNATURE: Fixed = Fixed::new(&["req.body,hmac(sha256,a2V5),ub64enc"]);
    static VERDICTS: Fixed = Fixed::new(&[
        "req.body,jwt_verify(HS256,key)",
        "req.body,jwt_verify(HS256,other)",
        "req.body,jwt_verify(HS512,key)",
        "req.body,jwt_header_query('$.alg')",
        "req.body,jwt_payload_query('$.sub')",
        "req.body,jwt_decrypt_secret(a2V5)",
    ]);
    let values = VERDICTS.values(PLAIN, bytes);
    assert!(values[..3].iter().all(|verdict| verdict != b"1"), "forged: {}", bytes.escape_ascii());
    let payload = SIGNED.values(PLAIN, bytes).remove(0);
    let mut token = [&b"eyJhbGciOiJIUzI1NiJ9."[..], &payload].concat();
    let signature = SIGNATURE.values(PLAIN, &token).remove(0);
    token.push(b'.');
    token.extend_from_slice(&signature);
    let verdicts = VERDICTS.values(PLAIN, &token);
    let told: Vec<_> = verdicts[..4].iter().map(|one| one.escape_ascii().to_string()).collect();
    assert_eq!((&*told[0], &*told[3]), ("1", "HS256"), "{}", token.escape_ascii());
    assert!(told[1] != "1" && told[2] != "1", "{told:?} of {}", token.escape_ascii());
}

/// Checks that the parts of a target follow each other in it, and that URL encoding round-trips.
pub fn url(bytes: &[u8]) {
    let split = uri::split(bytes);
    let (authority, path) = (split.authority_end(), split.path_start());
    assert!(authority <= path && path <= bytes.len(), "{authority}, {path} of {}", bytes.escape_ascii());
    assert!(split.query_start().is_none_or(|query| path <= query && query < bytes.len()));
    let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
    uri::url_encode(bytes, &mut encoded);
    assert!(uri::url_decode(&encoded, true, &mut decoded) && decoded == bytes, "{}", bytes.escape_ascii());
    decoded.clear();
    assert_eq!(
        uri::url_decode(bytes, true, &mut decoded),
        is_escaped_well(bytes),
        "{}",
        bytes.escape_ascii()
    );
    static PARTS: Fixed =
        Fixed::new(&["url", "path", "query", "pathq", "url_param(a)", "url_ip", "url_port", "base"]);
    let head = [b"GET ", bytes, b" HTTP/1.1\r\nhost: h\r\n\r\n"].concat();
    let mut request = Head::new();
    let whole = Ok(ParseStatus::Complete { len: head.len() });
    // Several spaces are accepted before and after a target.
    let spaced = bytes.iter().any(|byte| matches!(byte, b' ' | b'\t'));
    if spaced
        || parse_request(&head, &mut request, &ParseOptions::default()) != whole
        || request.method_id() != Method::Get
    {
        return;
    }
    let values = PARTS.values(&head, b"");
    // The target as sent, except for a default port.
    assert_eq!(values[0], request.target());
    let joined =
        if values[2].is_empty() { values[1].clone() } else { [&values[1][..], b"?", &values[2]].concat() };
    assert!(values[3] == joined || values[3] == [&joined[..], b"?"].concat(), "{values:?}");
}

/// Returns whether each `%` is followed by two hexadecimal digits.
fn is_escaped_well(mut bytes: &[u8]) -> bool {
    while let Some(at) = memchr::memchr(b'%', bytes) {
        match bytes.get(at + 1..at + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => bytes = &bytes[at + 3..],
            _ => return false,
        }
    }
    true
}

/// Checks that cookies follow each other in their line, and that a removed cookie is not found any more while the others are.
pub fn cookies(bytes: &[u8]) {
    let line: Vec<u8> = bytes.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)).collect();
    let pairs: Vec<_> = cookie::pairs(&line).collect();
    for pair in &pairs {
        assert!(!line[pair.name.clone()].is_empty() && pair.name.end <= pair.value.start.max(pair.name.end));
        assert!(pair.value.end <= line.len());
    }
    assert!(pairs.windows(2).all(|two| two[0].name.end <= two[1].name.start), "{}", line.escape_ascii());
    let mut head = Head::new();
    head.start_request(b"GET", b"/");
    head.append(b"cookie", &line);
    let named = |pair: &cookie::Pair| line[pair.name.clone()].to_vec();
    let Some(first) = pairs.iter().find(|pair| pair.has_value).map(named) else { return };
    let others: Vec<_> =
        pairs.iter().filter(|pair| pair.has_value).map(named).filter(|name| *name != first).collect();
    head.edit_cookies(&first, |_| None);
    let left: Vec<Vec<u8>> = head.cookie_values().map(|(name, _)| name.to_vec()).collect();
    assert!(!left.contains(&first), "{} still in {}", first.escape_ascii(), line.escape_ascii());
    // The attributes of a cookie are removed together with it (RFC 2965, 3.3.4).
    let cookies = |names: &[Vec<u8>]| -> Vec<Vec<u8>> {
        names.iter().filter(|name| !name.starts_with(b"$")).cloned().collect()
    };
    // Without one of two quotes, the text between them is parsed differently.
    let is_same = cookies(&left) == cookies(&others);
    assert!(is_same || line.contains(&b'"'), "{left:?} of {}", line.escape_ascii());
    for line in [&line[..], bytes] {
        let _ = (cookie::set_cookies(line).count(), cookie::attributes(line).count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expression_seeds_are_valid_expressions() {
        let seeds =
            std::fs::read_dir(crate::workspace().join("fuzz/seeds/expression")).expect("there are seeds");
        for seed in seeds.filter_map(Result::ok) {
            let text = std::fs::read_to_string(seed.path()).expect("a seed is a text");
            let line = text.lines().next().unwrap_or_default();
            assert!(!line.contains('/'), "{line}");
            if let Err(why) = answer(&format!("%[{line}]")) {
                panic!("{line}: {why}");
            }
        }
    }
}
