//! Converters that store a value in one of the frontend's capture slots (manual, `declare capture`).

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg};
use crate::env::Env;
use crate::scope::Scope;
use crate::transaction::CaptureSlot;
use crate::value::{Type, Value};

const SLOT: &[Spec] = &[arg(ArgKind::Int)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name          arguments  takes      gives      description
    row("capture-req", SLOT,     Type::Str, Type::Str, "stores the value in a request capture slot",          capture_req).prepared(prepare),
    row("capture-res", SLOT,     Type::Str, Type::Str, "stores the value in a response capture slot", capture_res).prepared(prepare),
];

fn prepare(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match args[0] {
        Arg::Int(0..) => Ok(()),
        _ => Err("slots are numbered from 0".into()),
    }
}

/// Stores the text in a capture slot of the client's frontend. Returns `None` without that slot.
fn capture<'a>(value: Value<'a>, slot: CaptureSlot, env: &'a Env<'a>) -> Option<Value<'a>> {
    let text = value.into_str()?;
    let captured = env.transaction?.capture_late(&env.session?.frontend, slot, &text);
    captured.then_some(Value::Str(text))
}

fn capture_req<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    capture(value, CaptureSlot::Request(args.int(0)? as usize), env)
}

fn capture_res<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    capture(value, CaptureSlot::Response(args.int(0)? as usize), env)
}
