//! A `peers` section (manual, section 11.2) without sockets or a clock: which peers to connect to
//! and when, which of two connections with a peer stays, and from whom a process learns what
//! was known before it began (`resync`).
//!
//! A peer that was restarted has forgotten what it acknowledged. It shows so by the number of its
//! process in its greeting, where it is the one that connects, and is taught again all
//! that was changed here. A process that was taught everything by the one before it shows that
//! one's number. Where the others were first to connect to a process that began anew,
//! it asks them itself.

mod parting;
mod resync;
mod show;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::handshake::Status;
use crate::session::{Event, Over, Section, Session, TIMEOUT};
use crate::tables::{Origin, Tables};

use parting::Parting;
use resync::Resync;
pub use resync::Stage;
pub use show::Shown;
pub use view::{Progress, View};

/// The name of a connection; none is used twice.
pub type Link = u64;

/// After so many milliseconds a peer that could not be reached is tried again.
const RETRY: u64 = 5000;

/// How many connections may stand that have not said who they are, beside two for each peer.
const STRANGERS: usize = 16;

/// What is to be done outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Connect to a peer, then call [`Group::connected`] or [`Group::closed`].
    Connect {
        /// Its place in the section.
        peer: usize,
        /// The name of the connection.
        link: Link,
    },
    /// Send what [`Group::output`] still has for a connection, close it, and forget its name.
    Close(Link),
    /// This process ends, and its successor has acknowledged every change, or cannot be reached.
    Done,
}

/// How a section is set up.
#[derive(Debug)]
pub struct Settings {
    /// Names and tables.
    pub section: Arc<Section>,
    /// Into how many parts keys are shared out; 0 if they are not (`shards`).
    pub shards: u32,
    /// For each peer, the part it gets; 0 for all (`shard`).
    pub parts: Box<[u32]>,
    /// The number of this process.
    pub process: u32,
    /// Whether it follows a process that will teach it.
    pub successor: bool,
    /// What chance follows from.
    pub seed: u64,
}

#[derive(Debug)]
struct Peer {
    /// The part of the keys that it gets.
    part: Option<(u32, u32)>,
    /// The session with it.
    link: Option<Link>,
    /// The connection to it that is being made.
    dialing: Option<Link>,
    /// When to connect to it.
    retry: u64,
    /// Up to which change of each table it knew all when its last session ended.
    known: Box<[u64]>,
    /// The number that it showed in its last greeting.
    process: Option<u32>,
    /// Whether there was a session with it.
    met: bool,
    /// It has said that it does not know everything.
    partial: bool,
    /// Which version it is greeted with: 2.1, or 2.0 if it knows nothing newer.
    minor: u8,
    /// How its last attempt or session ended.
    last: Option<Over>,
    established: Option<u64>,
    sessions: u64,
    collisions: u64,
    breaches: u64,
    timeouts: u64,
}

/// A connection.
#[derive(Debug)]
enum Line {
    /// It is being made: to whom, since when.
    Dialing(usize, u64),
    /// It stands.
    Up(Box<Session>),
    /// It is to be closed: what it still has to say.
    Closing(Box<Session>),
    /// It is to be closed, and never was.
    Abandoned,
}

/// A section at work.
#[derive(Debug)]
pub struct Group {
    settings: Settings,
    local: Option<usize>,
    peers: Vec<Peer>,
    lines: BTreeMap<Link, Line>,
    next_link: Link,
    resync: Resync,
    /// The connection over which a peer is to be asked for everything, since somebody looked.
    asked: Option<Link>,
    /// The number that is shown: of this process, or of the one that taught it everything.
    life: u32,
    /// How often the successor may still be tried, in a process that ends.
    stopping: Option<u32>,
    parting: Parting,
    /// The predecessor: its counts are added to those made here, and whether memory is kept for that.
    before: Option<u32>,
    keeps_predecessor: bool,
    commands: VecDeque<Command>,
    random: fastrand::Rng,
}

