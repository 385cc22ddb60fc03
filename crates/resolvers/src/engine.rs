//! The state machine of one `resolvers` section, without sockets or clock (manual, section 5.3.2). Its inputs are names, answers
//! and the time; its outputs are queries to send and finished resolutions. `task` does the I/O.
//!
//! All name servers are queried at once, and the first valid answer is used. When all have answered with an error, the other
//! address family is queried. After that, or if answers are missing, the query is repeated after `timeout retry`, `resolve_retries`
//! times in all.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base::address::Family;
use hickory_proto::rr::Name;
use plan::Resolvers;
use slab::Slab;
use state::resolvers::Counters;

use crate::message::{self, Data, DnsAnswer, DnsQuestion, Flaw};

/// The maximum number of queries in flight. Their ids have 16 bits, and a free one must be found quickly, because clients control
/// how many names `do-resolve` queries.
const MOST_QUESTIONS: usize = 1 << 15;

/// The key of a resolution: the name in lower case and the kind of query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NameKey {
    pub(crate) name: Box<str>,
    pub(crate) kind: QueryKind,
}

/// Addresses, with the preferred family, or SRV records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum QueryKind {
    Address(Family),
    Service,
}

impl NameKey {
    pub(crate) fn new(name: &str, kind: QueryKind) -> Self {
        Self { name: name.to_ascii_lowercase().into(), kind }
    }
}

/// The address families to query (`dns-accept-family`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Families {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Families {
    /// Returns the first question, and the second one if there is one.
    fn questions(self, kind: QueryKind) -> (DnsQuestion, Option<DnsQuestion>) {
        match (kind, self.v4, self.v6) {
            (QueryKind::Service, ..) => (DnsQuestion::Srv, None),
            (QueryKind::Address(_), true, false) => (DnsQuestion::A, None),
            (QueryKind::Address(_), false, true) => (DnsQuestion::Aaaa, None),
            (QueryKind::Address(Family::V4), ..) => (DnsQuestion::A, Some(DnsQuestion::Aaaa)),
            (QueryKind::Address(Family::V6), ..) => (DnsQuestion::Aaaa, Some(DnsQuestion::A)),
        }
    }
}

/// The status of the last resolution of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResolutionStatus {
    /// Not resolved yet.
    Unknown,
    /// A valid answer.
    Valid,
    /// The name does not exist.
    NoName,
    /// No server answered.
    Timeout,
    /// All servers refused.
    Refused,
    /// Any other error.
    Other,
}

/// An action for the caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EngineOutput {
    /// Send a query to a name server, over a stream connection if `stream`.
    Send { nameserver: usize, id: u16, bytes: Arc<[u8]>, stream: bool },
    /// A resolution ended; `by` is the name server that answered.
    Ended { resolution: usize, by: Option<usize> },
}

/// A record from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedRecord {
    pub(crate) data: Data,
    /// When an answer last contained it.
    seen: u64,
}

/// A name and its cached records.
#[derive(Debug)]
pub(crate) struct Resolution {
    pub(crate) key: NameKey,
    pub(crate) status: ResolutionStatus,
    /// When the last valid answer arrived.
    pub(crate) last_valid: Option<u64>,
    /// When the name was first followed.
    since: u64,
    pub(crate) records: Vec<CachedRecord>,
    wire: Name,
    /// The number of followers. While there are any, the name is resolved periodically.
    followers: usize,
    asking: Option<Asking>,
    /// When the last resolution ended, successful or not.
    ended: u64,
    /// When the resolution needs attention next.
    due: u64,
}

/// A query in progress.
#[derive(Debug)]
struct Asking {
    /// The query id, once the query is sent.
    id: Option<u16>,
    asked: DnsQuestion,
    preferred: DnsQuestion,
    other: Option<DnsQuestion>,
    /// How many retries are left.
    tries: u32,
    /// Which name servers have not answered yet.
    open: Vec<bool>,
    answers: usize,
    status: ResolutionStatus,
}

/// The engine of a section.
pub(crate) struct ResolverEngine {
    settings: Arc<Resolvers>,
    pub(crate) families: Families,
    /// Whether names are resolved periodically. They are not in a stopping process.
    pub(crate) refresh: bool,
    resolutions: Slab<Resolution>,
    known: HashMap<NameKey, usize>,
    questions: HashMap<u16, usize>,
    /// When each resolution must be handled. Entries that differ from its `due` are stale.
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    random: fn() -> u16,
}

