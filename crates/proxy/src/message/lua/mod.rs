//! Lua filters (`filter lua.…`). The hooks, in the order in which a request reaches them:
//!
//! | point | function |
//! | --- | --- |
//! | begin | [`steps::begin`], for the frontend and again for the backend; [`body::begin_stream`] in TCP mode |
//! | request head | [`steps::heads`]; [`steps::head_for_service`] and [`steps::head_of_answered`] if no server answers |
//! | before connect | [`body::frame`] and [`body::filters`] put the filters into the flow |
//! | response head | [`steps::begin_response`] before the rules, [`steps::heads`] after them |
//! | body | [`pump::poll_upload`], [`pump::poll_download`]; [`pump::run`] for services |
//! | end | [`steps::end`] |
//!
//! Filters are called between the steps of a direction, not within one ([`Flow`](crate::flow::Flow)), so that they can see the
//! whole exchange. Responses from caches and services pass through filters; errors and replies of rules do not.

pub(crate) mod body;
mod bridge;
pub(crate) mod pump;
pub(crate) mod steps;
