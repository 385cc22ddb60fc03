//! Lua 5.4 scripts, with the classes of HAProxy's Lua API.
//!
//! A [`Program`] holds the states created by `lua-load` and `lua-load-per-thread`, and the functions that their files register. A
//! call to a registered function is a coroutine ([`RunningCall`]): it is resumed on the worker of its request, yields
//! the event that it waits for ([`Wait`]), and accesses the request through a [`Bridge`] that exists only while it
//! runs. Instructions, time and memory are limited.
//!
//! This crate has no I/O: the caller that resumes the coroutine does the waiting (`proxy` for requests, the binary for tasks).
//! `config` loads the files; only this crate uses `mlua`.

#![forbid(unsafe_code)]

mod bridge;
mod budget;
mod call;
mod convert;
mod failure;
mod filter;
mod fresh;
mod function;
mod host;
mod host_calls;
mod inbox;
mod load;
mod loading;
mod matching;
mod name_cache;
mod native;
mod payload;
mod program;
#[cfg(test)]
mod reference;
mod running;
mod settings;
mod signal;
mod state;
mod wait;

pub use bridge::{Bridge, EnvBridge, FilterRequest, Notes, ScriptReply, Setting, TakenBytes};
pub use budget::limit_time;
pub use failure::CallFailure;
pub use filter::{Callback, FilterClass, FilterDeclared, ScriptFilter};
pub use function::{Function, FunctionKind};
pub use host::{ScriptCommand, ScriptHost, ScriptTask};
pub use host_calls::{ScriptRequest, SocketOp, SocketWork};
pub use load::{LoadFailed, load};
pub use loading::Loading;
pub use name_cache::{KnownNames, Mailing};
pub use payload::Payload;
pub use program::Program;
pub use running::{CallStep, RunningCall, number};
pub use settings::{Libraries, LuaSettings, Script, Stderr};
pub use signal::Signal;
pub use wait::{Wait, WaitAnswer};
