//! Sending on streams.

use std::collections::VecDeque;

use bytes::Bytes;

use super::halves::{Fin, Reset, SendHalf};
use super::{QuicEvent, StreamSet};
use crate::error::TransportError;
use crate::sent::{SentFrame, StreamRange};
use crate::stream_frame;
use crate::types::Stopped;
use crate::varint;

impl StreamSet {
    fn send_half(&mut self, id: u64) -> Option<&mut SendHalf> {
        self.map.get_mut(&id).and_then(|stream| stream.send.as_deref_mut())
    }

    /// Returns how many bytes may be written to a stream now.
    fn room(&mut self, id: u64) -> Result<usize, Stopped> {
        let outgoing = &mut self.outgoing;
        let Some(send) = self.map.get_mut(&id).and_then(|stream| stream.send.as_deref_mut()) else {
            return Err(Stopped(0));
        };
        if let Some(code) = send.stopped {
            return Err(Stopped(code));
        }
        if send.reset.is_some() || send.is_finished() {
            return Err(Stopped(0));
        }
        let by_stream = send.max_data.saturating_sub(send.buffer.end());
        let by_peer = outgoing.max_data.saturating_sub(outgoing.written);
        let room = outgoing.window.saturating_sub(outgoing.kept).min(by_peer).min(by_stream);
        if room > 0 {
            return Ok(usize::try_from(room).unwrap_or(usize::MAX));
        }
        if !std::mem::replace(&mut send.is_blocked, true) {
            self.blocked.push(id);
        }
        if !self.reports_blocked {
            return Ok(0);
        }
        let mut has_control = false;
        if by_stream == 0 && send.blocked_at != Some(send.max_data) {
            send.blocked_at = Some(send.max_data);
            send.sends_blocked = true;
            has_control = true;
        } else if by_peer == 0 && outgoing.blocked_at != Some(outgoing.max_data) {
            outgoing.blocked_at = Some(outgoing.max_data);
            outgoing.sends_blocked = true;
        }
        if has_control {
            self.queue_control(id);
        }
        Ok(0)
    }

    fn note_written(&mut self, id: u64, count: usize) {
        self.outgoing.written += count as u64;
        self.outgoing.kept += count as u64;
        self.schedule(id);
    }

    /// Writes as much of `data` as there is room for.
    ///
    /// # Errors
    /// The peer wants no more data.
    pub fn write(&mut self, id: u64, data: &[u8]) -> Result<usize, Stopped> {
        let count = self.room(id)?.min(data.len());
        if count > 0 {
            if let Some(send) = self.send_half(id) {
                send.buffer.push(&data[..count]);
            }
            self.note_written(id, count);
        }
        Ok(count)
    }

    /// Like [`write`](Self::write), without copying the data.
    ///
    /// # Errors
    /// The peer wants no more data.
    pub fn write_bytes(&mut self, id: u64, mut data: Bytes) -> Result<usize, Stopped> {
        let count = self.room(id)?.min(data.len());
        if count > 0 {
            data.truncate(count);
            if let Some(send) = self.send_half(id) {
                send.buffer.push_shared(data);
            }
            self.note_written(id, count);
        }
        Ok(count)
    }

    /// Ends the data of a stream. Returns `false` if the stream was over, or the peer wants no data.
    pub fn finish(&mut self, id: u64) -> bool {
        let Some(send) = self.send_half(id) else { return false };
        if send.fin != Fin::Open || send.reset.is_some() || send.stopped.is_some() {
            return false;
        }
        send.fin = Fin::Pending;
        self.schedule(id);
        true
    }

    /// Aborts sending on a stream.
    pub fn reset(&mut self, id: u64, code: u64) {
        let Some(send) = self.send_half(id) else { return };
        if send.reset.is_some() {
            return;
        }
        send.reset = Some(Reset { code, is_pending: true });
        let kept = send.buffer.kept();
        self.outgoing.kept -= kept;
        // The size of the stream is that of the written bytes, for which the peer has given credit.
        let end = send_end(self.send_half(id));
        if let Some(send) = self.send_half(id) {
            send.buffer = super::SendBuffer::emptied_at(end);
        }
        self.queue_control(id);
        self.wake_blocked();
    }

