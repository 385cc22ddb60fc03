//! Drives a direction: receives from the source, and sends to the sink.

use std::io;
use std::task::{Context, Poll, ready};

use http::{ChunkEvent, Normalized};
use net::splice::Pipe;
use runtime::{Buffer, buffer, turns};
use sample::ConnectionError;

use super::filters::NextFilter;
use super::source::{Framing, SourceReader};
use super::{Coding, Flow, FlowError, Path, Sink, Socket, Source};
use crate::stream;

/// For fewer bytes than this, a pipe is not worth its two system calls.
const SPLICE_LEAST: u64 = 4096;

/// If less than this is staged, payload is added to the head before it is sent.
const TOGETHER: usize = 16 * 1024;

/// While more input arrives fast, filter output below this size is not sent yet: compression shrinks its input considerably, and
/// the fixed cost of a send exceeds that of the bytes.
const GATHERED: usize = 32 * 1024;

/// The number of reads after which the output is sent in any case, to limit how long the receiver waits.
const GATHERED_READS: u8 = 4;

/// The progress of filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// Nothing is queued in them.
    Nothing,
    /// Payload or the end was produced and may be staged.
    Something,
}

impl Flow {
    /// Accounts for `n` bytes that passed through a pipe.
    fn skip(&mut self, n: u64) {
        self.received += n;
        self.admitted += n;
        self.sent += n;
        self.spliced += n;
        match &mut self.framing {
            Framing::Length(left) => {
                *left -= n.min(*left);
                if *left == 0 {
                    self.framing = Framing::Done;
                }
            }
            Framing::Chunked(decoder) => decoder.skip(n),
            Framing::UntilClose | Framing::Done | Framing::Held => {}
        }
    }

    /// Returns how many of the next bytes may be spliced without inspection: a known length, the rest of the current chunk, or
    /// everything until the close.
    fn spliceable(&self) -> u64 {
        match (&self.framing, self.path) {
            (Framing::Length(n), Path::Verbatim) => *n,
            (Framing::Chunked(decoder), Path::Verbatim) => decoder.remaining(),
            (Framing::UntilClose, Path::Verbatim) => u64::MAX,
            _ => 0,
        }
    }

    /// Inspects the new bytes in `buffer`, and makes those that belong to the body ready for sending.
    pub(crate) fn admit(&mut self, buffer: &mut Buffer) -> Result<(), FlowError> {
        let fresh = buffer.len() - self.ready;
        if fresh == 0 || self.is_received() {
            return Ok(());
        }
        match self.path {
            Path::Verbatim => self.admit_verbatim(buffer, fresh),
            // Neither side uses a coding.
            Path::Payload(Coding::Bare) if !matches!(self.framing, Framing::Chunked(_)) => {
                self.admit_verbatim(buffer, fresh)
            }
            Path::Payload(coding) => self.admit_payload(buffer, coding),
            Path::Filtered(coding) => self.admit_filtered(buffer, coding),
        }
    }

    fn admit_verbatim(&mut self, buffer: &mut Buffer, fresh: usize) -> Result<(), FlowError> {
        let (used, kept) = match &mut self.framing {
            Framing::Done | Framing::Held => (0, 0),
            Framing::UntilClose => (fresh, fresh),
            Framing::Length(left) => {
                let taken = (fresh as u64).min(*left);
                *left -= taken;
                let ended = *left == 0;
                if ended {
                    self.framing = Framing::Done;
                }
                (taken as usize, taken as usize)
            }
            Framing::Chunked(decoder) => {
                // Normalizes the chunked coding, so that all receivers agree where a chunk ends.
                let Normalized { used, kept } = decoder
                    .normalize(&mut buffer.filled_mut()[self.ready..])
                    .map_err(|_| FlowError::Coding)?;
                if kept < used {
                    buffer.cut(self.ready + kept..self.ready + used);
                }
                if decoder.is_done() {
                    self.framing = Framing::Done;
                }
                (used, kept)
            }
        };
        self.ready += kept;
        self.received += used as u64;
        self.admitted += kept as u64;
        // Chunk extensions and leading zeros do not count as progress, because a sender could send them forever.
        self.moved |= kept > 0 || self.is_received();
        Ok(())
    }

