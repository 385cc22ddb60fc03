//! Random expressions: a fetch, some converters with arguments that mostly fit, as a variable's value, inside a log format, or
//! tested by a condition.

use fastrand::Rng;

use crate::request::{HEADERS, VALUES, pick};

/// What a fetch or converter gives, or takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Str,
    Bin,
    Int,
    Bool,
    Addr,
    Any,
}
use Kind::{Addr, Any, Bin, Bool, Int, Str};

/// An argument.
#[derive(Clone, Copy)]
enum Arg {
    /// A small number, sometimes negative.
    Small,
    /// A small number above zero, or sometimes nothing.
    Maybe,
    /// Any number.
    Number,
    /// One or several delimiters.
    Delimiters,
    /// A word.
    Word,
    /// One of these.
    One(&'static [&'static str]),
    /// A variable that is set.
    Variable,
}
use Arg::{Delimiters, Maybe, Number, One, Small, Variable, Word};

const HEADER: Arg = One(HEADERS);
const PARAMETER: Arg = One(&["a", "b", "id", "A", "x", "none"]);

#[rustfmt::skip]
const FETCHES: &[(&str, &[Arg], Kind)] = &[
    ("str",                &[Word],                         Str),
    ("int",                &[Number],                       Int),
    ("bool",               &[One(&["true", "false", "0", "1"])], Bool),
    ("ip",                 &[One(&["10.1.2.3", "2001:db8::1", "::ffff:1.2.3.4"])], Addr),
    ("bin",                &[One(&["00ff41", "616263", "8fac0012"])], Bin),
    ("meth",               &[One(&["GET", "POST"])],         Str),
    ("method",             &[],                             Str),
    ("path",               &[],                             Str),
    ("pathq",              &[],                             Str),
    ("query",              &[],                             Str),
    ("url",                &[],                             Str),
    ("url_ip",             &[],                             Addr),
    ("url_port",           &[],                             Int),
    ("urlp",               &[PARAMETER],                    Str),
    ("urlp",               &[PARAMETER, One(&["?", "/", "&"])], Str),
    ("urlp_val",           &[PARAMETER],                    Int),
    ("url32",              &[],                             Int),
    ("base",               &[],                             Str),
    ("base32",             &[],                             Int),
    ("req.ver",            &[],                             Str),
    ("req.hdr",            &[HEADER],                       Str),
    ("req.hdr",            &[HEADER, Small],                Str),
    ("req.fhdr",           &[HEADER],                       Str),
    ("req.fhdr",           &[HEADER, Small],                Str),
    ("req.hdr_cnt",        &[HEADER],                       Int),
    ("req.fhdr_cnt",       &[HEADER],                       Int),
    ("req.hdr_ip",         &[HEADER],                       Addr),
    ("req.hdr_ip",         &[HEADER, Small],                Addr),
    ("req.hdr_val",        &[HEADER],                       Int),
    ("req.hdr_val",        &[HEADER, Small],                Int),
    ("req.hdr_names",      &[],                             Str),
    ("req.hdr_names",      &[Delimiters],                   Str),
    ("req.hdrs",           &[],                             Str),
    ("req.hdrs_bin",       &[],                             Bin),
    ("req.cook",           &[PARAMETER],                    Str),
    ("req.cook_cnt",       &[PARAMETER],                    Int),
    ("req.cook_val",       &[PARAMETER],                    Int),
    ("req.body",           &[],                             Bin),
    ("req.body_len",       &[],                             Int),
    ("req.body_size",      &[],                             Int),
    ("req.body_param",     &[PARAMETER],                    Str),
    ("http_first_req",     &[],                             Bool),
    ("http_auth_type",     &[],                             Str),
    ("http_auth_user",     &[],                             Str),
    ("http_auth_pass",     &[],                             Str),
    ("http_auth_bearer",   &[],                             Str),
    ("always_true",        &[],                             Bool),
    ("always_false",       &[],                             Bool),
    ("src",                &[],                             Addr),
    ("dst",                &[],                             Addr),
    ("fe_name",            &[],                             Str),
    ("req.proto_http",     &[],                             Bool),
    ("var",                &[Variable],                     Str),
];