impl Group {
    /// The peer of a connection, once it is known, for traces.
    pub(crate) fn name_of(&self, link: Link) -> Option<&[u8]> {
        let place = match self.lines.get(&link)? {
            Line::Dialing(place, _) => Some(*place),
            Line::Up(session) | Line::Closing(session) => session.peer(),
            Line::Abandoned => None,
        };
        self.settings.section.peers.get(place?).map(|name| &**name)
    }

    /// What tells the section from others, for traces.
    pub(crate) fn number(&self) -> u64 {
        Arc::as_ptr(&self.settings.section) as usize as u64
    }

    /// A section whose peers are not connected yet.
    pub fn new(settings: Settings, now: u64) -> Group {
        let section = &settings.section;
        let tables = section.tables.len();
        let local = section.peers.iter().position(|name| *name == section.local);
        let peers = (0..section.peers.len()).map(|place| {
            let part = settings.parts.get(place).copied().unwrap_or(0);
            let counts = part > 0 && part <= settings.shards && Some(place) != local;
            Peer {
                part: counts.then_some((part, settings.shards)),
                link: None,
                dialing: None,
                retry: now,
                known: vec![0; tables].into(),
                process: None,
                met: false,
                partial: false,
                minor: 1,
                last: None,
                established: None,
                sessions: 0,
                collisions: 0,
                breaches: 0,
                timeouts: 0,
            }
        });
        let peers: Vec<Peer> = peers.collect();
        let mut group = Group {
            local,
            peers,
            lines: BTreeMap::new(),
            next_link: 1,
            resync: Resync::new(settings.successor && local.is_some(), now),
            asked: None,
            life: settings.process,
            stopping: None,
            parting: Parting::default(),
            before: None,
            keeps_predecessor: false,
            commands: VecDeque::new(),
            random: fastrand::Rng::with_seed(settings.seed),
            settings,
        };
        group.tick(now);
        group
    }

    /// What is to be done outside, one after the other.
    pub fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// A connection that has something to say now though nothing came over it: [`output`](Self::output) is
    /// to be called for it.
    pub fn asked(&mut self) -> Option<Link> {
        self.asked.take()
    }

    /// How far this process is in learning what was known before it began.
    pub fn stage(&self) -> Stage {
        self.resync.stage()
    }

    fn add(&mut self, line: Line) -> Link {
        let link = self.next_link;
        self.next_link += 1;
        self.lines.insert(link, line);
        link
    }

    /// Somebody connected. `None`: too many have who do not say who they are; close it.
    pub fn accept(&mut self, now: u64) -> Option<Link> {
        let strangers =
            self.lines.values().filter(|line| matches!(line, Line::Up(session) if !session.is_open()));
        if self.stopping.is_some() || strangers.count() >= STRANGERS + 2 * self.peers.len() {
            return None;
        }
        let session = Session::server(&self.settings.section, now);
        Some(self.add(Line::Up(Box::new(session))))
    }

    /// The connection that was asked for stands.
    pub fn connected(&mut self, link: Link, now: u64) {
        let Some(line) = self.lines.get_mut(&link) else { return };
        let Line::Dialing(peer, _) = *line else { return };
        let minor = self.peers[peer].minor;
        let session = Session::client_of_version(minor, &self.settings.section, peer, self.life, now);
        *line = Line::Up(Box::new(session));
    }

    /// A connection is gone, or was not to be had.
    pub fn closed(&mut self, link: Link, now: u64) {
        match self.lines.remove(&link) {
            Some(Line::Dialing(peer, _)) => {
                self.peers[peer].dialing = None;
                self.peers[peer].retry = now + RETRY;
                self.missed(peer, now);
            }
            Some(Line::Up(session)) => {
                let over = Over::Ended;
                self.part(link, &session, over, now);
            }
            Some(Line::Closing(_) | Line::Abandoned) | None => {}
        }
    }

