//! The state that Lua has of one exchange: what its functions keep of it ([`scripting`]), and its filters
//! with their payload ([`filtering`]). `message::lua` lists the hooks of filters, `evaluate::lua` those
//! of actions and services.

pub(crate) mod filtering;
pub(crate) mod scripting;
