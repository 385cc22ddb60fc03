//! Lua's state in one exchange: actions and services in [`scripting`], filters with their payload in [`filtering`]. `message::lua`
//! lists the filters' hooks, `evaluate::lua` those of actions and services.

pub(crate) mod filtering;
pub(crate) mod scripting;
