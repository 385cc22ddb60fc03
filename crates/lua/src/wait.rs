//! The events that scripts wait for, and their results.

use crate::convert::number;
use crate::host_calls::{ScriptRequest, SocketOp};
use crate::signal::Signal;
use mlua::{IntoLuaMulti, Lua, MultiValue, Value};

/// An event that a script waits for.
#[derive(Debug)]
pub enum Wait {
    /// The next turn: the script has used up its turn, or yielded (`core.yield`).
    Turn,
    /// This many milliseconds (`core.msleep`, `core.sleep`).
    Sleep(u64),
    /// The script's response head has been sent.
    Start,
    /// The script's output has been sent.
    Flush,
    /// More input, for at most this many milliseconds.
    Input(Option<u64>),
    /// This signal is given more than this many times, or this many milliseconds have passed.
    Change(Signal, u64, Option<u64>),
    /// An operation on a socket of the script.
    Socket(SocketOp),
    /// The response to an HTTP request of the script.
    Ask(Box<ScriptRequest>),
    /// A runtime socket command: its words, and its payload.
    Command(Vec<String>, Option<String>),
    /// A restart after this many milliseconds, because an action requested to be called again (`act.YIELD`). No value that a
    /// coroutine yields means this.
    Again(u64),
    /// The end of the request, as requested by the script (`txn:done`).
    End,
}

/// The numbers that the prelude uses for the variants of [`Wait`].
pub(crate) mod code {
    pub(crate) const DONE: i64 = 0;
    pub(crate) const SLEEP: i64 = 2;
    pub(crate) const END: i64 = 3;
    pub(crate) const START: i64 = 4;
    pub(crate) const FLUSH: i64 = 5;
    pub(crate) const INPUT: i64 = 6;
    pub(crate) const FINISH: i64 = 7;
    pub(crate) const CHANGE: i64 = 8;
    pub(crate) const SOCKET: i64 = 9;
    pub(crate) const ASK: i64 = 10;
    pub(crate) const COMMAND: i64 = 11;
}

impl Wait {
    /// Parses the values that a coroutine yields: a number and its arguments.
    pub(crate) fn read(code: i64, values: &MultiValue) -> Self {
        let time = |at: usize| {
            let number = values.get(at).and_then(number)?;
            Some(number.clamp(0.0, 1e12).ceil() as u64)
        };
        match code {
            code::SLEEP => Self::Sleep(time(0).unwrap_or(0)),
            code::START => Self::Start,
            code::FLUSH => Self::Flush,
            code::INPUT => Self::Input(time(0)),
            code::END => Self::End,
            code::CHANGE => {
                let signal =
                    values.front().and_then(Value::as_userdata).and_then(|data| data.borrow::<Signal>().ok());
                let seen = values.get(1).and_then(Value::as_integer).unwrap_or(0);
                signal.map_or(Self::Turn, |signal| Self::Change(signal.clone(), seen as u64, time(2)))
            }
            code::SOCKET => SocketOp::read(values).map_or(Self::Turn, Self::Socket),
            code::ASK => ScriptRequest::read(values).map_or(Self::Turn, |ask| Self::Ask(Box::new(ask))),
            code::COMMAND => {
                let text = |value: &Value| value.as_string().map(|text| text.to_string_lossy());
                let payload = values.front().and_then(text);
                Self::Command(values.iter().skip(1).filter_map(text).collect(), payload)
            }
            _ => Self::Turn,
        }
    }
}

/// The result of a wait.
#[derive(Debug, Default)]
pub enum WaitAnswer {
    /// Nothing.
    #[default]
    Nothing,
    /// A text.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// A failure, with the reason.
    Failed(String),
    /// A response: status, reason phrase, header fields, body.
    Response(u16, String, Vec<(String, String)>, Vec<u8>),
}

impl IntoLuaMulti for WaitAnswer {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        match self {
            Self::Nothing => Ok(MultiValue::new()),
            Self::Text(text) => lua.create_string(&text)?.into_lua_multi(lua),
            Self::Number(number) => number.into_lua_multi(lua),
            Self::Response(status, reason, headers, body) => {
                let fields = lua.create_table()?;
                for (name, value) in headers {
                    fields.raw_push(lua.create_sequence_from([name.to_ascii_lowercase(), value])?)?;
                }
                (status, reason, fields, lua.create_string(body)?).into_lua_multi(lua)
            }
            Self::Failed(why) => (Value::Nil, why).into_lua_multi(lua),
        }
    }
}
