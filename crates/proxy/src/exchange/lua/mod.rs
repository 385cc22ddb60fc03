//! Lua's state in one exchange: that of actions and services ([`scripting`]), and that of filters with
//! their payload ([`filtering`]). `message::lua` lists the filters' hooks, `evaluate::lua` those of
//! actions and services.

pub(crate) mod filtering;
pub(crate) mod scripting;
