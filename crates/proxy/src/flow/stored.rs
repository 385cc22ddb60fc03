//! Drives a direction with stored payload: generated and cached responses, and test responses.

use std::task::{Context, Poll, ready};

use runtime::Buffer;

use super::pump::Passed;
use super::sink::Following;
use super::source::Framing;
use super::{COPY, Coding, Flow, FlowError, MemoryBody, Path, Sink};

impl Flow {
    /// Sends from memory to a socket.
    pub(super) fn poll_stored(
        &mut self,
        context: &mut Context<'_>,
        stored: &mut MemoryBody,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let coding = match self.path {
            Path::Verbatim => Coding::Bare,
            Path::Payload(coding) | Path::Filtered(coding) => coding,
        };
        if self.filters.is_none() && self.gate.is_none() {
            if stored.repeated.is_some() {
                return self.poll_repeated(context, stored, coding, to);
            }
            if stored.object.is_some() && coding == Coding::Bare {
                return self.poll_object(context, stored, to);
            }
        }
        loop {
            if let Some(body) = &mut stored.repeated {
                ready!(body.poll_turn(context, true));
            }
            if !self.has_ended() && !stored.is_taken() && !self.is_held() {
                self.take_stored(stored, coding)?;
            }
            match self.gate {
                None => ready!(self.poll_flush(context, to))?,
                Some(_) => ready!(self.poll_send(context, &mut Buffer::small(), to))?,
            }
            if self.is_received() {
                return self.poll_finished(context, to);
            }
            if self.filters.is_some() && ready!(self.poll_filters(context))? == Passed::Something {
                continue;
            }
            if stored.object.is_some() || stored.repeated.is_some() {
                continue;
            }
            if stored.is_open() {
                // The producer wakes the task when there is more data.
                return Poll::Pending;
            }
            ready!(stored.poll_portion(context));
        }
    }

    /// Takes a portion of the stored body.
    fn take_stored(&mut self, stored: &mut MemoryBody, coding: Coding) -> Result<(), FlowError> {
        let Some(filters) = &mut self.filters else {
            if stored.take_portion(|portion| coding.write(portion, &mut self.staged)) {
                self.framing = Framing::Done;
                coding.finish(&mut None, &mut self.staged);
            }
            return Ok(());
        };
        let is_last = stored.take_portion(|portion| filters.data(portion));
        if is_last {
            filters.end();
            self.framing = Framing::Held;
        } else if stored.is_open() {
            filters.flush(0);
        }
        self.stage_filtered()
    }

    /// Sends from a cache to a socket, directly from the object, because nothing changes or delays the bytes.
    fn poll_object(
        &mut self,
        context: &mut Context<'_>,
        stored: &mut MemoryBody,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let following = Following::End(self.ends);
        loop {
            let rest = if self.is_received() { &[][..] } else { stored.rest() };
            if self.staged_left() == 0 && rest.is_empty() {
                self.framing = Framing::Done;
                return self.poll_finished(context, to);
            }
            if rest.len() <= COPY && self.staged_left() > 0 {
                self.staged.extend_from_slice(rest);
                self.framing = Framing::Done;
                ready!(self.poll_flush(context, to))?;
                continue;
            }
            let staged = &self.staged[self.staged_sent..];
            let n = match ready!(to.poll_write(context, staged, rest, following)) {
                Ok(0) => return Poll::Ready(Err(FlowError::unwritten())),
                Ok(n) => n,
                Err(error) => return Poll::Ready(Err(FlowError::write(&error))),
            };
            let of_staged = n.min(staged.len());
            self.note_staged(of_staged);
            self.sent += (n - of_staged) as u64;
            stored.advance(n - of_staged);
            self.held = following == Following::End(true);
        }
    }

    /// Sends a body that neither filters nor limits need to see. With chunked coding, it is a single chunk.
    pub(super) fn poll_repeated(
        &mut self,
        context: &mut Context<'_>,
        stored: &mut MemoryBody,
        coding: Coding,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let Some(body) = &mut stored.repeated else { return Poll::Ready(Err(FlowError::unwritten())) };
        let is_chunked = coding == Coding::Chunked;
        loop {
            if self.is_received() {
                ready!(self.poll_flush(context, to))?;
                return self.poll_finished(context, to);
            }
            if is_chunked && body.takes_size_line() {
                // The length of a body always fits in 63 bits.
                let length = usize::try_from(body.left()).unwrap_or(usize::MAX);
                http::chunk::write_chunk_size(&mut self.staged, length);
            }
            let piece = body.piece();
            let is_last = piece.len() as u64 == body.left();
            if piece.is_empty() || is_last && piece.len() <= COPY && self.staged_left() > 0 {
                self.staged.extend_from_slice(piece);
                body.advance(piece.len());
                if body.has_size_line() {
                    self.staged.extend_from_slice(http::chunk::CHUNK_END);
                }
                coding.finish(&mut None, &mut self.staged);
                self.framing = Framing::Done;
                continue;
            }
            ready!(body.poll_turn(context, false));
            let following = if is_last && !is_chunked { Following::End(self.ends) } else { Following::More };
            let staged = &self.staged[self.staged_sent..];
            let n = match to.poll_write_static(context, staged, piece, following) {
                Poll::Pending => {
                    self.release(context, to);
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(FlowError::unwritten())),
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::write(&error))),
            };
            let of_staged = n.min(staged.len());
            self.note_staged(of_staged);
            self.sent += (n - of_staged) as u64;
            body.advance(n - of_staged);
            self.held = matches!(following, Following::More | Following::End(true));
        }
    }
}
