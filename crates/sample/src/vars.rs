//! Variables (manual, 2.8): names become slots when the plan is resolved, so a read is an index.
//!
//! Scopes `sess`, `txn`, `req`, `res` and `check` live in [`Slots`] of their owners. `proc` lives in a process-wide
//! store that the runtime socket reads and writes too, one lock a variable.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock, RwLock};

use crate::env::Env;
use crate::value::{Scratch, Value};

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

/// The names that a plan mentions, and their slots; grows while the plan is resolved.
#[derive(Debug, Default)]
pub struct Mentioned(RwLock<Vec<(VarScope, Box<str>, u32)>>);

impl Mentioned {
    /// Calls `show` for each that is set, in the order in which they were mentioned first.
    pub fn each(&self, scope: VarScope, env: &Env<'_>, show: &mut impl FnMut(&str, Value<'static>)) {
        let Some(slots) = slots(scope, env) else { return };
        let all = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (_, name, slot) in all.iter().filter(|(of, ..)| *of == scope) {
            slots.get(*slot).into_iter().for_each(|value| show(name, value));
        }
    }
}

/// The variables of a plan: which name has which slot; and what else its expressions ask to be kept.
#[derive(Debug, Default)]
pub struct Variables {
    names: HashMap<(VarScope, Box<str>), u32>,
    next: [u32; 6],
    mentioned: Arc<Mentioned>,
    wants_request_line: bool,
    wants_backend_source: bool,
    wants_server_tcp: bool,
    wants_turns: bool,
}

impl Variables {
    /// The variable `text` (`txn.foo`). The error says what is wrong with the name.
    pub fn resolve(&mut self, text: &str) -> Result<Var, String> {
        let Some((scope, name)) = text.split_once('.') else {
            return Err(format!(
                "invalid variable name `{text}`: a variable is written `<scope>.<name>` with a scope among proc, sess, txn, req, res and check"
            ));
        };
        if name.is_empty()
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        {
            return Err(format!(
                "invalid variable name `{text}`: only letters, digits, `_` and `.` may follow the scope"
            ));
        }
        let scope = match scope {
            "proc" => return Ok(Var::Process(process_variable(name))),
            "sess" => VarScope::Session,
            "txn" => VarScope::Transaction,
            "req" => VarScope::Request,
            "res" => VarScope::Response,
            "check" => VarScope::Check,
            "psess" | "ptxn" | "preq" | "pres" => return Ok(Var::Parent),
            other => {
                return Err(format!(
                    "invalid variable name `{text}`: `{other}` is no scope; they are proc, sess, txn, req, res and check"
                ));
            }
        };
        let next = &mut self.next[scope as usize];
        let mentioned = &self.mentioned.0;
        let slot = *self.names.entry((scope, name.into())).or_insert_with(|| {
            let mut all = mentioned.write().unwrap_or_else(|poisoned| poisoned.into_inner());
            all.push((scope, name.into(), *next));
            *next += 1;
            *next - 1
        });
        Ok(Var::Slot(scope, slot))
    }

    /// A copy for expressions that are compiled while the plan is in use: they mean the same slots.
    #[must_use]
    pub fn aside(&self) -> Self {
        let mentioned = self.mentioned.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        Self { names: self.names.clone(), mentioned: Arc::new(Mentioned(RwLock::new(mentioned))), ..*self }
    }

    /// What this copy came to ask for that `plan` does not have: a variable that nothing else names, or something that is
    /// kept only where an expression of the configuration wants it.
    pub fn beyond(&self, plan: &Self) -> Option<String> {
        if let Some((_, name)) = self.names.keys().find(|key| !plan.names.contains_key(*key)) {
            return Some(format!("variable '{name}' is not used in the configuration"));
        }
        let wants = [
            (self.wants_request_line, plan.wants_request_line, "the request line as it was received"),
            (self.wants_backend_source, plan.wants_backend_source, "our address towards servers"),
            (
                self.wants_server_tcp,
                plan.wants_server_tcp,
                "what the kernel measured of connections to servers",
            ),
            (self.wants_turns, plan.wants_turns, "what requests cost"),
        ];
        let (.., what) = wants.into_iter().find(|(own, kept, _)| *own && !kept)?;
        Some(format!("{what} is kept only where an expression of the configuration reads it"))
    }

