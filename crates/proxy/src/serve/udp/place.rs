//! The place of a socket in the plan in use.

use std::rc::Rc;

use plan::Bind;
use plan::udp::UdpLb;
use udplb::SessionLimits;
use udplb::quic::IdPart;

use crate::server::per_worker::LocalProxy;
use crate::worker::Worker;

/// A socket's place in the plan.
pub(super) struct ShardPlace {
    pub(super) worker: Rc<Worker>,
    pub(super) frontend: Rc<LocalProxy>,
    /// The proxy with the servers: the section itself, or its `default_backend`.
    pub(super) backend: Rc<LocalProxy>,
    pub(super) bind: usize,
    pub(super) limits: SessionLimits,
    pub(super) payload_size: usize,
    /// `balance quic-cid`.
    pub(super) quic_id: Option<IdPart>,
}

impl ShardPlace {
    pub(super) fn new(worker: Rc<Worker>, frontend: usize, bind: usize) -> Self {
        let frontend = worker.local(frontend);
        let backend = worker.local(frontend.default_backend.unwrap_or(frontend.index));
        let settings = frontend.udp.as_deref();
        Self {
            limits: settings.map_or(NO_LIMITS, limits),
            payload_size: settings.map_or(0, |settings| settings.payload_size.into()),
            quic_id: settings
                .and_then(|settings| settings.quic_id)
                .map(|(offset, length)| IdPart { offset, length }),
            worker,
            frontend,
            backend,
            bind,
        }
    }

    pub(super) fn bind(&self) -> &Bind {
        &self.frontend.binds[self.bind]
    }
}

/// The limits of a section that does not exist.
const NO_LIMITS: SessionLimits =
    SessionLimits { after_request: 0, after_response: 0, requests: None, responses: None };

fn limits(settings: &UdpLb) -> SessionLimits {
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    SessionLimits {
        after_request: ms(settings.after_request),
        after_response: ms(settings.after_response),
        requests: settings.requests,
        responses: settings.responses,
    }
}