    /// Bytes came over a connection.
    pub fn receive(&mut self, link: Link, bytes: &[u8], now: u64, tables: &mut impl Tables) {
        let Some(Line::Up(session)) = self.lines.get_mut(&link) else { return };
        session.receive(bytes, now, tables);
        if let Some(peer) = session.greeted() {
            let status = self.judge(peer, link, now);
            let Some(Line::Up(session)) = self.lines.get_mut(&link) else { return };
            session.welcome(status);
            self.events(link, now);
            if let Some(Line::Up(session)) = self.lines.get_mut(&link) {
                session.resume_input(now, tables);
            }
        }
        self.events(link, now);
        self.part_if_done(tables);
    }

    /// Appends what is to be sent over a connection, until `out` has `limit` bytes, give or take one
    /// message. Called again until it appends nothing.
    pub fn output(
        &mut self,
        link: Link,
        out: &mut Vec<u8>,
        limit: usize,
        now: u64,
        tables: &mut impl Tables,
    ) {
        let up_to_date = self.resync.is_finished();
        if let Some(Line::Up(session) | Line::Closing(session)) = self.lines.get_mut(&link) {
            session.output(out, limit, up_to_date, now, tables);
        }
    }

    /// When [`tick`](Self::tick) is to be called, and then [`output`](Self::output) for all connections.
    pub fn next(&self) -> Option<u64> {
        let lines = self.lines.values().filter_map(|line| match line {
            Line::Dialing(_, since) => Some(since + TIMEOUT),
            Line::Up(session) => session.next(),
            Line::Closing(_) | Line::Abandoned => None,
        });
        let idle =
            (0..self.peers.len()).filter(|peer| self.is_wanted(*peer)).map(|peer| self.peers[peer].retry);
        lines.chain(idle).chain(self.resync.next()).chain(self.parting.next()).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: u64) {
        let links: Vec<Link> = self.lines.keys().copied().collect();
        for link in links {
            match self.lines.get_mut(&link) {
                Some(Line::Dialing(peer, since)) if now >= *since + TIMEOUT => {
                    let peer = *peer;
                    self.abandon(link);
                    self.peers[peer].dialing = None;
                    self.peers[peer].retry = now + self.random.u64(50..2050);
                    self.missed(peer, now);
                }
                Some(Line::Up(session)) => {
                    session.tick(now);
                    self.events(link, now);
                }
                _ => {}
            }
        }
        self.resync.tick(now);
        if self.parting.is_late(now) {
            self.part_for_good();
        }
        self.choose_teacher();
        for peer in 0..self.peers.len() {
            if self.is_wanted(peer) && now >= self.peers[peer].retry {
                let link = self.add(Line::Dialing(peer, now));
                self.peers[peer].dialing = Some(link);
                self.commands.push_back(Command::Connect { peer, link });
            }
        }
    }

    /// Whether a peer is to be connected to, now or later.
    fn is_wanted(&self, peer: usize) -> bool {
        let idle = self.peers[peer].link.is_none() && self.peers[peer].dialing.is_none();
        let right = match self.stopping {
            Some(tries) => Some(peer) == self.local && tries > 0,
            // Others have their turn when the process before this one has had its own.
            None => Some(peer) != self.local && self.local.is_some() && !self.resync.is_local(),
        };
        idle && right
    }

