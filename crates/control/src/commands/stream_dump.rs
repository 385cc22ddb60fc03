//! The line and the detailed dump of a stream in `show sess` (management manual, 9.3 `show sess`), in HAProxy's format with the
//! keys that tools look for. Called by [`crate::commands::streams`].
//!
//! Fields about HAProxy's engine (flags, wake-up counts, pointers) are zero or `(nil)`, and unknown values are empty. The states
//! of both ends, and the conditions for which either direction waits, use HAProxy's numbers.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use base::clock::{Date, WallTime};
use state::Mode;
use state::sessions::{Activity, Snapshot};

use crate::anonymous::Anonymous;

/// A stream to show, of a proxy or of the runtime socket.
pub(crate) struct StreamSummary<'a> {
    entry: &'a Snapshot,
    now: u64,
    anonymous: Anonymous,
}

fn address(address: Option<SocketAddr>) -> String {
    address.map_or_else(|| "unix:1".to_owned(), |address| address.to_string())
}

fn protocol(source: Option<SocketAddr>) -> &'static str {
    match source {
        Some(SocketAddr::V4(_)) => "tcpv4",
        Some(SocketAddr::V6(_)) => "tcpv6",
        None => "unix_stream",
    }
}

/// Formats an age as HAProxy does: `2m35s`, `4s`.
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

/// States of the server side, by number and name.
const NOT_ASKED: (u8, &str) = (0, "INI");
const QUEUED: (u8, &str) = (2, "QUE");
const CONNECTING: (u8, &str) = (5, "CON");
const ESTABLISHED: (u8, &str) = (8, "EST");

/// The conditions that a direction waits for, as HAProxy's remaining analysers.
const WAIT_HTTP: u32 = 0x4;
const FORWARD_REQUEST: u32 = 0x8000;
const WAIT_RESPONSE: u32 = 0x40_0000;
const RULES_OF_RESPONSE: u32 = 0x100_0000;
const FORWARD_RESPONSE: u32 = 0x400_0000;

impl<'a> StreamSummary<'a> {
    pub(crate) fn new(entry: &'a Snapshot, now: u64, anonymous: Anonymous) -> Self {
        Self { entry, now, anonymous }
    }

    fn age(&self) -> String {
        age(self.now.saturating_sub(self.entry.since_ms))
    }

    fn address(&self, one: Option<SocketAddr>) -> String {
        self.anonymous.address(&address(one)).into_owned()
    }

    /// The state of the server side.
    fn back(&self) -> (u8, &'static str) {
        match self.entry.activity {
            Activity::Queued => QUEUED,
            Activity::Connecting => CONNECTING,
            Activity::Response | Activity::Data | Activity::Tunnel => ESTABLISHED,
            Activity::Waiting | Activity::Request if self.entry.server.is_some() => ESTABLISHED,
            Activity::Waiting | Activity::Request => NOT_ASKED,
        }
    }

    /// Returns what request and response wait for.
    fn analysers(&self) -> (u32, u32) {
        let is_http = self.entry.frontend.mode == Mode::Http;
        match self.entry.activity {
            _ if !is_http => (0, 0),
            Activity::Tunnel => (0, 0),
            Activity::Data => (FORWARD_REQUEST, FORWARD_RESPONSE),
            _ if self.entry.server.is_some() => (FORWARD_REQUEST, WAIT_RESPONSE | RULES_OF_RESPONSE),
            _ => (WAIT_HTTP, 0),
        }
    }

    /// The protocol and the client's address; a request to an SPOE agent has no client.
    fn origin(&self, key: &str) -> String {
        if self.entry.frontend.mode == Mode::Spop {
            return "proto=?".into();
        }
        let source = self.entry.source;
        let protocol = match source {
            Some(SocketAddr::V4(_)) if self.entry.is_quic => "quic4",
            Some(SocketAddr::V6(_)) if self.entry.is_quic => "quic6",
            Some(SocketAddr::V4(_)) if self.entry.frontend.mode == Mode::Udp => "udpv4",
            Some(SocketAddr::V6(_)) if self.entry.frontend.mode == Mode::Udp => "udpv6",
            _ => protocol(source),
        };
        format!("proto={protocol} {key}={}", self.address(source))
    }

