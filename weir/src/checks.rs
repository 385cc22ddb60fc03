//! Starting health checks: each worker takes its part of the servers.

use std::rc::Rc;

use proxy::{Shared, Worker};

/// Starts the calling worker's checks.
pub(crate) async fn start(_shared: &Shared, _worker: &Rc<Worker>) {}
