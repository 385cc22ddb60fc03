//! What a peer did wrong: one value for each rule, with the code that is sent and a text.

use base::event_counter;
use base::event_counter::EventCounter;
use fields::Cause;

use crate::Code;

macro_rules! breaches {
    ($($name:ident $code:ident $text:literal)*) => {
        /// A breach of the protocol, or of a limit, by the peer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each has a text")]
        pub enum Breach { $($name),* }

        /// How often each was seen.
        pub(crate) static BREACHES: [EventCounter; [$(Breach::$name),*].len()] =
            [$(event_counter!(Glitch, concat!("Breach::", stringify!($name)), $text)),*];

        impl Breach {
            /// The code that tells the peer.
            #[must_use]
            pub fn code(self) -> Code {
                match self { $(Breach::$name => Code::$code),* }
            }

            /// A few words for logs and `show errors`.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Breach::$name => $text),* }
            }
        }
    };
}

breaches! {
    Preface             ProtocolError     "the connection does not start with the preface of HTTP/2"
    NoSettings          ProtocolError     "the first frame is not SETTINGS"
    FrameTooLarge       FrameSizeError    "a frame is larger than SETTINGS_MAX_FRAME_SIZE"
    FrameSize           FrameSizeError    "a frame has a size that its kind cannot have"
    StreamZero          ProtocolError     "a frame of a stream names stream 0"
    NotStreamZero       ProtocolError     "a frame of the connection names a stream"
    EvenStream          ProtocolError     "a client opened a stream of an even number"
    OldStream           ProtocolError     "a stream's number is lower than one opened before"
    IdleStream          ProtocolError     "a frame names a stream that was never opened"
    EndedStream         StreamClosed      "a message goes on after its end"
    ResetStream         StreamClosed      "a frame follows the peer's own RST_STREAM"
    Push                ProtocolError     "PUSH_PROMISE where push is disabled"
    Padding             ProtocolError     "more padding than payload"
    SelfDependency      ProtocolError     "a stream depends on itself"
    NoContinuation      ProtocolError     "a header block is interrupted by another frame"
    LoneContinuation    ProtocolError     "CONTINUATION without a header block"
    BlockTooLarge       EnhanceYourCalm   "a header block is larger than the limit"
    Continuations       EnhanceYourCalm   "a header block comes in too many frames"
    Compression         CompressionError  "a header block cannot be decoded"
    TrailersWithoutEnd  ProtocolError     "trailers do not end the stream"
    DataBeforeHead      ProtocolError     "DATA before the head"
    Length              ProtocolError     "the body differs from content-length"
    TooManyStreams      RefusedStream     "more streams than SETTINGS_MAX_CONCURRENT_STREAMS"
    TotalStreams        EnhanceYourCalm   "streams are opened long after GOAWAY"
    ZeroIncrement       ProtocolError     "WINDOW_UPDATE by zero"
    WindowOverflow      FlowControlError  "a window grows beyond 2^31-1"
    WindowExceeded      FlowControlError  "more DATA than the window allows"
    InitialWindow       FlowControlError  "SETTINGS_INITIAL_WINDOW_SIZE beyond 2^31-1"
    EnablePush          ProtocolError     "SETTINGS_ENABLE_PUSH is not what the peer may say"
    MaxFrameSize        ProtocolError     "SETTINGS_MAX_FRAME_SIZE out of bounds"
    ConnectProtocol     ProtocolError     "SETTINGS_ENABLE_CONNECT_PROTOCOL is not 0 or 1, or taken back"
    NoPriorities        ProtocolError     "SETTINGS_NO_RFC7540_PRIORITIES is not 0 or 1"
    PriorityUpdate      ProtocolError     "PRIORITY_UPDATE for what cannot have a priority"
    Glitches            EnhanceYourCalm   "the glitches-threshold is reached"
    Flood               EnhanceYourCalm   "too many frames that bring nothing"
    Answers             EnhanceYourCalm   "the peer does not read the answers that it makes due"
}

impl Breach {
    /// Counts one.
    pub(crate) fn note(self) {
        BREACHES[self as usize].note();
    }
}

/// A window that SETTINGS made smaller: allowed, and counted as a glitch all the same.
pub(crate) static SHRUNK: EventCounter =
    event_counter!(Glitch, "settings_end()", "SETTINGS makes windows smaller");

/// The same of a request that its client resets.
pub(crate) static GIVEN_UP: EventCounter =
    event_counter!(Glitch, "reset_frame()", "a client resets its request");

/// The same of a header block in many pieces.
pub(crate) static PIECES: EventCounter =
    event_counter!(Glitch, "continuation_frame()", "a header block comes in many frames");

/// Why the engine refused or reset a stream on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A rule of framing, states or windows.
    Breach(Breach),
    /// The message in the header block is not one.
    Message(Cause),
}

impl Reason {
    /// Counts one.
    pub(crate) fn note(self) {
        match self {
            Reason::Breach(breach) => breach.note(),
            Reason::Message(cause) => cause.note(),
        }
    }

    /// The error code to send. For a malformed message it is PROTOCOL_ERROR (RFC 9113 section 8.1.1).
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Reason::Breach(breach) => breach.code(),
            Reason::Message(_) => Code::ProtocolError,
        }
    }

    /// A few words for logs and `show errors`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Reason::Breach(breach) => breach.text(),
            Reason::Message(cause) => cause.text(),
        }
    }
}

/// The connection is over: nothing more is received. What is in the output (a GOAWAY at its end)
/// should still be sent, then the socket closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// What GOAWAY said.
    pub code: Code,
    /// The peer's breach; `None` when the caller closed ([`crate::Connection::close`]).
    pub breach: Option<Breach>,
}
