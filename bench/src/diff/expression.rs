//! Random expressions: a fetch, some converters with mostly valid arguments, as a variable's value, inside a log format, or tested
//! by a condition.

use fastrand::Rng;

use crate::diff::request::{HEADERS, VALUES, pick};

/// The input or output type of a fetch or converter.
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
    /// A small number above zero, or sometimes an empty argument.
    Maybe,
    /// Any number.
    Number,
    /// One or several delimiters.
    Delimiters,
    /// A word.
    Word,
    /// One of these words.
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
    ("baseq",              &[],                             Str),
    ("hdr",                &[HEADER],                       Str),
    ("hdr",                &[HEADER, Small],                Str),
    ("hdr_cnt",            &[HEADER],                       Int),
    ("hdr_ip",             &[HEADER, Small],                Addr),
    ("hdr_val",            &[HEADER, Small],                Int),
    ("cook",               &[PARAMETER],                    Str),
    ("cookie",             &[PARAMETER],                    Str),
    ("cook_cnt",           &[PARAMETER],                    Int),
    ("req.cook_names",     &[],                             Str),
    ("req.cook_names",     &[One(&[",", ";"])],                   Str),
    ("url_param",          &[PARAMETER],                    Str),
    ("urlp",               &[PARAMETER, One(&["?", ","]), One(&["i"])], Str),
    ("http_auth_bearer",   &[One(&["x-a", "x-b"])],         Str),
    ("capture.req.method", &[],                             Str),
    ("capture.req.uri",    &[],                             Str),
    ("capture.req.ver",    &[],                             Str),
    ("capture.req.hdr",    &[One(&["0", "1", "2"])],        Str),
    ("env",                &[One(&["HOME", "NO_SUCH_NAME"])], Str),
    ("src_is_local",       &[],                             Bool),
    ("dst_is_local",       &[],                             Bool),
    ("fc_http_major",      &[],                             Int),
    ("fe_defbe",           &[],                             Str),
    ("so_name",            &[],                             Str),
    ("prio_class",         &[],                             Int),
    ("prio_offset",        &[],                             Int),
    ("wait_end",           &[],                             Bool),
    ("http_auth",          &[One(&["people"])],             Bool),
    ("internal.strm.is_htx", &[],                           Bool),
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
    ("base2",              &[],                             Bin,  Str),
    ("le2dec",             &[Delimiters, Maybe],            Bin,  Str),
    ("le2dec",             &[Delimiters, Maybe, One(&["1"])], Bin, Str),
    ("reverse",            &[],                             Str,  Str),
    ("reverse_dom",        &[],                             Str,  Str),
    ("param",              &[PARAMETER],                    Str,  Str),
    ("param",              &[PARAMETER, One(&[";", "&", ","])], Str, Str),
    ("rfc7239_is_valid",   &[],                             Str,  Bool),
    ("rfc7239_field",      &[One(&["for", "by", "proto", "host"])], Str, Str),
    ("rfc7239_n2nn",       &[],                             Str,  Any),
    ("rfc7239_n2np",       &[],                             Str,  Any),
    ("rfc7239_nn",         &[],                             Str,  Str),
    ("rfc7239_np",         &[],                             Int,  Str),
    ("ms_utime",           &[One(&["%Y-%m-%d %H:%M:%S.%3N", "%s %N", "%a %j"])], Int, Str),
    ("us_utime",           &[One(&["%Y %6N", "%s"])],       Int,  Str),
    ("ms_ltime",           &[One(&["%H:%M:%S"]), Small],    Int,  Str),
    ("mqtt_field_value",   &[One(&["connect"]), One(&["username", "protocol_name"])], Bin, Bin),
    ("unset-var",          &[One(&["txn.other"])],          Any,  Any),
    ("eth.proto",          &[],                             Bin,  Int),
    ("eth.src",            &[],                             Bin,  Bin),
    ("ip.ver",             &[],                             Bin,  Int),
    ("ip.src",             &[],                             Bin,  Addr),
    ("ip.data",            &[],                             Bin,  Bin),
    ("tcp.win",            &[],                             Bin,  Int),
    ("tcp.options_list",   &[],                             Bin,  Bin),
    ("fe_exists",          &[],                             Str,  Bool),
    ("iif",                &[Word, Variable],               Bool, Str),
    ("url_enc",            &[One(&["query"])],              Str,  Str),
    ("bytes",              &[Small, Small],                 Bin,  Bin),
    ("bytes",              &[Variable, Variable],           Bin,  Bin),
    ("field",              &[Variable, Delimiters],         Str,  Str),
    ("regsub",             &[One(&["^(.*)$", "[^a-z]+"]), One(&["\\\\1-\\\\1", "%[str(x)]"]), One(&["g", "i"])], Str, Str),
    ("length",             &[],                             Bin,  Int),
    ("debug",              &[One(&["x"])],                  Any,  Any),
    ("x509_v_err_str",     &[],                             Int,  Str),
];

