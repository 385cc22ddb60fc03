//! Why script calls fail, as text.

use crate::budget::TIMEOUT;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFailure {
    /// An error, with its file and line.
    Error(String),
    /// The call exceeded its time, at this position.
    Late(String),
}

impl CallFailure {
    /// Returns the text for logs.
    pub fn text(&self) -> String {
        match self {
            Self::Error(message) => format!("runtime error: {message}"),
            Self::Late(place) => format!("{TIMEOUT} at {place}"),
        }
    }
}

/// Returns the position and message of an error, as one line.
pub(crate) fn message_of(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, .. } => return message_of(cause),
        mlua::Error::RuntimeError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::BadArgument { cause, pos, .. } => format!("bad argument {pos}: {}", message_of(cause)),
        mlua::Error::FromLuaConversionError { from, to, message } => {
            let why = message.as_deref().map_or(String::new(), |why| format!(" ({why})"));
            format!("expected {}, not {from}{why}", to.to_lowercase())
        }
        mlua::Error::MemoryError(_) => "not enough memory: increase `tune.lua.maxmem`".to_owned(),
        other => other.to_string(),
    };
    let text = text.strip_prefix("runtime error: ").unwrap_or(&text);
    text.lines().next().unwrap_or_default().to_owned()
}
