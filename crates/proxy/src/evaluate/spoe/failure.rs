//! Why a question has no answer, and the numbers that `option set-on-error` gives (SPOE, 2.2).

use spop::Status;

use crate::exchange::Stop;
use crate::fault::Fault;
use crate::server::agents::NoAnswer;

/// Why there is no answer.
pub(super) enum SpoeFailure {
    /// It is the stream that ended.
    Stream(Fault),
    /// The agent's, by the number that `option set-on-error` gives.
    Agent(u32),
}

/// There was no answer in time.
const LATE: u32 = 1;
/// What is to be told does not fit in a frame.
const TOO_BIG: u32 = 3;
/// What is added to a status of the protocol.
const OF_PROTOCOL: u32 = 256;

impl SpoeFailure {
    /// There was no answer in time.
    pub(super) const LATE: Self = Self::Agent(LATE);
    /// What is to be told does not fit in a frame.
    pub(super) const TOO_BIG: Self = Self::Agent(TOO_BIG);
    /// As in HAProxy: the connection that there is, or would have been, broke.
    pub(super) const BROKEN: Self = Self::Agent(OF_PROTOCOL + Status::IO.0);

    /// That of a question that was asked.
    pub(super) fn of(none: NoAnswer) -> Self {
        match none {
            NoAnswer::TooBig => Self::TOO_BIG,
            NoAnswer::Ended(status) => Self::Agent(OF_PROTOCOL.saturating_add(status.0)),
        }
    }

    /// What a fault on the way to the agent is to the stream.
    pub(super) fn of_fault(fault: Fault) -> Self {
        match fault {
            Fault::ClientAborted | Fault::ClientReset | Fault::ClientTimeout => Self::Stream(fault),
            // A question that was ended from outside is one of them.
            _ => Self::BROKEN,
        }
    }

    /// The same of what ended a rule set.
    pub(super) fn of_stop(stop: Stop) -> Self {
        match stop {
            Stop::Fault(fault) => Self::of_fault(fault),
            _ => Self::BROKEN,
        }
    }
}
