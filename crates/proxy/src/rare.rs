//! Rare events of the data path that are counted place by place (`debug counters`). Listed here for the
//! binary; each stands beside the code that notes it.

use base::rare::Rare;

use crate::exchange::finish;
use crate::log;
use crate::message::{request, response, splice};
use crate::routing::unreached;
use crate::serve::{accept, obtain};

/// All of them, and those of HTTP/2.
pub fn rare() -> impl Iterator<Item = &'static Rare> {
    let all = [
        &request::LET_PASS,
        &response::LET_PASS,
        &finish::MALFORMED,
        &accept::NOT_ACCEPTED,
        &unreached::NO_DESCRIPTOR,
        &unreached::NO_MEMORY,
        &unreached::NO_PORT,
        &obtain::CLOSED_MEANWHILE,
        &splice::NO_PIPE,
        &log::LOST,
    ];
    all.into_iter().chain(h2::rare()).chain(fields::rare())
}
