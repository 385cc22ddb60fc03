//! Received frames about streams, and sending over a transport that delivers everything.

use super::{StreamFault, StreamSet};
use crate::sent::{SentFrame, SentFrames};
use crate::stream_frame::StreamFrame;

impl StreamSet {
    /// Processes a frame.
    ///
    /// # Errors
    /// The peer violated the protocol, or the data cannot be kept.
    pub fn process(&mut self, frame: &StreamFrame<'_>) -> Result<(), StreamFault> {
        match *frame {
            StreamFrame::Stream { id, offset, data, fin } => return self.on_stream(id, offset, data, fin),
            StreamFrame::ResetStream { id, code, size } => self.on_reset(id, code, size)?,
            StreamFrame::StopSending { id, code } => self.on_stop(id, code)?,
            StreamFrame::MaxData(most) => self.on_max_data(most),
            StreamFrame::MaxStreamData { id, most } => self.on_max_stream_data(id, most)?,
            StreamFrame::MaxStreams(direction, most) => self.on_max_streams(direction, most),
            StreamFrame::DataBlocked => {}
            StreamFrame::StreamDataBlocked(id) => self.on_stream_data_blocked(id)?,
            StreamFrame::StreamsBlocked(direction) => self.on_streams_blocked(direction),
        }
        Ok(())
    }

    /// Returns where the next data of a stream begins if it arrives in order; `None` for streams that receive nothing any more.
    pub fn next_offset(&self, id: u64) -> Option<u64> {
        match self.map.get(&id) {
            Some(stream) => stream.receive.as_ref().map(|receive| receive.highest),
            None => self.is_unopened(id).then_some(0),
        }
    }

    /// Whether there is anything to send.
    pub fn has_output(&self) -> bool {
        self.has_control() || self.has_data()
    }

    /// Appends frames as long as they fit before `limit`, less than 64 KiB away. The transport delivers everything, so the
    /// written frames count as acknowledged.
    pub fn write_delivered(&mut self, out: &mut Vec<u8>, limit: usize) {
        let mut sent = SentFrames::new();
        self.write_control(out, limit, &mut sent);
        self.write_data(out, limit, &mut sent);
        for frame in &sent {
            match frame {
                SentFrame::Stream(range) => self.acknowledge(range),
                SentFrame::ResetStream(id) => self.acknowledge_reset(*id),
                _ => {}
            }
        }
    }
}
