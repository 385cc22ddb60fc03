//! MQTT 3.1, 3.1.1 and 5.0: CONNECT and CONNACK, the first packets of a connection (OASIS MQTT 5.0, chapters 2 and 3).

use super::{Convert, row};
use crate::args::{Arg, ArgKind, Args, arg, text_of};
use crate::env::Env;
use crate::scope::Scope;
use crate::value::{Scratch, Type, Value, write_int};

#[rustfmt::skip]
pub(super) static CONVERTS: &[Convert] = &[
    // name arguments takes gives description
    row("mqtt_is_valid",     &[],                                 Type::Bin,  Type::Bool, "checks whether a CONNECT or CONNACK packet is valid", mqtt_is_valid),
    row("mqtt_field_value",  &[arg(ArgKind::Str), arg(ArgKind::Str)],   Type::Bin,  Type::Str,  "extracts a field or property of a CONNECT or CONNACK packet", mqtt_field_value).prepared(prepare_field),
];

const CONNECT: u8 = 1;
const CONNACK: u8 = 2;

/// The field names of `mqtt_field_value`. Properties use their own numbers, starting at 1.
const FIELDS: &[(&str, u8)] = &[
    ("flags", FLAGS),
    ("protocol_name", PROTOCOL_NAME),
    ("protocol_version", PROTOCOL_VERSION),
    ("client_identifier", CLIENT_IDENTIFIER),
    ("will_topic", WILL_TOPIC),
    ("will_payload", WILL_PAYLOAD),
    ("username", USERNAME),
    ("password", PASSWORD),
    ("keepalive", KEEPALIVE),
    ("reason_code", REASON_CODE),
];
const FLAGS: u8 = 200;
const PROTOCOL_NAME: u8 = 201;
const PROTOCOL_VERSION: u8 = 202;
const CLIENT_IDENTIFIER: u8 = 203;
const WILL_TOPIC: u8 = 204;
const WILL_PAYLOAD: u8 = 205;
const USERNAME: u8 = 206;
const PASSWORD: u8 = 207;
const KEEPALIVE: u8 = 208;
const REASON_CODE: u8 = 209;

/// A field's value: a number, or bytes.
#[derive(Clone, Copy)]
enum MqttValue<'b> {
    Number(u32),
    Bytes(&'b [u8]),
}

/// A packet that cannot be parsed.
enum Problem {
    /// Truncated.
    Short,
    Wrong,
}

/// Parses a packet and passes every field to `see`.
struct PacketReader<'b, 's> {
    rest: &'b [u8],
    see: &'s mut dyn FnMut(u8, MqttValue<'b>),
}

type Read<T> = Result<T, Problem>;

impl<'b> PacketReader<'b, '_> {
    fn take(&mut self, length: usize) -> Read<&'b [u8]> {
        let (part, rest) = self.rest.split_at_checked(length).ok_or(Problem::Wrong)?;
        self.rest = rest;
        Ok(part)
    }

    fn number(&mut self, length: usize) -> Read<u32> {
        Ok(self.take(length)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn variable(&mut self) -> Read<u32> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.number(1)?;
            number |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Problem::Wrong)
    }

    fn string(&mut self) -> Read<&'b [u8]> {
        let length = self.number(2)?;
        self.take(length as usize)
    }

    /// Reads MQTT 5.0 properties, of which only those in `allowed` are valid at this position.
    fn properties(&mut self, allowed: &[u8]) -> Read<()> {
        let length = self.variable()? as usize;
        let mut inner = PacketReader { rest: self.take(length)?, see: &mut *self.see };
        while !inner.rest.is_empty() {
            let id = inner.variable()? as u8;
            if !allowed.contains(&id) {
                return Err(Problem::Wrong);
            }
            let found = match id {
                1 | 23 | 25 | 36 | 37 | 40 | 41 | 42 => MqttValue::Number(inner.number(1)?),
                19 | 33 | 34 => MqttValue::Number(inner.number(2)?),
                2 | 17 | 18 | 39 => MqttValue::Number(inner.number(4)?),
                38 => {
                    inner.string()?;
                    inner.string()?;
                    continue;
                }
                _ => MqttValue::Bytes(inner.string()?),
            };
            (inner.see)(id, found);
        }
        Ok(())
    }

    fn connect(&mut self) -> Read<()> {
        let name = self.string()?;
        let version = self.number(1)?;
        let known = matches!((name, version), (b"MQIsdp", 3) | (b"MQTT", 4 | 5));
        if !known {
            return Err(Problem::Wrong);
        }
        let flags = self.number(1)?;
        // The lowest bit is reserved. Without a will, its QoS and retain flags must be 0.
        let will = flags & 0x04 != 0;
        let quality = flags >> 3 & 3;
        if flags & 1 != 0
            || quality == 3
            || (!will && flags & 0x38 != 0)
            || (version < 5 && flags & 0xc0 == 0x40)
        {
            return Err(Problem::Wrong);
        }
        let keepalive = self.number(2)?;
        (self.see)(PROTOCOL_NAME, MqttValue::Bytes(name));
        (self.see)(PROTOCOL_VERSION, MqttValue::Number(version));
        (self.see)(FLAGS, MqttValue::Number(flags));
        (self.see)(KEEPALIVE, MqttValue::Number(keepalive));
        if version == 5 {
            self.properties(&[17, 33, 39, 34, 25, 23, 38, 21, 22])?;
        }
        let client = self.string()?;
        (self.see)(CLIENT_IDENTIFIER, MqttValue::Bytes(client));
        if will {
            if version == 5 {
                self.properties(&[24, 18, 1, 2, 3, 8, 9, 38])?;
            }
            let (topic, payload) = (self.string()?, self.string()?);
            (self.see)(WILL_TOPIC, MqttValue::Bytes(topic));
            (self.see)(WILL_PAYLOAD, MqttValue::Bytes(payload));
        }
        if flags & 0x80 != 0 {
            let user = self.string()?;
            (self.see)(USERNAME, MqttValue::Bytes(user));
        }
        if flags & 0x40 != 0 {
            let password = self.string()?;
            (self.see)(PASSWORD, MqttValue::Bytes(password));
        }
        Ok(())
    }

    fn connack(&mut self) -> Read<()> {
        let flags = self.number(1)?;
        let reason = self.number(1)?;
        if flags & 0xfe != 0 {
            return Err(Problem::Wrong);
        }
        (self.see)(FLAGS, MqttValue::Number(flags));
        (self.see)(REASON_CODE, MqttValue::Number(reason));
        // Only MQTT 5.0 has data after the reason code.
        let version = if self.rest.is_empty() { 4 } else { 5 };
        (self.see)(PROTOCOL_VERSION, MqttValue::Number(version));
        if version == 5 {
            self.properties(&[17, 33, 36, 37, 39, 18, 34, 31, 38, 40, 41, 42, 19, 26, 28, 21, 22])?;
        }
        Ok(())
    }
}

