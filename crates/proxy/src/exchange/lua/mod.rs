//! The Lua state of one exchange: actions and services in [`scripting`], filters and their payload in [`filtering`].
//! `message::lua` lists the hooks of filters, and `evaluate::lua` those of actions and services.

pub(crate) mod filtering;
pub(crate) mod scripting;