    /// Formats the stream as one line.
    pub(crate) fn line(&self) -> String {
        let (entry, anonymous) = (self.entry, &self.anonymous);
        let backend = entry.backend.as_ref().map_or("<NONE>".into(), |backend| anonymous.word(&backend.name));
        let server = entry.server.as_ref().map_or("<none>".into(), |server| anonymous.word(&server.name));
        let (request, response) = self.analysers();
        let thread = entry.worker + 1;
        format!(
            "{:#x}: {} fe={} be={backend} srv={server} ts=00 epoch=0 age={} calls={} rate=0 cpu=0 lat=0 \
             rq[f=0h,i=0,an={request:02x}h,ax=] rp[f=0h,i=0,an={response:02x}h,ax=] \
             scf=[{},0h,fd={thread}/{},rex=,wex=] scb=[{},1h,fd={thread}/{},rex=,wex=] exp= rc=0 c_exp= \
             act={} idle={} in={} out={}{}\n",
            entry.id,
            self.origin("src"),
            anonymous.word(&entry.frontend.name),
            self.age(),
            entry.requests,
            ESTABLISHED.0,
            entry.client_fd,
            self.back().0,
            entry.server_fd,
            entry.activity.name(),
            age(self.now.saturating_sub(entry.active_ms)),
            entry.bytes_in,
            entry.bytes_out,
            self.uri(),
        )
    }

    /// The request line, if it was requested and is available.
    fn uri(&self) -> String {
        let line = self.entry.request_line.as_deref();
        line.map_or_else(String::new, |line| {
            let line = base::raw::text_of(line);
            // In anonymized mode the target is replaced.
            match line.split_once(' ').filter(|_| self.anonymous.key() != 0) {
                Some((method, target)) => format!(" uri=\"{method} {}\"", self.anonymous.word(target)),
                None => format!(" uri=\"{}\"", line.escape_debug()),
            }
        })
    }

    /// Formats the stream as several lines, indented after the first.
    pub(crate) fn dump(&self) -> String {
        let (entry, anonymous) = (self.entry, &self.anonymous);
        let when = WallTime::now().minus(Duration::from_millis(self.now.saturating_sub(entry.since_ms)));
        let mut date = String::new();
        let _ = Date::local(when.seconds).write_log(when.millis(), &mut date);
        let mut out = format!(
            "{:#x}: [{date}] id={} {}\n  \
             flags=0x0, conn_retries=0, conn_exp=<NEVER> conn_et=0x000 srv_conn=(nil), pend_pos=(nil) waiting=0 epoch=0\n",
            entry.id,
            entry.id & 0xff_ffff_ffff,
            self.origin("source")
        );
        let _ = writeln!(
            out,
            "  frontend={} (id={} mode={}), listener=? (id=1) addr={}",
            anonymous.word(&entry.frontend.name),
            entry.frontend.id,
            entry.frontend.mode.name(),
            self.address(entry.destination)
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
                let to = statistics::stat::address_text(&server.address.load());
                let (name, to) = (anonymous.word(&server.name), anonymous.address(&to));
                let _ = writeln!(out, "  server={name} (id={}) addr={to}", server.id);
            }
            None => out.push_str("  server=<NONE> (id=-1)\n"),
        }
        if entry.request_line.is_some() {
            let _ = writeln!(out, "  txn=(nil){}", self.uri());
        }
        self.dump_ends(&mut out);
        let _ = writeln!(
            out,
            "  activity={} requests={} bytes_in={} bytes_out={} age={} idle={} thread={}",
            entry.activity.name(),
            entry.requests,
            entry.bytes_in,
            entry.bytes_out,
            self.age(),
            age(self.now.saturating_sub(entry.active_ms)),
            entry.worker + 1
        );
        out
    }

    /// Writes the lines about the task, both ends and both directions.
    fn dump_ends(&self, out: &mut String) {
        let entry = self.entry;
        let thread = entry.worker + 1;
        let _ = writeln!(
            out,
            "  task=(nil) (state=0x00 nice=0 calls={} rate=0 exp=<NEVER> tid={}(1/{}) age={})",
            entry.requests,
            entry.worker,
            entry.worker,
            self.age()
        );
        let ends = [
            ("scf", ESTABLISHED, entry.client_fd, entry.client_stream),
            ("scb", self.back(), entry.server_fd, entry.server_stream),
        ];
        for (place, (name, (_, state), fd, stream)) in ends.into_iter().enumerate() {
            let _ = writeln!(
                out,
                "  {name}=(nil) flags={place:#010x} ioto=? state={state} endp=CONN,(nil),0x00000000"
            );
            if fd < 0 {
                continue;
            }
            let multiplexer = if stream > 0 { " mux=H2" } else { "" };
            if stream > 0 {
                let _ = writeln!(out, "      h2s=(nil) h2s.id={stream}");
            }
            let _ = writeln!(out, "      co{place}=(nil){multiplexer} flags=0x00000000 fd={thread}/{fd}");
        }
        let (request, response) = self.analysers();
        for (name, analysers) in [("req", request), ("res", response)] {
            let _ = writeln!(out, "  {name}=(nil) (f=0x000000 an={analysers:#x} tofwd=0)");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [(4, "4s"), (155, "2m35s"), (7260, "2h1m"), (90_000, "1d1h")] {
            assert_eq!(age(seconds * 1000), text);
        }
    }
}