const METHODS: &[&str] =
    &["found", "bool", "int", "ip", "bin", "len", "str", "sub", "reg", "beg", "end", "dir", "dom"];

/// Log format aliases whose value does not depend on who answers the request.
const ALIASES: &[&str] = &[
    "%HM",
    "%HU",
    "%HP",
    "%HPO",
    "%HQ",
    "%HV",
    "%r",
    "%{+Q}r",
    "%ci",
    "%b",
    "%f",
    "%ft",
    "%s",
    "%hr",
    "%hrl",
    "%{+Q}hr",
    "%CC",
    "%CS",
    "%rc",
    "%sq",
    "%bq",
    "%B",
    "%ST",
    "%tsc",
    "%ts",
    "%lc",
    "%o %Tw",
    "%{+X}HM",
    "%{+E}HU",
    "%%",
    "z",
    "%[src]%[int(5)]",
];

/// The use of an expression.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Value,
    Format,
    Condition,
}

/// A prefix of an expression: up to one of its calls.
#[derive(Clone)]
struct Step {
    /// The text of the prefix.
    text: String,
    /// The last call of the prefix.
    call: String,
    kind: Kind,
}

/// One line of the configuration.
pub(crate) struct Case {
    form: Form,
    text: String,
    /// The prefixes, from the fetch to the whole expression.
    steps: Vec<Step>,
}

/// Where the results of a case begin to differ.
pub(crate) struct Culprit<'c> {
    /// The call whose result differs; `None` if the expression has the same value and only its use differs.
    pub(crate) call: Option<&'c str>,
    /// The call that provides the input of that call.
    pub(crate) behind: Option<&'c str>,
    /// The input of that call: the result of the previous step, or the field's text for a fetch of a number.
    pub(crate) input: Option<Vec<u8>>,
    /// Whether the input was a boolean, or derived from one by arithmetic.
    pub(crate) of_boolean: bool,
    /// The results of Weir and haproxy, if they have a value.
    pub(crate) results: [Option<Vec<u8>>; 2],
}

