//! Load balancing and persistence of a backend (manual, 4.2 `balance`, `hash-type`, `cookie`).

use std::rc::Rc;
use std::time::Duration;

use balance::{HashFunction, HashKind, PreserveAffinity};
use base::units::DefaultUnit::Seconds;
use plan::proxy::{Cookie, CookieOperation};

use diag::Diagnostic;

use crate::draft::SectionKind;
use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, proxy};
use crate::draft::row::Outcome;
use crate::draft::row::places::DLB;
use crate::draft::settings::ProxySettings;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("balance",             DLB, "<algorithm> [ <arguments> ]",                     "load balancing algorithm: see balancing.md", balance).lenient_words().or_udp(),
    proxy("hash-type",           DLB, "<method> [<function> [<modifier>]]",              "how hashes map to servers",      hash_type).lenient_words().or_udp(),
    proxy("hash-balance-factor", DLB, "<factor>",                                        "maximum load of a hashed server, in percent of the average", hash_balance_factor).lenient_numbers().or_udp(),
    proxy("hash-preserve-affinity", DLB, "{ always | maxconn | maxqueue }",              "when a full server loses its hashed requests to another", hash_preserve_affinity).or_udp(),
    proxy("cookie",              DLB, "<name> [ rewrite | insert | prefix ] [ indirect ] [ nocache ] [ postonly ] [ preserve ] [ httponly ] [ secure ] [ domain <domain> ]* [ maxidle <idle> ] [ maxlife <life> ] [ dynamic ] [ attr <value> ]*", "cookie-based persistence", cookie),
    proxy("dynamic-cookie-key",  DLB, "<string>",                                        "secret key of dynamic cookies",  dynamic_cookie_key),
];

/// Kept as words: some algorithms contain expressions, which need names.
fn balance<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if settings.kind == SectionKind::UdpLb {
        Rc::make_mut(&mut settings.udp).quic_id = None;
        if args.take("quic-cid") {
            settings.balance = None;
            return quic_cid(settings, args);
        }
    }
    args.rest();
    settings.balance = Some(args.statement);
    Ok(())
}

/// `quic-cid <length> [ offset <number> ]`.
fn quic_cid<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let length = args.integer("a number of bytes", 1, LONGEST_ID)?;
    let offset = if args.take("offset") { args.integer("a number of bytes", 0, LONGEST_ID)? } else { 0 };
    if offset + length > LONGEST_ID {
        return Err(args.wrong(format!("`quic-cid`: a connection ID has at most {LONGEST_ID} bytes")));
    }
    Rc::make_mut(&mut settings.udp).quic_id = Some((offset, length));
    args.finish()
}

/// The longest connection ID of QUIC.
const LONGEST_ID: u8 = 20;

const FUNCTIONS: &[(&str, HashFunction)] = &[
    ("sdbm", HashFunction::Sdbm),
    ("djb2", HashFunction::Djb2),
    ("wt6", HashFunction::Wt6),
    ("crc32", HashFunction::Crc32),
    ("none", HashFunction::None),
];

fn hash_type<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("<method>")?;
    if word == "avalanche" {
        return Err(args
            .wrong("`hash-type avalanche` is no longer supported")
            .help("use `hash-type map-based sdbm avalanche`")
            .haproxy("experimental feature 'hash-type avalanche' is not supported anymore, please use 'hash-type map-based sdbm avalanche' instead."));
    }
    settings.hash.kind =
        args.choice(word, &[("consistent", HashKind::Consistent), ("map-based", HashKind::MapBased)])?;
    match args.next() {
        None => {
            settings.hash.function = HashFunction::Sdbm;
            settings.hash.avalanche = settings.hash.kind == HashKind::Consistent;
        }
        Some(word) => {
            settings.hash.function = args.choice(word, FUNCTIONS)?;
            settings.hash.avalanche = args.take("avalanche");
            if let Some(other) = args.peek().filter(|_| !settings.hash.avalanche) {
                return Err(Diagnostic::alert(format!("unknown modifier `{other}` for `hash-type`"))
                    .at(other.span())
                    .did_you_mean(Some("avalanche"))
                    .haproxy("'hash-type' only supports 'avalanche' as a modifier for hash functions."));
            }
        }
    }
    args.finish()
}

fn hash_preserve_affinity<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    settings.preserve_affinity = args.choice(
        word,
        &[
            ("always", PreserveAffinity::Always),
            ("maxconn", PreserveAffinity::MaxConn),
            ("maxqueue", PreserveAffinity::MaxQueue),
        ],
    )?;
    args.finish()
}