#[rustfmt::skip]
const CONVERTERS: &[(&str, &[Arg], Kind, Kind)] = &[
    ("add",                &[Number],                       Int,  Int),
    ("sub",                &[Number],                       Int,  Int),
    ("mul",                &[Number],                       Int,  Int),
    ("div",                &[Number],                       Int,  Int),
    ("mod",                &[Number],                       Int,  Int),
    ("and",                &[Number],                       Int,  Int),
    ("or",                 &[Number],                       Int,  Int),
    ("xor",                &[Number],                       Int,  Int),
    ("cpl",                &[],                             Int,  Int),
    ("neg",                &[],                             Int,  Int),
    ("even",               &[],                             Int,  Bool),
    ("odd",                &[],                             Int,  Bool),
    ("bool",               &[],                             Int,  Bool),
    ("not",                &[],                             Int,  Bool),
    ("add",                &[Variable],                     Int,  Int),
    ("lower",              &[],                             Str,  Str),
    ("upper",              &[],                             Str,  Str),
    ("length",             &[],                             Str,  Int),
    ("field",              &[Small, Delimiters],            Str,  Str),
    ("field",              &[Small, Delimiters, Maybe],     Str,  Str),
    ("word",               &[Small, Delimiters],            Str,  Str),
    ("word",               &[Small, Delimiters, Maybe],     Str,  Str),
    ("bytes",              &[Maybe],                        Bin,  Bin),
    ("bytes",              &[Maybe, Maybe],                 Bin,  Bin),
    ("ltrim",              &[Delimiters],                   Str,  Str),
    ("rtrim",              &[Delimiters],                   Str,  Str),
    ("cut_crlf",           &[],                             Str,  Str),
    ("hex",                &[],                             Bin,  Str),
    ("hex2i",              &[],                             Str,  Int),
    ("base64",             &[],                             Bin,  Str),
    ("b64dec",             &[],                             Str,  Bin),
    ("ub64enc",            &[],                             Bin,  Str),
    ("ub64dec",            &[],                             Str,  Bin),
    ("be2dec",             &[Delimiters, Maybe],            Bin,  Str),
    ("be2hex",             &[Delimiters, Maybe],            Bin,  Str),
    ("be2hex",             &[Delimiters, Maybe, One(&["1"])], Bin, Str),
    ("crc32",              &[],                             Bin,  Int),
    ("crc32c",             &[],                             Bin,  Int),
    ("djb2",               &[],                             Bin,  Int),
    ("djb2",               &[One(&["0", "1"])],             Bin,  Int),
    ("sdbm",               &[],                             Bin,  Int),
    ("sdbm",               &[One(&["1"])],                  Bin,  Int),
    ("wt6",                &[],                             Bin,  Int),
    ("wt6",                &[One(&["1"])],                  Bin,  Int),
    ("xxh32",              &[],                             Bin,  Int),
    ("xxh32",              &[Number],                       Bin,  Int),
    ("xxh64",              &[],                             Bin,  Int),
    ("xxh3",               &[],                             Bin,  Int),
    ("sha1",               &[],                             Bin,  Bin),
    ("sha2",               &[One(&["224", "256", "384", "512"])], Bin, Bin),
    ("digest",             &[One(&["md5", "sha1", "sha256"])], Bin, Bin),
    ("hmac",               &[One(&["sha256", "md5"]), One(&["a2V5", "bG9uZ2VyIGtleQ=="])], Bin, Bin),
    ("json",               &[],                             Str,  Str),
    ("json",               &[One(&["ascii", "utf8", "utf8s", "utf8p", "utf8ps"])], Str, Str),
    ("json_query",         &[One(&["$.a", "$.b.c", "$.d", "$.e", "$.f", "$.none", "$[1]"])], Str, Any),
    ("json_query",         &[One(&["$.a", "$.f"]), One(&["int"])], Str, Int),
    ("url_dec",            &[],                             Str,  Str),
    ("url_dec",            &[One(&["0", "1"])],             Str,  Str),
    ("url_enc",            &[],                             Str,  Str),
    ("strcmp",             &[Variable],                     Str,  Int),
    ("concat",             &[Word],                         Str,  Str),
    ("concat",             &[Word, Variable, Word],         Str,  Str),
    ("add_item",           &[Delimiters, Variable],         Str,  Str),
    ("add_item",           &[Delimiters, Variable, Word],   Str,  Str),
    ("iif",                &[Word, Word],                   Bool, Str),
    ("ipmask",             &[One(&["24", "8", "32", "0"])], Addr, Addr),
    ("ipmask",             &[One(&["24", "255.255.0.0"]), One(&["64", "128"])], Addr, Addr),
    ("regsub",             &[One(&["[a-c]", "^.", "([0-9]+)", "(a)(b)?", "o", "$"]), One(&["X", "", "<\\\\1>", "<\\\\0>"])], Str, Str),
    ("regsub",             &[One(&["[a-c]", "/", "[0-9]"]), One(&["X", "", "_"]), One(&["g", "i", "gi"])], Str, Str),
    ("host_only",          &[],                             Str,  Str),
    ("port_only",          &[],                             Str,  Int),
    ("http_date",          &[],                             Int,  Str),
    ("http_date",          &[Small],                        Int,  Str),
    ("http_date",          &[Small, One(&["s", "ms", "us"])], Int, Str),
    ("utime",              &[One(&["%Y-%m-%d %H:%M:%S", "%s", "%a %j"])], Int, Str),
    ("ltime",              &[One(&["%Y-%m-%d %H:%M:%S"])],  Int,  Str),
    ("language",           &[One(&["fr;en", "de", "en"])],  Str,  Str),
    ("language",           &[One(&["es;it", "de"]), Word],  Str,  Str),
    ("fix_is_valid",       &[],                             Bin,  Bool),
    ("fix_tag_value",      &[One(&["35", "8", "MsgType"])], Bin,  Bin),
    ("mqtt_is_valid",      &[],                             Bin,  Bool),
    ("htonl",              &[],                             Int,  Bin),
    ("jwt_header_query",   &[One(&["$.alg", "$.typ"])],     Str,  Any),
    ("jwt_payload_query",  &[],                             Str,  Any),
    ("jwt_payload_query",  &[One(&["$.sub", "$.admin"])],   Str,  Any),
    ("jwt_verify",         &[One(&["HS256"]), One(&["your-256-bit-secret", "x"])], Str, Int),
    ("secure_memcmp",      &[Variable],                     Bin,  Bool),
    ("protobuf",           &[One(&["1", "2.1"])],           Bin,  Bin),
    ("ungrpc",             &[One(&["1"])],                  Bin,  Bin),
    ("set-var",            &[One(&["txn.other"])],          Any,  Any),
    ("rtrim",              &[Word],                         Str,  Str),
];