impl Culprit<'_> {
    /// Returns whether the call is one of these.
    pub(crate) fn is(&self, names: &[&str]) -> bool {
        self.name().is_some_and(|name| names.contains(&name))
    }

    fn name(&self) -> Option<&str> {
        self.call.map(name_of)
    }

    /// Returns the input as text.
    pub(crate) fn text(&self) -> String {
        self.input.as_deref().map_or_else(String::new, |bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the input as a number: directly, or from the beginning of the text.
    pub(crate) fn number(&self) -> i64 {
        let bytes = self.input.as_deref().unwrap_or_default();
        match <[u8; 8]>::try_from(bytes) {
            Ok(number) if !bytes.iter().all(u8::is_ascii_graphic) => i64::from_be_bytes(number),
            _ => {
                let text = self.text();
                let digits = text.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
                let sign = usize::from(text.starts_with('-'));
                text.get(..sign + digits).and_then(|number| number.parse().ok()).unwrap_or(0)
            }
        }
    }

    /// Returns the argument at this index as written, without quotes.
    pub(crate) fn argument(&self, number: usize) -> &str {
        let list = self.call.and_then(|call| call.split_once('(')).map_or("", |(_, list)| list);
        let mut quoted = false;
        let ends = |byte: char| {
            quoted ^= byte == '"';
            byte == ',' && !quoted
        };
        list.trim_end_matches(')').split(ends).nth(number).unwrap_or_default().trim_matches('"')
    }
}

fn name_of(call: &str) -> &str {
    call.split('(').next().unwrap_or_default()
}

pub(crate) const ARITHMETIC: &[&str] = &["add", "sub", "mul", "div", "mod", "and", "or", "xor", "cpl", "neg"];

fn word(random: &mut Rng) -> String {
    // Characters that a quoted argument cannot contain are removed, and so is the beginning of a reference to the environment.
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

fn expression(random: &mut Rng) -> Vec<Step> {
    let (name, args, mut kind) = FETCHES[random.usize(..FETCHES.len())];
    let mut text = call(random, name, args);
    let mut steps = vec![Step { call: text.clone(), text: text.clone(), kind }];
    for _ in 0..random.usize(..4) {
        // Occasionally a converter that does not fit, to compare the errors.
        let anything = random.u8(..30) == 0;
        let fitting: Vec<_> = CONVERTERS.iter().filter(|row| anything || fits(kind, row.2)).collect();
        let (name, args, _, gives) = *fitting[random.usize(..fitting.len())];
        let call = call(random, name, args);
        text = format!("{text},{call}");
        kind = gives;
        steps.push(Step { text: text.clone(), call, kind });
    }
    steps
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
        let steps = expression(random);
        let (mut text, kind) =
            steps.last().map_or((String::new(), Any), |last| (last.text.clone(), last.kind));
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
                    text = format!("{} {text} {}", pick(random, &["a", "<", "%%"]), pick(random, ALIASES));
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
        Self { form, text, steps }
    }

    /// Returns the configuration line of case `number`.
    pub(crate) fn line(&self, number: usize) -> String {
        let text = &self.text;
        match self.form {
            Form::Value => format!("http-request set-var(txn.v{number}) '{text}'"),
            Form::Format => format!("http-request set-var-fmt(txn.v{number}) '{text}'"),
            Form::Condition => format!("http-request set-var(txn.v{number}) bool(true) if {{ {text} }}"),
        }
    }

    /// Returns cases whose results show at which call this case begins to differ: the input of its fetch if that is a number, then
    /// each step.
    pub(crate) fn parts(&self) -> Vec<Case> {
        let value = |text: String| Case { form: Form::Value, text, steps: Vec::new() };
        let fetch = self.steps.first().map_or("", |step| &step.text);
        let read = ["req.hdr_val", "hdr_val", "req.hdr_ip", "hdr_ip", "req.cook_val", "urlp_val"]
            .contains(&name_of(fetch));
        let whole =
            if read { fetch.replacen("_val", "", 1).replacen("_ip", "", 1) } else { "bool(true)".into() };
        std::iter::once(whole).chain(self.steps.iter().map(|step| step.text.clone())).map(value).collect()
    }

    /// Returns where the case begins to differ, given the results of its [`parts`](Self::parts).
    pub(crate) fn culprit(&self, parts: &[[Option<Vec<u8>>; 2]]) -> Culprit<'_> {
        let differs = |[ours, theirs]: &[Option<Vec<u8>>; 2]| ours != theirs;
        // The first part is the fetch's input, not a step.
        let at = parts.iter().skip(1).position(differs);
        let before = at.unwrap_or(self.steps.len());
        // Calls that do not change the type.
        let keeps = |step: &&Step| {
            let name = name_of(&step.call);
            ARITHMETIC.contains(&name) || ["set-var", "unset-var", "debug"].contains(&name)
        };
        // JSON values may be booleans.
        let may_be = ["json_query", "jwt_payload_query", "jwt_header_query"];
        let source = self.steps[..before].iter().rev().find(|step| !keeps(step));
        Culprit {
            call: at.map(|at| self.steps[at].call.as_str()),
            behind: self.steps[..before].iter().rev().map(|step| step.call.as_str()).find(|call| {
                // These converters return their input, or part of it.
                !["set-var", "unset-var", "debug", "ltrim", "rtrim"].contains(&name_of(call))
            }),
            input: parts.get(before).and_then(|[ours, _]| ours.clone()),
            of_boolean: source.is_some_and(|step| step.kind == Bool || may_be.contains(&name_of(&step.call))),
            results: at.and_then(|at| parts.get(at + 1).cloned()).unwrap_or_default(),
        }
    }

    /// Returns whether the case is a condition with one of these matching methods.
    pub(crate) fn matches_by(&self, methods: &[&str]) -> bool {
        let method = self.text.split_once("-m ").and_then(|(_, rest)| rest.split(' ').next());
        self.form == Form::Condition && method.is_some_and(|method| methods.contains(&method))
    }

    /// Returns the expression, format or condition.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
