//! What a script waits for, and what it gets for that.

use crate::convert::number;
use crate::host_calls::{ScriptRequest, SocketOp};
use crate::signal::Signal;
use mlua::{IntoLuaMulti, Lua, MultiValue, Value};

/// What a script waits for before it goes on.
#[derive(Debug)]
pub enum Wait {
    /// Others to have their turn: it used up its own, or said so (`core.yield`).
    Turn,
    /// So many milliseconds (`core.msleep`, `core.sleep`).
    Sleep(u64),
    /// The head of its response to be on its way.
    Start,
    /// What it sent to be on its way.
    Flush,
    /// More of what comes in, for so many milliseconds at most.
    Input(Option<u64>),
    /// This signal, to be given more often than that, for so many milliseconds at most.
    Change(Signal, u64, Option<u64>),
    /// A socket of its own.
    Socket(SocketOp),
    /// The response to a request of its own.
    Ask(Box<ScriptRequest>),
    /// A command of the runtime socket: its words, and what follows its line.
    Command(Vec<String>, Option<String>),
    /// Its own beginning, after so many milliseconds: an action said that it is to be called again
    /// (`act.YIELD`). Nothing that a coroutine yields means this.
    Again(u64),
    /// Its own end: it said that the request is done with (`txn:done`).
    End,
}

/// Numbers of [`Wait`] in the prelude.
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
    /// What a coroutine yielded: a number and what belongs to it.
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

/// What a script gets when it goes on.
#[derive(Debug, Default)]
pub enum WaitAnswer {
    /// Nothing.
    #[default]
    Nothing,
    /// A text.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// Nothing, and why.
    Failed(String),
    /// A response: its status, the words behind it, fields, body.
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
