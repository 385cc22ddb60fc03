//! A response on its way into a store: its head is known, its body comes. Its memory counts from
//! the beginning. What does not come to its end is not kept.

use std::sync::Arc;
use std::task::Waker;

use http::Head;

use crate::flight::Lead;
use crate::freshness::{Lifetime, Now};
use crate::growing::{Feed, Growing};
use crate::identity::Identity;
use crate::object::{Object, StoredBody, blocks_of, memory};
use crate::request::CacheRequest;
use crate::room::Room;
use crate::settings::Hints;
use crate::spool::Spool;
use crate::store::{Store, kept_head};
use crate::times::FreshnessTimes;
use crate::vary::Variant;

/// What the object will be, apart from its body.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Under what number it is noted that it is being filled.
    pub(crate) number: u64,
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    pub(crate) head: Head,
    pub(crate) lifetime: Lifetime,
    /// Bytes of memory beside the body.
    pub(crate) fixed: u64,
}

/// A response on its way.
#[derive(Debug)]
pub struct Filling {
    store: Arc<Store>,
    /// Gone once it is kept, or cannot be.
    plan: Option<Box<Plan>>,
    /// Its length, where the server tells.
    length: Option<u64>,
    /// What came of it, where nobody reads it meanwhile.
    body: Vec<u8>,
    /// What came of it, where others may.
    growing: Option<Arc<Growing>>,
    /// Its way into a file, where memory does not hold it.
    spool: Option<Spool>,
    /// Bytes that came, and those that there is memory for.
    came: usize,
    counted: usize,
    /// What was taken for it.
    room: Room,
    /// Who is waited for by others.
    lead: Option<Lead>,
    began: Now,
}

impl Store {
    /// Begins to keep a response whose body has `length` bytes, if that is known. `None` where it is
    /// not to be kept, does not fit, or is being filled already.
    pub fn begin(
        self: &Arc<Self>,
        request: &CacheRequest,
        response: &Head,
        length: Option<u64>,
        now: Now,
    ) -> Option<Filling> {
        if !request.may_store {
            return None;
        }
        let variant = self.variant(request, response)?;
        let lifetime = Lifetime::of(response, &self.settings, now)?;
        let kept = kept_head(response);
        if self.settings.hints == Hints::Only {
            self.keep_hints(request, variant, &kept, lifetime, now);
            return None;
        }
        let fixed = memory(&kept, &request.key, &variant);
        let is_long = fixed + length.unwrap_or(0) > self.settings.max_object;
        if is_long && !self.files.as_ref().is_some_and(|files| files.is_open()) {
            return None;
        }
        let number = self.enter(request, &variant, now.ms)?;
        let (hash, key) = (request.hash, request.key.clone());
        let plan = Plan { number, hash, key, variant, head: kept, lifetime, fixed };
        match is_long {
            false => Filling::new(self.clone(), plan, length, now),
            true => Filling::long(self.clone(), plan, length, now),
        }
    }
}

impl Filling {
    pub(crate) fn new(store: Arc<Store>, plan: Plan, length: Option<u64>, began: Now) -> Option<Self> {
        let (plan, room) = (Some(Box::new(plan)), store.no_room());
        let (body, growing, spool, lead) = (Vec::new(), None, None, None);
        let mut own =
            Self { store, plan, length, body, growing, spool, came: 0, counted: 0, room, lead, began };
        let length = usize::try_from(length.unwrap_or(0)).ok()?;
        own.grow(length, began.ms).then_some(own)
    }

    /// One that goes into a file as it comes.
    fn long(store: Arc<Store>, plan: Plan, length: Option<u64>, began: Now) -> Option<Self> {
        let mut own = Self::new(store, plan, None, began)?;
        own.length = length;
        own.spool(length).then_some(own)
    }

    /// Begins to write it into a file; false where that cannot be.
    fn spool(&mut self, length: Option<u64>) -> bool {
        let (Some(plan), Some(files)) = (&self.plan, &self.store.files) else { return false };
        let of = (plan.hash, plan.key.clone(), plan.variant.clone(), plan.head.clone());
        self.spool = Spool::begin(files, of, FreshnessTimes::of(plan.lifetime, self.began), length);
        self.spool.is_some()
    }

