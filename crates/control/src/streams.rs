//! Sessions under way and malformed messages: `show sess`, `shutdown session`, `show errors`; and `wait`.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Date, WallTime, now_ms};
use base::units::{DefaultUnit, parse_duration};
use runtime::{shard, worker};
use state::errors::Captured;
use state::sessions::{self, Kill, Snapshot};
use tokio::sync::oneshot;

use crate::anonymous::Anonymous;
use crate::command::{Call, Reply, error};
use crate::sets;

/// Which sessions are wanted; sent to every worker.
#[derive(Debug, Clone, Default)]
struct Wanted {
    id: Option<u64>,
    frontend: Option<u32>,
    backend: Option<u32>,
    server: Option<(u32, u32)>,
    older_ms: u64,
}

impl Wanted {
    fn accepts(&self, entry: &Snapshot, now: u64) -> bool {
        let backend = entry.backend.as_ref().map(|backend| backend.id);
        self.id.is_none_or(|id| id == entry.id)
            && self.frontend.is_none_or(|id| id == entry.frontend.id)
            && self.backend.is_none_or(|id| Some(id) == backend)
            && self.server.is_none_or(|(proxy, id)| {
                backend == Some(proxy) && entry.server.as_ref().is_some_and(|server| server.id == id)
            })
            && now.saturating_sub(entry.since_ms) >= self.older_ms
    }
}

/// Runs `work` on every worker and collects what they return. A process without workers (a test) runs it here.
pub(crate) async fn on_every_worker<R: Send + 'static>(
    work: impl Fn() -> R + Clone + Send + 'static,
) -> Vec<R> {
    let mut answers = Vec::new();
    for index in 0..shard::workers() {
        let (send, receive) = oneshot::channel();
        let own = work.clone();
        let posted = worker::post(index, move || {
            // Nobody waits any more when the connection closed meanwhile.
            let _ = send.send(own());
        });
        if posted {
            answers.push(receive);
        } else if index == shard::current_worker() {
            return vec![work()];
        }
    }
    let mut results = Vec::with_capacity(answers.len());
    for answer in answers {
        results.extend(answer.await);
    }
    results
}

async fn collect(wanted: Wanted) -> Vec<Snapshot> {
    let now = now_ms();
    let lists = on_every_worker(move || sessions::list(|entry| wanted.accepts(entry, now))).await;
    let mut all: Vec<Snapshot> = lists.into_iter().flatten().collect();
    all.sort_unstable_by_key(|entry| (entry.since_ms, entry.id));
    all
}

const SHOW_SESS_USAGE: &str = "Usage: show sess [<id> | all | help] [<options>*]\n\
Dumps active streams (formerly called 'sessions'). Available options:\n\
   backend <b>     only show streams attached to this backend\n\
   frontend <f>    only show streams attached to this frontend\n\
   older <age>     only show streams older than this age (seconds by default)\n\
   server <b/s>    only show streams attached to this server\n\
Without option, all active streams are dumped in a short format. With 'all' or an\n\
identifier, they are dumped in the detailed format.\n";

/// What `show sess` asks for, and whether in detail.
fn sess_arguments(call: &Call<'_>) -> Result<(Wanted, bool), Reply> {
    let view = call.runtime.view();
    let mut wanted = Wanted::default();
    let mut detailed = false;
    let mut words = call.args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| error(format!("'{word}' expects an argument.")));
        match word {
            "help" => return Err(Reply::Text(SHOW_SESS_USAGE.into())),
            "all" => detailed = true,
            "backend" => {
                let name = value()?;
                let found = view.backend(name).ok_or_else(|| error("No such backend."))?;
                wanted.backend = Some(found.state.id);
            }
            "frontend" => {
                let name = value()?;
                let found = view.frontend(name).ok_or_else(|| error("No such frontend."))?;
                wanted.frontend = Some(found.state.id);
            }
            "server" => {
                let (proxy, server) = sets::server(&view, value()?)?;
                wanted.server = Some((proxy.state.id, server.id));
            }
            "older" => {
                let age = value()?;
                let parsed = parse_duration(age, DefaultUnit::Seconds);
                wanted.older_ms = parsed.map_err(|_| error("Invalid age."))?.as_millis() as u64;
            }
            "show-uri" | "susp" => return Err(error(format!("'show sess {word}' is not supported yet."))),
            id => {
                let unknown = || error(format!("Unsupported option '{id}', try 'help' for more info."));
                wanted.id = Some(parse_id(id).ok_or_else(unknown)?);
                detailed = true;
            }
        }
    }
    Ok((wanted, detailed))
}

