//! Peers that DNS provides (`server-template`): their names are known only at run time, and can change.

use std::sync::Arc;

use super::peer_state::PeerState;
use super::{Group, LinkId, PeerConnection};
use crate::session::PeersSection;
use crate::tables::Tables;

/// The state of the peers that DNS provides.
#[derive(Debug, Default)]
pub(super) struct DnsPeers {
    /// Whether DNS has not been asked yet. Other peers may have the counts of an earlier process.
    pub(super) is_pending: bool,
    /// Whether a peer has had another name before, so that entries were dropped that its owner does not send again by itself.
    has_replaced: bool,
}

impl DnsPeers {
    pub(super) fn of(section: &PeersSection) -> DnsPeers {
        DnsPeers { is_pending: section.peers.iter().any(|name| name.is_empty()), has_replaced: false }
    }
}

impl Group {
    /// Whether the name of a peer is known.
    pub(super) fn is_known(&self, place: usize) -> bool {
        self.settings.section.peers.get(place).is_some_and(|name| !name.is_empty())
    }

    /// Sets the names of the peers that DNS provides now, by the indices of these peers. A peer that DNS no longer provides keeps its
    /// name and its session, until another peer needs its place.
    pub fn rename(&mut self, names: &[(usize, Option<String>)], now: u64, tables: &mut impl Tables) {
        self.from_dns.is_pending = false;
        let mut provided: Vec<(usize, &str)> = Vec::new();
        for (place, name) in names {
            let Some(name) = name.as_deref() else { continue };
            let is_own = name.as_bytes() == &*self.settings.section.local;
            // A name that two records have belongs to the first.
            if !is_own && !provided.iter().any(|(_, other)| *other == name) {
                provided.push((*place, name));
            }
        }
        let current = |group: &Group, place: usize| group.settings.section.peers.get(place).cloned();
        let is_current = |group: &Group, place, name: &str| {
            current(group, place).is_some_and(|current| *current == *name.as_bytes())
        };
        for (place, name) in &provided {
            // Fixed peers and peers whose record has moved to another place.
            let other = self.settings.section.peers.iter().position(|other| **other == *name.as_bytes());
            match other {
                Some(other) if other == *place => continue,
                Some(other) if !names.iter().any(|(place, _)| *place == other) => continue,
                Some(other) => self.set_name(other, "", now, tables),
                None => {}
            }
            if !is_current(self, *place, name) {
                self.set_name(*place, name, now, tables);
            }
        }
        self.tick(now);
    }

    /// Gives a peer a name, which is empty if the place is free.
    fn set_name(&mut self, place: usize, name: &str, now: u64, tables: &mut impl Tables) {
        let links: Vec<LinkId> = self.lines.keys().copied().collect();
        for link in links {
            match self.lines.get(&link) {
                Some(PeerConnection::Up(session)) if session.peer() == Some(place) => self.finish(link, now),
                Some(PeerConnection::Dialing(peer, _)) if *peer == place => self.abandon(link),
                _ => {}
            }
        }
        self.report_presence(now, tables);
        let mut section = PeersSection::clone(&self.settings.section);
        self.from_dns.has_replaced |= !section.peers[place].is_empty();
        section.peers[place] = name.as_bytes().into();
        for (at, name) in tables.rename(place, name, now) {
            section.tables[at].name = name;
        }
        let tables = section.tables.len();
        self.settings.section = Arc::new(section);
        for line in self.lines.values_mut() {
            if let PeerConnection::Up(session) = line {
                session.rename_peers(&self.settings.section);
            }
        }
        let part = self.peers[place].part;
        self.peers[place] =
            PeerState { needs_resync: self.from_dns.has_replaced, ..PeerState::new(part, tables, now) };
    }
}