    /// Has those who wait for `lead` wait for this, if that makes sense: what memory does not hold is
    /// asked for by each on their own until it is whole.
    pub fn lead(&mut self, lead: Option<Lead>) {
        match lead {
            Some(lead) if self.spool.is_some() => lead.pass(self.began.ms),
            lead => self.lead = lead,
        }
    }

    /// Takes the next bytes of the body. `now_ms` is of the monotonic clock.
    pub fn push(&mut self, data: &[u8], now_ms: u64) {
        if data.is_empty() {
            return;
        }
        let wanted = self.came + data.len();
        if self.plan.is_some() && self.spool.is_none() && wanted > self.counted {
            // Twice as much as there is, so that it is not moved often.
            let spare = self.counted.max(4096).min(self.most().saturating_sub(wanted));
            if wanted > self.most() || !self.grow(wanted + spare, now_ms) {
                self.outgrow(now_ms);
            }
        }
        self.came = wanted;
        if self.spool.as_mut().is_some_and(|spool| !spool.push(data)) {
            self.spool = None;
            self.leave();
        }
        if self.plan.is_none() || self.spool.is_some() {
            if let Some(growing) = &self.growing {
                growing.push(data, Some(self.counted.max(LEAST_WINDOW)));
            }
            return;
        }
        self.open();
        match &self.growing {
            Some(growing) => growing.push(data, None),
            None => {
                if wanted > self.body.capacity() {
                    self.body.reserve_exact(self.counted - self.body.len());
                }
                self.body.extend_from_slice(data);
            }
        }
    }

    /// Whether others read it while it is fetched. `filler` is woken when one begins or waits.
    pub fn poll_read(&self, filler: &Waker) -> bool {
        self.growing.as_ref().is_some_and(|growing| {
            growing.poll_wanted(filler);
            growing.is_read()
        })
    }

    /// Whether `bytes` more may be read before the client of its request has taken the earlier ones: they
    /// are kept anyway.
    pub fn may_run_ahead(&self, bytes: usize) -> bool {
        self.plan.is_some() && self.spool.is_none() && self.came.saturating_add(bytes) <= self.most()
    }

    /// Whether it may leave readers behind: only the latest part of it stays in memory, and no reader has
    /// taken all of that. `filler` is woken when one does.
    pub fn outruns(&self, filler: &Waker) -> bool {
        let is_short = self.plan.is_none() || self.spool.is_some();
        let growing = self.growing.as_ref().filter(|growing| is_short && growing.is_read());
        growing.is_some_and(|growing| !growing.poll_wanted(filler))
    }

    /// Whether it is worth fetching more, now that the client of its request is gone: it is to be kept, or
    /// a reader waits. `filler` is woken when one does.
    pub fn poll_wanted(&self, filler: &Waker) -> bool {
        let is_wanted = self.growing.as_ref().is_some_and(|growing| growing.poll_wanted(filler));
        is_wanted || self.plan.is_some()
    }

    /// A reader of the bytes that are still to come, if others may read them.
    pub fn follow(&self) -> Option<Feed> {
        self.growing.as_ref().map(Growing::feed_behind)
    }

    /// From its first bytes on, those who wait for it get it as it comes.
    fn open(&mut self) {
        let (Some(plan), Some(lead)) = (&self.plan, &self.lead) else { return };
        if self.growing.is_some() || self.store.settings.wait_ms == 0 {
            return;
        }
        let growing =
            Growing::new(plan.head.clone(), plan.variant.clone(), self.length, plan.lifetime, self.began);
        lead.open(growing.clone());
        self.growing = Some(growing);
    }

