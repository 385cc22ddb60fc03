//! Protocol violations by the peer: one value per rule, with the error code to send and a description.

use base::event_counter;
use base::event_counter::EventCounter;
use fields::Cause;

use crate::Code;

macro_rules! breaches {
    ($($name:ident $code:ident $text:literal)*) => {
        /// A violation of the protocol, or of a limit, by the peer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each has a text")]
        pub enum Breach { $($name),* }

        /// The counter of each breach.
        pub(crate) static BREACHES: [EventCounter; [$(Breach::$name),*].len()] =
            [$(event_counter!(Glitch, concat!("Breach::", stringify!($name)), $text)),*];

        impl Breach {
            /// The error code for the peer.
            #[must_use]
            pub fn code(self) -> Code {
                match self { $(Breach::$name => Code::$code),* }
            }

            /// A short description for logs and `show errors`.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Breach::$name => $text),* }
            }
        }
    };
}

breaches! {
    Preface             ProtocolError     "the connection does not start with the HTTP/2 preface"
    NoSettings          ProtocolError     "the first frame is not SETTINGS"
    FrameTooLarge       FrameSizeError    "a frame is larger than SETTINGS_MAX_FRAME_SIZE"
    FrameSize           FrameSizeError    "a frame has an invalid size for its type"
    StreamZero          ProtocolError     "a stream frame has stream ID 0"
    NotStreamZero       ProtocolError     "a connection frame has a stream ID other than 0"
    EvenStream          ProtocolError     "a client opened a stream with an even ID"
    OldStream           ProtocolError     "a stream ID is lower than an earlier one"
    IdleStream          ProtocolError     "a frame is for a stream that was never opened"
    EndedStream         StreamClosed      "data or trailers follow the end of a message"
    ResetStream         StreamClosed      "a frame follows the peer's own RST_STREAM"
    Push                ProtocolError     "PUSH_PROMISE although push is disabled"
    Padding             ProtocolError     "more padding than payload"
    SelfDependency      ProtocolError     "a stream depends on itself"
    NoContinuation      ProtocolError     "a header block is interrupted by another frame"
    LoneContinuation    ProtocolError     "CONTINUATION without a header block"
    BlockTooLarge       EnhanceYourCalm   "a header block is larger than the limit"
    Continuations       EnhanceYourCalm   "a header block consists of too many frames"
    Compression         CompressionError  "a header block cannot be decoded"
    TrailersWithoutEnd  ProtocolError     "trailers do not end the stream"
    DataBeforeHead      ProtocolError     "DATA before the header section"
    Length              ProtocolError     "the body differs from Content-Length"
    TooManyStreams      RefusedStream     "more streams than SETTINGS_MAX_CONCURRENT_STREAMS"
    TotalStreams        EnhanceYourCalm   "streams are opened long after GOAWAY"
    ZeroIncrement       ProtocolError     "WINDOW_UPDATE with an increment of zero"
    WindowOverflow      FlowControlError  "a window exceeds 2^31-1"
    WindowExceeded      FlowControlError  "more DATA than the window allows"
    InitialWindow       FlowControlError  "SETTINGS_INITIAL_WINDOW_SIZE exceeds 2^31-1"
    EnablePush          ProtocolError     "invalid value of SETTINGS_ENABLE_PUSH"
    MaxFrameSize        ProtocolError     "SETTINGS_MAX_FRAME_SIZE out of bounds"
    ConnectProtocol     ProtocolError     "SETTINGS_ENABLE_CONNECT_PROTOCOL is not 0 or 1, or is disabled again"
    NoPriorities        ProtocolError     "SETTINGS_NO_RFC7540_PRIORITIES is not 0 or 1"
    PriorityUpdate      ProtocolError     "PRIORITY_UPDATE for a stream that cannot have a priority"
    Glitches            EnhanceYourCalm   "the glitches threshold is reached"
    Flood               EnhanceYourCalm   "too many frames without effect"
    Answers             EnhanceYourCalm   "the peer does not read the responses that its frames trigger"
}

impl Breach {
    /// Counts the breach.
    pub(crate) fn note(self) {
        BREACHES[self as usize].note();
    }
}

/// Counts reductions of a window by SETTINGS, which are allowed but glitches.
pub(crate) static SHRUNK: EventCounter = event_counter!(Glitch, "settings_end()", "SETTINGS reduces windows");

/// Counts requests reset by their client, which are also glitches.
pub(crate) static GIVEN_UP: EventCounter =
    event_counter!(Glitch, "reset_frame()", "a client resets its request");

/// Counts header blocks in many pieces, which are also glitches.
pub(crate) static PIECES: EventCounter =
    event_counter!(Glitch, "continuation_frame()", "a header block comes in many frames");

/// The reason why the engine refused or reset a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A violation of framing, states or windows.
    Breach(Breach),
    /// The header block is not a valid message.
    Message(Cause),
}

impl Reason {
    /// Counts the reason.
    pub(crate) fn note(self) {
        match self {
            Reason::Breach(breach) => breach.note(),
            Reason::Message(cause) => cause.note(),
        }
    }

    /// The error code to send: PROTOCOL_ERROR for a malformed message (RFC 9113 section 8.1.1).
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Reason::Breach(breach) => breach.code(),
            Reason::Message(_) => Code::ProtocolError,
        }
    }

    /// A short description for logs and `show errors`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Reason::Breach(breach) => breach.text(),
            Reason::Message(cause) => cause.text(),
        }
    }
}

/// The connection is over and cannot receive any more. The caller should still send the output, which ends with a GOAWAY, and then
/// close the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// The code in GOAWAY.
    pub code: Code,
    /// The peer's breach; `None` if the caller closed the connection ([`crate::Connection::close`]).
    pub breach: Option<Breach>,
}
