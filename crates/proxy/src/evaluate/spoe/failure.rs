//! Why a query has no answer, with the error numbers for `option set-on-error` (SPOE, 2.2).

use spop::Status;

use crate::exchange::Stop;
use crate::fault::Fault;
use crate::server::agents::NoAnswer;

/// Why there is no answer.
pub(super) enum SpoeFailure {
    /// The stream itself ended.
    Stream(Fault),
    /// The agent failed, with this number for `option set-on-error`.
    Agent(u32),
}

/// The answer did not arrive in time.
const LATE: u32 = 1;
/// The messages do not fit in a frame.
const TOO_BIG: u32 = 3;
/// The offset that is added to a status of the protocol.
const OF_PROTOCOL: u32 = 256;

impl SpoeFailure {
    /// The answer did not arrive in time.
    pub(super) const LATE: Self = Self::Agent(LATE);
    /// The messages do not fit in a frame.
    pub(super) const TOO_BIG: Self = Self::Agent(TOO_BIG);
    /// The connection broke or could not be established. The number is the same as in HAProxy.
    pub(super) const BROKEN: Self = Self::Agent(OF_PROTOCOL + Status::IO.0);

    /// Returns the failure for a query that was sent.
    pub(super) fn of(none: NoAnswer) -> Self {
        match none {
            NoAnswer::TooBig => Self::TOO_BIG,
            NoAnswer::Ended(status) => Self::Agent(OF_PROTOCOL.saturating_add(status.0)),
        }
    }

    /// Converts a fault that occurred on the way to the agent.
    pub(super) fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::ClientAborted | Fault::ClientReset | Fault::ClientTimeout => Self::Stream(fault),
            // This includes a query that an operator aborted.
            _ => Self::BROKEN,
        }
    }

    /// Converts the end of a rule set.
    pub(super) fn of_stop(stop: Stop) -> Self {
        match stop {
            Stop::Fault(fault) => Self::of_fault(fault),
            _ => Self::BROKEN,
        }
    }
}
