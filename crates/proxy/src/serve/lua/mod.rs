//! Responses from Lua services (`use-service lua.…`). The hooks, in the order in which a request reaches them:
//!
//! | point | function |
//! | --- | --- |
//! | response head | [`service::prepare`] runs the service up to the head of its response |
//! | body | [`service::send_body`]; [`service::relay`] in TCP mode |

pub(super) mod service;
