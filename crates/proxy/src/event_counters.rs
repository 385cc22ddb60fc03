//! EventCounter events of the data path that are counted place by place (`debug counters`). Listed here for the
//! binary; each stands beside the code that notes it.

use base::event_counter::EventCounter;

use crate::exchange::finish;
use crate::log;
use crate::message::{request, response, splice};
use crate::routing::connect_error;
use crate::serve::{accept, datagrams, obtain};

/// All of them, and those of HTTP/2.
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
