//! Lua functions that rules call. The hooks, in the order of a request:
//!
//! | point | function |
//! | --- | --- |
//! | each rule set | [`action::begin`] and, while it waits, [`action::go_on`] (`http-request lua.…` and the like) |
//! | response head, body | [`service::step`] (`use-service lua.…`), called by `serve::lua` instead of a server |

pub(crate) mod action;
pub(crate) mod service;