/// Parses the first packet and returns its type.
fn read<'b>(bytes: &'b [u8], see: &mut dyn FnMut(u8, MqttValue<'b>)) -> Read<u8> {
    let Some((first, rest)) = bytes.split_first() else { return Err(Problem::Short) };
    let kind = first >> 4;
    if first & 15 != 0 || !matches!(kind, CONNECT | CONNACK) {
        return Err(Problem::Wrong);
    }
    let mut length = PacketReader { rest, see: &mut |_, _| {} };
    let announced = match length.variable() {
        Ok(announced) => announced as usize,
        Err(_) if rest.len() < 4 => return Err(Problem::Short),
        Err(problem) => return Err(problem),
    };
    let body = length.rest.get(..announced).ok_or(Problem::Short)?;
    let mut reader = PacketReader { rest: body, see };
    match kind {
        CONNECT => reader.connect()?,
        _ => reader.connack()?,
    }
    if reader.rest.is_empty() { Ok(kind) } else { Err(Problem::Wrong) }
}

fn mqtt_is_valid<'a>(value: Value<'a>, _: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    match read(value.bytes()?, &mut |_, _| {}) {
        Ok(_) => Some(Value::Bool(true)),
        // An incomplete packet has no result, whether or not more bytes follow.
        Err(Problem::Short) => {
            env.want_bytes(true);
            None
        }
        Err(_) => Some(Value::Bool(false)),
    }
}

fn prepare_field(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    let lower = |arg: &Arg| String::from_utf8_lossy(text_of(arg)).to_ascii_lowercase();
    let kind = match &*lower(&args[0]) {
        "connect" | "1" => CONNECT,
        "connack" | "2" => CONNACK,
        other => return Err(format!("packet type `{other}` is not supported; use CONNECT or CONNACK")),
    };
    let name = lower(&args[1]);
    let named = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
    let field = named.or_else(|| name.parse().ok().filter(|id| (1..=42).contains(id) && *id != 38));
    let field = field.ok_or_else(|| format!("unknown field or property `{name}`"))?;
    args[0] = Arg::Int(i64::from(kind));
    args[1] = Arg::Int(i64::from(field));
    Ok(())
}

fn mqtt_field_value<'a>(value: Value<'a>, args: &'a Args, env: &'a Env<'a>) -> Option<Value<'a>> {
    let wanted = args.int(1)? as u8;
    let bytes = value.bytes()?;
    let mut found = None;
    let result = read(bytes, &mut |field, value| {
        if field == wanted {
            found = Some(value);
        }
    });
    match result {
        Ok(kind) if i64::from(kind) == args.int(0)? => {}
        Ok(_) => return None,
        Err(problem) => {
            env.want_bytes(matches!(problem, Problem::Short));
            return None;
        }
    }
    let mut out = Scratch::new();
    match found? {
        MqttValue::Number(number) => write_int(&mut out, i64::from(number)),
        MqttValue::Bytes(bytes) => out.extend_from_slice(bytes),
    }
    Some(Value::Str(out.into()))
}
