//! A converter that prints the value of an expression, for debugging.

use std::sync::Arc;

use base::output::Standard;

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, Prepared, Spec, opt, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value};

const DEBUG: &[Spec] = &[opt(ArgKind::Str), opt(ArgKind::Str)];

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    //  name     arguments  takes      gives       description
    row("debug", DEBUG,     Type::Any, Type::Same, "logs the value to a ring, stdout or stderr", debug).prepared(prepare),
];

/// The destination of the line.
#[derive(Debug)]
enum Destination {
    Stdout,
    Stderr,
    Ring(Arc<state::Ring>),
}

impl Prepared for Destination {}

fn prepare(args: &mut Vec<Arg>, scope: &Scope<'_>) -> Result<(), String> {
    let name = match text_of(&args[1]) {
        b"" => "buf0".to_owned(),
        text => String::from_utf8_lossy(text).into_owned(),
    };
    let destination = match &*name {
        "stdout" => Destination::Stdout,
        "stderr" => Destination::Stderr,
        _ => Destination::Ring(scope.names.ring(&name).ok_or_else(|| {
            format!("unknown sink `{name}`; use stdout, stderr, buf0 or a configured ring")
        })?),
    };
    args.push(Arg::Prepared(Arc::new(destination)));
    Ok(())
}

fn debug<'a>(value: Value<'a>, args: &'a Args, _: &'a Env<'a>) -> Option<Value<'a>> {
    let line = describe(&value, args.bytes(0).unwrap_or_default());
    // A failed write does not end the request.
    match args.prepared(2)? {
        Destination::Stdout => drop(Standard::Output.write(&line)),
        Destination::Stderr => drop(Standard::Error.write(&line)),
        Destination::Ring(ring) => {
            ring.write(line.strip_suffix(b"\n").unwrap_or(&line));
        }
    }
    Some(value)
}

/// Formats prefix, type and value as one line. Unprintable bytes become dots.
fn describe(value: &Value<'_>, prefix: &[u8]) -> Scratch {
    let mut line = Scratch::copy(b"[debug] ");
    line.extend_from_slice(prefix);
    line.extend_from_slice(b": type=");
    line.extend_from_slice(value.kind().name().as_bytes());
    line.extend_from_slice(b" <");
    let start = line.len();
    value.write_text(&mut line);
    for byte in line[start..].iter_mut().filter(|byte| !matches!(byte, b' '..=b'~')) {
        *byte = b'.';
    }
    line.extend_from_slice(b">\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_lines_have_prefix_type_and_printable_bytes() {
        let cases = [
            (Value::str(b"hello"), "pfx", "[debug] pfx: type=str <hello>\n"),
            (Value::Int(-5), "", "[debug] : type=sint <-5>\n"),
            (Value::bin(b"a\x01b"), "x", "[debug] x: type=bin <a.b>\n"),
        ];
        for (value, prefix, expected) in cases {
            assert_eq!(String::from_utf8_lossy(&describe(&value, prefix.as_bytes())), expected);
        }
    }
}
