//! Variables (manual, 2.8). Names become slots when the plan is resolved, so reading a variable is an index operation.
//!
//! Variables of scope `sess`, `txn`, `req`, `res` and `check` are in the [`Slots`] of their owners, those of `proc` in `process`.
//! `names` maps names to slots. This module reads and sets variables of both kinds within the limits of `tune.vars`.

mod conditions;
mod names;
mod process;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::env::Env;
use crate::limits::{HELD, VariableLimits, limits, size_of, within};
use crate::slots::Slots;
use crate::value::Value;

pub use conditions::SetConditions;
pub use names::{Mentioned, Variables};
pub use process::{ProcessVariable, find_process_variable, process_variable, process_variables};

/// The lifetime of a variable.
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

/// A resolved variable.
#[derive(Clone, Debug)]
pub enum Var {
    /// A slot of the owner of that scope.
    Slot(VarScope, u32),
    /// A process-wide variable.
    Process(Arc<ProcessVariable>),
    /// A scope of a parent stream (`psess`, `ptxn` …). Parent streams do not exist, so the variable is never set.
    Parent,
}

impl Var {
    /// The current value.
    #[inline(always)] // otherwise the value is moved once more
    pub fn get(&self, env: &Env<'_>) -> Option<Value<'static>> {
        match self {
            Self::Slot(scope, slot) => slots(*scope, env)?.get(*slot),
            Self::Process(variable) => variable.get(),
            Self::Parent => None,
        }
    }

    /// Sets the variable. Returns whether its scope exists here and its limits allow the value.
    #[inline]
    pub fn set(&self, env: &Env<'_>, value: &Value<'_>) -> bool {
        let Self::Slot(scope, slot) = self else { return self.set_shared(env, value) };
        let Some(slots) = slots(*scope, env) else { return false };
        slots.replace(*slot, value) || set_within(slots, *scope, *slot, env, value)
    }

    /// Sets a process-wide variable.
    fn set_shared(&self, env: &Env<'_>, value: &Value<'_>) -> bool {
        let Self::Process(variable) = self else { return false };
        if let Some(limits) = limits()
            && !fits(limits, env, VarScope::Proc, variable.size(), size_of(value))
        {
            return false;
        }
        variable.set(value);
        true
    }

    /// Unsets the variable.
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

/// Sets a slot if the limits allow the value.
#[inline(never)]
fn set_within(slots: &Slots, scope: VarScope, slot: u32, env: &Env<'_>, value: &Value<'_>) -> bool {
    if let Some(limits) = limits() {
        let (old, new) = (slots.size(slot), size_of(value));
        // A value that does not grow cannot exceed the limits.
        if new > old && !fits(limits, env, scope, old, new) {
            return false;
        }
        slots.count(old, new);
    }
    slots.set(slot, value);
    true
}

/// Whether replacing `old` bytes with `new` bytes stays within the limits of a scope and of the wider scopes.
fn fits(limits: &VariableLimits, env: &Env<'_>, scope: VarScope, old: usize, new: usize) -> bool {
    let with = |held: usize| (held + new).saturating_sub(old);
    let of = |scope| slots(scope, env).map_or(0, |slots| slots.held());
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

#[inline]
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
    fn names_have_one_slot_per_scope() {
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
}
