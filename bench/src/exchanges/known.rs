//! Intended differences, with the sentence from `docs/differences.md`. Each is as narrow as possible.

use crate::exchanges::case::{Case, Step};
use crate::exchanges::compare::Difference;
use crate::exchanges::hindered;
use crate::exchanges::message::{self, Direction};

/// A reason for something to differ.
struct Known {
    why: &'static str,
    is_so: fn(&Case, &Difference) -> bool,
    /// Whether everything else in the case follows from this difference.
    is_all: bool,
}

/// Returns all bytes that a client sends.
fn sent(steps: &[Step]) -> Vec<u8> {
    let sent = steps.iter().filter_map(|step| match step {
        Step::Send(bytes) => Some(&bytes[..]),
        _ => None,
    });
    sent.collect::<Vec<_>>().concat()
}

/// Returns whether a client sends these bytes, in however many pieces.
fn sends(case: &Case, bytes: &[u8]) -> bool {
    case.clients.iter().any(|steps| memchr::memmem::find(&sent(steps), bytes).is_some())
}

/// Returns whether a server sends these bytes.
fn answers(case: &Case, bytes: &[u8]) -> bool {
    let has = |step: &Step| matches!(step, Step::Send(sent) if memchr::memmem::find(sent, bytes).is_some());
    case.servers.iter().flat_map(|server| &server.answers).flat_map(|answer| &answer.steps).any(has)
}

/// Returns whether a configuration line contains one of these words.
fn says(case: &Case, words: &[&str]) -> bool {
    case.front.iter().chain(&case.back).any(|line| words.iter().any(|word| line.contains(word)))
}

/// Returns whether some client does not send the whole body of its last request.
fn stops_within_body(case: &Case) -> bool {
    case.clients.iter().any(|steps| {
        let all = message::parse(&sent(steps), Direction::Requests, true).messages;
        all.last().is_some_and(|last| !last.is_whole)
    })
}

/// Returns whether a server sends a status line in pieces.
fn cuts_status_line(case: &Case) -> bool {
    let is_cut = |step: &Step| {
        let Step::Send(bytes) = step else { return false };
        let start = memchr::memmem::rfind(bytes, b"\r\n\r\n").map_or(0, |at| at + 4);
        let last = &bytes[start..];
        let is_line = last.starts_with(b"HTTP/") || !last.is_empty() && b"HTTP/".starts_with(last);
        is_line && memchr::memchr(b'\n', last).is_none()
    };
    case.servers.iter().flat_map(|server| &server.answers).flat_map(|answer| &answer.steps).any(is_cut)
}

/// Returns whether clients should begin with a PROXY header and one of them sends it in pieces (`true`), or not at all (`false`).
fn is_introduced(case: &Case, in_pieces: bool) -> bool {
    let first = |steps: &[Step]| {
        steps.iter().find_map(|step| match step {
            Step::Send(bytes) if !bytes.is_empty() => Some(bytes.clone()),
            _ => None,
        })
    };
    let is_whole = |bytes: Option<Vec<u8>>| bytes.is_some_and(|bytes| hindered::is_introduced(&bytes));
    let is_so = |steps: &Vec<Step>| !is_whole(first(steps)) && is_whole(Some(sent(steps))) == in_pieces;
    says(case, &["expect-proxy"]) && case.clients.iter().any(is_so)
}

/// Returns whether a server reads nothing for longer than any timeout.
fn reads_nothing(case: &Case) -> bool {
    let mut steps = case.servers.iter().flat_map(|server| &server.answers).flat_map(|one| &one.steps);
    steps.any(|step| matches!(step, Step::Idle(1000..)))
}

/// Returns the counts of both programs.
fn counts(one: &Difference) -> Option<(u64, u64)> {
    Some((one.weir.parse().ok()?, one.haproxy.parse().ok()?))
}

fn is_counter(one: &Difference, names: &[&str]) -> bool {
    one.place.starts_with("counter") && names.iter().any(|name| one.place.ends_with(name))
}

