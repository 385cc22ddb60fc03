//! `show quic` (management manual, 9.3): the QUIC connections of clients and to servers.
//!
//! Rows have HAProxy's columns. Fields that the protocol engine does not publish, such as the offsets of streams, are omitted.

use std::fmt::Write;
use std::net::SocketAddr;

use state::quic_connections::{self, QuicSnapshot, QuicState};

use crate::commands::quic_parameters::{TransportParameters, hex};
use crate::commands::streams::on_every_worker;
use crate::invocation::{Call, CommandReply, error};

const USAGE: &str = "Usage: show quic [help|<format>] [<filter>]\n\
Lists QUIC connections. Formats:\n\
\x20 oneline    one line for each connection (default)\n\
\x20 stream     one line for each request\n\
\x20 full       everything about each connection\n\
\x20 <levels>*  parts of `full`, separated by commas: tp (transport parameters),\n\
\x20            sock (addresses), pktns (packets), cc (congestion), mux (requests)\n\
\x20 help       this text\n\
Filters:\n\
\x20 all        all connections\n\
\x20 clo        connections that are being closed\n\
\x20 be         connections to servers\n\
\x20 <id>       the connection with this number (0x...)\n\
Without a filter, connections of clients that are not being closed are listed.\n";

/// Parts of a detailed description, one bit each.
mod level {
    pub(super) const PARAMETERS: u8 = 1;
    pub(super) const SOCKET: u8 = 2;
    pub(super) const PACKETS: u8 = 4;
    pub(super) const CONGESTION: u8 = 8;
    pub(super) const STREAMS: u8 = 16;
    pub(super) const ALL: u8 = PARAMETERS | SOCKET | PACKETS | CONGESTION | STREAMS;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuicFormat {
    OneLine,
    Streams,
    Levels(u8),
}

impl QuicFormat {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "oneline" => Self::OneLine,
            "stream" => Self::Streams,
            "full" => Self::Levels(level::ALL),
            words => {
                let one = |word: &str| {
                    Some(match word {
                        "tp" => level::PARAMETERS,
                        "sock" => level::SOCKET,
                        "pktns" => level::PACKETS,
                        "cc" => level::CONGESTION,
                        "mux" => level::STREAMS,
                        _ => return None,
                    })
                };
                Self::Levels(words.split(',').try_fold(0, |all, word| Some(all | one(word)?))?)
            }
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuicFilter {
    Open,
    All,
    Closing,
    Servers,
    One(u64),
}

impl QuicFilter {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "all" => Self::All,
            "clo" => Self::Closing,
            "be" => Self::Servers,
            id => Self::One(u64::from_str_radix(id.strip_prefix("0x")?, 16).ok()?),
        })
    }

    fn accepts(self, connection: &QuicSnapshot) -> bool {
        match self {
            Self::Open => !connection.state.is_over() && !connection.is_to_server,
            Self::All => true,
            Self::Closing => connection.state.is_over(),
            Self::Servers => connection.is_to_server,
            Self::One(id) => connection.id == id,
        }
    }
}

/// Parses the words: a format, a filter, or both. One connection is shown in full unless a format is given.
fn read(words: &[String]) -> Option<(QuicFormat, QuicFilter)> {
    let mut words = words.iter().map(String::as_str);
    let Some(first) = words.next() else { return Some((QuicFormat::OneLine, QuicFilter::Open)) };
    if let Some(format) = QuicFormat::read(first) {
        let filter = words.next().map_or(Some(QuicFilter::Open), QuicFilter::read)?;
        return Some((format, filter));
    }
    let filter = QuicFilter::read(first)?;
    let format = match filter {
        QuicFilter::One(_) => QuicFormat::Levels(level::ALL),
        _ => QuicFormat::OneLine,
    };
    Some((format, filter))
}

