//! Variables (manual, 2.8): names become slots when the plan is resolved, so a read is an index.
//!
//! Scopes `sess`, `txn`, `req`, `res` and `check` live in [`Slots`] of their owners. `proc` lives in a process-wide
//! store that the runtime socket reads and writes too, one lock a variable. Which name has which slot is `names`.

mod conditions;
mod names;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
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

/// A value kept.
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

    fn capacity(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Str(bytes) | Self::Bin(bytes) | Self::Method(bytes) => bytes.capacity(),
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
/// Bytes that all variables hold. Written by every worker, only while limits are in force.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Puts limits in force, once, before the first variable is set.
pub fn limit(limits: Limits) {
    if limits != Limits::default() && LIMITS.set(limits).is_ok() {
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
    slots: RefCell<Vec<Slot>>,
    /// Bytes held, counted only while limits are in force.
    held: Cell<usize>,
}

/// A variable's place. What it held stays in memory when it is emptied, so that the next request need not allocate.
#[derive(Debug, Default)]
struct Slot {
    is_set: bool,
    value: Option<Stored>,
}

/// Longer texts are not kept for the next request.
const KEPT_CAPACITY: usize = 1024;

impl Slots {
    /// The value in `slot`.
    pub fn get(&self, slot: u32) -> Option<Value<'static>> {
        let slots = self.slots.borrow();
        let slot = slots.get(slot as usize).filter(|slot| slot.is_set)?;
        slot.value.as_ref().map(Stored::get)
    }

    /// Sets `slot`.
    pub fn set(&self, slot: u32, value: &Value<'_>) {
        if limits().is_some() {
            self.count(self.size(slot), size_of(value));
        }
        let mut slots = self.slots.borrow_mut();
        let index = slot as usize;
        if slots.len() <= index {
            slots.resize_with(index + 1, Slot::default);
        }
        slots[index].is_set = true;
        Stored::store(&mut slots[index].value, value);
    }

    /// Empties `slot`.
    pub fn unset(&self, slot: u32) {
        if limits().is_some() {
            self.count(self.size(slot), 0);
        }
        if let Some(slot) = self.slots.borrow_mut().get_mut(slot as usize) {
            slot.is_set = false;
        }
    }

    /// What the variable in `slot` counts; 0 when it is not set.
    fn size(&self, slot: u32) -> usize {
        let slots = self.slots.borrow();
        let slot = slots.get(slot as usize).filter(|slot| slot.is_set);
        slot.and_then(|slot| slot.value.as_ref()).map_or(0, Stored::size)
    }

    /// Counts `new` bytes in the place of `old`.
    fn count(&self, old: usize, new: usize) {
        self.held.set((self.held.get() + new).saturating_sub(old));
        count_all(old, new);
    }

    /// Empties all; the memory of short values stays.
    pub fn clear(&mut self) {
        count_all(self.held.take(), 0);
        for slot in self.slots.get_mut() {
            slot.is_set = false;
            if slot.value.as_ref().is_some_and(|value| value.capacity() > KEPT_CAPACITY) {
                slot.value = None;
            }
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        count_all(self.held.get(), 0);
    }
}

/// Counts `new` bytes in the place of `old` among those of all variables.
fn count_all(old: usize, new: usize) {
    if old != new {
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
    fn process_variables_are_shared_by_name() {
        process_variable("shared_by_name").set(&Value::Int(4));
        let again = process_variable("shared_by_name");
        assert!(matches!(again.get(), Some(Value::Int(4))));
        again.unset();
        assert!(again.get().is_none());
    }
}
