//! A section running on its worker: connects the engine to its sockets, its clock, its servers and the callers of single lookups.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::address::Family;
use base::clock::now_ms;
use plan::Plan;
use plan::Resolvers;
use plan::resolvers::{AcceptFamily, Wishes};
use runtime::timer::{NEVER, Timer};
use state::{Process, Server};
use tokio::sync::{Notify, oneshot};

use crate::ResolverCallbacks;
use crate::choose::{Choice, choose};
use crate::engine::{EngineOutput, NameKey, QueryKind, ResolutionStatus, ResolverEngine};
use crate::families;
use crate::message::Data;
use crate::servers::{EngineTurn, Followers};
use crate::transport::{Hear, OutgoingQuestion, Ways};

thread_local! {
    /// The sections of the calling worker, by their index in the plan.
    static DESKS: RefCell<HashMap<usize, Rc<ResolverMailbox>>> = RefCell::default();
}

/// Receives the answer of a single lookup.
type PendingReply = oneshot::Sender<Option<IpAddr>>;

/// The entry point of a section.
struct ResolverMailbox {
    accept: AcceptFamily,
    process: Arc<Process>,
    work: RefCell<ResolverWork>,
    /// Set when another plan is in use.
    is_over: Cell<bool>,
    /// Notified when the time of the next engine event may have changed.
    changed: Notify,
}

struct ResolverWork {
    engine: ResolverEngine,
    followers: Followers,
    ways: Vec<Ways>,
    waiting: HashMap<usize, Vec<(Option<Family>, PendingReply)>>,
    /// Until when the accepted families are cached.
    families_until: u64,
}

/// Starts the section at `place` of `plan`.
pub(crate) fn begin(
    place: usize,
    section: &Arc<Resolvers>,
    plan: &Arc<Plan>,
    process: &Arc<Process>,
    callbacks: &ResolverCallbacks,
) {
    let accept = plan.global.dns_accept_family;
    let engine = ResolverEngine::new(section.clone(), families::accepted(accept), random);
    let followers = Followers::new(section, plan, callbacks);
    let families_until = now_ms() + families::GOOD_FOR;
    let work = ResolverWork { engine, followers, ways: Vec::new(), waiting: HashMap::new(), families_until };
    let desk = Rc::new(ResolverMailbox {
        accept,
        process: process.clone(),
        work: RefCell::new(work),
        is_over: Cell::new(false),
        changed: Notify::new(),
    });
    let ways = section
        .nameservers
        .iter()
        .enumerate()
        .map(|(number, nameserver)| Ways::new(number, nameserver, section.payload_size, &desk));
    desk.work.borrow_mut().ways = ways.collect();
    DESKS.with_borrow_mut(|desks| desks.insert(place, desk.clone()));
    let own = runtime::current_worker();
    for (at, server) in desk.work.borrow().followers.servers().enumerate() {
        server.on_doubt(move || {
            runtime::worker::post(own, move || doubt(place, at));
        });
    }
    if !desk.work.borrow().followers.is_empty() {
        desk.turn(|work, out| work.begin(out));
    }
    tokio::task::spawn_local(desk.watch());
}

/// Returns an unpredictable id, so that an attacker who does not see the query cannot answer it.
fn random() -> u16 {
    use aws_lc_rs::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; 2];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u16::from_be_bytes(bytes),
        Err(_) => fastrand::u16(..),
    }
}

/// Stops the section at `place`; pending lookups get no answer.
pub(crate) fn end(place: usize) {
    let Some(desk) = DESKS.with_borrow_mut(|desks| desks.remove(&place)) else { return };
    desk.is_over.set(true);
    let mut work = desk.work.borrow_mut();
    work.ways.clear();
    work.waiting.clear();
    drop(work);
    desk.changed.notify_one();
}

/// Looks up one address of `name`.
pub(crate) fn lookup(place: usize, name: &str, prefer: Option<Family>, send: PendingReply) {
    let Some(desk) = desk(place) else { return };
    desk.turn(|work, out| work.lookup(name, prefer, send, out));
}

/// Gives a server another host name.
pub(crate) fn rename(place: usize, backend: &str, server: &Arc<Server>, name: &str) {
    let Some(desk) = desk(place) else { return };
    desk.turn(|work, out| {
        let mut turn = EngineTurn { engine: &mut work.engine, now: now_ms(), out };
        work.followers.rename(backend, server, name, &mut turn);
    });
}