    /// Discards the bytes in `buffer` that belong to an unread body. Returns whether the body ended with them.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn discard(&mut self, buffer: &mut Buffer) -> Result<bool, FlowError> {
        if self.filters.is_some() {
            self.forget_filters();
        }
        self.admit(buffer)?;
        buffer.consume(self.ready);
        self.ready = 0;
        self.staged.clear();
        self.staged_sent = 0;
        Ok(self.is_received())
    }

    /// Drops the filters, because their output is no longer needed.
    #[cold]
    fn forget_filters(&mut self) {
        self.filters = None;
        self.path = Path::Payload(Coding::Nothing);
        if matches!(self.framing, Framing::Held) {
            self.framing = Framing::Done;
        }
    }

    /// Moves the part of the body in `buffer` to the end of `out`. Returns whether the body ended with it. Only for flows of bare
    /// payload.
    ///
    /// # Errors
    /// The body is malformed.
    pub(crate) fn take(&mut self, buffer: &mut Buffer, out: &mut Vec<u8>) -> Result<bool, FlowError> {
        self.admit(buffer)?;
        out.extend_from_slice(&buffer.filled()[..self.ready]);
        buffer.consume(self.ready);
        self.ready = 0;
        out.append(&mut self.staged);
        self.staged_sent = 0;
        Ok(self.is_received())
    }

    /// Takes the payload from `buffer`, and appends it to the staged bytes.
    fn admit_payload(&mut self, buffer: &mut Buffer, coding: Coding) -> Result<(), FlowError> {
        let mut staged = std::mem::take(&mut self.staged);
        let taken = self.take_payload(buffer, |data| coding.write(data, &mut staged));
        self.staged = staged;
        taken?;
        if self.is_received() {
            coding.finish(&mut self.trailers, &mut self.staged);
        }
        Ok(())
    }

    /// Takes the payload from `buffer`, and stages the output of the filters.
    #[cold]
    fn admit_filtered(&mut self, buffer: &mut Buffer, coding: Coding) -> Result<(), FlowError> {
        if matches!(self.framing, Framing::Held) {
            // The following bytes belong to another message.
            return Ok(());
        }
        let Some(mut filters) = self.filters.take() else { return Err(FlowError::Coding) };
        let taken = if filters.changes_payload() {
            self.take_payload(buffer, |data| filters.data(data))
        } else {
            let mut staged = std::mem::take(&mut self.staged);
            let taken = self.take_payload(buffer, |data| {
                filters.pass(data);
                coding.write(data, &mut staged);
            });
            self.staged = staged;
            taken
        };
        if taken.is_ok() && self.is_received() {
            filters.end();
            self.framing = Framing::Held;
        }
        self.gathered += 1;
        let gathers = self.bulk
            && self.gathered < GATHERED_READS
            && !self.has_ended()
            && !filters.holds()
            && filters.made() < GATHERED;
        self.filters = Some(filters);
        if gathers {
            return taken;
        }
        let staged = self.stage_filtered();
        taken.and(staged)
    }

    /// Stages the output of the filters, and also the end if the last filter has passed it on.
    ///
    /// # Errors
    /// The output does not match the length declared to the receiver.
    pub(super) fn stage_filtered(&mut self) -> Result<(), FlowError> {
        let (Path::Filtered(coding), Some(filters)) = (self.path, &mut self.filters) else { return Ok(()) };
        self.gathered = 0;
        filters.give(coding, &mut self.staged)?;
        if filters.is_over() && matches!(self.framing, Framing::Held) {
            self.framing = Framing::Done;
            coding.finish(&mut self.trailers, &mut self.staged);
        }
        Ok(())
    }

    /// Calls `take` with each piece of payload in `buffer`.
    fn take_payload(&mut self, buffer: &mut Buffer, mut take: impl FnMut(&[u8])) -> Result<(), FlowError> {
        let (mut at, mut moved) = (0, false);
        let input = buffer.filled();
        let used = loop {
            match self.framing.decode(input, at).map_err(|()| FlowError::Coding)? {
                ChunkEvent::Data { range } => {
                    at = range.end;
                    moved = true;
                    take(&input[range]);
                }
                ChunkEvent::More => break input.len(),
                ChunkEvent::Done { consumed } => {
                    if !(self.drops_trailers || self.sends_no_body()) {
                        self.trailers = self.framing.trailers();
                    }
                    self.framing = Framing::Done;
                    break consumed;
                }
            }
        };
        self.received += used as u64;
        self.admitted += used as u64;
        self.moved |= moved || self.is_received();
        buffer.consume(used);
        Ok(())
    }

    /// Called when all staged bytes were sent. Moves queued payload through the filters, or returns `Pending` if nothing can move
    /// yet.
    #[cold]
    pub(super) fn poll_filters(&mut self, context: &mut Context<'_>) -> Poll<Result<Passed, FlowError>> {
        let Some(filters) = &mut self.filters else { return Poll::Ready(Ok(Passed::Nothing)) };
        let turn = filters.poll_turn(context);
        match turn {
            NextFilter::Free => return Poll::Ready(Ok(Passed::Nothing)),
            NextFilter::Unseen => return Poll::Pending,
            NextFilter::Cut => return Poll::Ready(Err(FlowError::Filter)),
            NextFilter::Moved => {}
            NextFilter::Held(at) | NextFilter::Limited(at) => {
                // A delay by a limit is not inactivity of either side, so the deadlines restart.
                self.moved |= matches!(turn, NextFilter::Limited(_));
                if !filters.flush(at + 1) {
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(self.stage_filtered().map(|()| Passed::Something))
    }

    /// Called when the sender pauses. Flushes compression and gathered output. Returns whether there was output.
    ///
    /// # Errors
    /// The output exceeds the length declared to the receiver.
    #[cold]
    pub(super) fn flush_filters(&mut self) -> Result<bool, FlowError> {
        let Some(filters) = &mut self.filters else { return Ok(false) };
        filters.flush(0);
        let has_any = filters.made() > 0;
        self.stage_filtered()?;
        Ok(has_any)
    }

    /// Moves the body from the source to the sink until a side blocks. `Ready` once all of it was sent. Bytes that need no
    /// inspection pass through the pipe, if there is one.
    pub(crate) fn poll_pump(
        &mut self,
        context: &mut Context<'_>,
        from: Source<'_>,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        match from {
            Source::Socket(from) => {
                from.input.get_or_insert_with(Buffer::small);
                let pumped = match self.pipe.take() {
                    None => self.poll_from_socket(context, from, to),
                    mut pipe => {
                        let pumped = self.poll_splice(context, from, to, &mut pipe);
                        self.pipe = pipe;
                        pumped
                    }
                };
                // Idle directions hold no buffer.
                from.release();
                pumped
            }
            Source::Stream(from) => self.poll_from_stream(context, from, to),
            Source::Gone => Poll::Ready(Err(FlowError::Read(ConnectionError::default()))),
            Source::Stored(stored) => self.poll_stored(context, stored, to),
        }
    }

    /// From a socket.
    #[inline]
    fn poll_from_socket(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Socket,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let Socket { stream, input } = from;
        let Some(buffer) = input else { return Poll::Pending };
        self.poll_forward(context, SourceReader::Socket(stream), buffer, to)
    }

    /// From a stream of a multiplexed connection.
    #[inline]
    fn poll_from_stream(
        &mut self,
        context: &mut Context<'_>,
        from: &mut stream::AnyStream,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let (incoming, input) = from.halves();
        let buffer = input.get_or_insert_with(Buffer::small);
        let pumped = self.poll_forward(context, SourceReader::Stream(incoming), buffer, to);
        from.release();
        pumped
    }

    /// Through `buffer`.
    #[inline]
    fn poll_forward(
        &mut self,
        context: &mut Context<'_>,
        mut from: SourceReader<'_>,
        buffer: &mut Buffer,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        // Bytes that arrived with the head are sent with it, in one call.
        self.admit(buffer)?;
        if self.is_until_close() && from.is_at_end() {
            self.end_of_stream(&mut from)?;
        }
        // Payload is sent with the head. Nothing is added while the receiver is blocked.
        let may_join = self.sent == 0 && self.staged_left() < TOGETHER;
        if self.staged_left() > 0
            && may_join
            && buffer.is_empty()
            && !self.is_received()
            && from.has_payload()
            && !self.is_held()
        {
            ready!(self.poll_receive(context, &mut from, buffer))?;
        }
        loop {
            match self.poll_send(context, buffer, to) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => {
                    if self.filters.is_some() {
                        self.read_ahead(context, &mut from, buffer)?;
                    }
                    return self.wait_for_receiver(buffer);
                }
                failed => return failed,
            }
            if self.is_received() {
                return self.poll_finished(context, to);
            }
            if self.filters.is_some() {
                match self.poll_filters(context) {
                    Poll::Ready(Ok(Passed::Nothing)) => {}
                    Poll::Ready(Ok(Passed::Something)) => continue,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        self.release(context, to);
                        return Poll::Pending;
                    }
                }
            }
            if let Some(filters) = &mut self.filters
                && filters.take_turns(context)
            {
                self.release(context, to);
                // The task runs again after the worker's next poll of its sockets, because other tasks wait for them.
                turns::yield_turn(context);
                return Poll::Pending;
            }
            match self.poll_receive(context, &mut from, buffer) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending if self.filters.is_some() && self.flush_filters()? => {}
                other => {
                    self.release(context, to);
                    return other;
                }
            }
        }
    }

    /// Moves bytes from socket to socket, through the kernel's `pipe` if they need no inspection.
    fn poll_splice(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Socket,
        to: &mut Sink<'_>,
        pipe: &mut Option<Pipe>,
    ) -> Poll<Result<(), FlowError>> {
        loop {
            let (Some(through), Sink::Socket(socket)) = (&mut *pipe, &mut *to) else {
                *pipe = None;
                return self.poll_from_socket(context, from, to);
            };
            if from.stream.tls().is_some() || socket.tls().is_some() {
                // The kernel cannot splice bytes that this process encrypts.
                *pipe = None;
                continue;
            }
            let Socket { stream: from, input } = &mut *from;
            let Some(buffer) = input else { return Poll::Pending };
            self.admit(buffer)?;
            match self.poll_send(context, buffer, to) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return self.wait_for_receiver(buffer),
                failed => return failed,
            }
            while !through.is_empty() {
                let Sink::Socket(socket) = &mut *to else { break };
                match through.poll_drain(context, socket, self.spliceable() > 0) {
                    Poll::Ready(Ok(_)) => self.moved = true,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::write(&error))),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.is_received() {
                return self.poll_finished(context, to);
            }
            let limit = self.spliceable();
            if limit < SPLICE_LEAST || !buffer.is_empty() {
                match self.poll_receive(context, &mut SourceReader::Socket(from), buffer) {
                    Poll::Ready(Ok(())) => continue,
                    other => {
                        self.release(context, to);
                        return other;
                    }
                }
            }
            match through.poll_fill(context, from, limit) {
                Poll::Ready(Ok(0)) => self.end_of_stream(&mut SourceReader::Socket(from))?,
                Poll::Ready(Ok(n)) => {
                    self.skip(n as u64);
                    self.moved = true;
                }
                // A socket that cannot be spliced is read normally.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => *pipe = None,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::read(&error))),
                Poll::Pending => {
                    self.release(context, to);
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads once into `buffer` and admits the bytes.
    pub(super) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        from: &mut SourceReader<'_>,
        buffer: &mut Buffer,
    ) -> Poll<Result<(), FlowError>> {
        if buffer.len() > self.ready {
            // These bytes arrived with the head.
            let before = self.received;
            self.admit(buffer)?;
            if self.received > before {
                return Poll::Ready(Ok(()));
            }
        }
        if buffer.is_empty() {
            self.fit(buffer);
        } else if buffer.room_len() == 0 {
            buffer.compact();
        }
        let room = buffer.room_len();
        if room == 0 {
            // A line of the chunked coding that does not fit in the buffer is considered endless.
            return if self.has_unsent() { Poll::Pending } else { Poll::Ready(Err(FlowError::Coding)) };
        }
        match from.poll_read(context, buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(FlowError::read(&error))),
            Poll::Ready(Ok(0)) => Poll::Ready(self.end_of_stream(from)),
            Poll::Ready(Ok(n)) => {
                self.slow = false;
                self.bulk = n == room || n >= buffer::small_size();
                let admitted = self.admit(buffer);
                if from.is_at_end() && self.is_until_close() && admitted.is_ok() {
                    // The end is sent together with the last bytes.
                    return Poll::Ready(self.end_of_stream(from));
                }
                Poll::Ready(admitted)
            }
        }
    }

    /// Sizes the empty `buffer` for the next read.
    #[inline]
    fn fit(&self, buffer: &mut Buffer) {
        if buffer.capacity() == 0 {
            // The receiver has taken the bytes together with their buffer.
            *buffer = if self.bulk && !self.slow { Buffer::for_body() } else { Buffer::small() };
        } else if self.slow {
            buffer.shrink();
        } else if self.bulk && buffer.capacity() < buffer::LARGE {
            *buffer = Buffer::for_body();
        }
    }

    /// The receiver is blocked. Keeps the unsent bytes in as little memory as possible, because the wait may be long. A stream
    /// that took the buffer with the bytes blocks often even if its peer is fast, because the peer grants one window at a time.
    #[cold]
    fn wait_for_receiver(&mut self, buffer: &mut Buffer) -> Poll<Result<(), FlowError>> {
        self.slow = buffer.capacity() > 0;
        buffer.shrink();
        Poll::Pending
    }

    fn end_of_stream(&mut self, from: &mut SourceReader<'_>) -> Result<(), FlowError> {
        if !self.is_until_close() {
            return Err(FlowError::Read(ConnectionError::default()));
        }
        self.framing = Framing::Done;
        self.trailers = from.take_trailers().filter(|_| !self.drops_trailers);
        match self.path {
            Path::Verbatim => {}
            Path::Payload(coding) => coding.finish(&mut self.trailers, &mut self.staged),
            Path::Filtered(_) => return self.end_filtered(),
        }
        Ok(())
    }

    /// Ends the payload that passes through filters.
    #[cold]
    fn end_filtered(&mut self) -> Result<(), FlowError> {
        if let Some(filters) = &mut self.filters {
            filters.end();
            self.framing = Framing::Held;
        }
        self.stage_filtered()
    }
}
