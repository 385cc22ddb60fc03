//! A `peers` section (manual, section 11.2) without sockets or a clock: which peers to connect to and when, which of two
//! connections with a peer to keep, and from which peer a new process gets the existing entries (`resync`).
//!
//! A restarted peer has lost its record of acknowledgements. If it connects, the process number in its greeting reveals this, and
//! all local changes are sent to it again. A process that got everything from its predecessor uses the predecessor's number. If
//! the others connect to a new process first, it requests a resync itself.

mod parting;
mod peer_state;
mod rename;
mod resync;
mod show;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::handshake::HandshakeStatus;
use crate::session::{Over, PeerSession, PeersSection, SessionEvent, TIMEOUT, features};
use crate::tables::{EntryOrigin, Tables};

use parting::Parting;
use peer_state::PeerState;
use rename::DnsPeers;
pub use resync::ResyncStage;
use resync::{PartsWait, Resync};
pub use show::ShowContext;
pub use view::{PeerView, SyncProgress};

/// Identifies a connection; never reused.
pub type LinkId = u64;

/// Delay before connecting to an unreachable peer again, in milliseconds.
const RETRY: u64 = 5000;

/// The maximum number of connections without a greeting, in addition to two for each peer.
const STRANGERS: usize = 16;

/// A command to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupCommand {
    /// Connect to a peer, then call [`Group::connected`] or [`Group::closed`].
    Connect {
        /// The index of the peer in the section.
        peer: usize,
        /// The new connection.
        link: LinkId,
    },
    /// Send the rest of [`Group::output`] for a connection, close it, and forget it.
    Close(LinkId),
    /// This process ends: its successor has acknowledged every change, or cannot be reached.
    Done,
}

/// The settings of a section.
#[derive(Debug)]
pub struct SectionSettings {
    /// Names and tables.
    pub section: Arc<PeersSection>,
    /// The number of shards into which keys are divided; 0 if they are not (`shards`).
    pub shards: u32,
    /// The shard of each peer; 0 for all keys (`shard`).
    pub parts: Box<[u32]>,
    /// The number of this process.
    pub process: u32,
    /// Whether the process has a predecessor that will send it all entries.
    pub successor: bool,
    /// The seed of the random number generator.
    pub seed: u64,
}

/// A connection.
#[derive(Debug)]
enum PeerConnection {
    /// The connection is being opened: the peer, and the start time.
    Dialing(usize, u64),
    /// Established.
    Up(Box<PeerSession>),
    /// The connection must be closed after the rest of its output is sent.
    Closing(Box<PeerSession>),
    /// The connection must be closed although it was never established.
    Abandoned,
}

/// A running section.
#[derive(Debug)]
pub struct Group {
    settings: SectionSettings,
    local: Option<usize>,
    peers: Vec<PeerState>,
    lines: BTreeMap<LinkId, PeerConnection>,
    next_link: LinkId,
    resync: Resync,
    /// The connections with requests to send.
    asked: Vec<LinkId>,
    /// The number sent in greetings: that of this process, or of the process from which it got all its entries.
    life: u32,
    /// How often to try to reach the successor, in a process that ends.
    stopping: Option<u32>,
    parting: Parting,
    /// The predecessor, if its counts are added to those made by this process, and whether memory is kept for that.
    before: Option<u32>,
    keeps_predecessor: bool,
    commands: VecDeque<GroupCommand>,
    /// Sessions that were established or ended and that have not been reported to the tables yet.
    presence: VecDeque<(usize, bool)>,
    /// Whether the tables were notified that the entries of the other peers have arrived.
    synchronized: bool,
    /// How long to wait for the counts of an earlier process from peers.
    returns: PartsWait,
    /// The peers that DNS provides.
    from_dns: DnsPeers,
    random: fastrand::Rng,
}

