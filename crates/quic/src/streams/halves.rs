//! The two halves of a stream.

use super::assembler::Assembler;
use super::send_buffer::SendBuffer;

/// A stream. A half that is over is gone. Unidirectional streams have one half.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) send: Option<Box<SendHalf>>,
    pub(super) receive: Option<Box<ReceiveHalf>>,
    /// Whether the stream is in the list of streams with control frames to send.
    pub(super) has_control: bool,
}

/// The half on which we send.
#[derive(Debug, Default)]
pub(super) struct SendHalf {
    pub(super) buffer: SendBuffer,
    /// The peer's limit.
    pub(super) max_data: u64,
    pub(super) fin: Fin,
    pub(super) reset: Option<Reset>,
    /// The code of the peer's STOP_SENDING frame.
    pub(super) stopped: Option<u64>,
    pub(super) priority: i32,
    /// Whether the stream is in the schedule.
    pub(super) is_scheduled: bool,
    /// Whether a write failed for lack of room.
    pub(super) is_blocked: bool,
    /// The limit at which a STREAM_DATA_BLOCKED frame was or is to be sent.
    pub(super) blocked_at: Option<u64>,
    pub(super) sends_blocked: bool,
}

/// The end of the data that we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fin {
    /// There may be more data.
    #[default]
    Open,
    /// To be sent, perhaps again.
    Pending,
    Sent,
    Acknowledged,
}

/// An aborted send half.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reset {
    pub(super) code: u64,
    pub(super) is_pending: bool,
}

/// The half on which the peer sends.
#[derive(Debug, Default)]
pub(super) struct ReceiveHalf {
    pub(super) assembler: Assembler,
    /// The end of the received data.
    pub(super) highest: u64,
    /// The size of the stream, once known.
    pub(super) size: Option<u64>,
    /// The limit that the peer knows.
    pub(super) max_data: u64,
    pub(super) sends_max_data: bool,
    /// The code of the peer's RESET_STREAM frame.
    pub(super) reset: Option<u64>,
    /// Our STOP_SENDING frame: its code, and whether it is to be sent.
    pub(super) stop: Option<(u64, bool)>,
}

impl SendHalf {
    pub(super) fn has_data(&self) -> bool {
        self.reset.is_none() && (self.buffer.has_unsent() || self.fin == Fin::Pending)
    }

    /// Whether the end of the data was requested.
    pub(super) fn is_finished(&self) -> bool {
        self.fin != Fin::Open
    }
}
