//! `show peers` of the runtime socket (management guide, 9.3): formats a section like HAProxy. Memory addresses are replaced by
//! numbers that distinguish objects.

use std::fmt::Write as _;

use super::peer_state::PeerState;
use super::{Group, PeerConnection, ResyncStage};
use crate::handshake::HandshakeStatus;
use crate::session::{HEARTBEAT, Over, PeerSession};

/// Number of strings in a dictionary.
const STRINGS: usize = 128;

/// Information that the group itself does not have.
#[derive(Debug, Clone, Copy)]
pub struct ShowContext<'a> {
    /// The section's name.
    pub name: &'a str,
    /// The date, as `24/Nov/2026:21:04:36`.
    pub date: &'a str,
    /// `disabled`.
    pub is_disabled: bool,
    /// The addresses of the peers, as configured.
    pub addresses: &'a [String],
    /// The number of the last change of each table.
    pub latest: &'a [u64],
    /// A number for the section. It is larger than the numbers of its parts.
    pub number: u64,
    /// Whether to show the dictionaries (`show peers dict`).
    pub with_names: bool,
    /// For each peer and table, text to be added; empty for none.
    pub notes: &'a [Vec<String>],
}

/// Formats the distance to an instant, such as `4s` or `2m05s`.
fn away(at: Option<u64>, now: u64, is_past: bool) -> String {
    let Some(at) = at else { return "<NEVER>".to_owned() };
    if !is_past && at < now {
        return "<PAST>".to_owned();
    }
    let seconds = at.abs_diff(now) / 1000;
    let two = |big: u64, big_unit: &str, small: u64, small_unit: &str| {
        format!("{big}{big_unit}{small:02}{small_unit}")
    };
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds / 60 % 60, "m"),
        _ => two(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

fn status(over: Option<Over>) -> &'static str {
    match over {
        Some(Over::Refused(HandshakeStatus::TryAgain)) => "RETR",
        Some(Over::Refused(HandshakeStatus::Protocol)) => "PROT",
        Some(Over::Refused(HandshakeStatus::Version)) => "VERS",
        Some(Over::Refused(HandshakeStatus::LocalName)) => "NAME",
        Some(Over::Refused(HandshakeStatus::RemoteName)) => "UNKN",
        _ => "NONE",
    }
}