/// Resolves the name of a section's server sooner.
fn doubt(place: usize, at: usize) {
    let Some(desk) = desk(place) else { return };
    desk.turn(|work, out| {
        let mut turn = EngineTurn { engine: &mut work.engine, now: now_ms(), out };
        work.followers.doubt(at, &mut turn);
    });
}

fn desk(place: usize) -> Option<Rc<ResolverMailbox>> {
    DESKS.with_borrow(|desks| desks.get(&place).cloned())
}

impl ResolverMailbox {
    /// Calls `act` with the engine and carries out the resulting output.
    fn turn(&self, act: impl FnOnce(&mut ResolverWork, &mut Vec<EngineOutput>)) {
        let work = &mut *self.work.borrow_mut();
        let mut out = Vec::new();
        work.engine.refresh = !self.process.stopping.load(Relaxed);
        if now_ms() >= work.families_until {
            work.engine.families = families::accepted(self.accept);
            work.families_until = now_ms() + families::GOOD_FOR;
        }
        act(work, &mut out);
        work.carry_out(out);
        self.changed.notify_one();
    }

    /// Calls the engine whenever something in it is due.
    async fn watch(self: Rc<Self>) {
        let timer = Timer::new();
        loop {
            timer.set(self.work.borrow().engine.next().unwrap_or(NEVER));
            tokio::select! {
                () = self.changed.notified() => {
                    if self.is_over.get() {
                        return;
                    }
                }
                () = timer.expired() => self.turn(|work, out| work.engine.tick(now_ms(), out)),
            }
        }
    }
}

impl Hear for ResolverMailbox {
    fn received(&self, nameserver: usize, bytes: &[u8], stream: bool) {
        self.turn(|work, out| work.engine.receive(nameserver, bytes, stream, now_ms(), out));
    }

    fn not_sent(&self, nameserver: usize, id: u16) {
        self.turn(|work, _| work.engine.not_sent(nameserver, id));
    }
}

impl ResolverWork {
    fn begin(&mut self, out: &mut Vec<EngineOutput>) {
        self.followers.begin(&mut EngineTurn { engine: &mut self.engine, now: now_ms(), out });
    }

    fn lookup(
        &mut self,
        name: &str,
        prefer: Option<Family>,
        send: PendingReply,
        out: &mut Vec<EngineOutput>,
    ) {
        let key = NameKey::new(name, QueryKind::Address(prefer.unwrap_or(Family::V6)));
        match self.engine.once(key, now_ms(), out) {
            Some((resolution, true)) => self.answer(resolution, prefer, send),
            Some((resolution, false)) => {
                self.waiting.entry(resolution).or_default().push((prefer, send));
            }
            // When the sender is dropped, the receiver learns that there is no address.
            None => {}
        }
    }

    fn answer(&self, resolution: usize, prefer: Option<Family>, send: PendingReply) {
        let known = self.engine.get(resolution).filter(|known| known.status == ResolutionStatus::Valid);
        let address = known.and_then(|known| {
            let addresses = known.records.iter().filter_map(|kept| match kept.data {
                Data::Address(address) => Some(address),
                Data::Service(_) => None,
            });
            match choose(addresses, &Wishes { prefer, ..Wishes::default() }, None, |_| false) {
                Choice::Take(address) => Some(address),
                Choice::Keep | Choice::Nothing => None,
            }
        });
        // The caller may no longer wait.
        let _ = send.send(address);
    }

    /// Sends queries and passes finished resolutions to the servers and lookups that wait for them, which may produce more output.
    fn carry_out(&mut self, mut out: Vec<EngineOutput>) {
        while !out.is_empty() {
            let mut more = Vec::new();
            for output in out {
                match output {
                    EngineOutput::Send { nameserver, id, bytes, stream } => {
                        // During a shutdown, the transports may no longer exist.
                        if let Some(way) = self.ways.get_mut(nameserver) {
                            way.send(OutgoingQuestion { id, bytes }, stream);
                        }
                    }
                    EngineOutput::Ended { resolution, by } => {
                        for (prefer, send) in self.waiting.remove(&resolution).unwrap_or_default() {
                            self.answer(resolution, prefer, send);
                        }
                        let mut turn = EngineTurn { engine: &mut self.engine, now: now_ms(), out: &mut more };
                        self.followers.ended(resolution, by, &mut turn);
                    }
                }
            }
            out = more;
        }
    }
}