impl Group {
    /// Returns the name of a connection's peer, once known, for traces.
    pub(crate) fn name_of(&self, link: LinkId) -> Option<&[u8]> {
        let place = match self.lines.get(&link)? {
            PeerConnection::Dialing(place, _) => Some(*place),
            PeerConnection::Up(session) | PeerConnection::Closing(session) => session.peer(),
            PeerConnection::Abandoned => None,
        };
        self.settings.section.peers.get(place?).map(|name| &**name)
    }

    /// Returns a number that identifies the section, for traces.
    pub(crate) fn number(&self) -> u64 {
        Arc::as_ptr(&self.settings.section) as usize as u64
    }

    /// Creates a section without connections.
    pub fn new(settings: SectionSettings, now: u64) -> Group {
        let section = &settings.section;
        let tables = section.tables.len();
        let local = section.peers.iter().position(|name| *name == section.local);
        let peers = (0..section.peers.len()).map(|place| {
            let part = settings.parts.get(place).copied().unwrap_or(0);
            let counts = part > 0 && part <= settings.shards && Some(place) != local;
            PeerState::new(counts.then_some((part, settings.shards)), tables, now)
        });
        let peers: Vec<PeerState> = peers.collect();
        let mut group = Group {
            local,
            peers,
            lines: BTreeMap::new(),
            next_link: 1,
            resync: Resync::new(settings.successor && local.is_some(), now),
            asked: Vec::new(),
            life: settings.process,
            stopping: None,
            parting: Parting::default(),
            before: None,
            keeps_predecessor: false,
            commands: VecDeque::new(),
            presence: VecDeque::new(),
            synchronized: false,
            returns: PartsWait::new(settings.section.features),
            from_dns: DnsPeers::of(&settings.section),
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
        };
        group.tick(now);
        group
    }

    /// Returns the next command to the caller.
    pub fn command(&mut self) -> Option<GroupCommand> {
        self.commands.pop_front()
    }

    /// Returns a connection that has output although nothing was received. Call [`output`](Self::output) for it.
    pub fn asked(&mut self) -> Option<LinkId> {
        self.asked.pop()
    }

    /// Returns the progress of this process's resync.
    pub fn stage(&self) -> ResyncStage {
        self.resync.stage()
    }

    fn add(&mut self, line: PeerConnection) -> LinkId {
        let link = self.next_link;
        self.next_link += 1;
        self.lines.insert(link, line);
        link
    }

    /// Accepts a connection. Returns `None` if there are too many without a greeting, in which case the caller closes it.
    pub fn accept(&mut self, now: u64) -> Option<LinkId> {
        let strangers = self
            .lines
            .values()
            .filter(|line| matches!(line, PeerConnection::Up(session) if !session.is_open()));
        if self.stopping.is_some() || strangers.count() >= STRANGERS + 2 * self.peers.len() {
            return None;
        }
        let session = PeerSession::server(&self.settings.section, now);
        Some(self.add(PeerConnection::Up(Box::new(session))))
    }

    /// A requested connection is established.
    pub fn connected(&mut self, link: LinkId, now: u64) {
        let Some(line) = self.lines.get_mut(&link) else { return };
        let PeerConnection::Dialing(peer, _) = *line else { return };
        let minor = self.peers[peer].minor;
        let session = PeerSession::client_of_version(minor, &self.settings.section, peer, self.life, now);
        *line = PeerConnection::Up(Box::new(session));
    }

    /// A connection has closed, or could not be opened.
    pub fn closed(&mut self, link: LinkId, now: u64) {
        match self.lines.remove(&link) {
            Some(PeerConnection::Dialing(peer, _)) => {
                self.peers[peer].dialing = None;
                self.peers[peer].retry = now + RETRY;
                self.peers[peer].unreached += 1;
                self.missed(peer, now);
            }
            Some(PeerConnection::Up(session)) => {
                let over = Over::Ended;
                self.part(link, &session, over, now);
            }
            Some(PeerConnection::Closing(_) | PeerConnection::Abandoned) | None => {}
        }
    }

