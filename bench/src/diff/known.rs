//! Intended differences: where the manual of 3.5 and the machine's haproxy disagree, or where Weir differs on purpose. Each is as
//! narrow as possible: the call at which the results begin to differ, and its input.

use crate::diff::expression::{ARITHMETIC, Case, Culprit};

/// A reason for different results.
struct Known {
    why: &'static str,
    is_so: fn(&Case, &Culprit<'_>) -> bool,
}

/// A reason why only one program refuses a line.
struct Refusal {
    why: &'static str,
    /// Whether haproxy is the program that refuses.
    by_haproxy: bool,
    /// Texts in the message or the line; one of them is enough.
    says: &'static [&'static str],
}

/// Returns whether haproxy 2.6 parses the whole number from a header.
fn is_small_number(text: &str) -> bool {
    text.parse::<i32>().is_ok_and(|number| number.to_string() == text)
}

/// Returns whether the text after the last colon of a host is a port, or there is no colon.
fn ends_like_host(text: &str) -> bool {
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    !text.contains(':') || !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether the input is an IPv6 address, not its text.
fn is_address(at: &Culprit<'_>) -> bool {
    at.text().contains('\0') || at.behind.is_some_and(|call| call.starts_with("ip."))
}

const DATES: &[&str] = &["http_date", "utime", "ltime", "ms_utime", "ms_ltime", "us_utime", "us_ltime"];

const KNOWN: &[Known] = &[
    Known {
        why: "haproxy takes any characters of a header's, cookie's or parameter's number for digits and wraps at 32 bits; Weir reads the number at the start",
        is_so: |_, at| {
            at.is(&["req.hdr_val", "hdr_val", "req.cook_val", "urlp_val"]) && !is_small_number(&at.text())
        },
    },
    Known {
        why: "haproxy 2.6 goes on calling the result of arithmetic on a boolean a boolean, and shows it as 1 in binary",
        is_so: |_, at| at.is(ARITHMETIC) && at.of_boolean,
    },
    Known {
        why: "haproxy 2.6 writes fractions of seconds without leading zeros",
        is_so: |_, at| at.is(&["http_date"]) && matches!(at.argument(1), "ms" | "us"),
    },
    Known {
        why: "haproxy takes the seconds of a date for a number without a sign of less than 64 bits, and 3.5 at first 0 for no date",
        is_so: |_, at| {
            let offset = if at.is(&["http_date"]) { at.argument(0).parse().unwrap_or(0) } else { 0 };
            let unit = match at.call.map_or("", |call| call.get(..3).unwrap_or_default()) {
                "ms_" => 1_000,
                "us_" => 1_000_000,
                _ => 1,
            };
            let seconds = (at.number() / unit).saturating_add(offset);
            let in_range = (1..=i64::from(u32::MAX)).contains(&seconds);
            let too_long = at.text().parse::<i128>().is_ok_and(|number| number > i128::from(u32::MAX));
            at.is(DATES) && (!in_range || too_long)
        },
    },
    Known {
        why: "the same, at the end of an expression whose parts it was asked for before",
        is_so: |case, at| at.call.is_none() && DATES.iter().any(|name| case.text().contains(name)),
    },
    Known {
        why: "haproxy has no room to encode what `iif` gives",
        is_so: |case, at| {
            at.is(&["json", "be2hex"]) && case.text().contains("iif(") && at.results[1].is_none()
        },
    },
    Known {
        why: "haproxy 2.6 gives nothing for a packet or message that is not valid, Weir false",
        is_so: |_, at| at.is(&["mqtt_is_valid", "fix_is_valid"]) && at.results[1].is_none(),
    },
    Known {
        why: "a pattern of delimiters only is no part of anything",
        is_so: |case, at| {
            at.call.is_none() && case.matches_by(&["dir", "dom"]) && case.text().contains("'/'")
        },
    },
    Known {
        why: "haproxy cuts hosts at the last colon of what is no host",
        is_so: |_, at| at.is(&["host_only"]) && (!ends_like_host(&at.text()) || is_address(at)),
    },
    Known {
        why: "a word that is not there is nothing (manual, `word`), in haproxy 2.6 the empty string",
        is_so: |_, at| {
            at.is(&["word"]) && at.results[0].is_none() && at.results[1].as_ref().is_some_and(Vec::is_empty)
        },
    },
    Known {
        why: "haproxy reads a port's digits from whatever follows a colon",
        is_so: |_, at| at.is(&["port_only"]) && (!ends_like_host(&at.text()) || is_address(at)),
    },
    Known {
        why: "an address in brackets, with a port or without, is read (manual, `req.hdr_ip`), not by haproxy 2.6",
        is_so: |_, at| at.is(&["req.hdr_ip", "hdr_ip"]) && at.text().contains('[') && at.results[1].is_none(),
    },
    Known {
        why: "the same in a condition, which looks at each address",
        is_so: |case, at| at.call.is_none() && case.text().contains("hdr_ip(") && at.results[1].is_none(),
    },
    Known {
        why: "haproxy 2.6 reads a negative number of a list as all numbers up to it",
        is_so: |case, at| {
            let patterns = case.text().split_once("-m ").map_or("", |(_, patterns)| patterns);
            at.call.is_none() && case.matches_by(&["int", "len"]) && patterns.contains(" -")
        },
    },
    Known {
        why: "numbers, hosts and ports as above in a condition, which looks at each value of a header",
        is_so: |case, at| {
            let read = ["_val(", "port_only", "host_only"].iter().any(|name| case.text().contains(name));
            at.call.is_none() && read && case.text().contains("hdr") && case.text().contains(" -m ")
        },
    },
    Known {
        why: "what is no port, no packet or no option is nothing; haproxy makes something of it",
        is_so: |_, at| {
            let packets =
                ["rfc7239_np", "ip.src", "ip.data", "eth.proto", "eth.src", "tcp.options_list", "tcp.win"];
            at.is(&packets)
        },
    },
    Known {
        why: "haproxy gives an empty token where the header that was asked for has none",
        is_so: |_, at| at.is(&["http_auth_bearer"]) && at.results[0].is_none(),
    },
    Known {
        why: "haproxy adds up the bytes of a chunk of four and more in 32 bits with a sign",
        is_so: |_, at| at.is(&["le2dec"]) && at.argument(1).parse::<u32>().is_ok_and(|size| size >= 4),
    },
    Known {
        why: "haproxy overwrites what `rfc7239_nn`, `rfc7239_np` and `bytes` with variables give while it reads it",
        is_so: |_, at| {
            let kept = ["rfc7239_nn", "rfc7239_np", "bytes(txn."];
            at.behind.is_some_and(|call| kept.iter().any(|name| call.starts_with(name)))
        },
    },
    Known {
        why: "haproxy looks at 32 bits of the number of a result: 4294967296 is no success",
        is_so: |_, at| at.is(&["x509_v_err_str"]) && i32::try_from(at.number()).is_err(),
    },
    Known {
        why: "haproxy reads a node as far as it is one, whatever follows",
        is_so: |_, at| at.is(&["rfc7239_n2nn", "rfc7239_n2np"]) && at.results[0].is_none(),
    },
    Known {
        why: "haproxy 2.6 gives nothing for the parts of what only looks like a token",
        is_so: |_, at| at.is(&["jwt_payload_query", "jwt_header_query"]) && at.results[1].is_none(),
    },
    Known {
        why: "haproxy 2.6 decodes the padding of base64 for URLs as if it were digits",
        is_so: |_, at| at.is(&["ub64dec"]) && at.text().contains('='),
    },
    Known {
        why: "haproxy 2.6 takes the sum of two negative numbers for too large",
        is_so: |_, at| {
            let added = at.argument(0).parse::<i64>().unwrap_or_default();
            let both = at.is(&["add"]) && added < 0 || at.is(&["sub"]) && added > 0;
            both && at.number() < 0
        },
    },
    Known {
        why: "haproxy 2.6 and Weir read the quality of a language otherwise where it is no number",
        is_so: |_, at| {
            let quality =
                |part: &str| part.split_once("q=").is_none_or(|(_, q)| q.trim().parse::<f32>().is_ok());
            at.is(&["language"])
                && (!at.text().split(',').all(quality)
                    || at.text().matches(';').count() > at.text().matches(";q=").count())
        },
    },
    Known {
        why: "addresses of IPv6 that hold one of IPv4 are masked as such, as haproxy 3.5 does; 2.6 masks all of them",
        is_so: |_, at| at.is(&["ipmask"]) && is_address(at),
    },
    Known {
        why: "haproxy 2.6 stops at the first name if the delimiter is empty",
        is_so: |_, at| at.is(&["req.hdr_names"]) && at.call.is_some_and(|call| call.ends_with("(\"\")")),
    },
];

const REFUSALS: &[Refusal] = &[
    Refusal {
        why: "an address is neither true nor false (manual, 7.1)",
        by_haproxy: false,
        says: &["'bool' does not support type"],
    },
    Refusal {
        why: "haproxy 2.6 takes what protobuf fields give for bytes whatever their type",
        by_haproxy: true,
        says: &["protobuf(", "ungrpc("],
    },
    Refusal {
        why: "haproxy 2.6 takes an operator with a range for the range's first number; Weir refuses it",
        by_haproxy: false,
        says: &["requires a number, not the range"],
    },
    Refusal {
        why: "a range may begin with a negative number, which haproxy 2.6 refuses",
        by_haproxy: true,
        says: &["is not a valid number range"],
    },
    Refusal {
        why: "this haproxy was built with POSIX's regular expressions, which have no groups like `(?i)`",
        by_haproxy: true,
        says: &["(?i)"],
    },
    Refusal {
        why: "haproxy 3.5 makes no number of an address whose family only the request tells; Weir does of an IPv4 one",
        by_haproxy: true,
        says: &["cannot be applied", "matching method 'int' cannot be used"],
    },
    Refusal {
        why: "haproxy 2.6 knows neither variables in `bytes` nor the third argument of `urlp`",
        by_haproxy: true,
        says: &["in converter 'bytes'", ",i)", "bytes(txn."],
    },
    Refusal {
        why: "the offset and the length of `bytes` are no negative numbers (manual, `bytes`); haproxy 2.6 takes them",
        by_haproxy: false,
        says: &["the offset must be at least 0", "the length must be at least 1"],
    },
    Refusal { why: "haproxy does not look at types behind `debug`", by_haproxy: false, says: &["debug("] },
    Refusal {
        why: "haproxy 2.6 refuses chunks of no size even without a separator",
        by_haproxy: true,
        says: &["chunk_size needs to be positive"],
    },
    Refusal {
        why: "behind `set-var` the type is that of the value (manual, `set-var`), to haproxy 2.6 any type",
        by_haproxy: false,
        says: &["set-var(txn.other)"],
    },
];

/// Returns why the results of `case` differ, if known.
pub(crate) fn of_result(case: &Case, culprit: &Culprit<'_>) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.is_so)(case, culprit)).map(|known| known.why)
}

/// Returns why only one program refuses, if `text` matches a known reason.
pub(crate) fn of_refusal(text: &str) -> Option<&'static str> {
    let by_haproxy = text.starts_with("only haproxy refuses");
    let fits = |known: &&Refusal| {
        known.by_haproxy == by_haproxy && known.says.iter().any(|words| text.contains(words))
    };
    REFUSALS.iter().find(fits).map(|known| known.why)
}