fn hash_balance_factor<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let factor = args.integer("an integer argument", 0, i32::MAX as u32)?;
    if factor != 0 && factor <= 100 {
        let keyword = args.keyword();
        return Err(args
            .wrong("`hash-balance-factor` must be 0 or more than 100")
            .haproxy(format!("'{keyword}' must be 0 or greater than 100.")));
    }
    settings.balance_factor = factor;
    args.finish()
}

fn dynamic_cookie_key<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.dynamic_cookie_key = Some(args.required("the secret key")?);
    args.finish()
}

fn cookie<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("<cookie_name>")?;
    let mut own = Cookie {
        name: name.bytes().into(),
        operation: CookieOperation::Passive,
        indirect: false,
        nocache: false,
        postonly: false,
        preserve: false,
        httponly: false,
        secure: false,
        domains: Vec::new(),
        attributes: Vec::new(),
        max_idle: None,
        max_life: None,
        dynamic: false,
    };
    while let Some(word) = args.next() {
        match word.as_str() {
            "rewrite" => operate(&mut own, CookieOperation::Rewrite, args)?,
            "insert" => operate(&mut own, CookieOperation::Insert, args)?,
            "prefix" => operate(&mut own, CookieOperation::Prefix, args)?,
            "indirect" => own.indirect = true,
            "nocache" => own.nocache = true,
            "postonly" => own.postonly = true,
            "preserve" => own.preserve = true,
            "httponly" => own.httponly = true,
            "secure" => own.secure = true,
            "dynamic" => own.dynamic = true,
            "domain" => own.domains.push(args.value()?.bytes().into()),
            "attr" => {
                let attribute = args.value()?;
                if let Some(wrong) = attribute.chars().find(|c| c.is_ascii_control() || *c == ';') {
                    return Err(args
                        .wrong(format!("`{}` is not allowed in an attribute", wrong.escape_default()))
                        .haproxy(format!(
                            "character '%x{:02X}' is not permitted in attribute value.",
                            wrong as u32
                        )));
                }
                own.attributes.push(attribute.bytes().into());
            }
            "maxidle" => own.max_idle = Some(lifetime(args)?),
            "maxlife" => own.max_life = Some(lifetime(args)?),
            other => {
                const KNOWN: &[&str] = &[
                    "rewrite", "insert", "prefix", "indirect", "nocache", "postonly", "preserve", "httponly",
                    "secure", "domain", "maxidle", "maxlife", "dynamic", "attr",
                ];
                return Err(args
                    .wrong(format!("unknown option `{other}` for `cookie`"))
                    .did_you_mean(diag::suggest(other, KNOWN.iter().copied()))
                    .haproxy("'cookie' supports 'rewrite', 'insert', 'prefix', 'indirect', 'nocache', 'postonly', 'domain', 'maxidle', 'dynamic', 'maxlife' and 'attr' options."));
            }
        }
    }
    check_modes(&own, args)?;
    // A passive cookie is never inserted, so there is nothing to preserve.
    own.preserve &= own.operation == CookieOperation::Insert;
    settings.cookie = Some(Rc::new(own));
    Ok(())
}

/// Checks which parameters of `cookie` can be combined.
fn check_modes(own: &Cookie, args: &Args<'_, '_>) -> Outcome {
    let wrong = |message: &str, haproxy: &str| {
        let place = args.statement.keyword_span();
        Err(Diagnostic::alert(message).at(place).haproxy(haproxy))
    };
    if own.operation == CookieOperation::Rewrite && own.indirect {
        return wrong(
            "`rewrite` and `indirect` are mutually exclusive: `rewrite` needs the server's cookie",
            "cookie 'rewrite' and 'indirect' modes are incompatible.",
        );
    }
    if own.preserve && own.operation != CookieOperation::Insert && !own.indirect {
        return wrong(
            "`preserve` needs `insert` or `indirect`",
            "cookie 'preserve' requires at least 'insert' or 'indirect'.",
        );
    }
    Ok(())
}

fn operate(own: &mut Cookie, operation: CookieOperation, args: &Args<'_, '_>) -> Outcome {
    if own.operation != CookieOperation::Passive {
        return Err(args
            .wrong("`rewrite`, `insert` and `prefix` are mutually exclusive")
            .haproxy("cookie 'rewrite', 'insert' and 'prefix' are mutually exclusive."));
    }
    own.operation = operation;
    Ok(())
}

fn lifetime(args: &mut Args<'_, '_>) -> Result<Duration, Diagnostic> {
    let word = args.value()?;
    args.time(word, Seconds)
}
