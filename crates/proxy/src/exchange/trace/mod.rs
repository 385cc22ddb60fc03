//! Traces of a request: the `trace` command of the runtime socket ([`events`]) and `filter trace` ([`filter`]). The hooks, in the
//! order in which a request reaches them:
//!
//! | point | `trace` | `filter trace` |
//! | --- | --- | --- |
//! | connection | [`events::session_begins`], [`events::client_tls`], [`events::speaks_h1`], [`events::multiplexed_begins`] | |
//! | begin | [`events::request`], [`events::tcp_begins`] | [`filter::begin`] |
//! | request head | | [`filter::received`], [`filter::backend`]; [`filter::enter`] and [`filter::leave`] around each rule set |
//! | before connect | | [`filter::forwards_request`] |
//! | server | [`events::server_tls`], [`events::reached`], [`events::attempt_failed`] | |
//! | response head | [`events::response`], [`events::answer`] | [`filter::response`], [`filter::process_response`], [`filter::forwards_response`] |
//! | body | [`events::frames_of_client`] | `flow::Tracer` |
//! | end | [`events::stopped`], [`events::over`], [`events::multiplexed_ends`] | [`filter::end`] |
//!
//! Modules below this one use the trace points in [`points`](crate::points), and `flow::Trace` writes the lines of `filter trace`.

mod debug_lines;
pub(crate) mod events;
pub(crate) mod filter;
pub(crate) mod rules;