const METHODS: &[&str] =
    &["found", "bool", "int", "ip", "bin", "len", "str", "sub", "reg", "beg", "end", "dir", "dom"];

/// What is done with an expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Value,
    Format,
    Condition,
}

/// One line of the configuration.
pub(crate) struct Case {
    form: Form,
    text: String,
}

fn word(random: &mut Rng) -> String {
    // What a quoted argument cannot hold is left out, and so is what begins a reference to the environment.
    pick(random, VALUES).chars().filter(|c| !matches!(c, '"' | '\'' | '\\' | '$' | '(' | ')')).collect()
}

fn argument(random: &mut Rng, arg: Arg) -> Option<String> {
    Some(match arg {
        Small => random.i32(-3..6).to_string(),
        Maybe if random.u8(..6) == 0 => return None,
        Maybe => random.i32(0..9).to_string(),
        Number if random.bool() => random.i64(-10..100).to_string(),
        Number => random.i64(..).to_string(),
        Delimiters => {
            format!("\"{}\"", pick(random, &[",", "/", ";", "=", ".", ",;", "/.", "&", " ", "-", ""]))
        }
        Word => format!("\"{}\"", word(random)),
        One(words) => {
            let word = pick(random, words);
            let plain = word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_'));
            if plain { word.to_owned() } else { format!("\"{word}\"") }
        }
        Variable => pick(random, &["txn.text", "txn.number", "txn.none"]).to_owned(),
    })
}

fn call(random: &mut Rng, name: &str, args: &[Arg]) -> String {
    let texts: Vec<String> = args.iter().map_while(|arg| argument(random, *arg)).collect();
    if texts.is_empty() { name.to_owned() } else { format!("{name}({})", texts.join(",")) }
}

fn fits(have: Kind, want: Kind) -> bool {
    have == want
        || have == Any
        || want == Any
        || matches!(
            (have, want),
            (Bool, Int | Str) | (Int, Str | Bool) | (Str, Int | Bin) | (Bin, Str) | (Addr, Str)
        )
}

fn expression(random: &mut Rng) -> (String, Kind) {
    let (name, args, mut kind) = FETCHES[random.usize(..FETCHES.len())];
    let mut text = call(random, name, args);
    for _ in 0..random.usize(..4) {
        // Now and then one that does not fit, to compare what is said of it.
        let anything = random.u8(..30) == 0;
        let fitting: Vec<_> = CONVERTERS.iter().filter(|row| anything || fits(kind, row.2)).collect();
        let (name, args, _, gives) = *fitting[random.usize(..fitting.len())];
        text = format!("{text},{}", call(random, name, args));
        kind = gives;
    }
    (text, kind)
}

