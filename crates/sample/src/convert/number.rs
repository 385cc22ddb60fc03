//! Numbers and booleans.

use super::{Convert, row};
use crate::args::{Arg, Args, Kind, Spec, arg};
use crate::env::Env;
use crate::value::{Bytes, Type, Value};

const NUMBER: &[Spec] = &[arg(Kind::IntOrVariable)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name     arguments                                takes       gives       what it does
    row("add",   NUMBER,                                  Type::Int,  Type::Int,  "adds a number or variable",                      add),
    row("sub",   NUMBER,                                  Type::Int,  Type::Int,  "subtracts one",                                  sub),
    row("mul",   NUMBER,                                  Type::Int,  Type::Int,  "multiplies by one",                              mul),
    row("div",   NUMBER,                                  Type::Int,  Type::Int,  "divides by one; the largest number by 0",        div),
    row("mod",   NUMBER,                                  Type::Int,  Type::Int,  "the rest of the division by one; 0 by 0",        modulo),
    row("and",   NUMBER,                                  Type::Int,  Type::Int,  "bits in both",                                   and),
    row("or",    NUMBER,                                  Type::Int,  Type::Int,  "bits in either",                                 or),
    row("xor",   NUMBER,                                  Type::Int,  Type::Int,  "bits in one only",                               xor),
    row("cpl",   &[],                                     Type::Int,  Type::Int,  "the other bits",                                 cpl),
    row("neg",   &[],                                     Type::Int,  Type::Int,  "the opposite",                                   neg),
    row("not",   &[],                                     Type::Int,  Type::Bool, "whether it is 0",                                not),
    row("bool",  &[],                                     Type::Int,  Type::Bool, "whether it is not 0",                            boolean),
    row("odd",   &[],                                     Type::Int,  Type::Bool, "whether it is odd",                              odd),
    row("even",  &[],                                     Type::Int,  Type::Bool, "whether it is even",                             even),
    row("iif",   &[arg(Kind::Str), arg(Kind::Str)],       Type::Bool, Type::Str,  "the first argument if true, else the second",    iif),
    row("htonl", &[],                                     Type::Int,  Type::Bin,  "its low 32 bits in network order",               htonl),
];

fn operand(args: &Args, env: &Env<'_>) -> Option<i64> {
    match args.get(0) {
        Arg::Int(value) => Some(*value),
        Arg::Var(var) => var.get(env)?.to_int(),
        _ => None,
    }
}

fn calculate<'a>(
    value: Value<'a>,
    args: &Args,
    env: &Env<'_>,
    operation: fn(i64, i64) -> i64,
) -> Option<Value<'a>> {
    Some(Value::Int(operation(value.to_int()?, operand(args, env)?)))
}

fn add<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    calculate(value, args, env, i64::saturating_add)
}

fn sub<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    calculate(value, args, env, i64::saturating_sub)
}

fn mul<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    calculate(value, args, env, i64::saturating_mul)
}

fn div<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    calculate(value, args, env, |left, right| left.checked_div(right).unwrap_or(i64::MAX))
}

fn modulo<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    calculate(value, args, env, |left, right| left.checked_rem(right).unwrap_or(0))
}

fn and<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    calculate(value, args, env, |left, right| left & right)
}

fn or<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    calculate(value, args, env, |left, right| left | right)
}

fn xor<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    calculate(value, args, env, |left, right| left ^ right)
}

fn cpl<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Int(!value.to_int()?))
}

fn neg<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Int(value.to_int()?.saturating_neg()))
}

fn not<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Bool(value.to_int()? == 0))
}

fn boolean<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Bool(value.to_int()? != 0))
}

fn odd<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Bool(value.to_int()? & 1 == 1))
}

fn even<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    Some(Value::Bool(value.to_int()? & 1 == 0))
}

fn iif<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    args.bytes(if value.to_bool()? { 0 } else { 1 }).map(Value::str)
}

fn htonl<'a>(value: Value<'a>, _: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let bytes = (value.to_int()? as u32).to_be_bytes();
    Some(Value::Bin(Bytes::Made(crate::value::Scratch::copy(&bytes))))
}
