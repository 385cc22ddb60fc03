//! Delivers stored responses; [`exchange::cache`](crate::exchange::cache) looks them up and stores them. The hooks, in the order
//! in which a request reaches them:
//!
//! | point | function |
//! | --- | --- |
//! | stopped | [`answer::instead_of`], which may replace an error and calls [`revalidate::begin`] for a stale response |
//! | response head | [`checkcache::check`] (`option checkcache`) for a response of a server; [`answer::prepare`] for a stored one |
//! | body | [`stream::send_body`], if the body still arrives or is in a file |

pub(super) mod answer;
pub(super) mod checkcache;
pub(super) mod revalidate;
pub(super) mod stream;