fn ms(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

impl ResolverEngine {
    /// Returns an engine without any names; `random` generates query ids.
    pub(crate) fn new(settings: Arc<Resolvers>, families: Families, random: fn() -> u16) -> Self {
        Self {
            settings,
            families,
            refresh: true,
            resolutions: Slab::new(),
            known: HashMap::new(),
            questions: HashMap::new(),
            agenda: BinaryHeap::new(),
            random,
        }
    }

    /// Returns a resolution, if it exists.
    pub(crate) fn get(&self, resolution: usize) -> Option<&Resolution> {
        self.resolutions.get(resolution)
    }

    /// Starts resolving a name periodically. Returns `None` if the name is invalid.
    pub(crate) fn follow(&mut self, key: NameKey, now: u64, out: &mut Vec<EngineOutput>) -> Option<usize> {
        let index = self.enter(key)?;
        let resolution = &mut self.resolutions[index];
        if resolution.followers == 0 && resolution.last_valid.is_none() {
            resolution.since = now;
        }
        resolution.followers += 1;
        if self.resolutions[index].status == ResolutionStatus::Unknown {
            self.begin(index, now, out);
        }
        self.schedule(index, now);
        Some(index)
    }

    /// Removes a follower.
    pub(crate) fn leave(&mut self, index: usize, now: u64) {
        let Some(resolution) = self.resolutions.get_mut(index) else { return };
        resolution.followers = resolution.followers.saturating_sub(1);
        self.schedule(index, now);
    }

    /// Resolves a followed name at once, unless a query is in progress or the last valid answer is more recent than `hold valid`.
    pub(crate) fn sooner(&mut self, index: usize, now: u64, out: &mut Vec<EngineOutput>) {
        let fresh = ms(self.settings.hold.valid);
        if self.resolutions.get(index).is_some_and(|known| now >= known.ended + fresh) {
            self.begin(index, now, out);
        }
    }

    /// Resolves a name once. The second value is true if the cached answer is fresh (`hold valid`); otherwise the caller waits for
    /// `Ended`. Returns `None` if the name is invalid, or if it is new and the maximum number of queries is in flight.
    pub(crate) fn once(
        &mut self,
        key: NameKey,
        now: u64,
        out: &mut Vec<EngineOutput>,
    ) -> Option<(usize, bool)> {
        if self.questions.len() >= MOST_QUESTIONS && !self.known.contains_key(&key) {
            return None;
        }
        let index = self.enter(key)?;
        let resolution = &mut self.resolutions[index];
        let until = resolution.last_valid.map(|at| at + ms(self.settings.hold.valid));
        if resolution.status == ResolutionStatus::Valid && until.is_some_and(|until| now < until) {
            return Some((index, true));
        }
        self.begin(index, now, out);
        Some((index, false))
    }

    fn enter(&mut self, key: NameKey) -> Option<usize> {
        if let Some(index) = self.known.get(&key) {
            return Some(*index);
        }
        let wire = message::parse_name(&key.name)?;
        let index = self.resolutions.insert(Resolution {
            key: key.clone(),
            status: ResolutionStatus::Unknown,
            last_valid: None,
            since: 0,
            records: Vec::new(),
            wire,
            followers: 0,
            asking: None,
            ended: 0,
            due: u64::MAX,
        });
        self.known.insert(key, index);
        Some(index)
    }

    fn begin(&mut self, index: usize, now: u64, out: &mut Vec<EngineOutput>) {
        let resolution = &mut self.resolutions[index];
        if resolution.asking.is_some() {
            return;
        }
        if self.questions.len() >= MOST_QUESTIONS {
            return self.fail(index, ResolutionStatus::Other, None, now, out);
        }
        let (preferred, other) = self.families.questions(resolution.key.kind);
        resolution.asking = Some(Asking {
            id: None,
            asked: preferred,
            preferred,
            other,
            tries: self.settings.retries.saturating_sub(1),
            open: Vec::new(),
            answers: 0,
            status: ResolutionStatus::Timeout,
        });
        self.send(index, now, out);
    }

    /// Sends the current question to all name servers.
    fn send(&mut self, index: usize, now: u64, out: &mut Vec<EngineOutput>) {
        let mut id = (self.random)();
        while self.questions.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        let resolution = &mut self.resolutions[index];
        let Some(asking) = &mut resolution.asking else { return };
        if let Some(old) = asking.id.replace(id) {
            self.questions.remove(&old);
        }
        self.questions.insert(id, index);
        asking.answers = 0;
        asking.open = vec![true; self.settings.nameservers.len()];
        let bytes: Arc<[u8]> =
            message::question(id, &resolution.wire, asking.asked, self.settings.payload_size).into();
        for (nameserver, place) in self.settings.nameservers.iter().enumerate() {
            self.settings.state.nameservers[nameserver].counters.sent.add(1);
            out.push(EngineOutput::Send { nameserver, id, bytes: bytes.clone(), stream: place.stream });
        }
        let due = now + ms(self.settings.retry);
        resolution.due = due;
        self.agenda.push(Reverse((due, index)));
    }

    /// Schedules the next event of an idle resolution: its refresh, or its removal if it has no followers.
    fn schedule(&mut self, index: usize, now: u64) {
        let resolution = &mut self.resolutions[index];
        if resolution.asking.is_some() {
            return;
        }
        let pause = if resolution.followers > 0 { self.settings.every } else { self.settings.hold.valid };
        resolution.due = now + ms(pause);
        self.agenda.push(Reverse((resolution.due, index)));
    }

    /// Returns when [`tick`](Self::tick) must be called next.
    pub(crate) fn next(&self) -> Option<u64> {
        self.agenda.peek().map(|Reverse((due, _))| *due)
    }

    /// Handles everything that is due at `now`.
    pub(crate) fn tick(&mut self, now: u64, out: &mut Vec<EngineOutput>) {
        while let Some(&Reverse((due, index))) = self.agenda.peek() {
            if due > now {
                return;
            }
            self.agenda.pop();
            match self.resolutions.get(index) {
                Some(resolution) if resolution.due == due => {}
                _ => continue,
            }
            let resolution = &mut self.resolutions[index];
            resolution.due = u64::MAX;
            if resolution.asking.is_some() {
                self.overdue(index, now, out);
            } else if resolution.followers > 0 && !self.refresh {
                self.schedule(index, now);
            } else if resolution.followers > 0 {
                self.begin(index, now, out);
            } else {
                let gone = self.resolutions.remove(index);
                self.known.remove(&gone.key);
            }
        }
    }

    /// Handles the expiry of `timeout retry` after a query.
    fn overdue(&mut self, index: usize, now: u64, out: &mut Vec<EngineOutput>) {
        let Some(asking) = &mut self.resolutions[index].asking else { return };
        for (nameserver, open) in asking.open.iter().enumerate() {
            if *open {
                self.settings.state.nameservers[nameserver].counters.timeout.add(1);
            }
        }
        // No server answered, or both families were queried, so this starts from the beginning.
        if asking.answers == 0 || asking.asked != asking.preferred || asking.other.is_none() {
            if asking.tries == 0 {
                let status = if asking.answers == 0 { ResolutionStatus::Timeout } else { asking.status };
                self.fail(index, status, None, now, out);
                return;
            }
            asking.tries -= 1;
            asking.asked = asking.preferred;
        } else if let Some(other) = asking.other {
            asking.asked = other;
        }
        self.send(index, now, out);
    }

    /// Handles a query that could not be sent.
    pub(crate) fn not_sent(&mut self, nameserver: usize, id: u16) {
        self.counters(nameserver).send_errors.add(1);
        let asking = self.questions.get(&id).and_then(|index| self.resolutions[*index].asking.as_mut());
        if let Some(open) = asking.and_then(|asking| asking.open.get_mut(nameserver)) {
            *open = false;
        }
    }

    fn counters(&self, nameserver: usize) -> &Counters {
        &self.settings.state.nameservers[nameserver].counters
    }

    /// Handles an answer from a name server; `stream` if a stream connection received it.
    pub(crate) fn receive(
        &mut self,
        nameserver: usize,
        bytes: &[u8],
        stream: bool,
        now: u64,
        out: &mut Vec<EngineOutput>,
    ) {
        let Some(id) = message::answer_id(bytes) else {
            self.counters(nameserver).invalid.add(1);
            return;
        };
        let asked = self.questions.get(&id).copied().filter(|index| {
            let asking = self.resolutions[*index].asking.as_ref();
            asking.is_some_and(|asking| asking.open.get(nameserver).is_some_and(|open| *open))
        });
        let Some(index) = asked else {
            self.counters(nameserver).outdated.add(1);
            return;
        };
        let payload_size = usize::from(self.settings.payload_size);
        let resolution = &mut self.resolutions[index];
        let Some(asking) = &mut resolution.asking else { return };
        let read = match bytes.len() > payload_size && !stream {
            true => None,
            false => Some(message::read(bytes, &resolution.wire, asking.asked)),
        };
        let counters = &self.settings.state.nameservers[nameserver].counters;
        if read == Some(Err(Flaw::Truncated)) && !stream {
            counters.truncated.add(1);
            let bytes =
                message::question(id, &resolution.wire, asking.asked, self.settings.payload_size).into();
            out.push(EngineOutput::Send { nameserver, id, bytes, stream: true });
            return;
        }
        asking.open[nameserver] = false;
        asking.answers += 1;
        match read {
            Some(Ok(answer)) => {
                counters.valid.add(1);
                counters.cname.add(u64::from(answer.alias));
                self.succeed(index, nameserver, answer, now, out);
            }
            Some(Err(flaw)) => {
                let (count, status) = match flaw {
                    Flaw::Invalid => (&counters.invalid, ResolutionStatus::Other),
                    Flaw::NoName => (&counters.nx, ResolutionStatus::NoName),
                    Flaw::Refused => (&counters.refused, ResolutionStatus::Refused),
                    Flaw::Empty => (&counters.any_err, ResolutionStatus::Other),
                    Flaw::Alias => (&counters.cname_error, ResolutionStatus::Other),
                    Flaw::Truncated => (&counters.truncated, ResolutionStatus::Other),
                    Flaw::Other => (&counters.other, ResolutionStatus::Other),
                };
                count.add(1);
                self.flawed(index, nameserver, status, now, out);
            }
            None => {
                counters.too_big.add(1);
                self.flawed(index, nameserver, ResolutionStatus::Other, now, out);
            }
        }
    }

    /// Handles an error answer of a name server.
    fn flawed(
        &mut self,
        index: usize,
        nameserver: usize,
        status: ResolutionStatus,
        now: u64,
        out: &mut Vec<EngineOutput>,
    ) {
        let Some(asking) = &mut self.resolutions[index].asking else { return };
        asking.status = status;
        if asking.open.iter().any(|open| *open) {
            return;
        }
        match asking.other {
            Some(other) if asking.asked == asking.preferred => {
                asking.asked = other;
                self.send(index, now, out);
            }
            _ if asking.tries == 0 => self.fail(index, status, Some(nameserver), now, out),
            // The query is repeated after `timeout retry`.
            _ => {}
        }
    }

    fn fail(
        &mut self,
        index: usize,
        status: ResolutionStatus,
        by: Option<usize>,
        now: u64,
        out: &mut Vec<EngineOutput>,
    ) {
        self.resolutions[index].status = status;
        self.end(index, by, now, out);
    }

    fn succeed(
        &mut self,
        index: usize,
        nameserver: usize,
        answer: DnsAnswer,
        now: u64,
        out: &mut Vec<EngineOutput>,
    ) {
        let resolution = &mut self.resolutions[index];
        resolution.status = ResolutionStatus::Valid;
        resolution.last_valid = Some(now);
        let places = resolution.records.iter().enumerate().map(|(place, kept)| (kept.data.subject(), place));
        let mut places: HashMap<_, _> = places.collect();
        for data in answer.records {
            let next = resolution.records.len();
            match *places.entry(data.subject()).or_insert(next) {
                place if place < next => resolution.records[place] = CachedRecord { data, seen: now },
                _ => resolution.records.push(CachedRecord { data, seen: now }),
            }
        }
        let obsolete = ms(self.settings.hold.obsolete);
        resolution.records.retain(|kept| kept.seen == now || now < kept.seen + obsolete);
        self.end(index, Some(nameserver), now, out);
    }

    fn end(&mut self, index: usize, by: Option<usize>, now: u64, out: &mut Vec<EngineOutput>) {
        let resolution = &mut self.resolutions[index];
        resolution.ended = now;
        if let Some(id) = resolution.asking.take().and_then(|asking| asking.id) {
            self.questions.remove(&id);
        }
        out.push(EngineOutput::Ended { resolution: index, by });
        self.schedule(index, now);
    }

    /// Drops the cached records of a name, because its last valid answer is too old to outweigh the error.
    pub(crate) fn forget_records(&mut self, index: usize) {
        if let Some(resolution) = self.resolutions.get_mut(index) {
            resolution.records.clear();
        }
    }

    /// Returns whether the last valid answer still outweighs the current status (`hold`). Before the first answer, the period begins
    /// when the name is first followed, so that a server keeps the address that it had.
    pub(crate) fn is_held(&self, resolution: &Resolution, now: u64) -> bool {
        let hold = &self.settings.hold;
        let period = match resolution.status {
            ResolutionStatus::Unknown | ResolutionStatus::Valid => return true,
            ResolutionStatus::NoName => hold.nx,
            ResolutionStatus::Timeout => hold.timeout,
            ResolutionStatus::Refused => hold.refused,
            ResolutionStatus::Other => hold.other,
        };
        now < resolution.last_valid.unwrap_or(resolution.since) + ms(period)
    }
}

#[cfg(test)]
mod tests;
