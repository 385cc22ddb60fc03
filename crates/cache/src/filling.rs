//! A response on its way into a store: its head is known, its body comes. Its memory counts from
//! the beginning. What does not come to its end is not kept.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::Head;

use crate::flight::Lead;
use crate::freshness::{Lifetime, Now};
use crate::object::{Object, blocks_of, memory};
use crate::request::Request;
use crate::room::Room;
use crate::settings::Hints;
use crate::store::{Store, kept_head};
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
    body: Vec<u8>,
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
        request: &Request,
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
        if fixed + length.unwrap_or(0) > self.settings.max_object {
            return None;
        }
        let number = self.enter(request, &variant, now.ms)?;
        let (hash, key) = (request.hash, request.key.clone());
        let plan = Plan { number, hash, key, variant, head: kept, lifetime, fixed };
        Filling::new(self.clone(), plan, length, now)
    }
}

impl Filling {
    pub(crate) fn new(store: Arc<Store>, plan: Plan, length: Option<u64>, began: Now) -> Option<Self> {
        let (plan, room) = (Some(Box::new(plan)), store.no_room());
        let mut own = Self { store, plan, body: Vec::new(), room, lead: None, began };
        let length = usize::try_from(length.unwrap_or(0)).ok()?;
        own.grow(length).then_some(own)
    }

    /// Has those who wait for `lead` wait for this.
    pub fn lead(&mut self, lead: Option<Lead>) {
        self.lead = lead;
    }

    /// Takes the next bytes of the body. `now_ms` is of the monotonic clock.
    pub fn push(&mut self, data: &[u8], now_ms: u64) {
        if self.plan.is_none() {
            return;
        }
        let wanted = self.body.len() + data.len();
        if wanted > self.body.capacity() {
            // Twice as much as there is, so that it is not moved often.
            let room = self.most().saturating_sub(wanted);
            let spare = self.body.capacity().max(4096).min(room);
            if wanted > self.most() || !self.grow(wanted + spare) {
                self.give_up();
                if let Some(lead) = self.lead.take() {
                    lead.pass(now_ms);
                }
                return;
            }
        }
        self.body.extend_from_slice(data);
    }

    /// The body has come to its end: the response is kept. `now_ms` is of the monotonic clock.
    pub fn finish(&mut self, now_ms: u64) {
        let Some(plan) = self.plan.take() else { return };
        let Plan { number, hash, key, variant, mut head, lifetime, fixed } = *plan;
        let body = std::mem::take(&mut self.body).into_boxed_slice();
        head.append(b"content-length", body.len().to_string().as_bytes());
        head.shrink(0);
        // The line that was just added counts with the head.
        let room = self.room.split(blocks_of(fixed + body.len() as u64 + LENGTH_LINE));
        let began = self.began.ms;
        let object = Object {
            hash,
            key,
            variant,
            head,
            body,
            is_hints: false,
            room,
            number: 0,
            age: lifetime.age,
            modified: lifetime.modified,
            stored_ms: began,
            expires_ms: began + u64::from(lifetime.left) * 1000,
            revalidate_ms: began + (u64::from(lifetime.left) + u64::from(lifetime.while_revalidate)) * 1000,
            error_ms: began + (u64::from(lifetime.left) + u64::from(lifetime.if_error)) * 1000,
            used_ms: AtomicU64::new(now_ms),
            placed_ms: AtomicU64::new(now_ms),
        };
        // Who waits for what was taken out meanwhile asks anew.
        if self.store.insert(number, object)
            && let Some(lead) = self.lead.take()
        {
            lead.keep();
        }
    }

    /// Bytes that the body may have.
    fn most(&self) -> usize {
        let fixed = self.plan.as_ref().map_or(u64::MAX, |plan| plan.fixed);
        usize::try_from(self.store.settings.max_object.saturating_sub(fixed)).unwrap_or(usize::MAX)
    }

    /// Has memory for so many bytes of the body.
    fn grow(&mut self, capacity: usize) -> bool {
        let fixed = self.plan.as_ref().map_or(0, |plan| plan.fixed);
        let missing = blocks_of(fixed + capacity as u64 + LENGTH_LINE).saturating_sub(self.room.blocks());
        if missing > 0 {
            let Some(more) = self.store.take(missing) else { return false };
            self.room.add(more);
        }
        self.body.reserve_exact(capacity - self.body.len());
        true
    }

    /// It is not kept.
    fn give_up(&mut self) {
        let Some(plan) = self.plan.take() else { return };
        self.body = Vec::new();
        self.room = self.store.no_room();
        self.store.order().end(plan.hash, plan.number);
    }
}

/// Bytes that `content-length` adds to a head, and what its memory may grow by for it.
const LENGTH_LINE: u64 = 128;

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
    }
}
