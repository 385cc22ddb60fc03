//! Maps: look up a value in a file of keys and values (manual, 7.3.1 `map`).

use std::net::IpAddr;

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Spec, arg, default_value, text_of};
use crate::env::Env;
use crate::pattern::{MatchMethod, ValueType, View};
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value, parse_int, parse_ip};

const TEXT: &[Spec] = &[arg(ArgKind::Str), default_value(ArgKind::Str)];
const NUMBER: &[Spec] = &[arg(ArgKind::Str), default_value(ArgKind::Int)];
const KEY: &[Spec] = &[arg(ArgKind::Str)];

/// The rows of one match method: text, number, address and key.
macro_rules! rows {
    ($takes:expr, $prepare:ident $of_numbers:ident $of_addresses:ident, $($name:literal $number:literal $address:literal $key:literal)+) => {
        [$(
            row($name,    TEXT,   $takes, Type::Str,  "looks up a value in a map",     map_text).prepared($prepare),
            row($number,  NUMBER, $takes, Type::Int,  "looks up an integer in a map",  map_int).prepared($of_numbers),
            row($address, TEXT,   $takes, Type::Addr, "looks up an address in a map",  map_ip).prepared($of_addresses),
            row($key,     KEY,    $takes, Type::Str,  "looks up the matching key in a map", map_key).prepared($prepare),
        )+]
    };
}

const STR: [Convert; 4] = rows!(Type::Str, prepare_str numbers_str addresses_str, "map_str" "map_str_int" "map_str_ip" "map_str_key");
const BEG: [Convert; 4] = rows!(Type::Str, prepare_beg numbers_beg addresses_beg, "map_beg" "map_beg_int" "map_beg_ip" "map_beg_key");
const END: [Convert; 4] = rows!(Type::Str, prepare_end numbers_end addresses_end, "map_end" "map_end_int" "map_end_ip" "map_end_key");
const SUB: [Convert; 4] = rows!(Type::Str, prepare_sub numbers_sub addresses_sub, "map_sub" "map_sub_int" "map_sub_ip" "map_sub_key");
const DIR: [Convert; 4] = rows!(Type::Str, prepare_dir numbers_dir addresses_dir, "map_dir" "map_dir_int" "map_dir_ip" "map_dir_key");
const DOM: [Convert; 4] = rows!(Type::Str, prepare_dom numbers_dom addresses_dom, "map_dom" "map_dom_int" "map_dom_ip" "map_dom_key");
const REG: [Convert; 4] = rows!(Type::Str, prepare_reg numbers_reg addresses_reg, "map_reg" "map_reg_int" "map_reg_ip" "map_reg_key");
const INT: [Convert; 4] = rows!(Type::Int, prepare_int numbers_int addresses_int, "map_int" "map_int_int" "map_int_ip" "map_int_key");
const IP: [Convert; 4] =
    rows!(Type::Addr, prepare_ip numbers_ip addresses_ip, "map_ip" "map_ip_int" "map_ip_ip" "map_ip_key");

pub(super) static CONVERTS: &[Convert] = &{
    let [str0, str1, str2, str3] = STR;
    let [beg0, beg1, beg2, beg3] = BEG;
    let [end0, end1, end2, end3] = END;
    let [sub0, sub1, sub2, sub3] = SUB;
    let [dir0, dir1, dir2, dir3] = DIR;
    let [dom0, dom1, dom2, dom3] = DOM;
    let [reg0, reg1, reg2, reg3] = REG;
    let [int0, int1, int2, int3] = INT;
    let [ip0, ip1, ip2, ip3] = IP;
    [
        row("map", TEXT, Type::Str, Type::Str, "looks up a value in a map", map_text).prepared(prepare_str),
        row(
            "map_regm",
            TEXT,
            Type::Str,
            Type::Str,
            "looks up a value in a map and expands its back-references",
            map_regm,
        )
        .prepared(prepare_reg),
        str0,
        str1,
        str2,
        str3,
        beg0,
        beg1,
        beg2,
        beg3,
        end0,
        end1,
        end2,
        end3,
        sub0,
        sub1,
        sub2,
        sub3,
        dir0,
        dir1,
        dir2,
        dir3,
        dom0,
        dom1,
        dom2,
        dom3,
        reg0,
        reg1,
        reg2,
        reg3,
        int0,
        int1,
        int2,
        int3,
        ip0,
        ip1,
        ip2,
        ip3,
    ]
};