/// `show quic`.
pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    if call.args.first().is_some_and(|word| word == "help") {
        return CommandReply::Text(USAGE.to_owned());
    }
    let Some((format, filter)) = read(call.args) else {
        return error("Invalid argument, use 'help' for more options.");
    };
    CommandReply::Later(Box::pin(async move {
        let lists = on_every_worker(move || quic_connections::list(|one| filter.accepts(one))).await;
        let mut all: Vec<QuicSnapshot> = lists.into_iter().flatten().collect();
        all.sort_unstable_by_key(|one| (one.id & SERIAL, one.id));
        CommandReply::Text(list(&all, format))
    }))
}

/// The part of an ID that counts the connections of a worker.
const SERIAL: u64 = (1 << 40) - 1;

fn list(all: &[QuicSnapshot], format: QuicFormat) -> String {
    let mut out = String::new();
    if format == QuicFormat::OneLine {
        out.push_str(
            "# conn/frontend                     state   in_flight infl_p lost_p         Local Address           \
             Foreign Address      local & remote CIDs\n",
        );
    }
    for one in all {
        match format {
            QuicFormat::OneLine => line(one, &mut out),
            QuicFormat::Streams => streams(one, &mut out),
            QuicFormat::Levels(levels) => describe(one, levels, &mut out),
        }
    }
    out
}

/// The name of a connection.
fn name(one: &QuicSnapshot) -> String {
    format!("{:#x}[{:02}]", one.id, one.worker)
}

/// The connection IDs that both sides chose at first.
fn ids(one: &QuicSnapshot) -> [String; 2] {
    [&one.local_parameters, &one.remote_parameters]
        .map(|bytes| hex(&TransportParameters::parse(bytes).source_id))
}

/// An estimate of the packets in flight: the bytes in flight divided by the MTU.
fn packets(one: &QuicSnapshot) -> u64 {
    one.path.in_flight.div_ceil(u64::from(one.path.mtu).max(1))
}

fn line(one: &QuicSnapshot, out: &mut String) {
    let state = match one.state {
        QuicState::Handshake => "HDSHK",
        QuicState::Open => "ESTAB",
        QuicState::Closing => "CLOSE",
        QuicState::Draining => "DRAIN",
    };
    let [local, remote] = ids(one);
    let _ = writeln!(
        out,
        "{:<36}{state:<5} {:>11} {:>6} {:>6} {:>22} {:>24} {local} {remote}",
        format!("{}/{}", name(one), one.proxy.name),
        one.path.in_flight,
        packets(one),
        one.path.packets_lost,
        address(one.local),
        address(one.remote),
    );
}

fn address(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.to_string(),
        SocketAddr::V6(address) => format!("{}:{}", address.ip(), address.port()),
    }
}

fn streams(one: &QuicSnapshot, out: &mut String) {
    for stream in &one.streams {
        let state = half_states(stream.is_received, stream.is_sent);
        let _ = writeln!(
            out,
            "{:#x}.{:04}: st={state} tx={} rxb={}",
            one.id, stream.id, stream.queued, stream.held
        );
    }
}

/// HAProxy's name for the state of a stream.
fn half_states(is_received: bool, is_sent: bool) -> &'static str {
    match (is_received, is_sent) {
        (false, false) => "OPN",
        (true, false) => "HCR",
        (false, true) => "HCL",
        (true, true) => "CLO",
    }
}

