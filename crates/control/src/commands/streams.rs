//! Active streams: `show sess`, `shutdown session`, `shutdown sessions`. [`crate::commands::stream_dump`] formats them.

use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use base::units::{DefaultUnit, parse_duration};
use runtime::{shard, worker};
use state::Mode;
use state::sessions::{self, Activity, Kill, Snapshot};
use tokio::sync::oneshot;

use crate::commands::sets;
use crate::commands::stream_dump::StreamSummary;
use crate::invocation::{Call, CommandReply, error};

/// The sessions that a command selects; sent to every worker.
#[derive(Debug, Clone, Default)]
struct SessionFilter {
    id: Option<u64>,
    frontend: Option<u32>,
    backend: Option<u32>,
    server: Option<(u32, u32)>,
    older_ms: u64,
    suspicious: bool,
    request_lines: bool,
}

impl SessionFilter {
    fn accepts(&self, entry: &Snapshot, now: u64) -> bool {
        let backend = entry.backend.as_ref().map(|backend| backend.id);
        // A connection that is idle, before or between requests, is not a stream.
        let is_stream = entry.activity != Activity::Waiting || entry.frontend.mode != Mode::Http;
        (is_stream || self.id.is_some())
            && self.id.is_none_or(|id| id == entry.id)
            && self.frontend.is_none_or(|id| id == entry.frontend.id)
            && self.backend.is_none_or(|id| Some(id) == backend)
            && self.server.is_none_or(|(proxy, id)| {
                backend == Some(proxy) && entry.server.as_ref().is_some_and(|server| server.id == id)
            })
            && now.saturating_sub(entry.since_ms) >= self.older_ms
            && (!self.suspicious || is_suspicious(entry, now))
    }
}

/// How long a stream must exceed all its timeouts before it is suspicious, in ms.
const GRACE: u64 = 2_000;

/// Whether a stream should have ended or progressed by now (`susp`): it was told to end; its server is removed; or it has been
/// without a response for longer than all timeouts and retries of its proxies permit.
fn is_suspicious(entry: &Snapshot, now: u64) -> bool {
    let overdue = longest_wait(entry).is_some_and(|longest| now.saturating_sub(entry.active_ms) > longest);
    let server_is_gone = entry.server.as_ref().is_some_and(|server| server.removed.load(Relaxed));
    overdue || server_is_gone || (entry.killed && now.saturating_sub(entry.active_ms) > GRACE)
}

/// The maximum time until the response to a request, in ms, or `None` if a timeout is not set, or no response is awaited.
fn longest_wait(entry: &Snapshot) -> Option<u64> {
    if matches!(entry.activity, Activity::Waiting | Activity::Data | Activity::Tunnel) {
        return None;
    }
    let backend = entry.backend.as_ref().unwrap_or(&entry.frontend);
    let [client, _, _, _, _, tarpit] =
        entry.frontend.timeouts.each_ref().map(|ms| u64::from(ms.load(Relaxed)));
    let [_, server, _, connect, queue, _] = backend.timeouts.each_ref().map(|ms| u64::from(ms.load(Relaxed)));
    // The queue timeout defaults to the connect timeout.
    let queue = if queue == 0 { connect } else { queue };
    if client == 0 || server == 0 || connect == 0 {
        return None;
    }
    let tries = 1 + u64::from(backend.retries.load(Relaxed));
    Some(client + tarpit + (queue + connect + server) * tries + GRACE)
}