    /// Processes bytes received on a connection.
    pub fn receive(&mut self, link: LinkId, bytes: &[u8], now: u64, tables: &mut impl Tables) {
        let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link) else { return };
        session.receive(bytes, now, tables);
        if let Some(peer) = session.greeted() {
            let status = self.judge(peer, link, now);
            let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link) else { return };
            session.welcome(status);
            self.events(link, now);
            if let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link) {
                session.resume_input(now, tables);
            }
        }
        self.events(link, now);
        self.part_if_done(tables);
    }

    /// Appends output for a connection, until `out` has about `limit` bytes (to within one message). Called again until it appends
    /// nothing.
    pub fn output(
        &mut self,
        link: LinkId,
        out: &mut Vec<u8>,
        limit: usize,
        now: u64,
        tables: &mut impl Tables,
    ) {
        let up_to_date = self.resync.is_finished();
        if let Some(PeerConnection::Up(session) | PeerConnection::Closing(session)) =
            self.lines.get_mut(&link)
        {
            session.output(out, limit, up_to_date, now, tables);
        }
    }

    /// Returns when to call [`tick`](Self::tick), and then [`output`](Self::output) for all connections.
    pub fn next(&self) -> Option<u64> {
        let lines = self.lines.values().filter_map(|line| match line {
            PeerConnection::Dialing(_, since) => Some(since + TIMEOUT),
            PeerConnection::Up(session) => session.next(),
            PeerConnection::Closing(_) | PeerConnection::Abandoned => None,
        });
        let idle =
            (0..self.peers.len()).filter(|peer| self.is_wanted(*peer)).map(|peer| self.peers[peer].retry);
        lines
            .chain(idle)
            .chain(self.resync.next())
            .chain(self.parting.next())
            .chain(self.returns.next())
            .min()
    }

    /// Processes the passing of time.
    pub fn tick(&mut self, now: u64) {
        let links: Vec<LinkId> = self.lines.keys().copied().collect();
        for link in links {
            match self.lines.get_mut(&link) {
                Some(PeerConnection::Dialing(peer, since)) if now >= *since + TIMEOUT => {
                    let peer = *peer;
                    self.abandon(link);
                    self.peers[peer].dialing = None;
                    self.peers[peer].retry = now + self.random.u64(50..2050);
                    self.missed(peer, now);
                }
                Some(PeerConnection::Up(session)) => {
                    session.tick(now);
                    self.events(link, now);
                }
                _ => {}
            }
        }
        self.resync.tick(now);
        self.returns.tick(self.resync.is_local(), now);
        if self.parting.is_late(now) {
            self.part_for_good();
        }
        self.choose_teacher();
        for peer in 0..self.peers.len() {
            if self.is_wanted(peer) && now >= self.peers[peer].retry {
                let link = self.add(PeerConnection::Dialing(peer, now));
                self.peers[peer].dialing = Some(link);
                self.commands.push_back(GroupCommand::Connect { peer, link });
            }
        }
    }

    /// Whether to connect to a peer, immediately or later.
    fn is_wanted(&self, peer: usize) -> bool {
        let idle = self.peers[peer].link.is_none() && self.peers[peer].dialing.is_none();
        let right = match self.stopping {
            Some(tries) => Some(peer) == self.local && tries > 0,
            // The other peers are connected to after the predecessor has had its turn.
            None => {
                let is_other = Some(peer) != self.local && self.local.is_some() && self.is_known(peer);
                is_other && !self.resync.is_local()
            }
        };
        idle && right
    }

    /// Called when the process ends: it disconnects from the others, and sends all entries to its successor. Later changes are sent
    /// to the successor until [`drained`](Self::drained).
    pub fn stop(&mut self, tries: u32, now: u64) {
        if self.stopping.is_some() {
            return;
        }
        let links: Vec<LinkId> = self.lines.keys().copied().collect();
        for link in links {
            match self.lines.get_mut(&link) {
                Some(PeerConnection::Up(session)) => {
                    session.finish();
                    self.events(link, now);
                }
                Some(PeerConnection::Dialing(..)) => self.abandon(link),
                _ => {}
            }
        }
        self.stopping = Some(if self.local.is_some() { tries } else { 0 });
        for peer in &mut self.peers {
            peer.dialing = None;
            peer.retry = now;
        }
        if self.stopping == Some(0) {
            self.part_for_good();
        }
        self.tick(now);
    }

    /// The successor could not be reached.
    fn missed(&mut self, peer: usize, now: u64) {
        let Some(tries) = self.stopping.as_mut().filter(|tries| **tries > 0) else { return };
        if Some(peer) != self.local {
            return;
        }
        *tries -= 1;
        self.peers[peer].retry = now + 1000;
        if *tries == 0 {
            self.part_for_good();
        }
    }

    fn abandon(&mut self, link: LinkId) {
        self.lines.insert(link, PeerConnection::Abandoned);
        self.commands.push_back(GroupCommand::Close(link));
    }

    /// Returns the answer to a greeting.
    fn judge(&mut self, peer: usize, link: LinkId, now: u64) -> HandshakeStatus {
        let standing = self.peers[peer].link;
        if self.stopping.is_some() {
            return HandshakeStatus::TryAgain;
        }
        if Some(peer) == self.local {
            return if standing.is_some() { HandshakeStatus::TryAgain } else { HandshakeStatus::Success };
        }
        if self.resync.is_local() {
            return HandshakeStatus::TryAgain;
        }
        // The latest connection replaces the other one: the peer would not connect if that one were still open.
        if let Some(standing) = standing.filter(|standing| *standing != link) {
            self.peers[peer].collisions += 1;
            self.finish(standing, now);
        }
        HandshakeStatus::Success
    }

    fn finish(&mut self, link: LinkId, now: u64) {
        if let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link) {
            session.finish();
            self.events(link, now);
        }
    }

    /// Handles the events of a session.
    fn events(&mut self, link: LinkId, now: u64) {
        let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link) else { return };
        let peer = session.peer();
        for event in session.take_events() {
            match (event, peer) {
                (SessionEvent::Established { peer, process }, _) => {
                    self.established(link, peer, process, now)
                }
                (SessionEvent::ResyncFinished, Some(peer)) => self.taught(link, peer, true, now),
                (SessionEvent::ResyncPartial, Some(peer)) => self.taught(link, peer, false, now),
                (SessionEvent::ResyncConfirmed, Some(peer))
                    if self.stopping.is_some() && Some(peer) == self.local =>
                {
                    // No other process is sent the entries, because it would add the same counts again.
                    self.stopping = Some(0);
                    self.parting.taught(now);
                }
                (SessionEvent::PartsReturned, Some(peer)) => self.peers[peer].has_returned = true,
                (SessionEvent::Over(over), _) => self.over(link, over, now),
                _ => {}
            }
        }
    }

    fn established(&mut self, link: LinkId, place: usize, process: Option<u32>, now: u64) {
        let from_here = process.is_none();
        if let Some(other) = self.peers[place].link.filter(|other| *other != link) {
            // Both sides connected at the same time, so both must keep the same connection.
            let section = &self.settings.section;
            self.peers[place].collisions += 1;
            if from_here && section.peers[place] < section.local {
                self.finish(link, now);
                return;
            }
            self.finish(other, now);
        }
        let stopping = self.stopping.is_some();
        let adds = Some(place) == self.local && !stopping && self.adds_counts(process);
        let peer = &mut self.peers[place];
        let first = !peer.met;
        peer.met = true;
        peer.link = Some(link);
        if peer.dialing == Some(link) {
            peer.dialing = None;
        }
        peer.established = Some(now);
        peer.is_asked = false;
        peer.sessions += 1;
        peer.last = None;
        self.presence.push_back((place, true));
        if process.is_some() && peer.process != process {
            // A different or unknown process.
            peer.known.fill(0);
            peer.process = process;
        }
        let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link) else { return };
        session.resume(&peer.known, peer.part);
        if stopping {
            session.is_with(EntryOrigin::Successor);
            session.teach_all();
        } else if Some(place) == self.local {
            session.is_with(if adds { EntryOrigin::Predecessor } else { EntryOrigin::Local });
            self.resync.local_came(process);
        } else if first && !from_here && self.life == self.settings.process {
            // The peer may mistake this process for its predecessor.
            session.request_resync();
        }
        self.choose_teacher();
    }

    /// Requests a resync from a peer, if one is needed.
    fn choose_teacher(&mut self) {
        if !self.resync.wants_teacher() || self.stopping.is_some() {
            return;
        }
        let able = |place: &usize| {
            let peer = &self.peers[*place];
            Some(*place) != self.local && peer.link.is_some() && !peer.partial
        };
        let able: Vec<usize> = (0..self.peers.len()).filter(able).collect();
        let Some(place) = self.random.choice(able) else { return };
        if let Some(link) = self.peers[place].link
            && let Some(PeerConnection::Up(session)) = self.lines.get_mut(&link)
        {
            session.request_resync();
            self.resync.assigned(link);
            self.asked.push(link);
        }
    }

    /// Called when a peer has ended a resync: a complete one if `everything`, otherwise one with the part of the entries that it has.
    fn taught(&mut self, link: LinkId, place: usize, everything: bool, now: u64) {
        self.peers[place].needs_resync = false;
        if Some(place) == self.local {
            if let Some(life) = self.resync.local_taught(everything, now) {
                // The predecessor does not send the parts it has as an owner, so the others repeat them.
                if self.settings.section.features & features::OWNERS == 0 {
                    self.life = life;
                }
                self.returns.cancel();
            }
        } else if self.resync.taught(link, everything, now) && !everything {
            self.peers[place].partial = true;
        }
        self.choose_teacher();
    }

    /// Called when a session has ended. Its connection is closed after its last output is sent.
    fn over(&mut self, link: LinkId, over: Over, now: u64) {
        let Some(PeerConnection::Up(session)) = self.lines.remove(&link) else { return };
        self.part(link, &session, over, now);
        self.lines.insert(link, PeerConnection::Closing(session));
        self.commands.push_back(GroupCommand::Close(link));
    }

    /// A session has ended.
    fn part(&mut self, link: LinkId, session: &PeerSession, over: Over, now: u64) {
        self.resync.left(link, now);
        let Some(place) = session.peer() else { return };
        let delay = self.random.u64(50..2050);
        let tables = self.settings.section.tables.len();
        let peer = &mut self.peers[place];
        if !matches!(over, Over::Ended) {
            peer.last = Some(over);
        }
        if over == Over::Refused(HandshakeStatus::Version) && peer.dialing == Some(link) {
            peer.minor = 1 - peer.minor;
        }
        peer.breaches += u64::from(matches!(over, Over::Breach(_)));
        peer.timeouts += u64::from(over == Over::Timeout);
        let was_session = peer.link == Some(link);
        if peer.dialing == Some(link) {
            peer.dialing = None;
            peer.retry = now + RETRY;
        }
        if was_session {
            peer.link = None;
            self.presence.push_back((place, false));
            for table in 0..tables {
                peer.known[table] = session.taught(table).0;
            }
            peer.retry = now + if matches!(over, Over::Breach(_) | Over::Accused) { RETRY } else { delay };
            if Some(place) == self.local {
                self.resync.local_left(now);
                if self.parting.is_taught() {
                    self.part_for_good();
                }
            }
        }
        self.missed(place, now);
    }
}
