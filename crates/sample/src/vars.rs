//! Variables (manual, 2.8): names become slots when the plan is resolved, so a read is an index.
//!
//! Scopes `sess`, `txn`, `req`, `res` and `check` live in [`Slots`] of their owners. `proc` lives in a process-wide
//! store that the runtime socket reads and writes too, one lock a variable. Which name has which slot is `names`.

mod conditions;
mod names;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock, RwLock};

use crate::env::Env;
use crate::value::{Scratch, Value};

pub use conditions::{SetConditions, SetIf};
pub use names::{Mentioned, Variables};

/// How long a variable lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum VarScope {
    Proc,
    Session,
    Transaction,
    Request,
    Response,
    Check,
}

/// A variable, resolved.
#[derive(Clone, Debug)]
pub enum Var {
    /// A slot of the owner of that scope.
    Slot(VarScope, u32),
    /// A process-wide variable.
    Process(Arc<ProcessVariable>),
    /// A scope of a parent stream (`psess`, `ptxn` …): there is none, so it is never set.
    Parent,
}

/// A process-wide variable.
#[derive(Debug, Default)]
pub struct ProcessVariable {
    value: RwLock<Option<Stored>>,
}

/// A value of the process kept.
#[derive(Clone, Debug)]
enum Stored {
    Plain(Plain),
    Str(Vec<u8>),
    Bin(Vec<u8>),
    Method(Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
enum Plain {
    Bool(bool),
    Int(i64),
    Ip(std::net::IpAddr),
}

impl Stored {
    fn new(value: &Value<'_>) -> Self {
        match value {
            Value::Bool(value) => Self::Plain(Plain::Bool(*value)),
            Value::Int(value) => Self::Plain(Plain::Int(*value)),
            Value::Ip4(address) => Self::Plain(Plain::Ip((*address).into())),
            Value::Ip6(address) => Self::Plain(Plain::Ip((*address).into())),
            Value::Str(bytes) => Self::Str(bytes.to_vec()),
            Value::Bin(bytes) => Self::Bin(bytes.to_vec()),
            Value::Method(bytes) => Self::Method(bytes.to_vec()),
        }
    }

    /// Overwrites `slot`, reusing its memory where the kind stays.
    fn store(slot: &mut Option<Self>, value: &Value<'_>) {
        match (slot, value) {
            (Some(Self::Str(old)), Value::Str(new)) | (Some(Self::Bin(old)), Value::Bin(new)) => {
                old.clear();
                old.extend_from_slice(new);
            }
            (slot, value) => *slot = Some(Self::new(value)),
        }
    }

    /// What it counts in the limits of `tune.vars.*-max-size`.
    fn size(&self) -> usize {
        ENTRY
            + match self {
                Self::Plain(_) => 0,
                Self::Str(bytes) | Self::Bin(bytes) | Self::Method(bytes) => bytes.len(),
            }
    }

    fn get(&self) -> Value<'static> {
        match self {
            Self::Plain(Plain::Bool(value)) => Value::Bool(*value),
            Self::Plain(Plain::Int(value)) => Value::Int(*value),
            Self::Plain(Plain::Ip(address)) => Value::ip(*address),
            Self::Str(bytes) => Value::Str(Scratch::copy(bytes).into()),
            Self::Bin(bytes) => Value::Bin(Scratch::copy(bytes).into()),
            Self::Method(bytes) => Value::Method(Scratch::copy(bytes).into()),
        }
    }
}

/// How many bytes variables may hold (`tune.vars.*-max-size`), 0 for no limit. Coarser ones include the finer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `global`: all variables of the process.
    pub all: usize,
    /// `proc`: likewise.
    pub process: usize,
    /// `sess`: a session's with those of its transaction.
    pub session: usize,
    /// `txn`: a transaction's with those of its request and response.
    pub transaction: usize,
    /// `reqres`: those of a request, and of a response.
    pub message: usize,
    /// `check`: those of a health check.
    pub check: usize,
}

/// Bytes that a variable counts beside its text.
const ENTRY: usize = 64;

/// The limits in force; nothing is counted while there are none.
static LIMITS: OnceLock<Limits> = OnceLock::new();
static LIMITED: AtomicBool = AtomicBool::new(false);
/// Whether one of them is on the variables of all workers together.
static LIMITED_TOGETHER: AtomicBool = AtomicBool::new(false);
/// Bytes that all variables hold. Written by every worker, only while there is such a limit.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Puts limits in force, once, before the first variable is set.
pub fn limit(limits: Limits) {
    if limits != Limits::default() && LIMITS.set(limits).is_ok() {
        LIMITED_TOGETHER.store(limits.all > 0 || limits.process > 0, Relaxed);
        LIMITED.store(true, Relaxed);
    }
}

