//! Differences that are meant: where the manual of 3.5 and the haproxy on the machine disagree, or where Weir departs on purpose.

use crate::expression::Case;

/// A reason to differ.
struct Known {
    why: &'static str,
    /// Whether what is told of a case is of this kind.
    is_so: fn(&Case, &str) -> bool,
}

const ARITHMETIC: &[&str] = &["add", "sub", "mul", "div", "mod", "and", "or", "xor", "cpl", "neg"];

const KNOWN: &[Known] = &[
    Known {
        why: "haproxy 2.6 takes any characters of a header's, cookie's or parameter's number for digits and wraps at 32 bits; Weir reads the number at the start",
        is_so: |case, _| case.calls_any(&["req.hdr_val", "req.cook_val", "urlp_val"]),
    },
    Known {
        why: "haproxy 2.6 goes on calling the result of arithmetic on a boolean a boolean, and shows it as 1 in binary",
        is_so: |case, _| case.gives_boolean_first() && case.calls_any(ARITHMETIC),
    },
    Known {
        why: "haproxy 2.6 writes dates of fractions without leading zeros, of negative numbers with a sign, and lets years run over",
        is_so: |case, _| case.calls_any(&["http_date", "utime", "ltime"]),
    },
    Known {
        why: "haproxy 2.6 gives nothing for a packet or message that is not valid, Weir false",
        is_so: |case, _| case.calls_any(&["mqtt_is_valid", "fix_is_valid"]),
    },
    Known {
        why: "a pattern of delimiters only is no part of anything",
        is_so: |case, text| {
            (text.contains("-m dir") || text.contains("-m dom")) && case.text().contains("'/'")
        },
    },
    Known {
        why: "an address is neither true nor false (manual, 7.1)",
        is_so: |_, text| {
            only_weir_refuses(text) && text.contains("'bool' cannot be used with values of the type")
        },
    },
    Known {
        why: "haproxy 2.6 takes what protobuf fields give for bytes whatever their type",
        is_so: |case, text| only_haproxy_refuses(text) && case.calls_any(&["protobuf", "ungrpc"]),
    },
    Known {
        why: "haproxy 2.6 cuts hosts at the last colon of what is no host",
        is_so: |case, _| case.calls("host_only"),
    },
    Known {
        why: "a word that is not there is nothing (manual, `word`), in haproxy 2.6 the empty string",
        is_so: |case, _| case.calls("word"),
    },
    Known {
        why: "haproxy 2.6 reads a port's digits from whatever follows a colon",
        is_so: |case, _| case.calls("port_only"),
    },
    Known {
        why: "an address in brackets, with a port or without, is read (manual, `req.hdr_ip`), not by haproxy 2.6",
        is_so: |case, _| case.calls("req.hdr_ip"),
    },
    Known {
        why: "haproxy 2.6 takes an operator with a range for the range's first number; Weir refuses it",
        is_so: |_, text| only_weir_refuses(text) && text.contains("takes a number, not the range"),
    },
    Known {
        why: "a range may begin with a negative number, which haproxy 2.6 refuses",
        is_so: |_, text| only_haproxy_refuses(text) && text.contains("is not a valid number range"),
    },
    Known {
        why: "haproxy 2.6 reads a negative number of a list as all numbers up to it",
        is_so: |case, _| {
            let (_, patterns) = case.text().split_once("-m ").unwrap_or_default();
            (patterns.starts_with("int") || patterns.starts_with("len")) && patterns.contains(" -")
        },
    },
    Known {
        why: "haproxy 2.6 gives nothing for the parts of what only looks like a token",
        is_so: |case, text| {
            case.calls_any(&["jwt_payload_query", "jwt_header_query"]) && !text.contains("haproxy \"{")
        },
    },
    Known {
        why: "haproxy 2.6 refuses chunks of no size even without a separator",
        is_so: |_, text| only_haproxy_refuses(text) && text.contains("chunk_size needs to be positive"),
    },
    Known {
        why: "haproxy 2.6 decodes the padding of base64 for URLs as if it were digits",
        is_so: |case, _| case.calls("ub64dec"),
    },
    Known {
        why: "behind `set-var` the type is that of the value (manual, `set-var`), to haproxy 2.6 any type",
        is_so: |case, text| only_weir_refuses(text) && case.calls("set-var"),
    },
    Known {
        why: "haproxy 2.6 takes the sum of two negative numbers for too large",
        is_so: |case, text| case.calls_any(&["add", "sub"]) && text.contains("haproxy"),
    },
    Known {
        why: "haproxy 2.6 and Weir read the quality of a language otherwise where it is no number",
        is_so: |case, _| case.calls("language"),
    },
    Known {
        why: "to PCRE `$` stands before a last line end too",
        is_so: |case, _| case.text().contains("$\"") || case.text().contains("$'"),
    },
    Known {
        why: "haproxy 2.6 stops at the first name if the delimiter is empty",
        is_so: |case, _| case.text().contains("req.hdr_names(\"\")"),
    },
];

fn only_weir_refuses(text: &str) -> bool {
    text.starts_with("only weir refuses")
}

fn only_haproxy_refuses(text: &str) -> bool {
    text.starts_with("only haproxy refuses")
}

/// Why `case` differs as `text` tells, if that is known.
pub(crate) fn reason(case: &Case, text: &str) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.is_so)(case, text)).map(|known| known.why)
}