    /// The process ends: it leaves the others, and teaches its successor. Changes that are still made
    /// are sent to it until [`drained`](Self::drained).
    pub fn stop(&mut self, tries: u32, now: u64) {
        if self.stopping.is_some() {
            return;
        }
        let links: Vec<Link> = self.lines.keys().copied().collect();
        for link in links {
            match self.lines.get_mut(&link) {
                Some(Line::Up(session)) => {
                    session.finish();
                    self.events(link, now);
                }
                Some(Line::Dialing(..)) => self.abandon(link),
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

    fn abandon(&mut self, link: Link) {
        self.lines.insert(link, Line::Abandoned);
        self.commands.push_back(Command::Close(link));
    }

    /// How a greeting is answered.
    fn judge(&mut self, peer: usize, link: Link, now: u64) -> Status {
        let standing = self.peers[peer].link;
        if self.stopping.is_some() {
            return Status::TryAgain;
        }
        if Some(peer) == self.local {
            return if standing.is_some() { Status::TryAgain } else { Status::Success };
        }
        if self.resync.is_local() {
            return Status::TryAgain;
        }
        // The last to connect wins: the peer would not connect if the other were good.
        if let Some(standing) = standing.filter(|standing| *standing != link) {
            self.peers[peer].collisions += 1;
            self.finish(standing, now);
        }
        Status::Success
    }

    fn finish(&mut self, link: Link, now: u64) {
        if let Some(Line::Up(session)) = self.lines.get_mut(&link) {
            session.finish();
            self.events(link, now);
        }
    }

    /// Does what follows from what happened in a session.
    fn events(&mut self, link: Link, now: u64) {
        let Some(Line::Up(session)) = self.lines.get_mut(&link) else { return };
        let peer = session.peer();
        for event in session.take_events() {
            match (event, peer) {
                (Event::Established { peer, process }, _) => self.established(link, peer, process, now),
                (Event::ResyncFinished, Some(peer)) => self.taught(link, peer, true, now),
                (Event::ResyncPartial, Some(peer)) => self.taught(link, peer, false, now),
                (Event::ResyncConfirmed, Some(peer))
                    if self.stopping.is_some() && Some(peer) == self.local =>
                {
                    // No other process is taught: it would add the same counts again.
                    self.stopping = Some(0);
                    self.parting.taught(now);
                }
                (Event::Over(over), _) => self.over(link, over, now),
                _ => {}
            }
        }
    }

    fn established(&mut self, link: Link, place: usize, process: Option<u32>, now: u64) {
        let from_here = process.is_none();
        if let Some(other) = self.peers[place].link.filter(|other| *other != link) {
            // Both connected at once: both sides keep the connection of the same one.
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
        peer.sessions += 1;
        peer.last = None;
        if process.is_some() && peer.process != process {
            // Another process, or one of which nothing is known.
            peer.known.fill(0);
            peer.process = process;
        }
        let Some(Line::Up(session)) = self.lines.get_mut(&link) else { return };
        session.resume(&peer.known, peer.part);
        if stopping {
            session.is_with(Origin::Successor);
            session.teach_all();
        } else if Some(place) == self.local {
            session.is_with(if adds { Origin::Predecessor } else { Origin::Local });
            self.resync.local_came(process);
        } else if first && !from_here && self.life == self.settings.process {
            // It may take this process for the one that was here before.
            session.request_resync();
        }
        self.choose_teacher();
    }

    /// Asks a peer for everything, when one is to be asked.
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
            && let Some(Line::Up(session)) = self.lines.get_mut(&link)
        {
            session.request_resync();
            self.resync.assigned(link);
            self.asked = Some(link);
        }
    }

    /// A peer has taught everything, or all that it knows.
    fn taught(&mut self, link: Link, place: usize, everything: bool, now: u64) {
        if Some(place) == self.local {
            if let Some(life) = self.resync.local_taught(everything, now) {
                self.life = life;
            }
        } else if self.resync.taught(link, everything, now) && !everything {
            self.peers[place].partial = true;
        }
        self.choose_teacher();
    }

    /// A session is over: its connection is closed once its last words are sent.
    fn over(&mut self, link: Link, over: Over, now: u64) {
        let Some(Line::Up(session)) = self.lines.remove(&link) else { return };
        self.part(link, &session, over, now);
        self.lines.insert(link, Line::Closing(session));
        self.commands.push_back(Command::Close(link));
    }

    /// A session has ended, in whatever way.
    fn part(&mut self, link: Link, session: &Session, over: Over, now: u64) {
        self.resync.left(link, now);
        let Some(place) = session.peer() else { return };
        let delay = self.random.u64(50..2050);
        let tables = self.settings.section.tables.len();
        let peer = &mut self.peers[place];
        if !matches!(over, Over::Ended) {
            peer.last = Some(over);
        }
        if over == Over::Refused(Status::Version) && peer.dialing == Some(link) {
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
