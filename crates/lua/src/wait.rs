//! What a script waits for, and what it gets for that.

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
}

impl Wait {
    /// What a coroutine yielded: a number and what belongs to it.
    pub(crate) fn read(code: i64, _lua: &Lua, values: &MultiValue) -> Self {
        let time = |at: usize| {
            let number = values.get(at).and_then(|value: &Value| value.as_f64())?;
            Some(number.clamp(0.0, 1e12).ceil() as u64)
        };
        match code {
            code::SLEEP => Self::Sleep(time(0).unwrap_or(0)),
            code::START => Self::Start,
            code::FLUSH => Self::Flush,
            code::INPUT => Self::Input(time(0)),
            code::END => Self::End,
            _ => Self::Turn,
        }
    }
}

/// What a script gets when it goes on.
#[derive(Debug, Default)]
pub enum Answer {
    /// Nothing.
    #[default]
    Nothing,
    /// A text.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// Nothing, and why.
    Failed(String),
}

impl IntoLuaMulti for Answer {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        match self {
            Self::Nothing => Ok(MultiValue::new()),
            Self::Text(text) => lua.create_string(&text)?.into_lua_multi(lua),
            Self::Number(number) => number.into_lua_multi(lua),
            Self::Failed(why) => (Value::Nil, why).into_lua_multi(lua),
        }
    }
}
