//! Stores an agent's answer in variables. Names from the agent are prefixed with the engine's prefix, so the agent cannot access
//! other variables. Variables that the configuration does not use are ignored, unless a script may read them.

use plan::spoe::Agent;
use sample::Env;
use sample::value::Value;
use sample::vars::{Var, VarScope, find_process_variable, process_variable, process_variables};
use spop::{Action, Actions, Data, Scope};

use crate::client::Client;

/// Agents cannot create further process variables once there are this many (`option force-set-var`).
const MOST_OF_PROCESS: usize = 10_000;

/// Applies the actions of an answer, up to the first invalid one.
pub(super) fn apply(answer: &[u8], agent: &Agent, client: &Client, env: &Env<'_>) {
    for action in Actions::of(answer) {
        let (scope, name) = match action {
            Action::Set { scope, name, .. } | Action::Unset { scope, name } => (scope, name),
        };
        let sets = matches!(action, Action::Set { .. });
        let Some(var) = find(scope, name, agent, client, sets) else { continue };
        match action {
            Action::Set { value, .. } => match value_of(value) {
                Some(value) => drop(var.set(env, &value)),
                None => var.unset(env),
            },
            Action::Unset { .. } => var.unset(env),
        }
    }
}

/// Returns the variable that an agent names.
fn find(scope: Scope, name: &[u8], agent: &Agent, client: &Client, sets: bool) -> Option<Var> {
    let name = std::str::from_utf8(name).ok()?;
    let name = format!("{}.{name}", agent.prefix);
    let (scope, written) = match scope {
        Scope::Process => {
            let known = find_process_variable(&name);
            let may_make =
                || sets && agent.forces && is_fit(&name) && process_variables().len() < MOST_OF_PROCESS;
            return known.or_else(|| may_make().then(|| process_variable(&name))).map(Var::Process);
        }
        Scope::Session => (VarScope::Session, "sess"),
        Scope::Transaction => (VarScope::Transaction, "txn"),
        Scope::Request => (VarScope::Request, "req"),
        Scope::Response => (VarScope::Response, "res"),
    };
    let plan = &client.worker.shared.plan;
    plan.variables.find(scope, &name).or_else(|| {
        // Scripts may read variables that the configuration does not use.
        let program = plan.lua.as_ref().filter(|_| is_fit(&name))?;
        program.variable(&format!("{written}.{name}"), sets)
    })
}

fn is_fit(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'))
}

fn value_of(data: Data<'_>) -> Option<Value<'_>> {
    Some(match data {
        Data::Null => return None,
        Data::Bool(value) => Value::Bool(value),
        Data::Int(value) => Value::Int(value),
        Data::Ip4(address) => Value::Ip4(address),
        Data::Ip6(address) => Value::Ip6(address),
        Data::Str(text) => Value::str(text),
        Data::Bin(bytes) => Value::bin(bytes),
    })
}