    /// The names mentioned, now and later.
    pub fn mentioned(&self) -> Arc<Mentioned> {
        Arc::clone(&self.mentioned)
    }

    /// Notes that an expression or format of the plan reads the request line as it was received.
    pub fn want_request_line(&mut self) {
        self.wants_request_line = true;
    }

    /// Whether one does: then the line is to be kept even where nothing is logged.
    pub fn wants_request_line(&self) -> bool {
        self.wants_request_line
    }

    /// Notes that an expression or format of the plan reads our address on the connection to the server.
    pub fn want_backend_source(&mut self) {
        self.wants_backend_source = true;
    }

    /// Notes that an expression reads what the kernel measured of the connection to the server.
    pub fn want_server_tcp(&mut self) {
        self.wants_server_tcp = true;
    }

    /// Notes that an expression reads what a request costs.
    pub fn want_turns(&mut self) {
        self.wants_turns = true;
    }

    /// Whether one does: then the turns of tasks are measured.
    pub fn wants_turns(&self) -> bool {
        self.wants_turns
    }

    /// Whether one does: then the kernel is asked before that connection is given back.
    pub fn wants_server_tcp(&self) -> bool {
        self.wants_server_tcp
    }

    /// Whether one does: then the kernel is asked for it with each connection.
    pub fn wants_backend_source(&self) -> bool {
        self.wants_backend_source
    }

    /// The names of a scope with their slots, in the order of the names (`dump_all_vars`).
    pub fn named(&self) -> Vec<(VarScope, Box<str>, u32)> {
        let mut list: Vec<_> =
            self.names.iter().map(|((scope, name), slot)| (*scope, name.clone(), *slot)).collect();
        list.sort_by(|left, right| (left.0 as u8, &left.1).cmp(&(right.0 as u8, &right.1)));
        list
    }
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

/// What must hold for `set-var` to set (`set-var(txn.x,ifnotexists)` …).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum SetIf {
    Exists,
    NotExists,
    Empty,
    NotEmpty,
    Set,
    NotSet,
    Greater,
    Less,
}

/// The conditions of one `set-var`; all must hold.
#[derive(Clone, Debug, Default)]
pub struct SetConditions(Vec<SetIf>);

impl SetConditions {
    /// Adds the condition named `text`.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        self.0.push(match text {
            "ifexists" => SetIf::Exists,
            "ifnotexists" => SetIf::NotExists,
            "ifempty" => SetIf::Empty,
            "ifnotempty" => SetIf::NotEmpty,
            "ifset" => SetIf::Set,
            "ifnotset" => SetIf::NotSet,
            "ifgt" => SetIf::Greater,
            "iflt" => SetIf::Less,
            other => return Err(format!("unknown condition `{other}` of set-var; known are ifexists, ifnotexists, ifempty, ifnotempty, ifset, ifnotset, ifgt and iflt")),
        });
        Ok(())
    }

    /// Whether `value` may be put into `var`.
    pub fn allow(&self, env: &Env<'_>, var: &Var, value: &Value<'_>) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let old = var.get(env);
        let number = |value: &Value<'_>| match value {
            Value::Int(number) => Some(*number),
            _ => None,
        };
        let both = number(value).zip(old.as_ref().and_then(number));
        self.0.iter().all(|condition| match condition {
            SetIf::Exists => old.is_some() || matches!(var, Var::Process(_)),
            SetIf::NotExists => old.is_none() && !matches!(var, Var::Process(_)),
            SetIf::Empty => value.bytes().is_some_and(<[u8]>::is_empty),
            SetIf::NotEmpty => !value.bytes().is_some_and(<[u8]>::is_empty),
            SetIf::Set => old.is_some(),
            SetIf::NotSet => old.is_none(),
            // Where the two cannot be compared the manual lets the value through.
            SetIf::Greater => both.is_none_or(|(new, old)| old > new),
            SetIf::Less => both.is_none_or(|(new, old)| old < new),
        })
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
