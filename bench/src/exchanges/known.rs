//! Differences that are meant, with the sentence of `docs/differences.md`. Each is as narrow as what is known of it.

use crate::case::{Case, Step};
use crate::compare::Difference;

/// A reason for something to differ.
struct Known {
    why: &'static str,
    is_so: fn(&Case, &Difference) -> bool,
    /// Everything else in the case follows from it.
    is_all: bool,
}

/// Whether a client speaks HTTP/1.0.
fn has_old_client(case: &Case) -> bool {
    let is_old =
        |step: &Step| matches!(step, Step::Send(bytes) if memchr::memmem::find(bytes, b"HTTP/1.0").is_some());
    case.clients.iter().flatten().any(is_old)
}

/// What both counted.
fn counts(one: &Difference) -> Option<(u64, u64)> {
    Some((one.weir.parse().ok()?, one.haproxy.parse().ok()?))
}

const KNOWN: &[Known] = &[
    Known {
        why: "HAProxy counts a response that is empty, cut off or invalid twice in `eresp`, a retry after one in `wretr`, who leaves meanwhile in `cli_abrt`",
        is_so: |_, one| {
            let is_twice = [" eresp", " wretr", " cli_abrt"].iter().any(|name| one.place.ends_with(name));
            is_twice && counts(one).is_some_and(|(ours, theirs)| ours < theirs && theirs <= 2 * ours + 3)
        },
        is_all: false,
    },
    Known {
        why: "interim and chunked responses are not for HTTP/1.0 (RFC 9110 section 15.2, RFC 9112 section 6.1), HAProxy sends them",
        is_so: |case, one| {
            let interim = one.weir.is_empty() && one.haproxy.starts_with("HTTP/1.1 10");
            let chunked = one.weir.contains("(Close)") && one.haproxy.contains("transfer-encoding: chunked");
            one.place == "client" && has_old_client(case) && (interim || chunked)
        },
        is_all: false,
    },
    Known {
        why: "a reused server connection that breaks before any byte of the response closes the client in HAProxy",
        is_so: |_, one| {
            one.place == "client" && one.weir.starts_with("HTTP/1.1 502") && one.haproxy == "(Closed)"
        },
        is_all: true,
    },
    Known {
        why: "a 204 names no length (RFC 9110 section 8.6), also where a rule made it",
        is_so: |case, one| {
            let makes = |line: &String| line.contains("set-status 204") || line.contains("set-status 304");
            let all = case.front.iter().chain(&case.back);
            one.place == "client"
                && one.haproxy.starts_with("content-length")
                && one.weir.is_empty()
                && all.clone().any(makes)
        },
        is_all: false,
    },
    Known {
        why: "HAProxy 3.5-dev5 answers `tarpit` at once where there is no `timeout tarpit`",
        is_so: |case, one| {
            let tarpits = |line: &String| line.contains("tarpit");
            let is_time = matches!(one.place.as_str(), "log Tw" | "log Ta");
            is_time && one.haproxy.ends_with("/-1/-1/0") && case.front.iter().chain(&case.back).any(tarpits)
        },
        is_all: false,
    },
    Known {
        why: "the server's connection is closed when a rule replaces its response",
        is_so: |case, one| {
            let replaces = |line: &String| {
                let words = ["http-response deny", "http-response return", "http-response redirect"];
                words.iter().any(|word| line.starts_with(word))
            };
            let is_connection = one.place == "server" && one.weir == "(over)" && one.haproxy == "(open)";
            is_connection && case.front.iter().chain(&case.back).any(replaces)
        },
        is_all: false,
    },
];

/// Takes the differences that are known out, and gives the reasons.
pub(crate) fn take(case: &Case, differences: &mut Vec<Difference>) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    for known in KNOWN {
        let count = differences.len();
        if known.is_all && differences.iter().any(|one| (known.is_so)(case, one)) {
            differences.clear();
        }
        differences.retain(|one| !(known.is_so)(case, one));
        if differences.len() < count {
            reasons.push(known.why);
        }
    }
    reasons
}
