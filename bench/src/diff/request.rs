//! Random well-formed requests, with values that expressions can process.

use fastrand::Rng;

/// Values of headers, cookies, parameters: numbers, addresses, dates, JSON, tokens, lists,
/// oddities.
pub(crate) const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "42",
    "007",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "12abc",
    "0x1f",
    "1.5",
    "a",
    "A",
    "abc",
    "ABC",
    "Hello World",
    "hello,world",
    "a,b,,c",
    ",a,",
    "a;q=0.5,b;q=1.0,c",
    "fr;q=0.8, en;q=0.9, de",
    "10.0.0.1",
    "192.168.1.254",
    "255.255.255.255",
    "1.2.3",
    "10.0.0.1:8080",
    "::1",
    "2001:db8::1",
    "[2001:db8::1]:443",
    "::ffff:1.2.3.4",
    "www.example.com",
    "WWW.Example.COM:8443",
    "user@host",
    "a=1&b=2&c",
    "key=value; other=thing",
    "%41%42%43",
    "a%20b+c",
    "%zz%4",
    "100%",
    "YWJj",
    "YWJjZA==",
    "YW-_",
    "////",
    "=",
    "616263",
    "6162zz",
    "deadBEEF",
    "{\"a\":1,\"b\":{\"c\":\"x\\\"y\"},\"d\":[1,2],\"e\":true,\"f\":1.5}",
    "[1,2,3]",
    "{\"a\":",
    "\"str\"",
    "null",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "1700000000",
    "1700000000123",
    "8=FIX.4.4|9=5|35=0|10=128|",
    "/path/to/file.html",
    "/a//b/./c/../d",
    "http://example.com/x?y=z#f",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "x y\tz",
    "'quoted'",
    "\"quoted\"",
    "back\\slash",
    "tab\there",
    "<a href=\"x\">",
    "caf\u{e9}",
    "\u{20ac}",
    "for=192.0.2.1;proto=https;by=203.0.113.4",
    "for=\"[2001:db8::2]:80\"",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSIsImFkbWluIjp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    "gzip, deflate",
    "Bearer abc",
    "Basic dXNlcjpwYXNz",
    "-",
    ".",
    "..a.b..",
];

const PATHS: &[&str] = &[
    "/",
    "/index.html",
    "/a/b/c",
    "/A/B/C.PNG",
    "/static/img/logo.png",
    "/api/v1/users/42",
    "//double//slash",
    "/%41%42/%2e%2e/x",
    "/with;param=1/x",
    "/~user/",
    "/a.b.c.d",
    "/very/long/path/with/many/parts/to/be/cut/in/pieces/by/converters.txt",
    "/*",
    "/a=b&c=d",
];

const NAMES: &[&str] = &["a", "b", "c", "id", "A", "x", "name", "q"];

/// The headers used by expressions.
pub(crate) const HEADERS: &[&str] =
    &["x-a", "x-b", "x-c", "accept-language", "user-agent", "x-forwarded-for", "forwarded"];

/// Picks one of the words.
pub(crate) fn pick<'w>(random: &mut Rng, words: &[&'w str]) -> &'w str {
    words[random.usize(..words.len())]
}

/// Percent-encodes a value for a URL where needed.
fn encoded(value: &str) -> String {
    let plain = |byte: u8| {
        byte.is_ascii_graphic()
            && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#' | b'&')
    };
    value
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn pairs(random: &mut Rng) -> String {
    let one = |random: &mut Rng| match random.u8(..8) {
        0 => pick(random, NAMES).to_owned(),
        _ => format!("{}={}", pick(random, NAMES), encoded(pick(random, VALUES))),
    };
    let count = random.usize(1..5);
    (0..count).map(|_| one(random)).collect::<Vec<_>>().join("&")
}

/// Returns a random request.
pub(crate) fn random(random: &mut Rng) -> Vec<u8> {
    let body = match random.u8(..4) {
        0 => Some(pairs(random)),
        1 => Some(pick(random, VALUES).to_owned()),
        _ => None,
    };
    let method = if body.is_some() {
        pick(random, &["POST", "PUT"])
    } else {
        pick(random, &["GET", "GET", "HEAD", "DELETE", "OPTIONS"])
    };
    // The response to HEAD has the same head.
    let mut target = pick(random, PATHS).to_owned();
    if random.bool() {
        target = format!("{target}?{}", pairs(random));
    }
    let host = pick(random, &["example.com", "www.Example.com", "example.com:8080", "10.0.0.1", "[::1]:80"]);
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n");
    for name in HEADERS {
        for _ in 0..[0, 1, 1, 2][random.usize(..4)] {
            let value = pick(random, VALUES).trim();
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    for _ in 0..random.usize(..3) {
        let value: String = pick(random, VALUES).chars().filter(|c| !matches!(c, ';' | ',')).collect();
        text.push_str(&format!(
            "Cookie: {}={value}; {}={}\r\n",
            pick(random, NAMES),
            pick(random, NAMES),
            random.u32(..100)
        ));
    }
    match body {
        Some(body) => text.push_str(&format!(
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )),
        None => text.push_str("\r\n"),
    }
    text.into_bytes()
}