    /// Sets the priority of a stream: data of higher ones is sent first.
    pub fn set_priority(&mut self, id: u64, priority: i32) {
        let Some(send) = self.send_half(id) else { return };
        let before = std::mem::replace(&mut send.priority, priority);
        if before != priority && std::mem::take(&mut send.is_scheduled) {
            if let Some((_, queue)) = self.schedule.iter_mut().find(|(level, _)| *level == before) {
                queue.retain(|queued| *queued != id);
            }
            self.schedule(id);
        }
    }

    /// Puts a stream with data into the schedule.
    fn schedule(&mut self, id: u64) {
        let Some(send) = self.send_half(id) else { return };
        if !send.has_data() || std::mem::replace(&mut send.is_scheduled, true) {
            return;
        }
        let priority = send.priority;
        let at = match self.schedule.binary_search_by(|(level, _)| priority.cmp(level)) {
            Ok(at) => at,
            Err(at) => {
                self.schedule.insert(at, (priority, VecDeque::new()));
                at
            }
        };
        self.schedule[at].1.push_back(id);
    }

    /// Whether there is data to send.
    pub(crate) fn has_data(&self) -> bool {
        !self.schedule.is_empty()
    }

    /// Appends STREAM frames as long as they fit before `limit`. Streams of the same priority take turns, a packet each.
    pub(crate) fn write_data(&mut self, out: &mut Vec<u8>, limit: usize, sent: &mut impl Extend<SentFrame>) {
        /// A type, an ID and an offset, a length, and a byte.
        const HEAD_MAX: usize = 1 + 8 + 8 + 2 + 1;
        while let Some((_, queue)) = self.schedule.first_mut() {
            let Some(&id) = queue.front() else {
                self.schedule.remove(0);
                continue;
            };
            if out.len() + HEAD_MAX > limit {
                // The next packet begins with another stream.
                queue.rotate_left(1);
                return;
            }
            queue.pop_front();
            let Some(send) = self.map.get_mut(&id).and_then(|stream| stream.send.as_deref_mut()) else {
                continue;
            };
            send.is_scheduled = false;
            if send.has_data() {
                sent.extend([write_frame(id, send, out, limit)]);
                self.schedule(id);
            }
        }
    }

    /// The peer has acknowledged a part of a stream.
    pub(crate) fn acknowledge(&mut self, range: &StreamRange) {
        let Some(send) = self.map.get_mut(&range.id).and_then(|stream| stream.send.as_deref_mut()) else {
            return;
        };
        if send.reset.is_some() {
            return;
        }
        let released = send.buffer.acknowledge(range.offset..range.offset + u64::from(range.length));
        if range.fin {
            send.fin = Fin::Acknowledged;
        }
        let is_over = send.fin == Fin::Acknowledged && send.buffer.is_acknowledged();
        self.outgoing.kept -= released;
        if is_over {
            self.events.push_back(QuicEvent::Finished(range.id));
            self.end_send(range.id);
        }
    }

    /// A part of a stream was lost.
    pub(crate) fn lose(&mut self, range: &StreamRange) {
        let Some(send) = self.send_half(range.id) else { return };
        if send.reset.is_some() {
            return;
        }
        send.buffer.lose(range.offset..range.offset + u64::from(range.length));
        if range.fin && send.fin == Fin::Sent {
            send.fin = Fin::Pending;
        }
        self.schedule(range.id);
    }

    /// The peer has acknowledged that we aborted a stream.
    pub(crate) fn acknowledge_reset(&mut self, id: u64) {
        if self.send_half(id).is_some_and(|send| send.reset.is_some()) {
            self.end_send(id);
        }
    }

