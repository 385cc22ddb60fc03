//! Records frames received and sent, for tracing a connection; off by default.

use crate::frame::FrameHeader;

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedFrame {
    /// The frame type (RFC 9113 section 6).
    pub kind: u8,
    /// The flags of the frame.
    pub flags: u8,
    /// The stream ID of the frame, 0 for the connection.
    pub stream: u32,
    /// The payload's length.
    pub length: usize,
    /// Whether the frame was sent (or else received).
    pub is_sent: bool,
}

impl WatchedFrame {
    /// The name of the frame's type.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.kind {
            0 => "DATA",
            1 => "HEADERS",
            2 => "PRIORITY",
            3 => "RST_STREAM",
            4 => "SETTINGS",
            5 => "PUSH_PROMISE",
            6 => "PING",
            7 => "GOAWAY",
            8 => "WINDOW_UPDATE",
            9 => "CONTINUATION",
            16 => "PRIORITY_UPDATE",
            _ => "unknown",
        }
    }
}

/// The maximum number of recorded frames.
const MOST: usize = 256;

/// The recorded frames, if recording is on.
// Boxed, because there are two per connection and hardly any of them is used.
#[allow(clippy::box_collection)]
#[derive(Debug, Default)]
pub(crate) struct FrameWatch(Option<Box<Vec<WatchedFrame>>>);

impl FrameWatch {
    /// Records a frame, if recording is on.
    #[inline]
    pub(crate) fn note(&mut self, header: FrameHeader, is_sent: bool) {
        if self.0.is_some() {
            self.keep(header, is_sent);
        }
    }

    #[cold]
    fn keep(&mut self, header: FrameHeader, is_sent: bool) {
        let FrameHeader { length, kind, flags, stream } = header;
        if let Some(frames) = self.0.as_mut().filter(|frames| frames.len() < MOST) {
            frames.push(WatchedFrame { kind, flags, stream, length, is_sent });
        }
    }

    /// Takes the recorded frames and turns recording on.
    pub(crate) fn take(&mut self) -> Vec<WatchedFrame> {
        std::mem::take(self.0.get_or_insert_default())
    }

    /// Turns recording off.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}