fn pattern(random: &mut Rng, method: &str) -> String {
    match method {
        "int" | "len" => match random.u8(..5) {
            0 => format!("{}:{}", random.i32(-5..10), random.i32(10..100)),
            1 => format!("{} {}", pick(random, &["gt", "ge", "lt", "le"]), random.i32(-5..50)),
            _ => random.i32(-2..50).to_string(),
        },
        "ip" => pick(
            random,
            &[
                "10.0.0.0/8",
                "10.0.0.1",
                "::1",
                "2001:db8::/32",
                "192.168.0.0/255.255.0.0",
                "0.0.0.0/0",
                "127.0.0.1",
            ],
        )
        .to_owned(),
        "bin" => pick(random, &["61", "616263", "3432", "00"]).to_owned(),
        "reg" => format!(
            "'{}'",
            pick(
                random,
                &["^a", "[0-9]+", "o$", "^$", "(a|b)c", "^/[a-z]+/", "(?i)hello", "\\\\.", "^[^/]*$"]
            )
        ),
        _ => format!(
            "'{}'",
            pick(
                random,
                &[
                    "a",
                    "abc",
                    "A",
                    "/a",
                    ".html",
                    "example.com",
                    "www",
                    "static",
                    "b",
                    "42",
                    "/",
                    "com",
                    "img",
                    "Hello",
                    "api/v1"
                ]
            )
        ),
    }
}

impl Case {
    pub(crate) fn new(random: &mut Rng) -> Self {
        let (mut text, kind) = expression(random);
        let form = match random.u8(..10) {
            0..=5 => Form::Value,
            6..=7 => Form::Format,
            _ => Form::Condition,
        };
        match form {
            Form::Value => {}
            Form::Format => {
                let flags = pick(random, &["", "", "{+Q}", "{+X}", "{+E}", "{+Q,+E}"]);
                text = format!("%{flags}[{text}]");
                if random.bool() {
                    text = format!(
                        "{} {text} {}",
                        pick(random, &["a", "<", "%%"]),
                        pick(random, &["%HM", "%HU", "%HP", "%HQ", "%r", "z"])
                    );
                }
            }
            Form::Condition => {
                let natural = match kind {
                    Int => "int",
                    Bool => "bool",
                    Addr => "ip",
                    Bin => "bin",
                    Str | Any => "str",
                };
                let method = if random.bool() { natural } else { pick(random, METHODS) };
                let flag = pick(random, &["", "", "-i "]);
                let patterns: String = match method {
                    "found" | "bool" => String::new(),
                    _ => (0..random.usize(1..9)).map(|_| format!(" {}", pattern(random, method))).collect(),
                };
                text = format!("'{text}' {flag}-m {method}{patterns}");
            }
        }
        Self { form, text }
    }

    /// Its line when it is the one of that number.
    pub(crate) fn line(&self, number: usize) -> String {
        let text = &self.text;
        match self.form {
            Form::Value => format!("http-request set-var(txn.v{number}) '{text}'"),
            Form::Format => format!("http-request set-var-fmt(txn.v{number}) '{text}'"),
            Form::Condition => format!("http-request set-var(txn.v{number}) bool(true) if {{ {text} }}"),
        }
    }

    /// Whether it calls a fetch or converter of that name.
    pub(crate) fn calls(&self, name: &str) -> bool {
        let edge = |byte: Option<&u8>| {
            byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'.' | b'-'))
        };
        self.text.match_indices(name).any(|(at, _)| {
            let bytes = self.text.as_bytes();
            edge(at.checked_sub(1).and_then(|before| bytes.get(before))) && edge(bytes.get(at + name.len()))
        })
    }

    /// Whether it calls one of them.
    pub(crate) fn calls_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.calls(name))
    }

    /// Whether something in it gives a boolean that something else may take.
    pub(crate) fn gives_boolean_first(&self) -> bool {
        let boolean = |name: &&str| self.calls(name);
        let fetches = FETCHES.iter().filter(|row| row.2 == Bool).map(|row| row.0);
        let converters = CONVERTERS.iter().filter(|row| row.3 == Bool).map(|row| row.0);
        fetches.chain(converters).any(|name| boolean(&name))
    }

    /// The expression, format or condition.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