/// Runs `work` on every worker and collects the results. In a process without workers (a test), it runs on the calling thread.
pub(crate) async fn on_every_worker<R: Send + 'static>(
    work: impl Fn() -> R + Clone + Send + 'static,
) -> Vec<R> {
    let mut answers = Vec::new();
    for index in 0..shard::workers() {
        let (send, receive) = oneshot::channel();
        let own = work.clone();
        let posted = worker::post(index, move || {
            // The connection may have closed in the meantime.
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

async fn collect(wanted: SessionFilter) -> Vec<Snapshot> {
    let now = now_ms();
    let lists = on_every_worker(move || {
        if wanted.request_lines {
            sessions::list_with_lines(|entry| wanted.accepts(entry, now))
        } else {
            sessions::list(|entry| wanted.accepts(entry, now))
        }
    });
    let lists = lists.await;
    let mut all: Vec<Snapshot> = lists.into_iter().flatten().collect();
    all.sort_unstable_by_key(|entry| (entry.since_ms, entry.id));
    all
}

const SHOW_SESS_USAGE: &str = "Usage: show sess [<id> | all | help] [<options>*]\n\
Dumps active streams (formerly called 'sessions'). What to show:\n\
   <id>            this stream (0x...), in detail\n\
   all             all streams that match, in detail\n\
   help            this text\n\
   susp            only streams that appear to be stuck\n\
Available options:\n\
   show-uri        show the request line if it is kept for logs\n\
   older <age>     only show streams older than this age (seconds by default)\n\
   server <b/s>    only show streams attached to this server\n\
   backend <b>     only show streams attached to this backend\n\
   frontend <f>    only show streams attached to this frontend\n\
Without 'all' and identifier, streams are shown in a short format, one per line.\n";

/// The filter of `show sess`, and whether details are requested.
fn sess_arguments(call: &Call<'_>) -> Result<(SessionFilter, bool), CommandReply> {
    let view = call.runtime.view();
    let mut wanted = SessionFilter::default();
    let mut detailed = false;
    let mut words = call.args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| error(format!("'{word}' expects an argument.")));
        match word {
            "help" => return Err(CommandReply::Text(SHOW_SESS_USAGE.into())),
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
            "show-uri" => wanted.request_lines = true,
            "susp" => wanted.suspicious = true,
            id => {
                let unknown = || error(format!("Unsupported option '{id}', try 'help' for more info."));
                wanted.id = Some(parse_id(id).ok_or_else(unknown)?);
                detailed = true;
            }
        }
    }
    Ok((wanted, detailed))
}

pub(crate) fn show_sess(call: &mut Call<'_>) -> CommandReply {
    let (wanted, detailed) = match sess_arguments(call) {
        Ok(parsed) => parsed,
        Err(reply) => return reply,
    };
    let anonymous = call.settings.anonymous;
    CommandReply::Later(Box::pin(async move {
        let one = wanted.id.is_some();
        let entries = collect(wanted).await;
        if one && entries.is_empty() {
            return CommandReply::Text("Session not found.".to_owned());
        }
        let now = now_ms();
        let chunks: Vec<Vec<Snapshot>> = entries.chunks(64).map(<[_]>::to_vec).collect();
        CommandReply::Pieces(Box::new(chunks.into_iter().map(move |entries| {
            entries
                .iter()
                .map(|entry| {
                    let shown = StreamSummary::new(entry, now, anonymous);
                    if detailed { shown.dump() } else { shown.line() }
                })
                .collect()
        })))
    }))
}

fn parse_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

pub(crate) fn shutdown_session(call: &mut Call<'_>) -> CommandReply {
    let Some(id) = parse_id(call.arg(0)) else {
        return error("Session pointer expected (use 'show sess').");
    };
    CommandReply::Later(Box::pin(async move {
        let killed = on_every_worker(move || sessions::kill(Kill::Operator, |entry| entry.id == id)).await;
        if killed.iter().sum::<usize>() > 0 {
            CommandReply::Done
        } else {
            error("No such session (use 'show sess').")
        }
    }))
}

pub(crate) fn shutdown_sessions_server(call: &mut Call<'_>) -> CommandReply {
    match sets::server(&call.runtime.view(), call.arg(0)) {
        Ok((_, server)) => CommandReply::Later(Box::pin(async move {
            on_every_worker(move || sessions::kill_server(Kill::Operator, &server)).await;
            CommandReply::Done
        })),
        Err(reply) => reply,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use state::proxy::ProxySeed;

    use super::*;

    fn proxy(timeouts: [u32; 6]) -> Arc<state::Proxy> {
        let seed = ProxySeed {
            id: 2,
            name: "p".into(),
            mode: Mode::Http,
            is_frontend: true,
            is_backend: true,
            maxconn: 0,
            session_limit: 0,
            disabled: false,
        };
        let proxy = state::Proxy::new(seed);
        proxy.timeouts.iter().zip(timeouts).for_each(|(own, ms)| own.store(ms, Relaxed));
        proxy.retries.store(1, Relaxed);
        Arc::new(proxy)
    }

    #[test]
    fn streams_beyond_all_timeouts_are_suspicious() {
        // Client, server, tunnel, connect, queue, tarpit.
        let limited = proxy([1_000, 5_000, 0, 2_000, 0, 0]);
        let longest = 1_000 + 2 * (2_000 + 2_000 + 5_000) + GRACE;
        let entry = |activity, proxy: &Arc<state::Proxy>| Snapshot {
            id: 1,
            worker: 0,
            frontend: proxy.clone(),
            backend: None,
            server: None,
            source: None,
            destination: None,
            since_ms: 0,
            active_ms: 0,
            client_fd: 1,
            server_fd: -1,
            client_stream: 0,
            is_quic: false,
            server_stream: 0,
            activity,
            requests: 1,
            bytes_in: 0,
            bytes_out: 0,
            killed: false,
            request_line: None,
        };
        let waits = entry(Activity::Response, &limited);
        assert!(!is_suspicious(&waits, longest) && is_suspicious(&waits, longest + 1));
        let receives = entry(Activity::Data, &limited);
        assert!(!is_suspicious(&receives, longest * 100), "it may take as long as it takes");
        let unlimited = entry(Activity::Response, &proxy([1_000, 0, 0, 2_000, 0, 0]));
        assert!(!is_suspicious(&unlimited, longest * 100), "its server may take as long as it takes");
        let killed = Snapshot { killed: true, ..receives };
        assert!(!is_suspicious(&killed, GRACE) && is_suspicious(&killed, GRACE + 1));
    }
}
