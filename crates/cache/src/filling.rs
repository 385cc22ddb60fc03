//! A response that is being stored: its head is known, its body is arriving. Its memory is counted from the beginning. An
//! incomplete response is dropped.

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

/// The object to be stored, without its body.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The number under which the filling is registered.
    pub(crate) number: u64,
    pub(crate) hash: u64,
    pub(crate) key: Box<[u8]>,
    pub(crate) variant: Variant,
    pub(crate) head: Head,
    pub(crate) lifetime: Lifetime,
    /// Memory overhead excluding the body.
    pub(crate) fixed: u64,
}

/// A response being stored.
#[derive(Debug)]
pub struct Filling {
    store: Arc<Store>,
    /// The object to be stored; `None` once it is stored or has turned out not to be cacheable.
    plan: Option<Box<Plan>>,
    /// The length of the body, if the server declared it.
    length: Option<u64>,
    /// The body so far, if it has no other readers.
    body: Vec<u8>,
    /// The body so far, if it may have other readers.
    growing: Option<Arc<Growing>>,
    /// The file that is being written, if the response is too long for memory.
    spool: Option<Spool>,
    /// Bytes received, and bytes of memory accounted for.
    came: usize,
    counted: usize,
    /// The memory taken for the response.
    room: Room,
    /// Wakes the requests that wait for the response.
    lead: Option<Lead>,
    began: Now,
}

impl Store {
    /// Starts to store a response with a body of `length` bytes, if known. Returns `None` if the response must not be stored, does
    /// not fit, or is already being stored.
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

    /// Creates a filling that is written to a file as the body arrives.
    fn long(store: Arc<Store>, plan: Plan, length: Option<u64>, began: Now) -> Option<Self> {
        let mut own = Self::new(store, plan, None, began)?;
        own.length = length;
        own.spool(length).then_some(own)
    }

    /// Starts to write the body to a file; returns false if that is not possible.
    fn spool(&mut self, length: Option<u64>) -> bool {
        let (Some(plan), Some(files)) = (&self.plan, &self.store.files) else { return false };
        let of = (plan.hash, plan.key.clone(), plan.variant.clone(), plan.head.clone());
        self.spool = Spool::begin(files, of, FreshnessTimes::of(plan.lifetime, self.began), length);
        self.spool.is_some()
    }

    /// Lets the requests behind `lead` wait for this response, if that is useful. A response that is too long for memory is
    /// requested by each of them until it is complete.
    pub fn lead(&mut self, lead: Option<Lead>) {
        match lead {
            Some(lead) if self.spool.is_some() => lead.pass(self.began.ms),
            lead => self.lead = lead,
        }
    }

    /// Adds the next bytes of the body. `now_ms` is of the monotonic clock.
    pub fn push(&mut self, data: &[u8], now_ms: u64) {
        if data.is_empty() {
            return;
        }
        let wanted = self.came + data.len();
        if self.plan.is_some() && self.spool.is_none() && wanted > self.counted {
            // Doubles the buffer to avoid frequent moves.
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

    /// Whether others read the response while it is fetched. `filler` is woken when a reader starts or waits.
    pub fn poll_read(&self, filler: &Waker) -> bool {
        self.growing.as_ref().is_some_and(|growing| {
            growing.poll_wanted(filler);
            growing.is_read()
        })
    }

    /// Whether `bytes` more may be read before the client of this request has taken the earlier ones, because they are stored
    /// anyway.
    pub fn may_run_ahead(&self, bytes: usize) -> bool {
        self.plan.is_some() && self.spool.is_none() && self.came.saturating_add(bytes) <= self.most()
    }

    /// Whether the response arrives faster than its readers take it: only the latest part of it stays in memory, and no reader has
    /// taken all of that. `filler` is woken when a reader does.
    pub fn outruns(&self, filler: &Waker) -> bool {
        let is_short = self.plan.is_none() || self.spool.is_some();
        let growing = self.growing.as_ref().filter(|growing| is_short && growing.is_read());
        growing.is_some_and(|growing| !growing.poll_wanted(filler))
    }

    /// Whether to fetch more although the client of this request is gone: because the response is to be stored, or a reader waits.
    /// `filler` is woken when a reader waits.
    pub fn poll_wanted(&self, filler: &Waker) -> bool {
        let is_wanted = self.growing.as_ref().is_some_and(|growing| growing.poll_wanted(filler));
        is_wanted || self.plan.is_some()
    }

    /// Returns a reader of the bytes that are still to arrive, if others may read them.
    pub fn follow(&self) -> Option<Feed> {
        self.growing.as_ref().map(Growing::feed_behind)
    }

    /// Shares the response from its first bytes on: waiting requests get it as it arrives.
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

    /// Called when the response is too long for memory. Current readers continue, with as much buffer as is available.
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
            // Otherwise readers may lag behind by less.
            _ = self.grow(WINDOW, now_ms);
        }
    }

    /// Called at the end of the body, to store the response. `now_ms` is a time of the monotonic clock.
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
        // The line that was just added counts as part of the head.
        let room = self.room.split(blocks_of(fixed + body.len() as u64 + LENGTH_LINE));
        let times = FreshnessTimes::of(lifetime, self.began);
        let body = StoredBody::new(body.into_boxed_slice(), room);
        let identity = Identity { hash, key, variant };
        let object = Object::new(identity, head, body, times, self.store.no_room(), now_ms);
        // Requests that wait for a response that was purged in the meantime send their own request.
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

    /// Completes a response that is not stored in memory, for its current readers.
    fn pass_by(&mut self, growing: Option<Arc<Growing>>) {
        if let Some(growing) = growing {
            growing.pass(std::mem::replace(&mut self.room, self.store.no_room()));
        }
    }

    /// Returns the maximum size of the body.
    fn most(&self) -> usize {
        let fixed = self.plan.as_ref().map_or(u64::MAX, |plan| plan.fixed);
        usize::try_from(self.store.settings.max_object.saturating_sub(fixed)).unwrap_or(usize::MAX)
    }

    /// Accounts for `wanted` bytes of the body.
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

    /// Stops storing the response.
    fn leave(&mut self) {
        if let Some(plan) = self.plan.take() {
            self.store.order().end(plan.hash, plan.number);
        }
    }
}

/// If a response turns out too long: how many bytes are kept for current readers, if there is memory.
const WINDOW: usize = 1 << 20;

/// How many bytes are kept if there is not enough memory.
const LEAST_WINDOW: usize = 64 * 1024;

/// The size that `content-length` adds to a head, including the possible growth of its memory.
const LENGTH_LINE: u64 = 128;

impl Drop for Filling {
    fn drop(&mut self) {
        self.leave();
        if let Some(growing) = self.growing.take() {
            growing.cut();
        }
    }
}
