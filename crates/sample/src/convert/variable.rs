//! Converters for variables and conditions: they store the value, or drop it if a condition is not met.

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, arg, opt, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::transaction::{Cause, Phase};
use crate::value::{Type, Value};
use crate::vars::SetConditions;

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    // name arguments takes gives description
    row("set-var",    &[arg(ArgKind::Variable), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)],        Type::Any,  Type::Same, "stores the value in a variable",            set_var).prepared(prepare_set_var),
    row("unset-var",  &[arg(ArgKind::Variable)],                                                                        Type::Any,  Type::Same, "unsets a variable",                         unset_var),
    row("when",       &[arg(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)],                                             Type::Any,  Type::Same, "passes the value on only if a condition is true", when).prepared(prepare_when),
];

/// Collects the conditions into the second argument.
pub(crate) fn prepare_set_var(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let mut conditions = SetConditions::default();
    for arg in &args[1..] {
        if let Arg::Bytes(text) = arg {
            conditions.add(&String::from_utf8_lossy(text))?;
        }
    }
    args.truncate(1);
    args.push(Arg::SetConditions(conditions));
    Ok(())
}

fn set_var<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let (Arg::Var(var), Arg::SetConditions(conditions)) = (args.get(0), args.get(1)) else { return None };
    conditions.allow(env, var, &value).then(|| {
        var.set(env, &value);
        value
    })
}

fn unset_var<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    if let Arg::Var(var) = args.get(0) {
        var.unset(env);
    }
    Some(value)
}

const CONDITIONS: &[&str] = &["acl", "error", "forwarded", "normal", "processed", "stopping", "toapplet"];

/// Replaces the arguments with the condition's number, its negation flag and the ACL.
fn prepare_when(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let text = String::from_utf8_lossy(text_of(&args[0])).into_owned();
    let name = text.strip_prefix('!').unwrap_or(&text);
    let number = CONDITIONS.iter().position(|known| *known == name);
    let number =
        number.ok_or_else(|| format!("unknown condition `{name}`; use one of: {}", CONDITIONS.join(", ")))?;
    let acl = match name {
        "acl" if matches!(args[1], Arg::Missing) => {
            return Err("the condition `acl` requires an ACL name".into());
        }
        "acl" => {
            let acl = String::from_utf8_lossy(text_of(&args[1])).into_owned();
            if acl.starts_with('!') {
                return Err(format!("unknown ACL `{acl}`; use `when(!acl,…)` to negate an ACL"));
            }
            Arg::Predicate(scope.names.predicate(vec![acl], scope)?)
        }
        _ => Arg::Missing,
    };
    *args = vec![Arg::Int(number as i64), Arg::Int((text.len() - name.len()) as i64), acl];
    Ok(())
}

fn when<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let transaction = env.transaction;
    let failed = transaction.is_some_and(|transaction| {
        let end = transaction.termination;
        // A regular response that Weir generates is not an error.
        let cut = match end.cause {
            Cause::None => end.phase != Phase::None,
            cause => cause != Cause::Local,
        };
        cut || transaction.status >= 500 || transaction.redispatched || transaction.retries > 0
    });
    let forwarded = transaction.is_some_and(|transaction| transaction.server.is_some());
    let answered_here = transaction.is_some_and(|transaction| transaction.service.is_some());
    let holds = match CONDITIONS.get(args.int(0)? as usize).copied()? {
        "acl" => match args.get(2) {
            Arg::Predicate(predicate) => predicate.holds(env),
            _ => false,
        },
        "error" => failed,
        "normal" => !failed,
        "forwarded" => forwarded,
        "processed" => forwarded || answered_here,
        "toapplet" => answered_here,
        _ => env.process.stopping.load(std::sync::atomic::Ordering::Relaxed),
    };
    (holds != (args.int(1) == Some(1))).then_some(value)
}