fn limits() -> Option<&'static Limits> {
    if LIMITED.load(Relaxed) { LIMITS.get() } else { None }
}

/// What a value would count.
fn size_of(value: &Value<'_>) -> usize {
    ENTRY + value.bytes().map_or(0, <[u8]>::len)
}

/// Whether `held` bytes are within `limit`.
fn within(limit: usize, held: usize) -> bool {
    limit == 0 || held <= limit
}

/// The values of one scope. Setting needs no exclusive borrow, because converters set variables while the
/// request is being read (`set-var()`).
#[derive(Debug, Default)]
pub struct Slots {
    own: RefCell<Own>,
    /// Bytes held, counted only while limits are in force.
    held: Cell<usize>,
}

/// Slots and the texts in them. Its memory stays for the next request.
#[derive(Debug, Default)]
struct Own {
    slots: Vec<Slot>,
    /// The texts of all slots, each behind its length and its room; between them what slots had before.
    texts: Vec<u8>,
    /// How much of `texts` no slot means any more.
    waste: usize,
}

/// A variable's place, eight to a line of memory: where there are thousands, what an access costs is the lines it fetches. Three
/// bits say what it is, the others hold it or say where it is among the texts. All zero is an empty one.
#[derive(Clone, Copy, Debug, Default)]
struct Slot(u64);

/// What a slot holds.
enum Content {
    Unset,
    Bool(bool),
    Int(i64),
    Ip4(Ipv4Addr),
    /// Bytes among the texts.
    At(Kind, usize),
}

/// What the bytes of a slot are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Str = 4,
    Bin = 5,
    Method = 6,
    /// An IPv6 address of 16 bytes, or a number of 8 that does not fit a slot.
    Wide = 7,
}

impl Slot {
    #[inline]
    fn content(self) -> Content {
        let rest = self.0 >> 3;
        match self.0 & 7 {
            0 => Content::Unset,
            1 => Content::Bool(rest != 0),
            2 => Content::Int(self.0.cast_signed() >> 3),
            3 => Content::Ip4(Ipv4Addr::from_bits(rest as u32)),
            4 => Content::At(Kind::Str, rest as usize),
            5 => Content::At(Kind::Bin, rest as usize),
            6 => Content::At(Kind::Method, rest as usize),
            _ => Content::At(Kind::Wide, rest as usize),
        }
    }

    fn at(kind: Kind, start: usize) -> Self {
        Self((start as u64) << 3 | kind as u64)
    }

    /// Where its text begins, if it has one.
    #[inline]
    fn start(self) -> Option<usize> {
        (self.0 & 4 != 0).then_some((self.0 >> 3) as usize)
    }
}

/// Length and room of a text, which stand before it.
const HEADER: usize = 8;

/// More than this is not kept for the next request.
const KEPT_CAPACITY: usize = 64 * 1024;

impl Own {
    /// Length and room of the text at `start`.
    #[inline]
    fn header(&self, start: usize) -> (usize, usize) {
        let number = |at: usize| {
            let bytes = self.texts.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
        };
        (number(start), number(start + 4))
    }

    fn text(&self, start: usize) -> &[u8] {
        let begin = start + HEADER;
        self.texts.get(begin..begin + self.header(start).0).unwrap_or_default()
    }