fn prepare(args: &mut [Arg], scope: &Scope<'_>, method: MatchMethod) -> Result<(), String> {
    let name = base::raw::text_of(text_of(&args[0])).into_owned();
    let list = scope.patterns.borrow_mut().file(&name, true, |path| scope.names.read_patterns(path))?;
    args[0] = Arg::View(Box::new(View::new(list, method, false)?));
    Ok(())
}

/// Like [`prepare`], and also requires a type of every value. `what` is the end of the error message.
fn prepare_typed(
    args: &mut [Arg],
    scope: &Scope<'_>,
    method: MatchMethod,
    (required, what): (ValueType, &str),
) -> Result<(), String> {
    prepare(args, scope, method)?;
    let Arg::View(view) = &args[0] else { return Ok(()) };
    match view.list().require_values(required) {
        None => Ok(()),
        Some(line) => Err(format!(
            "`{}`, the value of `{}` in `{}`, is {what}",
            base::raw::text_of(line.value.as_deref().unwrap_or_default()),
            base::raw::text_of(&line.key),
            view.list().name()
        )),
    }
}

/// Parses the default address. As in HAProxy, a prefix length is ignored.
fn prepare_default_address(args: &mut [Arg]) -> Result<(), String> {
    let Some(Arg::Bytes(text)) = args.get(1) else { return Ok(()) };
    let text = base::raw::text_of(text).into_owned();
    let address = match text.split_once('/') {
        Some((address, _)) => base::network::Network::parse(&text).ok().and(parse_ip(address.as_bytes())),
        None => parse_ip(text.as_bytes()),
    };
    args[1] = match address {
        Some(IpAddr::V4(address)) => Arg::Ip4(address),
        Some(IpAddr::V6(address)) => Arg::Ip6(address),
        None => return Err(format!("the default `{text}` is not an address")),
    };
    Ok(())
}

macro_rules! prepares {
    ($($name:ident $numbers:ident $addresses:ident $method:ident)+) => {
        $(fn $name(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
            prepare(args, scope, MatchMethod::$method)
        }

        fn $numbers(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
            prepare_typed(args, scope, MatchMethod::$method, (ValueType::Int, "not an integer"))
        }

        fn $addresses(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
            prepare_typed(args, scope, MatchMethod::$method, (ValueType::Address, "not an address"))?;
            prepare_default_address(args)
        })+
    };
}

prepares! {
    prepare_str numbers_str addresses_str Str
    prepare_beg numbers_beg addresses_beg Beg
    prepare_end numbers_end addresses_end End
    prepare_sub numbers_sub addresses_sub Sub
    prepare_dir numbers_dir addresses_dir Dir
    prepare_dom numbers_dom addresses_dom Dom
    prepare_reg numbers_reg addresses_reg Reg
    prepare_int numbers_int addresses_int Int
    prepare_ip numbers_ip addresses_ip Ip
}

fn map_text<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let found = args.view(0)?.lookup(&value, Scratch::copy);
    found.map(Value::made).or_else(|| args.bytes(1).map(Value::str))
}

fn map_int<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let found = args.view(0)?.lookup(&value, parse_int).flatten();
    found.or(args.int(1)).map(Value::Int)
}

fn map_ip<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let found = args.view(0)?.lookup(&value, parse_ip).flatten();
    let default = || match args.get(1) {
        Arg::Ip4(address) => Some(IpAddr::V4(*address)),
        Arg::Ip6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    };
    found.or_else(default).map(Value::ip)
}

fn map_key<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    args.view(0)?.lookup_key(&value, Scratch::copy).map(Value::made)
}

fn map_regm<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let mut out = Scratch::new();
    if args.view(0)?.expand(value.bytes()?, &mut out) {
        return Some(Value::made(out));
    }
    args.bytes(1).map(Value::str)
}
