//! The parts of QUIC that do not depend on packets: streams with flow control, their frames, transport parameters and errors. QMux
//! consists of these over a byte stream. Caller: `qmux`.

pub use crate::error::{FRAME_ENCODING_ERROR, PROTOCOL_VIOLATION, TRANSPORT_PARAMETER_ERROR, TransportError};
pub use crate::frame::{APPLICATION_CLOSE, CONNECTION_CLOSE, HANDSHAKE_DONE, PADDING, write_close};
pub use crate::parameters::TransportParameters;
pub use crate::stream_frame::StreamFrame;
pub use crate::streams::{StreamFault, StreamSet};