const KNOWN: &[Known] = &[
    Known {
        why: "a PROXY header may come in pieces, in HAProxy only in one",
        is_so: |case, _| is_introduced(case, true),
        is_all: true,
    },
    Known {
        why: "what is no PROXY header is read before the connection is closed: its client sees no reset",
        is_so: |case, one| {
            let is_seen = one.place == "client" && one.weir == "(Closed)" && one.haproxy == "(Reset)";
            // The time until then is real.
            let is_time = one.place == "log Ta" && one.haproxy.ends_with("/0");
            (is_seen || is_time) && is_introduced(case, false)
        },
        is_all: false,
    },
    Known {
        why: "a server's connection is used again after a response with bare line feeds",
        is_so: |case, one| {
            let connection = matches!(one.place.as_str(), "server" | "server connections");
            let is_it = connection || is_counter(one, &[" connect", " reuse"]);
            is_it && answers(case, b"HTTP/1.1 200 OK\n")
        },
        is_all: false,
    },
    Known {
        why: "which of several clients has the only place of a server first is chance",
        is_so: |case, one| {
            let is_told = matches!(one.place.as_str(), "log queues" | "log server" | "log tsc");
            // A client that leaves just when the slot becomes free may or may not get it.
            let leaves = case.clients.iter().flatten().any(|step| *step == Step::Reset);
            let is_left = matches!(one.place.as_str(), "server connections" | "log Tc")
                || is_counter(one, &[" connect", " stot", " hrsp_5xx"]);
            let is_it = is_told || is_counter(one, &[" lbtot", " qmax", " eresp"]) || leaves && is_left;
            is_it
                && case.clients.len() > 1
                && case.servers.iter().any(|server| server.parameters.contains("maxconn 1"))
        },
        is_all: false,
    },
    Known {
        why: "what cannot become a request line is refused before its end has come",
        is_so: |case, one| {
            one.place == "log Ta" && one.weir.starts_with("-1/-1/-1/-1/") && is_introduced(case, false)
        },
        is_all: false,
    },
    Known {
        why: "a server that reads nothing of a body runs out of `timeout server`, HAProxy 3.5-dev5 says that it broke off",
        is_so: |case, one| {
            // Rules may have given both another status.
            let is_told = one.weir.contains("504 Gateway") && one.haproxy.contains("502 Bad");
            let is_logged = matches!((&*one.weir, &*one.haproxy), ("504", "502"))
                || one.weir.starts_with("sH") && one.haproxy.starts_with("SH");
            (is_told || is_logged) && reads_nothing(case)
        },
        is_all: false,
    },
    Known {
        why: "HAProxy counts a response that is empty, cut off or invalid twice in `eresp`, the retry after it in `wretr`, who leaves meanwhile in `cli_abrt`",
        is_so: |case, one| {
            // Each attempt is counted.
            let attempts = if says(case, &["retry-on"]) { 8 } else { 2 };
            is_counter(one, &[" eresp", " wretr", " cli_abrt"])
                && counts(one).is_some_and(|(ours, theirs)| ours < theirs && theirs <= attempts * ours + 3)
        },
        is_all: false,
    },
    Known {
        why: "interim and chunked responses are not for HTTP/1.0 (RFC 9110 section 15.2, RFC 9112 section 6.1), HAProxy sends them",
        is_so: |case, one| {
            let interim = one.weir.is_empty() && one.haproxy.starts_with("HTTP/1.1 10");
            let chunked = one.weir.contains("(Close)") && one.haproxy.contains("(Chunked)");
            one.place == "client" && sends(case, b"HTTP/1.0") && (interim || chunked)
        },
        is_all: true,
    },
    Known {
        why: "a reused server connection that breaks before any byte of the response closes the client in HAProxy",
        is_so: |case, one| {
            let is_cut = one.haproxy == "(Closed)" || one.haproxy.is_empty();
            let is_refused = says(case, &["retry-on"]) && one.haproxy.starts_with("HTTP/1.1 502");
            one.place == "client" && one.weir.starts_with("HTTP/1.") && (is_cut || is_refused)
        },
        is_all: true,
    },
    Known {
        why: "a rule makes a response a 204 or 304, which has no body, or something else of one (RFC 9110 section 8.6)",
        is_so: |case, one| {
            let makes = says(case, &["set-status 204", "set-status 304", "return status 204"]);
            let unmakes = says(case, &["set-status"]) && (answers(case, b" 204 ") || answers(case, b" 304 "));
            one.place != "log lines" && (makes || unmakes)
        },
        is_all: true,
    },
    Known {
        why: "HAProxy 3.5-dev5 answers `tarpit` at once where there is no `timeout tarpit`",
        is_so: |case, one| {
            let is_there = one.place.starts_with("log") || one.place.starts_with("counter");
            is_there && says(case, &["tarpit"]) && !says(case, &["timeout tarpit"])
        },
        is_all: false,
    },
    Known {
        why: "the server's connection is closed when a rule or a retry replaces its response",
        is_so: |case, one| {
            let rules = ["http-response deny", "http-response return", "http-response redirect", "retry-on"];
            let connection = matches!(one.place.as_str(), "server" | "server connections");
            says(case, &rules) && (connection || is_counter(one, &[" connect", " reuse"]))
        },
        is_all: false,
    },
    Known {
        why: "answers that close the connection say so (RFC 9112 section 9.6), HAProxy leaves that out of some",
        is_so: |_, one| one.place == "client" && one.weir == "connection: close" && one.haproxy.is_empty(),
        is_all: false,
    },
    Known {
        why: "a client that does not send all of its request's body is left as soon as it has its answer, HAProxy waits for the rest of it",
        is_so: |case, one| {
            one.place == "client"
                && one.weir == "(Closed)"
                && one.haproxy == "(Open)"
                && stops_within_body(case)
        },
        is_all: false,
    },
    Known {
        why: "a rule changes the method or the target of a CONNECT, or the status of its response: HAProxy still takes it for one, or sends something else",
        is_so: |case, _| {
            let words = [
                "set-method",
                "set-uri",
                "set-path",
                "set-query",
                "replace-path",
                "replace-uri",
                "set-status",
            ];
            sends(case, b"CONNECT ") && says(case, &words)
        },
        is_all: true,
    },
    Known {
        why: "HAProxy 3.5-dev5 now and then takes a status line that comes in pieces for an invalid response",
        is_so: |case, one| {
            let is_told = one.haproxy.starts_with("HTTP/1.1 502");
            let is_logged = one.place == "log ST" && one.haproxy == "502";
            (is_told || is_logged) && cuts_status_line(case)
        },
        is_all: true,
    },
    Known {
        why: "what rules see of the method is what `set-method` made of it, in HAProxy what it was",
        is_so: |case, _| says(case, &["set-method"]) && says(case, &["%[method]", "{ method ", "postonly"]),
        is_all: true,
    },
    Known {
        why: "a response that ends with its connection and is cut off ends with a reset, so that its client can tell",
        is_so: |_, one| one.place == "client" && one.weir == "(Reset)" && one.haproxy == "(Closed)",
        is_all: false,
    },
    Known {
        why: "HAProxy 3.5-dev5 applies `timeout client` to a client that asked for a tunnel while it waits for its response",
        is_so: |case, one| {
            let is_told = one.place == "client" && one.haproxy.starts_with("HTTP/1.1 400");
            let is_logged = one.place == "log tsc" && one.haproxy.starts_with("cD");
            (is_told || is_logged) && (sends(case, b"Upgrade: echo") || sends(case, b"CONNECT "))
        },
        is_all: true,
    },
    Known {
        why: "HAProxy leaves out interim responses that came together with a response that is tried again",
        is_so: |case, one| {
            let is_interim = one.weir.starts_with("HTTP/1.1 10") && !one.haproxy.starts_with("HTTP/1.1 10");
            one.place == "client" && is_interim && says(case, &["retry-on"])
        },
        is_all: true,
    },
    Known {
        why: "HAProxy says that the client ended a request that was invalid, where its end came together with it",
        is_so: |case, one| {
            let shuts = case.clients.iter().flatten().any(|step| matches!(step, Step::Shut | Step::Close));
            one.place == "log tsc" && one.weir.starts_with("PR") && one.haproxy.starts_with("CR") && shuts
        },
        is_all: true,
    },
    Known {
        why: "HAProxy counts a reused server connection that breaks in `srv_abrt`",
        is_so: |_, one| {
            is_counter(one, &[" srv_abrt"]) && counts(one).is_some_and(|(ours, theirs)| ours < theirs)
        },
        is_all: false,
    },
    Known {
        why: "the two directions of a tunnel end apart from each other, in HAProxy 3.5-dev5 not always",
        is_so: |case, one| {
            let is_late = matches!(one.place.as_str(), "log Ta" | "log tsc" | "log ST" | "server")
                || is_counter(one, &[" cli_abrt", " srv_abrt"]);
            let is_left = is_counter(one, &[" hrsp_4xx", " hrsp_other", " hrsp_1xx", " req_tot"]);
            let asks = sends(case, b"CONNECT ") || sends(case, b"Upgrade: echo");
            let is_stream = one.place == "log Ta" && says(case, &["mode tcp"]);
            (is_late || is_left) && (asks || answers(case, b" 101 ")) || is_stream
        },
        is_all: false,
    },
    Known {
        why: "the server's connection is closed after a request that asked for an upgrade in vain",
        is_so: |case, one| {
            let is_closed = one.place == "server" && one.weir == "(over)" && one.haproxy == "(open)";
            is_closed && sends(case, b"Upgrade: echo")
        },
        is_all: false,
    },
    Known {
        why: "a client that ended its side with its request: the response came first",
        is_so: |case, one| {
            let shuts = case.clients.iter().flatten().any(|step| *step == Step::Shut);
            let is_either = [&one.weir, &one.haproxy].iter().any(|text| text.starts_with("HTTP/1.1 400"));
            one.place == "client" && is_either && shuts
        },
        is_all: true,
    },
    Known {
        why: "`option prefer-last-server` keeps to the last server as the manual says, in HAProxy 3.5-dev5 only on connections of one client alone",
        is_so: |case, _| says(case, &["prefer-last-server"]),
        is_all: true,
    },
    Known {
        why: "a 101 that nobody asked for is tried again as often as any bad response",
        is_so: |case, one| one.place == "log rc" && answers(case, b" 101 ") && says(case, &["retry-on"]),
        is_all: true,
    },
    Known {
        why: "a retry is counted although the client, which had ended its side, turns out to have left",
        is_so: |case, one| {
            let shuts = case.clients.iter().flatten().any(|step| *step == Step::Shut);
            let is_retry = one.place == "log rc" || is_counter(one, &[" wretr"]);
            is_retry && shuts && counts(one).is_some_and(|(ours, theirs)| ours == theirs + 1)
        },
        is_all: false,
    },
    Known {
        why: "a rule makes a request's line one of other words: 500, HAProxy sends it",
        is_so: |case, one| {
            one.place == "client"
                && one.weir.starts_with("HTTP/1.1 500 Internal")
                && says(case, &["set-path", "set-uri", "replace-path", "replace-uri"])
        },
        is_all: true,
    },
    Known {
        why: "`max-reuse` counts requests of HTTP/1 too, as the manual says",
        is_so: |case, _| case.servers.iter().any(|server| server.parameters.contains("max-reuse")),
        is_all: true,
    },
    Known {
        why: "a connection that was dropped silently: what its client still sends is answered by the kernel with a reset",
        is_so: |case, one| one.place == "client" && one.weir == "(Reset)" && says(case, &["silent-drop"]),
        is_all: false,
    },
    Known {
        why: "a server's connection that just closes is still used by HAProxy now and then",
        is_so: |case, one| {
            let closes = |server: &crate::exchanges::case::Server| {
                server.answers.iter().flat_map(|answer| &answer.steps).any(|step| *step == Step::Close)
            };
            is_counter(one, &[" reuse"]) && case.servers.iter().any(closes)
        },
        is_all: false,
    },
    Known {
        why: "a server is not blamed while its client is slow to send its body, in HAProxy 3.5-dev5 only where the body is small",
        is_so: |case, one| {
            let is_large = |step: &Step| matches!(step, Step::Send(sent) if sent.len() > 16_000);
            let is_blamed = one.place == "client" && one.haproxy.starts_with("HTTP/1.1 504");
            is_blamed && stops_within_body(case) && case.clients.iter().flatten().any(is_large)
        },
        is_all: true,
    },
    Known {
        why: "what is left of a request is not sent on to a server that was too late to answer",
        is_so: |case, one| {
            let is_less = one.place == "server" && one.weir.contains("(cut off)") || one.place == "log Ta";
            is_less && says(case, &["independent-streams"])
        },
        is_all: false,
    },
    Known {
        why: "a server's place is given back when its tunnel has ended, in HAProxy 3.5-dev5 later",
        is_so: |case, one| {
            let is_full = case.servers.iter().any(|server| server.parameters.contains("maxconn 1"));
            one.place == "client"
                && one.haproxy.starts_with("HTTP/1.1 503")
                && is_full
                && sends(case, b"CONNECT ")
        },
        is_all: true,
    },
    Known {
        why: "`redir` of a server gives its place back, in HAProxy 3.5-dev5 it does not",
        is_so: |case, _| case.servers.iter().any(|server| server.parameters.contains("maxconn 1 redir")),
        is_all: true,
    },
    Known {
        why: "`option nolinger` resets what is given up, in HAProxy 3.5-dev5 also after an answer to a client that ended its side",
        is_so: |case, one| {
            one.place == "client"
                && one.weir == "(Closed)"
                && one.haproxy == "(Reset)"
                && says(case, &["nolinger"])
        },
        is_all: false,
    },
    Known {
        why: "the server's connection is closed when its response is too late",
        is_so: |case, one| {
            let is_closed = one.place == "server" && one.weir == "(over)" && one.haproxy == "(open)";
            let is_late = |step: &Step| matches!(step, Step::Pause(1000..));
            let mut steps = case.servers.iter().flat_map(|server| &server.answers).flat_map(|one| &one.steps);
            is_closed && steps.any(is_late)
        },
        is_all: false,
    },
    Known {
        why: "HAProxy 3.5-dev5 ends itself (a check of its own failed)",
        is_so: |_, one| {
            one.place == "the program" && one.weir.is_empty() && one.haproxy.contains("ended by itself")
        },
        is_all: true,
    },
    Known {
        why: "pages of errors name `connection` only when they are sent: rules do not see it there",
        is_so: |_, one| one.place == "client" && one.haproxy == "connection: closeclose",
        is_all: false,
    },
    Known {
        why: "a request that is sent again since an idle connection broke is no retry",
        is_so: |case, one| {
            let is_retry = one.place == "log rc" || is_counter(one, &[" stot", " wretr"]);
            let is_one = counts(one).is_some_and(|(ours, theirs)| ours < theirs && theirs <= ours + 3);
            is_retry && is_one && says(case, &["retry-on"])
        },
        is_all: false,
    },
    Known {
        why: "a server of TCP that closes while its client still sends: its end or its reset comes first",
        is_so: |case, one| {
            let closes = |step: &Step| matches!(step, Step::Close | Step::Reset);
            let mut steps = case.servers.iter().flat_map(|server| &server.answers).flat_map(|one| &one.steps);
            let either = [one.weir.as_str(), one.haproxy.as_str()];
            let is_told = either.iter().any(|code| code.starts_with("SD"))
                && either.iter().any(|code| code.starts_with("--"));
            one.place == "log tsc" && is_told && says(case, &["mode tcp"]) && steps.any(closes)
        },
        is_all: true,
    },
    Known {
        why: "the only idle connection of a server is closed one `pool-purge-delay` earlier",
        is_so: |case, one| {
            let is_closed = one.place == "server" && one.weir == "(over)" && one.haproxy == "(open)";
            is_closed && case.servers.iter().any(|server| server.parameters.contains("pool-purge-delay"))
        },
        is_all: false,
    },
    Known {
        why: "a client of TCP that has said something is not to blame for a server that refuses, in HAProxy 3.5-dev5 where its bytes came a moment after it",
        is_so: |case, one| {
            let is_blamed =
                one.place == "log tsc" && one.weir.starts_with("SC") && one.haproxy.starts_with("cC");
            is_blamed && says(case, &["mode tcp"])
        },
        is_all: true,
    },
    Known {
        why: "the server's connection is closed where the next needs another PROXY header",
        is_so: |case, one| {
            let is_closed = one.place == "server" && one.weir == "(over)" && one.haproxy == "(open)";
            is_closed && case.servers.iter().any(|server| server.parameters.contains("send-proxy"))
        },
        is_all: false,
    },
];

/// Removes the known differences and returns their reasons.
pub(crate) fn take(case: &Case, differences: &mut Vec<Difference>) -> Vec<&'static str> {
    // A difference that explains everything comes first, because the others would remove the evidence for it.
    let all =
        KNOWN.iter().find(|known| known.is_all && differences.iter().any(|one| (known.is_so)(case, one)));
    if let Some(known) = all {
        differences.clear();
        return vec![known.why];
    }
    let mut reasons = Vec::new();
    for known in KNOWN {
        let count = differences.len();
        differences.retain(|one| !(known.is_so)(case, one));
        if differences.len() < count {
            reasons.push(known.why);
        }
    }
    reasons
}
