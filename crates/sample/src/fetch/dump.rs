//! The fetch that dumps all variables as text (manual, `dump_all_vars`).

use std::sync::Arc;

use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, Prepared, Spec, opt, text_of};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};
use crate::vars::{Mentioned, VarScope};

const DUMP: &[Spec] = &[opt(ArgKind::Str), opt(ArgKind::Str), opt(ArgKind::Str)];

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name             arguments  gives      where             description
    row("dump_all_vars", DUMP,      Type::Str, Columns::ALWAYS,  "all variables as text, optionally filtered by scope and name prefix", dump_all_vars).prepared(prepare),
];

/// The scopes in output order.
const SCOPES: &[(&str, VarScope)] = &[
    ("sess", VarScope::Session),
    ("txn", VarScope::Transaction),
    ("req", VarScope::Request),
    ("res", VarScope::Response),
    ("proc", VarScope::Proc),
];

/// The requested scope, and the variable names in the plan, including those added later.
#[derive(Debug)]
struct DumpRequest(Option<VarScope>, Arc<Mentioned>);

impl Prepared for DumpRequest {}

fn prepare(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let wanted = match text_of(&args[0]) {
        b"" => None,
        text => {
            let text = String::from_utf8_lossy(text);
            let found = SCOPES.iter().find(|(name, _)| *name == text);
            Some(found.ok_or_else(|| format!("unknown scope `{text}`; use sess, txn, req, res or proc"))?.1)
        }
    };
    args.push(Arg::Prepared(Arc::new(DumpRequest(wanted, scope.variables.borrow().mentioned()))));
    Ok(())
}

fn dump_all_vars<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let DumpRequest(wanted, mentioned) = args.prepared(3)?;
    let prefix = args.bytes(1).unwrap_or_default();
    let separator = args.bytes(2).unwrap_or(b", ");
    let mut out = Scratch::new();
    for (word, scope) in SCOPES.iter().filter(|(_, scope)| wanted.is_none_or(|wanted| wanted == *scope)) {
        let mut show = |name: &str, value: Value<'_>| {
            if !name.as_bytes().starts_with(prefix) {
                return;
            }
            if !out.is_empty() {
                out.extend_from_slice(separator);
            }
            for part in [word.as_bytes(), b".", name.as_bytes(), b"="] {
                out.extend_from_slice(part);
            }
            write(&value, &mut out);
        };
        match scope {
            VarScope::Proc => {
                for (name, variable) in crate::vars::process_variables() {
                    variable.get().into_iter().for_each(|value| show(&name, value));
                }
            }
            scope => mentioned.each(*scope, env, &mut show),
        }
    }
    Some(Value::made(out))
}

/// Strings in quotes, bytes in hexadecimal, other values as plain text.
fn write(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Str(bytes) | Value::Method(bytes) => {
            out.push(b'"');
            for byte in bytes.iter() {
                let escaped: &[u8] = match byte {
                    b'"' => b"\\\"",
                    b'\\' => b"\\\\",
                    b'\r' => b"\\r",
                    b'\n' => b"\\n",
                    0x08 => b"\\b",
                    0 => b"\\0",
                    other => std::slice::from_ref(other),
                };
                out.extend_from_slice(escaped);
            }
            out.push(b'"');
        }
        Value::Bin(bytes) => {
            out.push(b'x');
            for byte in bytes.iter() {
                out.extend_from_slice(format!("{byte:02x}").as_bytes());
            }
        }
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        other => other.write_text(out),
    }
}
