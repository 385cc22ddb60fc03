//! The variables named in a plan with their slots, and other data that the plan's expressions require.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use super::{Var, VarScope, process_variable, slots};
use crate::env::Env;
use crate::value::Value;

/// The variable names used in a plan, and their slots. Names are added while the plan is resolved.
#[derive(Debug, Default)]
pub struct Mentioned(RwLock<Vec<(VarScope, Box<str>, u32)>>);

impl Mentioned {
    /// Calls `show` for each variable that is set, in the order of their first use.
    pub fn each(&self, scope: VarScope, env: &Env<'_>, show: &mut impl FnMut(&str, Value<'static>)) {
        let Some(slots) = slots(scope, env) else { return };
        let all = self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (_, name, slot) in all.iter().filter(|(of, ..)| *of == scope) {
            slots.get(*slot).into_iter().for_each(|value| show(name, value));
        }
    }
}

/// The variables of a plan by name, and which data must be kept for its expressions.
#[derive(Debug, Default)]
pub struct Variables {
    names: HashMap<(VarScope, Box<str>), u32>,
    next: [u32; 6],
    mentioned: Arc<Mentioned>,
    wants_request_line: bool,
    wants_backend_source: bool,
    wants_server_tcp: bool,
    wants_turns: bool,
    wants_bodies: bool,
    wants_stream_numbers: bool,
    wants_tls_session: bool,
    wants_tls_finished: bool,
}

impl Variables {
    /// Resolves the variable `text` (`txn.foo`). Returns an error message if the name is invalid.
    pub fn resolve(&mut self, text: &str) -> Result<Var, String> {
        let Some((scope, name)) = text.split_once('.') else {
            return Err(no_scope(text));
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
            _ => return Err(no_scope(text)),
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

    /// Whether the variable `text` has been used so far.
    pub fn names_one(&self, text: &str) -> bool {
        let Some((scope, name)) = text.split_once('.') else { return false };
        let scope = match scope {
            "sess" => VarScope::Session,
            "txn" => VarScope::Transaction,
            "req" => VarScope::Request,
            "res" => VarScope::Response,
            "check" => VarScope::Check,
            _ => return false,
        };
        self.names.contains_key(&(scope, Box::from(name)))
    }

    /// Looks up a variable that is already in use.
    pub fn find(&self, scope: VarScope, name: &str) -> Option<Var> {
        self.names.get(&(scope, Box::from(name))).map(|slot| Var::Slot(scope, *slot))
    }

    /// The variable names, including those added later.
    pub fn mentioned(&self) -> Arc<Mentioned> {
        Arc::clone(&self.mentioned)
    }

    /// Records that an expression or format of the plan reads the request line as received.
    pub fn want_request_line(&mut self) {
        self.wants_request_line = true;
    }

    /// Whether the request line must be kept even without logs.
    pub fn wants_request_line(&self) -> bool {
        self.wants_request_line
    }

    /// Records that an expression or format of the plan reads the local address of the server connection.
    pub fn want_backend_source(&mut self) {
        self.wants_backend_source = true;
    }

    /// Whether the kernel must be queried for the local address of every server connection.
    pub fn wants_backend_source(&self) -> bool {
        self.wants_backend_source
    }

    /// Records that an expression reads the kernel's metrics of the server connection.
    pub fn want_server_tcp(&mut self) {
        self.wants_server_tcp = true;
    }

    /// Whether the kernel's metrics must be sampled before a server connection is released.
    pub fn wants_server_tcp(&self) -> bool {
        self.wants_server_tcp
    }

    /// Records that an expression reads the CPU cost of a request.
    pub fn want_turns(&mut self) {
        self.wants_turns = true;
    }

    /// Whether the turns of tasks must be measured.
    pub fn wants_turns(&self) -> bool {
        self.wants_turns
    }

    /// Records that an expression reads a message body.
    pub fn want_bodies(&mut self) {
        self.wants_bodies = true;
    }

    /// Whether rules need the part of the body that arrived with the head, even if nothing waits for more.
    pub fn wants_bodies(&self) -> bool {
        self.wants_bodies
    }

    /// Records that an expression or format reads a stream number.
    pub fn want_stream_numbers(&mut self) {
        self.wants_stream_numbers = true;
    }

    /// Whether streams of all workers must be numbered in one sequence; otherwise each worker has its own.
    pub fn wants_stream_numbers(&self) -> bool {
        self.wants_stream_numbers
    }

    /// Records that an expression or format reads the random bytes, ID or key of a TLS session.
    pub fn want_tls_session(&mut self) {
        self.wants_tls_session = true;
    }

    /// Whether the random bytes, ID and key must be kept from every handshake.
    pub fn wants_tls_session(&self) -> bool {
        self.wants_tls_session
    }

    /// Records that an expression or format reads TLS Finished messages.
    pub fn want_tls_finished(&mut self) {
        self.wants_tls_finished = true;
    }

    /// Whether handshakes must be observed.
    pub fn wants_tls_finished(&self) -> bool {
        self.wants_tls_finished
    }

    /// A copy for expressions that are compiled while the plan is in use. Names refer to the same slots.
    #[must_use]
    pub fn aside(&self) -> Self {
        let mentioned = self.mentioned.0.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        Self { names: self.names.clone(), mentioned: Arc::new(Mentioned(RwLock::new(mentioned))), ..*self }
    }

    /// A copy with the same names and slots, but without any requirements, for a plan that replaces this one.
    #[must_use]
    pub fn named_alone(&self) -> Self {
        let Self { names, mentioned, next, .. } = self.aside();
        Self { names, mentioned, next, ..Self::default() }
    }

    /// Returns the first requirement of this copy that `plan` does not meet: a variable that is not named elsewhere, or data that
    /// is stored only if an expression of the configuration uses it.
    pub fn beyond(&self, plan: &Self) -> Option<String> {
        if let Some((_, name)) = self.names.keys().find(|key| !plan.names.contains_key(*key)) {
            return Some(format!("variable '{name}' is not used in the configuration"));
        }
        let wants = [
            (self.wants_request_line, plan.wants_request_line, "the original request line"),
            (self.wants_backend_source, plan.wants_backend_source, "our address on server connections"),
            (self.wants_server_tcp, plan.wants_server_tcp, "kernel data on server connections"),
            (self.wants_turns, plan.wants_turns, "the processing time of requests"),
            (self.wants_bodies, plan.wants_bodies, "bodies of messages"),
            (self.wants_tls_session, plan.wants_tls_session, "keys of TLS sessions"),
            (self.wants_tls_finished, plan.wants_tls_finished, "TLS Finished messages"),
        ];
        let (.., what) = wants.into_iter().find(|(own, kept, _)| *own && !kept)?;
        Some(format!("only available if an expression of the configuration already uses {what}"))
    }

    /// The names of a scope with their slots, sorted by name (`dump_all_vars`).
    pub fn named(&self) -> Vec<(VarScope, Box<str>, u32)> {
        let mut list: Vec<_> =
            self.names.iter().map(|((scope, name), slot)| (*scope, name.clone(), *slot)).collect();
        list.sort_by(|left, right| (left.0 as u8, &left.1).cmp(&(right.0 as u8, &right.1)));
        list
    }
}

/// The error for a name without a scope, in HAProxy's wording.
fn no_scope(text: &str) -> String {
    format!(
        "invalid variable name `{text}`. A variable name must start with its scope. The scope can be 'proc', '(p)sess', \
         '(p)txn', '(p)req', '(p)res' or 'check'"
    )
}
