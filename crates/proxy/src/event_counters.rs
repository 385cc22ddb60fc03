//! The counters of rare events on the data path (`debug counters`), collected for the binary. Each counter is defined next to the
//! code that increments it.

use base::event_counter::EventCounter;

use crate::exchange::finish;
use crate::log;
use crate::message::{request, response, splice};
use crate::routing::connect_error;
use crate::serve::{accept, datagrams, obtain};

/// Returns all counters, including those of HTTP/2.
pub fn rare() -> impl Iterator<Item = &'static EventCounter> {
    let all = [
        &request::LET_PASS,
        &response::LET_PASS,
        &finish::MALFORMED,
        &accept::NOT_ACCEPTED,
        &datagrams::OVERFLOWED,
        &connect_error::NO_DESCRIPTOR,
        &connect_error::NO_MEMORY,
        &connect_error::NO_PORT,
        &obtain::CLOSED_MEANWHILE,
        &splice::NO_PIPE,
        &log::LOST,
    ];
    all.into_iter().chain(h2::rare()).chain(fields::rare())
}
