//! The parts of logging that own connections or tasks. The lines themselves and their sockets are in [`log`](crate::log).
//!
//! | module | contents |
//! | --- | --- |
//! | `forward` | `log-forward`: `forward::stream` and `forward::datagram` receive the messages of other programs |
//! | [`ring_feed`] | the servers of `ring` sections: [`ring_feed::start`] starts their tasks, [`ring_feed::stop`] ends them |
//!
//! These modules take no part in serving requests.

pub(super) mod forward;
pub mod ring_feed;
