//! The parts of logging that have connections or tasks of their own. [`log`](crate::log) has the rest:
//! log lines, their formats and their sockets.
//!
//! | module | holds |
//! | --- | --- |
//! | [`forward`] | `log-forward`: [`forward::stream`] and [`forward::datagram`] receive the messages of other programs |
//! | [`ring_feed`] | servers of `ring` sections: [`ring_feed::start`] starts their tasks, [`ring_feed::stop`] ends them |
//!
//! Neither takes part in a request.

pub(super) mod forward;
pub mod ring_feed;