    fn get(&self, slot: u32) -> Option<Value<'static>> {
        Some(match self.slots.get(slot as usize)?.content() {
            Content::Unset => return None,
            Content::Bool(value) => Value::Bool(value),
            Content::Int(value) => Value::Int(value),
            Content::Ip4(address) => Value::Ip4(address),
            Content::At(kind, start) => {
                let bytes = self.text(start);
                match kind {
                    Kind::Str => Value::Str(Scratch::copy(bytes).into()),
                    Kind::Bin => Value::Bin(Scratch::copy(bytes).into()),
                    Kind::Method => Value::Method(Scratch::copy(bytes).into()),
                    Kind::Wide => match <[u8; 16]>::try_from(bytes) {
                        Ok(address) => Value::Ip6(address.into()),
                        Err(_) => Value::Int(i64::from_le_bytes(bytes.try_into().ok()?)),
                    },
                }
            }
        })
    }

    #[inline]
    fn set(&mut self, slot: u32, value: &Value<'_>) {
        let index = slot as usize;
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Slot::default());
        }
        match value {
            Value::Bool(value) => self.plain(index, u64::from(*value) << 3 | 1),
            Value::Int(value) if *value << 3 >> 3 == *value => {
                self.plain(index, value.cast_unsigned() << 3 | 2);
            }
            Value::Int(value) => self.place(index, Kind::Wide, &value.to_le_bytes()),
            Value::Ip4(address) => self.plain(index, u64::from(address.to_bits()) << 3 | 3),
            Value::Ip6(address) => self.place(index, Kind::Wide, &address.octets()),
            Value::Str(bytes) => self.place(index, Kind::Str, bytes),
            Value::Bin(bytes) => self.place(index, Kind::Bin, bytes),
            Value::Method(bytes) => self.place(index, Kind::Method, bytes),
        }
    }

    /// Puts what takes no room among the texts into slot `index`.
    #[inline]
    fn plain(&mut self, index: usize, new: u64) {
        if let Some(start) = self.slots[index].start() {
            self.waste += HEADER + self.header(start).1;
        }
        self.slots[index] = Slot(new);
    }

    /// Puts a text into slot `index`.
    fn place(&mut self, index: usize, kind: Kind, bytes: &[u8]) {
        let length = (bytes.len() as u32).to_le_bytes();
        if let Some(start) = self.slots[index].start() {
            let room = self.header(start).1;
            if bytes.len() <= room {
                self.texts[start..start + 4].copy_from_slice(&length);
                self.texts[start + HEADER..][..bytes.len()].copy_from_slice(bytes);
                self.slots[index] = Slot::at(kind, start);
                return;
            }
            self.slots[index] = Slot::default();
            self.waste += HEADER + room;
        }
        if self.waste > self.texts.len() / 2 + KEPT_CAPACITY {
            self.tidy();
        }
        // One that grows a little goes on in its place.
        let room = bytes.len().next_multiple_of(8);
        let start = self.texts.len();
        self.texts.extend_from_slice(&length);
        self.texts.extend_from_slice(&(room as u32).to_le_bytes());
        self.texts.extend_from_slice(bytes);
        self.texts.resize(start + HEADER + room, 0);
        self.slots[index] = Slot::at(kind, start);
    }

    /// Moves the texts together: a session may live long and set its variables often.
    #[cold]
    fn tidy(&mut self) {
        let mut texts = Vec::with_capacity(self.texts.len() - self.waste);
        for index in 0..self.slots.len() {
            if let Content::At(kind, start) = self.slots[index].content() {
                let whole = HEADER + self.header(start).1;
                self.slots[index] = Slot::at(kind, texts.len());
                texts.extend_from_slice(&self.texts[start..start + whole]);
            }
        }
        self.texts = texts;
        self.waste = 0;
    }

    /// What the variable in `slot` counts in the limits of `tune.vars.*-max-size`; 0 when it is not set.
    fn size(&self, slot: u32) -> usize {
        match self.slots.get(slot as usize).map(|slot| slot.content()) {
            None | Some(Content::Unset) => 0,
            Some(Content::At(Kind::Str | Kind::Bin | Kind::Method, start)) => ENTRY + self.header(start).0,
            Some(_) => ENTRY,
        }
    }
}

impl Slots {
    /// The value in `slot`.
    pub fn get(&self, slot: u32) -> Option<Value<'static>> {
        self.own.borrow().get(slot)
    }

    /// Sets `slot`.
    pub fn set(&self, slot: u32, value: &Value<'_>) {
        if limits().is_some() {
            self.count(self.size(slot), size_of(value));
        }
        self.own.borrow_mut().set(slot, value);
    }

    /// Empties `slot`.
    pub fn unset(&self, slot: u32) {
        if limits().is_some() {
            self.count(self.size(slot), 0);
        }
        let own = &mut *self.own.borrow_mut();
        let index = slot as usize;
        if index < own.slots.len() {
            own.plain(index, 0);
        }
    }

    fn size(&self, slot: u32) -> usize {
        self.own.borrow().size(slot)
    }

    /// Counts `new` bytes in the place of `old`.
    fn count(&self, old: usize, new: usize) {
        self.held.set((self.held.get() + new).saturating_sub(old));
        count_all(old, new);
    }

    /// Empties all; the memory stays, if it is not much.
    pub fn clear(&mut self) {
        count_all(self.held.take(), 0);
        let own = self.own.get_mut();
        own.slots.clear();
        own.waste = 0;
        if own.texts.capacity() > KEPT_CAPACITY {
            own.texts = Vec::new();
        }
        own.texts.clear();
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        count_all(self.held.get(), 0);
    }
}