    /// It is too long to be kept in memory. Those who get it already go on, in as much of that as there
    /// is.
    fn outgrow(&mut self, now_ms: u64) {
        let so_far = match &self.growing {
            Some(growing) => growing.collect(),
            None => std::mem::take(&mut self.body),
        };
        if !self.spool(None) || self.spool.as_mut().is_some_and(|spool| !spool.push(&so_far)) {
            self.spool = None;
            self.leave();
        }
        drop(so_far);
        if let Some(lead) = self.lead.take() {
            lead.pass(now_ms);
        }
        self.growing = self.growing.take().filter(|growing| growing.is_read());
        if self.growing.is_none() {
            self.room = self.store.no_room();
        } else {
            // Where there is none, they may lag behind by less.
            _ = self.grow(WINDOW, now_ms);
        }
    }

    /// The body has come to its end: the response is kept. `now_ms` is of the monotonic clock.
    pub fn finish(&mut self, now_ms: u64) {
        let growing = self.growing.take();
        let Some(plan) = self.plan.take() else { return self.pass_by(growing) };
        if let Some(spool) = self.spool.take() {
            self.pass_by(growing);
            match spool.finish(&self.store, plan.number) {
                true => self.store.remove_shadowed(plan.hash, &plan.key, &plan.variant),
                false => _ = self.store.order().end(plan.hash, plan.number),
            }
            return;
        }
        let Plan { number, hash, key, variant, mut head, lifetime, fixed } = *plan;
        let body =
            growing.as_ref().map_or_else(|| std::mem::take(&mut self.body), |growing| growing.collect());
        head.append(b"content-length", body.len().to_string().as_bytes());
        head.shrink(0);
        // The line that was just added counts with the head.
        let room = self.room.split(blocks_of(fixed + body.len() as u64 + LENGTH_LINE));
        let times = FreshnessTimes::of(lifetime, self.began);
        let body = StoredBody::new(body.into_boxed_slice(), room);
        let identity = Identity { hash, key, variant };
        let object = Object::new(identity, head, body, times, self.store.no_room(), now_ms);
        // Who waits for what was taken out meanwhile asks anew.
        let (object, is_kept) = match self.store.insert(number, object) {
            Ok(object) => (object, true),
            Err(object) => (Arc::new(*object), false),
        };
        if let Some(growing) = growing {
            growing.end(object);
        }
        if let Some(lead) = self.lead.take().filter(|_| is_kept) {
            lead.keep();
        }
    }

    /// What memory does not keep is whole for those who get it.
    fn pass_by(&mut self, growing: Option<Arc<Growing>>) {
        if let Some(growing) = growing {
            growing.pass(std::mem::replace(&mut self.room, self.store.no_room()));
        }
    }

    /// Bytes that the body may have.
    fn most(&self) -> usize {
        let fixed = self.plan.as_ref().map_or(u64::MAX, |plan| plan.fixed);
        usize::try_from(self.store.settings.max_object.saturating_sub(fixed)).unwrap_or(usize::MAX)
    }

    /// Counts memory for so many bytes of the body.
    fn grow(&mut self, wanted: usize, now_ms: u64) -> bool {
        let fixed = self.plan.as_ref().map_or(0, |plan| plan.fixed);
        let missing = blocks_of(fixed + wanted as u64 + LENGTH_LINE).saturating_sub(self.room.blocks());
        if missing > 0 {
            let Some(more) = self.store.take(missing, now_ms) else { return false };
            self.room.add(more);
        }
        self.counted = self.counted.max(wanted);
        true
    }

    /// It is not kept.
    fn leave(&mut self) {
        if let Some(plan) = self.plan.take() {
            self.store.order().end(plan.hash, plan.number);
        }
    }
}

/// Of a response that turned out too long to be kept, so many bytes stay for those who get it already,
/// if there is memory.
const WINDOW: usize = 1 << 20;

/// And so many where there is none.
const LEAST_WINDOW: usize = 64 * 1024;

/// Bytes that `content-length` adds to a head, and what its memory may grow by for it.
const LENGTH_LINE: u64 = 128;

impl Drop for Filling {
    fn drop(&mut self) {
        self.leave();
        if let Some(growing) = self.growing.take() {
            growing.cut();
        }
    }
}
