//! Sends the ready bytes of a direction: in one call if possible, in whole segments, and delayed by the gate.

use std::task::{Context, Poll, ready};

use runtime::Buffer;

use super::sink::Following;
use super::{COPY, Flow, FlowError, Gate, Sink};

impl Flow {
    /// Writes the staged and ready bytes. `Ready` when nothing is left to write.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        if self.gate.is_some() {
            return self.poll_send_gated(context, buffer, to);
        }
        // If the sender filled the buffer, it usually has more.
        let following = match self.is_received() {
            true if self.trailers.is_some() => Following::More,
            true => Following::End(self.ends),
            false if buffer.room_len() == 0 => Following::More,
            false => Following::Unknown,
        };
        if self.ready > 0 && self.ready <= COPY && !self.staged.is_empty() && self.staged_sent == 0 {
            self.staged.extend_from_slice(&buffer.filled()[..self.ready]);
            buffer.consume(self.ready);
            self.ready = 0;
        }
        if self.handed_over {
            ready!(self.poll_handed_over(context, to))?;
        }
        while self.has_unsent() {
            if self.ready > COPY
                && self.staged.is_empty()
                && self.ready == buffer.len()
                && let Some(stream) = to.gathering()
            {
                let is_last = matches!(following, Following::End(_));
                let taken = ready!(stream.poll_hand_over(context, buffer, is_last));
                let taken = taken.map_err(|error| FlowError::write(&error))?;
                self.moved = true;
                self.sent += taken as u64;
                self.ready -= taken;
                self.handed_over = true;
                ready!(self.poll_handed_over(context, to))?;
                continue;
            }
            let staged = &self.staged[self.staged_sent..];
            let ready = &buffer.filled()[..self.ready];
            let n = match to.poll_write(context, staged, ready, following) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(FlowError::unwritten())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::write(&error))),
                Poll::Ready(Ok(n)) => n,
            };
            let of_staged = n.min(staged.len());
            self.note_sent(of_staged, n - of_staged, buffer);
            self.held = matches!(following, Following::More | Following::End(true));
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the staged bytes. `Ready` when none are left.
    pub(super) fn poll_flush(
        &mut self,
        context: &mut Context<'_>,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let following = match self.is_received() {
            true if self.trailers.is_some() => Following::More,
            true => Following::End(self.ends),
            false => Following::Unknown,
        };
        while self.staged_left() > 0 {
            match ready!(to.poll_write(context, &self.staged[self.staged_sent..], &[], following)) {
                Ok(0) => return Poll::Ready(Err(FlowError::unwritten())),
                Ok(n) => self.note_staged(n),
                Err(error) => return Poll::Ready(Err(FlowError::write(&error))),
            }
            self.held = matches!(following, Following::More | Following::End(true));
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the bytes that the kernel has held back in expectation of more data, which has not arrived.
    #[inline]
    pub(super) fn release(&mut self, context: &mut Context<'_>, to: &mut Sink<'_>) {
        // An error will occur again on the next write.
        let _ = to.poll_flush(context);
        if std::mem::take(&mut self.held) {
            to.push();
        }
    }

    /// Everything was written. If the end of the connection follows now, bytes that are held back are sent with it.
    #[inline]
    pub(super) fn poll_finished(
        &mut self,
        context: &mut Context<'_>,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        to.end_message(self.trailers.take());
        ready!(to.poll_flush(context)).map_err(|error| FlowError::write(&error))?;
        if !self.ends && std::mem::take(&mut self.held) {
            to.push();
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until the stream has sent a buffer that was handed over. Until then, nothing more is read, so that a slow receiver
    /// occupies only one buffer.
    fn poll_handed_over(
        &mut self,
        context: &mut Context<'_>,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        if let Some(stream) = to.gathering() {
            ready!(stream.poll_handed_over(context)).map_err(|error| FlowError::write(&error))?;
        }
        self.handed_over = false;
        Poll::Ready(Ok(()))
    }

    /// Accounts for bytes that were sent, both staged and from the buffer.
    #[inline]
    fn note_sent(&mut self, of_staged: usize, of_buffer: usize, buffer: &mut Buffer) {
        self.note_staged(of_staged);
        self.sent += of_buffer as u64;
        buffer.consume(of_buffer);
        self.ready -= of_buffer;
    }

    /// Accounts for staged bytes that were sent.
    #[inline]
    pub(super) fn note_staged(&mut self, n: usize) {
        self.moved = true;
        self.sent += n as u64;
        self.staged_sent += n;
        if self.staged_sent == self.staged.len() {
            self.staged.clear();
            self.staged_sent = 0;
        }
    }

    /// Like [`poll_send`](Self::poll_send), limited by the gate.
    #[cold]
    fn poll_send_gated(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let Some(mut gate) = self.gate.take() else { return Poll::Ready(Ok(())) };
        let sent = self.send_through(&mut gate, context, buffer, to);
        self.gate = Some(gate);
        sent
    }

    fn send_through(
        &mut self,
        gate: &mut Gate,
        context: &mut Context<'_>,
        buffer: &mut Buffer,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        while self.has_unsent() {
            let staged = &self.staged[self.staged_sent..];
            let free = gate.free.min(staged.len());
            let payload = staged.len() - free + self.ready;
            let allowed = gate.allow(payload);
            if free == 0 && allowed == 0 {
                // A delay by a limit is not inactivity of either side, so the deadlines restart.
                self.moved = true;
                match gate.poll_open(payload, context) {
                    Poll::Ready(()) => continue,
                    Poll::Pending => return Poll::Pending,
                }
            }
            let staged = &staged[..staged.len().min(free + allowed)];
            let ready = &buffer.filled()[..self.ready.min(free + allowed - staged.len())];
            let n = match to.poll_write(context, staged, ready, Following::Unknown) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(FlowError::unwritten())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::write(&error))),
                Poll::Ready(Ok(n)) => n,
            };
            let (of_staged, of_head) = (n.min(staged.len()), n.min(free));
            gate.free -= of_head;
            gate.pass(&staged[of_head.min(of_staged)..of_staged]);
            gate.pass(&ready[..n - of_staged]);
            self.note_sent(of_staged, n - of_staged, buffer);
        }
        Poll::Ready(Ok(()))
    }
}