/// Counts `new` bytes in the place of `old` among those of all variables.
fn count_all(old: usize, new: usize) {
    if old != new && LIMITED_TOGETHER.load(Relaxed) {
        HELD.fetch_add(new.wrapping_sub(old), Relaxed);
    }
}

impl ProcessVariable {
    /// Its value.
    pub fn get(&self) -> Option<Value<'static>> {
        self.value.read().unwrap_or_else(|poisoned| poisoned.into_inner()).as_ref().map(Stored::get)
    }

    /// Sets it.
    pub fn set(&self, value: &Value<'_>) {
        let mut slot = self.value.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if limits().is_some() {
            count_all(slot.as_ref().map_or(0, Stored::size), size_of(value));
        }
        Stored::store(&mut slot, value);
    }

    /// Empties it.
    pub fn unset(&self) {
        let mut slot = self.value.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if limits().is_some() {
            count_all(slot.as_ref().map_or(0, Stored::size), 0);
        }
        *slot = None;
    }

    fn size(&self) -> usize {
        self.value.read().unwrap_or_else(|poisoned| poisoned.into_inner()).as_ref().map_or(0, Stored::size)
    }
}

static PROCESS: LazyLock<RwLock<HashMap<Box<str>, Arc<ProcessVariable>>>> = LazyLock::new(RwLock::default);

/// The process-wide variable `name` (without `proc.`), made if it is not there.
pub fn process_variable(name: &str) -> Arc<ProcessVariable> {
    let mut all = PROCESS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    Arc::clone(all.entry(name.into()).or_default())
}

/// The process-wide variable `name` if it was ever named (`get var`).
pub fn find_process_variable(name: &str) -> Option<Arc<ProcessVariable>> {
    PROCESS.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(name).cloned()
}

/// The process-wide variables named so far, in the order of their names.
pub fn process_variables() -> Vec<(Box<str>, Arc<ProcessVariable>)> {
    let all = PROCESS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut list: Vec<_> = all.iter().map(|(name, value)| (name.clone(), Arc::clone(value))).collect();
    list.sort_by(|left, right| left.0.cmp(&right.0));
    list
}