impl Group {
    /// Appends the section.
    pub fn show(&self, shown: &ShowContext<'_>, now: u64, out: &mut String) {
        let flags = match self.stage() {
            ResyncStage::Local => 0,
            ResyncStage::Remote => 1,
            ResyncStage::Finished => 3,
        };
        let until = match self.resync_until() {
            Some(until) => away(Some(until), now, false),
            None => "<PAST>".to_owned(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:#x}: [{}] id={} disabled={} flags={flags:#x} resync_timeout={until} task_calls=0",
            shown.number,
            shown.date,
            shown.name,
            u8::from(shown.is_disabled),
        );
        for place in (0..self.peers.len()).filter(|place| self.is_known(*place)) {
            self.show_peer(place, shown, now, out);
        }
    }

    fn session(&self, peer: &PeerState) -> Option<&PeerSession> {
        match self.lines.get(&peer.link?)? {
            PeerConnection::Up(session) => Some(session),
            _ => None,
        }
    }

    fn show_peer(&self, place: usize, shown: &ShowContext<'_>, now: u64, out: &mut String) {
        let peer = &self.peers[place];
        let session = self.session(peer);
        let number = shown.number + (place as u64 + 1) * 0x1000;
        let is_local = Some(place) == self.local;
        let told = match (session, peer.dialing.and_then(|link| self.lines.get(&link))) {
            (Some(_), _) => "ESTA",
            (None, Some(PeerConnection::Up(_))) => "HSHK",
            (None, Some(_)) => "CONN",
            (None, None) => status(peer.last),
        };
        let counts = session.map(PeerSession::counts).unwrap_or_default();
        let teaches = peer.link.is_some() && peer.link == self.resync.teacher();
        let retry =
            Some(peer.retry).filter(|_| !is_local && peer.sessions + u64::from(peer.dialing.is_some()) > 0);
        let _ = writeln!(
            out,
            "  {number:#x}: id={}({},{}) addr={} app_state={} learn_state={} last_status={told} last_hdshk={}\n\
             \x20       reconnect={} heartbeat={} confirm=0 tx_hbt={} rx_hbt={} no_hbt={} new_conn={} proto_err={} coll={}",
            String::from_utf8_lossy(&self.settings.section.peers[place]),
            if is_local { "local" } else { "remote" },
            if session.is_some() || peer.dialing.is_some() { "active" } else { "inactive" },
            shown.addresses.get(place).map_or("-", String::as_str),
            if session.is_some() { "RUNNING" } else { "STOPPED" },
            if teaches { "PROCESSING" } else { "NOTASSIGNED" },
            away(peer.established, now, true),
            away(retry, now, false),
            away(session.map(|session| session.last_sent_at() + HEARTBEAT), now, false),
            counts.heartbeats_sent,
            counts.heartbeats_received,
            peer.timeouts,
            // As in HAProxy, this includes failed attempts.
            peer.sessions + peer.unreached,
            peer.breaches,
            peer.collisions,
        );
        let _ = write!(out, "        flags=0x0");
        if session.is_some() {
            let _ = write!(out, " appctx:{:#x} st0=7 st1=0 task_calls=0 state=EST", number + 1);
        }
        out.push('\n');
        self.show_tables(place, session, shown, number, out);
    }

    fn show_tables(
        &self,
        place: usize,
        session: Option<&PeerSession>,
        shown: &ShowContext<'_>,
        number: u64,
        out: &mut String,
    ) {
        let section = &self.settings.section;
        let id = |table: usize| String::from_utf8_lossy(&section.ids[table]);
        let at = |table: usize| number + 0x10 * (table as u64 + 1);
        let remote_id = |table: usize| self.progress(place, table).remote_id;
        let (theirs, ours) = session.map_or((None, None), |session| {
            let (theirs, ours, _) = session.at(0);
            (theirs, ours)
        });
        for (word, table) in [("remote_table", theirs), ("last_local_table", ours)] {
            if let Some(table) = table {
                let (id, at, remote_id) = (id(table), at(table), remote_id(table));
                let _ = writeln!(
                    out,
                    "        {word}:{at:#x} id={id} local_id={} remote_id={remote_id}",
                    table + 1
                );
            }
        }
        if !section.tables.is_empty() {
            out.push_str("        shared tables:\n");
        }
        for table in 0..section.tables.len() {
            let progress = self.progress(place, table);
            let bits = session.map_or(0, |session| session.at(table).2);
            let _ = write!(
                out,
                "          {:#x} local_id={} remote_id={} flags=0x0 remote_data={bits:#x}\n\
                 \x20             last_acked={} last_pushed={} last_get={} teaching_origin=0 update={}\n\
                 \x20             table:{:#x} id={} ",
                at(table),
                table + 1,
                progress.remote_id,
                progress.confirmed,
                progress.sent,
                progress.learned,
                progress.acknowledged,
                shown.number + table as u64 + 1,
                id(table),
            );
            let latest = shown.latest.get(table).copied().unwrap_or(0);
            let _ = writeln!(out, "update={latest} localupdate={latest} refcnt=1");
            if let Some(note) =
                shown.notes.get(place).and_then(|notes| notes.get(table)).filter(|note| !note.is_empty())
            {
                let _ = writeln!(out, "              {note}");
            }
            match session {
                Some(session) if shown.with_names => show_names(session, out),
                _ if !shown.with_names => {
                    out.push_str("        Dictionary cache not dumped (use \"show peers dict\")\n")
                }
                _ => {}
            }
        }
    }
}

fn show_names(session: &PeerSession, out: &mut String) {
    let [sent, received] = session.names();
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let mut cells = |title: &str, names: &mut dyn Iterator<Item = (usize, String)>| {
        let _ = write!(out, "        {title} dictionary cache:");
        for (column, (number, name)) in names.enumerate() {
            let lead = if column % 4 == 0 { "\n        " } else { "" };
            let _ = write!(out, "{lead}  {number:3} -> {name}");
        }
        out.push('\n');
    };
    cells("TX", &mut sent.iter().map(|(number, name)| (number - 1, text(name))));
    let mut all = vec!["-".to_owned(); STRINGS];
    for (number, name) in received {
        all[number - 1] = text(name);
    }
    cells("RX", &mut all.into_iter().enumerate());
}
