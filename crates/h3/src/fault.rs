//! Protocol violations by the peer: one value per rule, with the error code to send and a description.

use base::event_counter;
use base::event_counter::EventCounter;
use fields::Cause;

use crate::Code;

macro_rules! violations {
    ($($name:ident $code:ident $text:literal)*) => {
        /// A violation of the protocol, or of a limit, by the peer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each has a text")]
        pub enum Violation { $($name),* }

        /// The counter of each violation.
        pub(crate) static VIOLATIONS: [EventCounter; [$(Violation::$name),*].len()] =
            [$(event_counter!(Glitch, concat!("Violation::", stringify!($name)), $text)),*];

        impl Violation {
            /// The error code for the peer.
            #[must_use]
            pub fn code(self) -> Code {
                match self { $(Violation::$name => Code::$code),* }
            }

            /// A short description for logs and `show errors`.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Violation::$name => $text),* }
            }
        }
    };
}

violations! {
    MissingSettings     MissingSettings          "the control stream does not start with SETTINGS"
    SecondSettings      FrameUnexpected          "a second SETTINGS frame"
    ReservedFrame       FrameUnexpected          "a frame type that only HTTP/2 has"
    ControlFrame        FrameUnexpected          "a frame of the control stream on a request stream"
    RequestFrame        FrameUnexpected          "a frame of request streams on the control stream"
    WrongSide           FrameUnexpected          "a frame that only the other side may send"
    DataBeforeHead      FrameUnexpected          "DATA before the header section"
    AfterTrailers       FrameUnexpected          "a frame after the trailers"
    Tunnel              FrameUnexpected          "another frame than DATA in a tunnel"
    FrameCut            FrameError               "a stream ends within a frame"
    FrameSize           FrameError               "a frame has an invalid size for its type"
    SettingsTooLarge    ExcessiveLoad            "a SETTINGS frame is larger than the limit"
    ReservedSetting     SettingsError            "a setting that only HTTP/2 has"
    SettingTwice        SettingsError            "a setting occurs twice"
    SettingValue        SettingsError            "a setting has an invalid value"
    ControlTwice        StreamCreationError      "a second control stream"
    EncoderTwice        StreamCreationError      "a second QPACK encoder stream"
    DecoderTwice        StreamCreationError      "a second QPACK decoder stream"
    PushByClient        StreamCreationError      "a client opened a push stream"
    BidiByServer        StreamCreationError      "a server opened a bidirectional stream"
    CriticalClosed      ClosedCriticalStream     "the control stream or a QPACK stream was closed"
    Push                IdError                  "a push although none was allowed"
    PushIdReduced       IdError                  "MAX_PUSH_ID is lower than before"
    GoawayId            IdError                  "GOAWAY has the ID of another kind of stream"
    GoawayIncreased     IdError                  "GOAWAY has a higher ID than before"
    PriorityId          IdError                  "PRIORITY_UPDATE for a stream that cannot have a priority"
    Decompression       QpackDecompressionFailed "a field section cannot be decoded"
    BlockedStreams      QpackDecompressionFailed "more blocked streams than SETTINGS_QPACK_BLOCKED_STREAMS"
    EncoderStream       QpackEncoderStreamError  "an invalid instruction on the QPACK encoder stream"
    DecoderStream       QpackDecoderStreamError  "an invalid instruction on the QPACK decoder stream"
    SectionTooLarge     ExcessiveLoad            "a field section is larger than the limit"
    Sections            ExcessiveLoad            "more unfinished field sections than the limit"
    Length              MessageError             "the body differs from Content-Length"
    NoResponse          MessageError             "a stream ends before the response"
    Incomplete          RequestIncomplete        "a stream ends before the request"
    TooManyStreams      RequestRejected          "more requests than the limit"
    Ending              RequestRejected          "a request after GOAWAY"
    TotalStreams        ExcessiveLoad            "requests are opened long after GOAWAY"
    Glitches            ExcessiveLoad            "the glitches threshold is reached"
    Flood               ExcessiveLoad            "too many frames or streams without effect"
    Answers             ExcessiveLoad            "the peer does not read the instructions that its frames trigger"
}

impl Violation {
    /// Counts the violation.
    pub(crate) fn note(self) {
        VIOLATIONS[self as usize].note();
    }
}

/// A request reset by its client, also counted as a glitch.
pub(crate) static GIVEN_UP: EventCounter =
    event_counter!(Glitch, "take_reset()", "a client resets its request");

/// Many transport frames without data in one turn, also counted as a glitch.
pub(crate) static OVERHEAD: EventCounter =
    event_counter!(Glitch, "overhead()", "many transport frames without data");

/// A unidirectional stream of an unknown type beyond the first few, also counted as a glitch.
pub(crate) static UNKNOWN: EventCounter =
    event_counter!(Glitch, "refuse_uni()", "many streams of unknown types");

/// The reason why the engine refused or reset a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultReason {
    /// A violation of framing, states or limits.
    Violation(Violation),
    /// The field section is not a valid message.
    Message(Cause),
}

impl FaultReason {
    /// Counts the reason.
    pub(crate) fn note(self) {
        match self {
            FaultReason::Violation(violation) => violation.note(),
            FaultReason::Message(cause) => cause.note(),
        }
    }

    /// The error code to send. For a malformed message that is H3_MESSAGE_ERROR (RFC 9114 section 4.1.2); a large one is valid.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            FaultReason::Violation(violation) => violation.code(),
            FaultReason::Message(Cause::TooLarge | Cause::TooMany) => Code::ExcessiveLoad,
            FaultReason::Message(_) => Code::MessageError,
        }
    }

    /// A short description for logs and `show errors`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            FaultReason::Violation(violation) => violation.text(),
            FaultReason::Message(cause) => cause.text(),
        }
    }
}
