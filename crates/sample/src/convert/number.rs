//! Converters for numbers and booleans.

use super::{Convert, calculation, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg};
use crate::env::Env;
use crate::value::{Bytes, Type, Value};

const NUMBER: &[Spec] = &[arg(ArgKind::IntOrVariable)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //          name     arguments   description
    calculation("add",   NUMBER,     "adds a number or variable",                                    add),
    calculation("sub",   NUMBER,     "subtracts a number or variable",                               sub),
    calculation("mul",   NUMBER,     "multiplies by a number or variable",                           mul),
    calculation("div",   NUMBER,     "divides by a number or variable; the largest number if it is 0", div),
    calculation("mod",   NUMBER,     "returns the remainder of a division by a number or variable; 0 if it is 0", modulo),
    calculation("and",   NUMBER,     "computes a bitwise AND",                                       and),
    calculation("or",    NUMBER,     "computes a bitwise OR",                                        or),
    calculation("xor",   NUMBER,     "computes a bitwise XOR",                                       xor),
    calculation("cpl",   &[],        "inverts all bits",                                             cpl),
    calculation("neg",   &[],        "negates the number",                                           neg),
    //  name     arguments                          takes       gives       description
    row("not",   &[],                               Type::Int,  Type::Bool, "checks whether the number is 0",                 not),
    row("bool",  &[],                               Type::Int,  Type::Bool, "checks whether the number is not 0",             boolean),
    row("odd",   &[],                               Type::Int,  Type::Bool, "checks whether the number is odd",               odd),
    row("even",  &[],                               Type::Int,  Type::Bool, "checks whether the number is even",              even),
    row("iif",   &[arg(ArgKind::Str), arg(ArgKind::Str)], Type::Bool, Type::Str,  "returns the first argument if true, the second if false", iif),
    row("htonl", &[],                               Type::Int,  Type::Bin,  "encodes the low 32 bits in network byte order",  htonl),
];

/// The numeric argument, or the value of its variable.
#[inline]
fn operand(args: &Args, env: &Env<'_>) -> Option<i64> {
    match args.get(0) {
        Arg::Int(value) => Some(*value),
        arg => number_in(arg, env),
    }
}

#[inline(never)]
fn number_in(arg: &Arg, env: &Env<'_>) -> Option<i64> {
    match arg {
        Arg::Var(var) => var.get(env)?.to_int(),
        _ => None,
    }
}

fn add(number: i64, args: &Args, env: &Env<'_>) -> Option<i64> {
    Some(number.saturating_add(operand(args, env)?))
}

fn sub(number: i64, args: &Args, env: &Env<'_>) -> Option<i64> {
    Some(number.saturating_sub(operand(args, env)?))
}

fn mul(number: i64, args: &Args, env: &Env<'_>) -> Option<i64> {
    Some(number.saturating_mul(operand(args, env)?))
}

fn div(number: i64, args: &Args, env: &Env<'_>) -> Option<i64> {
    Some(number.checked_div(operand(args, env)?).unwrap_or(i64::MAX))
}

fn modulo(number: i64, args: &Args, env: &Env<'_>) -> Option<i64> {
    Some(number.checked_rem(operand(args, env)?).unwrap_or(0))
}

fn and(number: i64, args: &Args, env: &Env<'_>) -> Option<i64> {
    Some(number & operand(args, env)?)
}

fn or(number: i64, args: &Args, env: &Env<'_>) -> Option<i64> {
    Some(number | operand(args, env)?)
}

fn xor(number: i64, args: &Args, env: &Env<'_>) -> Option<i64> {
    Some(number ^ operand(args, env)?)
}

fn cpl(number: i64, _: &Args, _: &Env<'_>) -> Option<i64> {
    Some(!number)
}

fn neg(number: i64, _: &Args, _: &Env<'_>) -> Option<i64> {
    Some(number.saturating_neg())
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