impl Var {
    /// Its value now.
    pub fn get(&self, env: &Env<'_>) -> Option<Value<'static>> {
        match self {
            Self::Slot(scope, slot) => slots(*scope, env)?.get(*slot),
            Self::Process(variable) => variable.get(),
            Self::Parent => None,
        }
    }

    /// Sets it; says whether its scope exists here and its limits allow the value.
    pub fn set(&self, env: &Env<'_>, value: &Value<'_>) -> bool {
        if limits().is_some_and(|limits| !self.fits(limits, env, value)) {
            return false;
        }
        match self {
            Self::Slot(scope, slot) => slots(*scope, env).map(|slots| slots.set(*slot, value)).is_some(),
            Self::Process(variable) => {
                variable.set(value);
                true
            }
            Self::Parent => false,
        }
    }

    /// Whether `value` in the place of the old one stays within the limits of its scope and of those around it.
    fn fits(&self, limits: &Limits, env: &Env<'_>, value: &Value<'_>) -> bool {
        let (scope, old) = match self {
            Self::Slot(scope, slot) => (*scope, slots(*scope, env).map_or(0, |slots| slots.size(*slot))),
            Self::Process(variable) => (VarScope::Proc, variable.size()),
            Self::Parent => return false,
        };
        let new = size_of(value);
        let with = |held: usize| (held + new).saturating_sub(old);
        let of = |scope| slots(scope, env).map_or(0, |slots| slots.held.get());
        let message = of(scope);
        let transaction = of(VarScope::Transaction) + of(VarScope::Request) + of(VarScope::Response);
        let session = transaction + of(VarScope::Session);
        let all = with(HELD.load(Relaxed));
        let inner = match scope {
            VarScope::Request | VarScope::Response => within(limits.message, with(message)),
            VarScope::Check => within(limits.check, with(message)),
            _ => true,
        };
        let in_transaction = match scope {
            VarScope::Request | VarScope::Response | VarScope::Transaction => {
                within(limits.transaction, with(transaction))
            }
            _ => true,
        };
        let in_session = match scope {
            VarScope::Proc | VarScope::Check => true,
            _ => within(limits.session, with(session)),
        };
        inner && in_transaction && in_session && within(limits.process, all) && within(limits.all, all)
    }

    /// Empties it.
    pub fn unset(&self, env: &Env<'_>) {
        match self {
            Self::Slot(scope, slot) => {
                if let Some(slots) = slots(*scope, env) {
                    slots.unset(*slot);
                }
            }
            Self::Process(variable) => variable.unset(),
            Self::Parent => {}
        }
    }
}

fn slots<'a>(scope: VarScope, env: &Env<'a>) -> Option<&'a Slots> {
    match scope {
        VarScope::Session => env.session.map(|session| session.vars()),
        VarScope::Transaction => env.transaction.map(|transaction| &transaction.txn_vars),
        VarScope::Request => env.transaction.map(|transaction| &transaction.req_vars),
        VarScope::Response => env.transaction.map(|transaction| &transaction.res_vars),
        VarScope::Check => env.check_vars,
        VarScope::Proc => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_slot_a_scope_whatever_the_number_of_mentions() {
        let mut variables = Variables::default();
        let slot = |variables: &mut Variables, name: &str| match variables.resolve(name) {
            Ok(Var::Slot(scope, slot)) => (scope, slot),
            other => panic!("{other:?}"),
        };
        assert_eq!(slot(&mut variables, "txn.a"), (VarScope::Transaction, 0));
        assert_eq!(slot(&mut variables, "txn.b"), (VarScope::Transaction, 1));
        assert_eq!(slot(&mut variables, "req.a"), (VarScope::Request, 0));
        assert_eq!(slot(&mut variables, "txn.a"), (VarScope::Transaction, 0));
    }

    #[test]
    fn a_name_without_a_known_scope_is_refused() {
        for name in ["foo", "txn.", "txn.a-b", "nope.x"] {
            assert!(Variables::default().resolve(name).is_err(), "{name}");
        }
    }

    #[test]
    fn cleared_slots_are_empty_and_take_values_again() {
        let mut slots = Slots::default();
        slots.set(1, &Value::str(b"a"));
        slots.set(0, &Value::Int(1));
        slots.unset(0);
        assert!(slots.get(0).is_none() && matches!(slots.get(1), Some(Value::Str(text)) if *text == *b"a"));
        slots.clear();
        assert!(slots.get(1).is_none());
        slots.set(1, &Value::bin(b"b"));
        assert!(matches!(slots.get(1), Some(Value::Bin(text)) if *text == *b"b"));
    }

    #[test]
    fn every_kind_comes_back_as_it_was_whatever_stood_there_before() {
        let values = [
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::Int(-1),
            Value::Int(i64::MAX >> 3),
            Value::Int((i64::MAX >> 3) + 1),
            Value::Ip4(Ipv4Addr::new(192, 0, 2, 7)),
            Value::Ip6("2001:db8::7".parse().expect("an address")),
            Value::str(b"text"),
            Value::bin(b"\0\xff"),
            Value::str(b""),
            Value::Method(b"GET"[..].into()),
            Value::str(&[b'x'; 5000]),
        ];
        let show = |value: &Value<'_>| match value.bytes() {
            Some(bytes) => format!("{:?} {bytes:?}", std::mem::discriminant(value)),
            None => format!("{value:?}"),
        };
        let slots = Slots::default();
        let mut wanted: Vec<Option<String>> = vec![None; 7];
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..20_000 {
            let slot = random.usize(..wanted.len());
            if random.u8(..8) == 0 {
                slots.unset(slot as u32);
                wanted[slot] = None;
            } else {
                let value = &values[random.usize(..values.len())];
                slots.set(slot as u32, value);
                wanted[slot] = Some(show(value));
            }
            let at = random.usize(..wanted.len());
            assert_eq!(slots.get(at as u32).as_ref().map(show), wanted[at]);
        }
        let held = slots.own.borrow().texts.len();
        assert!(held < 4 * KEPT_CAPACITY, "{held} bytes for seven variables");
    }

    #[test]
    fn process_variables_are_shared_by_name() {
        process_variable("shared_by_name").set(&Value::Int(4));
        let again = process_variable("shared_by_name");
        assert!(matches!(again.get(), Some(Value::Int(4))));
        again.unset();
        assert!(again.get().is_none());
    }
}