pub(crate) fn show_sess(call: &mut Call<'_>) -> Reply {
    let (wanted, detailed) = match sess_arguments(call) {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    let anonymous = call.settings.anonymous;
    Reply::Later(Box::pin(async move {
        let one = wanted.id.is_some();
        let entries = collect(wanted).await;
        if one && entries.is_empty() {
            return error("Session not found.");
        }
        let now = now_ms();
        let chunks: Vec<Vec<Snapshot>> = entries.chunks(64).map(<[_]>::to_vec).collect();
        Reply::Pieces(Box::new(chunks.into_iter().map(move |entries| {
            entries
                .iter()
                .map(
                    |entry| {
                        if detailed { details(entry, now, anonymous) } else { short(entry, now, anonymous) }
                    },
                )
                .collect()
        })))
    }))
}

fn parse_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn address(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "unix:1".to_owned(), |address| address.to_string())
}

/// `2m35s`, `4s`: ages as HAProxy prints them.
fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes, rest) =
        (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => format!("{minutes}m{rest}s"),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// One line a stream.
fn short(entry: &Snapshot, now: u64, anonymous: Anonymous) -> String {
    let protocol = match entry.source {
        Some(SocketAddr::V4(_)) => "tcpv4",
        Some(SocketAddr::V6(_)) => "tcpv6",
        None => "unix_stream",
    };
    let backend = entry.backend.as_ref().map_or("<NONE>".into(), |backend| anonymous.word(&backend.name));
    let server = entry.server.as_ref().map_or("<none>".into(), |server| anonymous.word(&server.name));
    format!(
        "{:#x}: proto={protocol} src={} fe={} be={backend} srv={server} age={} idle={} act={} calls={} in={} out={} thr={}\n",
        entry.id,
        anonymous.address(&address(entry.source)),
        anonymous.word(&entry.frontend.name),
        age(now.saturating_sub(entry.since_ms)),
        age(now.saturating_sub(entry.active_ms)),
        entry.activity.name(),
        entry.requests,
        entry.bytes_in,
        entry.bytes_out,
        entry.worker + 1,
    )
}

/// Several lines a stream, indented after the first.
fn details(entry: &Snapshot, now: u64, anonymous: Anonymous) -> String {
    let shown = |address: Option<SocketAddr>| anonymous.address(&self::address(address)).into_owned();
    let when = WallTime::now().minus(Duration::from_millis(now.saturating_sub(entry.since_ms)));
    let mut date = String::new();
    let _ = Date::local(when.seconds).write_log(when.millis(), &mut date);
    let mut out = format!(
        "{:#x}: [{date}] id={} proto={} source={}\n",
        entry.id,
        entry.id & 0xff_ffff_ffff,
        if entry.source.is_some() { "tcp" } else { "unix_stream" },
        shown(entry.source)
    );
    let _ = writeln!(
        out,
        "  frontend={} (id={} mode={}), addr={}",
        anonymous.word(&entry.frontend.name),
        entry.frontend.id,
        entry.frontend.mode.name(),
        shown(entry.destination)
    );
    match &entry.backend {
        Some(backend) => {
            let name = anonymous.word(&backend.name);
            let _ = writeln!(out, "  backend={name} (id={} mode={})", backend.id, backend.mode.name());
        }
        None => out.push_str("  backend=<NONE> (id=-1 mode=-)\n"),
    }
    match &entry.server {
        Some(server) => {
            let to = crate::stat::address_text(&server.address.load());
            let (name, to) = (anonymous.word(&server.name), anonymous.address(&to));
            let _ = writeln!(out, "  server={name} (id={}) addr={to}", server.id);
        }
        None => out.push_str("  server=<NONE> (id=-1)\n"),
    }
    let _ = writeln!(
        out,
        "  activity={} requests={} bytes_in={} bytes_out={} age={} idle={} thread={}",
        entry.activity.name(),
        entry.requests,
        entry.bytes_in,
        entry.bytes_out,
        age(now.saturating_sub(entry.since_ms)),
        age(now.saturating_sub(entry.active_ms)),
        entry.worker + 1
    );
    out
}

pub(crate) fn shutdown_session(call: &mut Call<'_>) -> Reply {
    let Some(id) = parse_id(call.arg(0)) else {
        return error("Session pointer expected (use 'show sess').");
    };
    Reply::Later(Box::pin(async move {
        let killed = on_every_worker(move || sessions::kill(Kill::Operator, |entry| entry.id == id)).await;
        if killed.iter().sum::<usize>() > 0 {
            Reply::Done
        } else {
            error("No such session (use 'show sess').")
        }
    }))
}

pub(crate) fn shutdown_sessions_server(call: &mut Call<'_>) -> Reply {
    match sets::server(&call.runtime.view(), call.arg(0)) {
        Ok((_, server)) => Reply::Later(Box::pin(async move {
            on_every_worker(move || sessions::kill_server(Kill::Operator, &server)).await;
            Reply::Done
        })),
        Err(reply) => reply,
    }
}

pub(crate) fn show_errors(call: &mut Call<'_>) -> Reply {
    let view = call.runtime.view();
    let errors = &call.runtime.process.errors;
    let (mut proxy, mut sides) = (None, [true, true]);
    for word in call.args {
        match word.as_str() {
            "request" => sides = [true, false],
            "response" => sides = [false, true],
            "-1" => proxy = None,
            name => {
                let number = name.parse::<u32>().ok();
                match view.proxies.iter().find(|p| *p.state.name == *name || number == Some(p.state.id)) {
                    Some(found) => proxy = Some(found.state.id),
                    None => return error("No such proxy."),
                }
            }
        }
    }
    let now = WallTime::now();
    let mut out = "Total events captured on [".to_owned();
    let _ = Date::local(now.seconds).write_log(now.millis(), &mut out);
    let _ = writeln!(out, "] : {}", errors.total());
    for found in &view.proxies {
        let (request, response) = errors.of(found.state.id);
        for (captured, is_response) in [(request, false), (response, true)] {
            // Those of a proxy are those that it had to do with, on either side.
            let concerns = |captured: &Captured, id| {
                id == found.state.id
                    || id == captured.frontend.1
                    || captured.backend.as_ref().is_some_and(|backend| id == backend.1)
            };
            let wanted = |captured: &Captured| {
                sides[usize::from(is_response)] && proxy.is_none_or(|id| concerns(captured, id))
            };
            if let Some(captured) = captured.filter(wanted) {
                write_captured(&captured, is_response, &found.state, &mut out);
            }
        }
    }
    Reply::Text(out)
}

fn write_captured(captured: &Captured, response: bool, proxy: &Arc<state::Proxy>, out: &mut String) {
    let side = if response { "backend" } else { "frontend" };
    let what = if response { "response" } else { "request" };
    out.push_str("\n[");
    let _ = Date::local(captured.when.seconds).write_log(captured.when.millis(), out);
    let _ = writeln!(out, "] {side} {} (#{}): invalid {what}", proxy.name, proxy.id);
    let (frontend, id) = &captured.frontend;
    let named = |pair: &Option<(Box<str>, u32)>, none: &str| match pair {
        Some((name, id)) => format!("{name} (#{id})"),
        None => format!("{none} (#-1)"),
    };
    if response {
        let _ = write!(out, "  frontend {frontend} (#{id})");
    } else {
        let _ = write!(out, "  backend {}", named(&captured.backend, "<NONE>"));
    }
    let _ = writeln!(
        out,
        ", server {}, event #{}, src {}",
        named(&captured.server, "<NONE>"),
        captured.event,
        address(captured.source)
    );
    let _ = writeln!(
        out,
        "  buffer starts at {}, {} in, {} bytes, session #{}{}",
        captured.offset,
        captured.bytes.len(),
        captured.bytes.len(),
        captured.session,
        if captured.accepted { ", accepted" } else { "" }
    );
    let _ = writeln!(out, "  {} at position {}:\n ", captured.reason, captured.position);
    write_dump(&captured.bytes, captured.position, out);
}

/// Bytes as text, an input line a line, no line wider than 79 columns; `*` marks the line with the offending byte.
fn write_dump(bytes: &[u8], position: usize, out: &mut String) {
    const WIDTH: usize = 70;
    let mut start = 0;
    let mut continued = false;
    while start < bytes.len() {
        let mut line = String::new();
        let mut at = start;
        let mut ended = false;
        while at < bytes.len() && !ended {
            let shown = escape(bytes[at]);
            if line.len() + shown.len() > WIDTH {
                break;
            }
            line.push_str(&shown);
            ended = bytes[at] == b'\n';
            at += 1;
        }
        let mark = if (start..at).contains(&position) { '*' } else { ' ' };
        let plus = if continued { '+' } else { ' ' };
        let _ = writeln!(out, " {mark}{start:05}{plus} {line}");
        continued = !ended;
        start = at;
    }
}

fn escape(byte: u8) -> String {
    match byte {
        b'\t' => "\\t".into(),
        b'\n' => "\\n".into(),
        b'\r' => "\\r".into(),
        27 => "\\e".into(),
        b'\\' => "\\\\".into(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_break_long_lines_and_mark_the_offending_one() {
        let mut bytes = b"GET / HTTP/1.1\r\nX\x00y: \\\t1\r\nLong: ".to_vec();
        bytes.extend([b'a'; 100]);
        let mut out = String::new();
        write_dump(&bytes, 17, &mut out);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "  00000  GET / HTTP/1.1\\r\\n");
        assert_eq!(lines[1], " *00016  X\\x00y: \\\\\\t1\\r\\n");
        assert_eq!(lines[2].len(), 9 + 70);
        assert!(lines[3].starts_with("  00096+ aaa"), "{}", lines[3]);
        assert!(lines.iter().all(|line| line.len() <= 79));
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [(4, "4s"), (155, "2m35s"), (7260, "2h1m"), (90_000, "1d1h")] {
            assert_eq!(age(seconds * 1000), text);
        }
    }
}
