//! Receiving on streams.

use super::{StreamSet, TooManyGaps};
use crate::error::{FINAL_SIZE_ERROR, FLOW_CONTROL_ERROR, TransportError};
use crate::types::{QuicEvent, StreamRead};

/// Why a STREAM frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFault {
    /// The peer violated the protocol.
    Violation(TransportError),
    /// The packet is to be dropped.
    TooManyGaps,
}

impl From<TransportError> for StreamFault {
    fn from(error: TransportError) -> Self {
        Self::Violation(error)
    }
}

impl From<TooManyGaps> for StreamFault {
    fn from(TooManyGaps: TooManyGaps) -> Self {
        Self::TooManyGaps
    }
}

impl StreamSet {
    /// Processes a STREAM frame.
    pub(crate) fn on_stream(
        &mut self,
        id: u64,
        offset: u64,
        data: &[u8],
        fin: bool,
    ) -> Result<(), StreamFault> {
        self.admit(id, false)?;
        let is_unknown = self.is_unknown(id);
        let Some(receive) = self.map.get_mut(&id).and_then(|stream| stream.receive.as_deref_mut()) else {
            return Ok(());
        };
        let end = offset + data.len() as u64;
        check_size(receive.size, receive.highest, end, fin)?;
        let new = end.saturating_sub(receive.highest);
        if end > receive.max_data || self.incoming.received + new > self.incoming.max_data {
            return Err(TransportError::new(FLOW_CONTROL_ERROR, "more data than permitted").into());
        }
        let is_dropped = receive.stop.is_some() || receive.reset.is_some();
        let has_more = !is_dropped && receive.assembler.insert(offset, data)?;
        receive.highest = receive.highest.max(end);
        self.incoming.received += new;
        let ends = fin && receive.size.is_none();
        if fin {
            receive.size = Some(end);
        }
        if is_dropped {
            self.incoming.release(new);
            if ends {
                self.end_receive(id);
            }
        } else if (has_more || ends) && !is_unknown {
            self.events.push_back(QuicEvent::Readable(id));
        }
        Ok(())
    }

    /// Processes a RESET_STREAM frame.
    pub(crate) fn on_reset(&mut self, id: u64, code: u64, size: u64) -> Result<(), TransportError> {
        self.admit(id, false)?;
        let is_unknown = self.is_unknown(id);
        let Some(receive) = self.map.get_mut(&id).and_then(|stream| stream.receive.as_deref_mut()) else {
            return Ok(());
        };
        check_size(receive.size, receive.highest, size, true)?;
        let new = size - receive.highest;
        if size > receive.max_data || self.incoming.received + new > self.incoming.max_data {
            return Err(TransportError::new(FLOW_CONTROL_ERROR, "more data than permitted"));
        }
        let is_complete = receive.size.is_some() && receive.assembler.is_read_to(size);
        if receive.reset.is_some() || is_complete {
            return Ok(());
        }
        let was_dropped = receive.stop.is_some();
        // Bytes that were not read are dropped.
        let unread = size - if was_dropped { receive.highest } else { receive.assembler.read_offset() };
        receive.highest = size;
        receive.size = Some(size);
        receive.reset = Some(code);
        receive.assembler = super::Assembler::default();
        receive.sends_max_data = false;
        self.incoming.received += new;
        self.incoming.release(unread);
        if was_dropped {
            self.end_receive(id);
        } else if !is_unknown {
            self.events.push_back(QuicEvent::Readable(id));
        }
        Ok(())
    }

    /// Reads at most `max` bytes.
    pub fn read(&mut self, id: u64, max: usize) -> StreamRead {
        let window = self.stream_window;
        let Some(receive) = self.map.get_mut(&id).and_then(|stream| stream.receive.as_deref_mut()) else {
            return StreamRead::Finished;
        };
        if let Some(code) = receive.reset {
            self.end_receive(id);
            return StreamRead::Reset(code);
        }
        if receive.stop.is_some() {
            return StreamRead::Finished;
        }
        if let Some(bytes) = receive.assembler.read(max) {
            let credit = (receive.assembler.read_offset() + window).saturating_sub(receive.max_data);
            let needs_credit = receive.size.is_none() && credit >= window / 4 && !receive.sends_max_data;
            receive.sends_max_data |= needs_credit;
            self.incoming.release(bytes.len() as u64);
            if needs_credit {
                self.queue_control(id);
            }
            return StreamRead::Bytes(bytes);
        }
        if receive.size.is_some_and(|size| receive.assembler.is_read_to(size)) {
            self.end_receive(id);
            return StreamRead::Finished;
        }
        StreamRead::Blocked
    }

    /// Asks the peer to send no more on a stream, and drops data that was not read.
    pub fn stop(&mut self, id: u64, code: u64) {
        let Some(receive) = self.map.get_mut(&id).and_then(|stream| stream.receive.as_deref_mut()) else {
            return;
        };
        if receive.stop.is_some() {
            return;
        }
        if receive.reset.is_none() {
            let unread = receive.highest - receive.assembler.read_offset();
            receive.assembler = super::Assembler::default();
            self.incoming.release(unread);
        }
        let Some(receive) = self.map.get_mut(&id).and_then(|stream| stream.receive.as_deref_mut()) else {
            return;
        };
        if receive.size.is_some() {
            // Everything has arrived: there is nothing to stop.
            self.end_receive(id);
            return;
        }
        receive.stop = Some((code, true));
        receive.sends_max_data = false;
        self.queue_control(id);
    }

    fn end_receive(&mut self, id: u64) {
        if let Some(stream) = self.map.get_mut(&id) {
            stream.receive = None;
        }
        self.remove_if_over(id);
    }
}

/// Checks the end of received data against the size of the stream.
fn check_size(size: Option<u64>, highest: u64, end: u64, fin: bool) -> Result<(), TransportError> {
    let is_wrong = match size {
        Some(size) => end > size || (fin && end != size),
        None => fin && end < highest,
    };
    if is_wrong {
        return Err(TransportError::new(FINAL_SIZE_ERROR, "the size of the stream has changed"));
    }
    Ok(())
}