    /// Processes a STOP_SENDING frame.
    pub(crate) fn on_stop(&mut self, id: u64, code: u64) -> Result<(), TransportError> {
        self.admit(id, true)?;
        if let Some(send) = self.send_half(id)
            && send.stopped.is_none()
            && send.reset.is_none()
        {
            send.stopped = Some(code);
            self.events.push_back(QuicEvent::Stopped(id, code));
        }
        Ok(())
    }

    pub(crate) fn on_max_stream_data(&mut self, id: u64, most: u64) -> Result<(), TransportError> {
        self.admit(id, true)?;
        if let Some(send) = self.send_half(id)
            && most > send.max_data
        {
            send.max_data = most;
            self.wake_blocked();
        }
        Ok(())
    }

    /// Checks the ID of a STREAM_DATA_BLOCKED frame.
    pub(crate) fn on_stream_data_blocked(&mut self, id: u64) -> Result<(), TransportError> {
        self.admit(id, false)
    }

    pub(crate) fn on_max_data(&mut self, most: u64) {
        if most > self.outgoing.max_data {
            self.outgoing.max_data = most;
            self.wake_blocked();
        }
    }

    /// Limits the number of bytes that are kept for the peer.
    pub(crate) fn set_send_window(&mut self, window: u64) {
        self.outgoing.window = window;
    }

    /// Reports streams that may be written to again.
    pub fn wake_blocked(&mut self) {
        if self.blocked.is_empty()
            || self.outgoing.kept >= self.outgoing.window
            || self.outgoing.written >= self.outgoing.max_data
        {
            return;
        }
        let (map, events) = (&mut self.map, &mut self.events);
        self.blocked.retain(|id| {
            let Some(send) = map.get_mut(id).and_then(|stream| stream.send.as_deref_mut()) else {
                return false;
            };
            if send.max_data <= send.buffer.end() {
                return true;
            }
            send.is_blocked = false;
            events.push_back(QuicEvent::Writable(*id));
            false
        });
        if self.blocked.is_empty() {
            self.blocked = Vec::new();
        }
    }

    /// Drops everything that is to be sent: the connection is closed.
    pub fn end_sending(&mut self) {
        self.map.values_mut().for_each(|stream| stream.send = None);
        self.map.retain(|_, stream| stream.receive.is_some());
        (self.schedule, self.control, self.blocked) = Default::default();
    }

    fn end_send(&mut self, id: u64) {
        if let Some(stream) = self.map.get_mut(&id) {
            stream.send = None;
        }
        self.remove_if_over(id);
    }
}

fn send_end(send: Option<&mut SendHalf>) -> u64 {
    send.map_or(0, |send| send.buffer.end())
}

/// Appends a STREAM frame with as much of the stream's data as fits before `limit`.
fn write_frame(id: u64, send: &mut SendHalf, out: &mut Vec<u8>, limit: usize) -> SentFrame {
    let range = send.buffer.peek().unwrap_or(send.buffer.end()..send.buffer.end());
    let offset_length = if range.start > 0 { varint::length(range.start) } else { 0 };
    let room = limit - out.len() - 1 - varint::length(id) - offset_length;
    let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    // Data up to the end of the packet needs no length.
    let (count, length) = if wanted >= room {
        (room, None)
    } else {
        let count = wanted.min(room - varint::length(wanted as u64));
        (count, Some(count))
    };
    let end = range.start + count as u64;
    let fin = end == send.buffer.end() && send.is_finished();
    stream_frame::write_stream(out, id, range.start, length, fin);
    if count > 0 {
        send.buffer.copy(range.start..end, out);
        send.buffer.mark_sent(range.start..end);
    }
    if fin {
        send.fin = if send.fin == Fin::Acknowledged { Fin::Acknowledged } else { Fin::Sent };
    }
    // Cannot truncate: packets are smaller than 64 KiB.
    SentFrame::Stream(StreamRange { id, offset: range.start, length: count as u16, fin })
}