fn describe(one: &QuicSnapshot, levels: u8, out: &mut String) {
    let [local, remote] = ids(one);
    let _ = writeln!(out, "* {}: scid={local:.<40} dcid={remote:.<40}", name(one));
    if levels & level::PARAMETERS != 0 {
        for (side, bytes) in [("loc", &one.local_parameters), ("rem", &one.remote_parameters)] {
            if !bytes.is_empty() {
                let _ = writeln!(out, "  {side}. TPs: {}", TransportParameters::parse(bytes));
            }
        }
    }
    let (state, mux) = match one.state {
        QuicState::Handshake => ("handshake", "none"),
        QuicState::Open => ("opened", "ready"),
        QuicState::Closing => ("closing", "released"),
        QuicState::Draining => ("draining", "released"),
    };
    let side = if one.is_to_server { "be" } else { "fe" };
    let expire = one.timer.map_or_else(|| "<NEVER>".to_owned(), |time| format!("{}ms", time.as_millis()));
    let _ = writeln!(out, "  st={state:<16} mux={mux:<41} expire={expire} {side}={}", one.proxy.name);
    if levels & level::SOCKET != 0 {
        let (fd, local, remote) = (one.descriptor, address(one.local), address(one.remote));
        let _ = writeln!(out, "  fd={fd:<15} local_addr={local} foreign_addr={remote}");
    }
    let path = &one.path;
    let share = path.in_flight * 100 / path.window.max(1);
    if levels & level::PACKETS != 0 {
        let _ = writeln!(out, "  [01rtt] tx.inflight={:<6} ({share}%)", path.in_flight);
    }
    if levels & level::CONGESTION != 0 {
        congestion(one, out);
    }
    if levels & level::STREAMS != 0 {
        let (open, window) = (one.streams.len(), path.window);
        let _ = writeln!(
            out,
            "  qcc={:#x} sc={open} hreq={open} bwnd={}/{window} glitches={}",
            one.id, path.in_flight, one.glitches
        );
        for stream in &one.streams {
            let state = half_states(stream.is_received, stream.is_sent);
            let _ = writeln!(
                out,
                "    qcs={:#x}.{:04} id={} st={state} rxb={} txb={}",
                one.id, stream.id, stream.id, stream.held, stream.queued
            );
        }
    }
    out.push('\n');
}

fn congestion(one: &QuicSnapshot, out: &mut String) {
    let path = &one.path;
    let threshold = path.slow_start_threshold.unwrap_or(u64::from(u32::MAX));
    let state = if path.window < threshold { "ss" } else { "ca" };
    let _ = writeln!(out, "  cc: state={state} ssthresh={threshold}");
    let times = [path.rtt, path.rtt_variation, path.rtt_min].map(|time| time.as_millis());
    let _ = writeln!(out, "  srtt={:<5} rttvar={:<5} rttmin={:<5}", times[0], times[1], times[2]);
    let _ = writeln!(out, "  cwnd={:<17} mtu={}", path.window, path.mtu);
    let (bytes, packets) = (path.bytes_sent, path.packets_sent);
    let _ = writeln!(out, "  sentbytes={bytes:<12} recvbytes={:<12} sentpkts={packets}", path.bytes_received);
    let _ = writeln!(out, "  lostpkts={}", path.packets_lost);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<(QuicFormat, QuicFilter)> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        read(&words)
    }

    #[test]
    fn formats_and_filters_are_optional() {
        let levels = |levels| QuicFormat::Levels(levels);
        for (line, format, filter) in [
            ("", QuicFormat::OneLine, QuicFilter::Open),
            ("oneline", QuicFormat::OneLine, QuicFilter::Open),
            ("all", QuicFormat::OneLine, QuicFilter::All),
            ("oneline clo", QuicFormat::OneLine, QuicFilter::Closing),
            ("be", QuicFormat::OneLine, QuicFilter::Servers),
            ("stream all", QuicFormat::Streams, QuicFilter::All),
            ("full", levels(level::ALL), QuicFilter::Open),
            ("0x2a", levels(level::ALL), QuicFilter::One(42)),
            ("oneline 0x2a", QuicFormat::OneLine, QuicFilter::One(42)),
            ("cc,mux 0x2a", levels(level::CONGESTION | level::STREAMS), QuicFilter::One(42)),
            ("tp", levels(level::PARAMETERS), QuicFilter::Open),
            ("sock,pktns", levels(level::SOCKET | level::PACKETS), QuicFilter::Open),
        ] {
            assert_eq!(words(line), Some((format, filter)), "{line}");
        }
        for line in ["x", "oneline x", "tp,x", "2a", "0xg"] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
