//! Moving a direction on: taking in what its source has, handing it to its sink.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use http::{ChunkEvent, Normalized};
use net::splice::Pipe;
use runtime::{Buffer, buffer};
use sample::ConnectionError;

use super::sink::Following;
use super::source::{Framing, PORTION, Reader};
use super::{COPY, Coding, Flow, FlowError, Path, Sink, Socket, Source, Stored};
use crate::stream::{self, Incoming, Protocol};

/// Fewer bytes than this are not worth a pipe's two calls.
const SPLICE_LEAST: u64 = 4096;

/// While less is staged than this, payload joins a head before it is sent.
const TOGETHER: usize = 16 * 1024;

impl Flow {
    /// Counts `n` bytes that went through a pipe.
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

    /// How many of the next bytes may be moved without being looked at: of a known length, of the
    /// current chunk, or all until the close.
    fn spliceable(&self) -> u64 {
        match (&self.framing, self.path) {
            (Framing::Length(n), Path::Verbatim) => *n,
            (Framing::Chunked(decoder), Path::Verbatim) => decoder.remaining(),
            (Framing::UntilClose, Path::Verbatim) => u64::MAX,
            _ => 0,
        }
    }

    /// Looks at the bytes of `buffer` that were not looked at yet, and makes those of the body
    /// ready to be sent.
    pub(crate) fn admit(&mut self, buffer: &mut Buffer) -> Result<(), FlowError> {
        let fresh = buffer.len() - self.ready;
        if fresh == 0 || self.is_received() {
            return Ok(());
        }
        match self.path {
            Path::Verbatim => self.admit_verbatim(buffer, fresh),
            // Nothing to take off, nothing to put on.
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
                // One spelling for all that read it after us: nobody finds the end of a chunk
                // elsewhere.
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
        Ok(())
    }

    /// Takes what `buffer` has of a body that nobody reads, and forgets it; says whether that was
    /// the end of it.
    ///
    /// # Errors
    /// It is badly coded.
    pub(crate) fn discard(&mut self, buffer: &mut Buffer) -> Result<bool, FlowError> {
        self.admit(buffer)?;
        buffer.consume(self.ready);
        self.ready = 0;
        self.staged.clear();
        self.staged_sent = 0;
        Ok(self.is_received())
    }

    /// Takes what `buffer` has of a body out of it, behind what `out` holds; says whether that was
    /// the end of it. For flows of bare payload.
    ///
    /// # Errors
    /// It is badly coded.
    pub(crate) fn take(&mut self, buffer: &mut Buffer, out: &mut Vec<u8>) -> Result<bool, FlowError> {
        self.admit(buffer)?;
        out.extend_from_slice(&buffer.filled()[..self.ready]);
        buffer.consume(self.ready);
        self.ready = 0;
        out.append(&mut self.staged);
        self.staged_sent = 0;
        Ok(self.is_received())
    }

    /// Takes the payload out of `buffer` and writes it behind what is staged.
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

    /// Takes the payload out of `buffer` and writes what the filters make of it behind what is
    /// staged.
    #[cold]
    fn admit_filtered(&mut self, buffer: &mut Buffer, coding: Coding) -> Result<(), FlowError> {
        if matches!(self.framing, Framing::Held) {
            // What lies behind is another message's.
            return Ok(());
        }
        let Some(mut filters) = self.filters.take() else { return Err(FlowError::Coding) };
        let taken = if filters.changes_nothing() {
            let mut staged = std::mem::take(&mut self.staged);
            let taken = self.take_payload(buffer, |data| {
                filters.pass(data);
                coding.write(data, &mut staged);
            });
            self.staged = staged;
            taken
        } else {
            self.take_payload(buffer, |data| filters.data(data))
        };
        if taken.is_ok() && self.is_received() && filters.scripts.is_none() {
            filters.end();
        }
        filters.give(coding, &mut self.staged);
        self.filters = Some(filters);
        if taken.is_ok() && self.is_received() && self.leaves_end_to_scripts() {
            return taken;
        }
        if taken.is_ok() && self.is_received() {
            coding.finish(&mut self.trailers, &mut self.staged);
        }
        taken
    }

    /// Has `take` each piece of payload that `buffer` has.
    fn take_payload(&mut self, buffer: &mut Buffer, mut take: impl FnMut(&[u8])) -> Result<(), FlowError> {
        let mut at = 0;
        let input = buffer.filled();
        let used = loop {
            match self.framing.decode(input, at).map_err(|()| FlowError::Coding)? {
                ChunkEvent::Data { range } => {
                    at = range.end;
                    take(&input[range]);
                }
                ChunkEvent::More => break input.len(),
                ChunkEvent::Done { consumed } => {
                    if !self.drops_trailers {
                        self.trailers = self.framing.trailers();
                    }
                    self.framing = Framing::Done;
                    break consumed;
                }
            }
        };
        self.received += used as u64;
        self.admitted += used as u64;
        buffer.consume(used);
        Ok(())
    }

    /// The sender pauses: what the filters held back leaves. Says whether there was anything.
    #[cold]
    fn flush_filters(&mut self) -> bool {
        let (Path::Filtered(coding), Some(filters)) = (self.path, &mut self.filters) else { return false };
        filters.flush();
        filters.give(coding, &mut self.staged)
    }

    /// Moves the body on as far as both sides allow; `Ready` once all of it has been sent. What
    /// needs not be looked at goes through the pipe, if there is one.
    pub(crate) fn poll_pump(
        &mut self,
        context: &mut Context<'_>,
        from: Source<'_>,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        match from {
            Source::H1(from) => {
                from.input.get_or_insert_with(Buffer::small);
                let pumped = match self.pipe.take() {
                    None => self.poll_from_socket(context, from, to),
                    mut pipe => {
                        let pumped = self.poll_splice(context, from, to, &mut pipe);
                        self.pipe = pipe;
                        pumped
                    }
                };
                // Nothing is held while nothing comes.
                from.release();
                pumped
            }
            Source::H2(from) => self.poll_from_stream(context, from, |incoming| Reader::H2(incoming), to),
            Source::Fcgi(from) => self.poll_from_stream(context, from, |incoming| Reader::Fcgi(incoming), to),
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
        self.poll_forward(context, Reader::H1(stream), buffer, to)
    }

    /// From a stream of a connection that has many.
    #[inline]
    fn poll_from_stream<E: Protocol>(
        &mut self,
        context: &mut Context<'_>,
        from: &mut stream::Stream<E>,
        reader: impl FnOnce(&mut Incoming<E>) -> Reader<'_>,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let (incoming, input) = from.halves();
        let buffer = input.get_or_insert_with(Buffer::small);
        let pumped = self.poll_forward(context, reader(incoming), buffer, to);
        from.release();
        pumped
    }

    /// By way of `buffer`.
    #[inline]
    fn poll_forward(
        &mut self,
        context: &mut Context<'_>,
        mut from: Reader<'_>,
        buffer: &mut Buffer,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        // What came with the head leaves with it, in one call.
        self.admit(buffer)?;
        if self.is_until_close() && from.is_at_end() {
            self.end_of_stream(&mut from)?;
        }
        // Payload leaves together with the head; what the receiver does not take is not added to.
        let may_join = self.sent == 0 && self.staged_left() < TOGETHER;
        if self.staged_left() > 0
            && may_join
            && buffer.is_empty()
            && !self.is_received()
            && from.has_payload()
        {
            ready!(self.poll_receive(context, &mut from, buffer))?;
        }
        loop {
            match self.poll_send(context, buffer, to) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return self.wait_for_receiver(buffer),
                failed => return failed,
            }
            if self.is_received() {
                return self.poll_finished(context, to);
            }
            if self.filters.is_some() && self.waits_for_scripts() {
                self.release(context, to);
                return Poll::Pending;
            }
            if let Some(filters) = &self.filters
                && filters.take_turns()
            {
                self.release(context, to);
                // Behind the worker's next look at its sockets: the reader waits for one of them.
                let _ = pin!(tokio::task::yield_now()).poll(context);
                return Poll::Pending;
            }
            match self.poll_receive(context, &mut from, buffer) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending if self.filters.is_some() && self.flush_filters() => {}
                other => {
                    self.release(context, to);
                    return other;
                }
            }
        }
    }

    /// From socket to socket, by way of the kernel's `pipe` wherever nobody looks at the bytes.
    fn poll_splice(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Socket,
        to: &mut Sink<'_>,
        pipe: &mut Option<Pipe>,
    ) -> Poll<Result<(), FlowError>> {
        loop {
            let (Some(through), Sink::H1(socket)) = (&mut *pipe, &mut *to) else {
                *pipe = None;
                return self.poll_from_socket(context, from, to);
            };
            if from.stream.tls().is_some() || socket.tls().is_some() {
                // The kernel does not see what is encrypted here.
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
                let Sink::H1(socket) = &mut *to else { break };
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
                match self.poll_receive(context, &mut Reader::H1(from), buffer) {
                    Poll::Ready(Ok(())) => continue,
                    other => {
                        self.release(context, to);
                        return other;
                    }
                }
            }
            match through.poll_fill(context, from, limit) {
                Poll::Ready(Ok(0)) => self.end_of_stream(&mut Reader::H1(from))?,
                Poll::Ready(Ok(n)) => {
                    self.skip(n as u64);
                    self.moved = true;
                }
                // A socket that cannot be spliced is read the usual way.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => *pipe = None,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(FlowError::read(&error))),
                Poll::Pending => {
                    self.release(context, to);
                    return Poll::Pending;
                }
            }
        }
    }

    /// From memory to a socket.
    fn poll_stored(
        &mut self,
        context: &mut Context<'_>,
        stored: &mut Stored,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let coding = match self.path {
            Path::Verbatim => Coding::Bare,
            Path::Payload(coding) | Path::Filtered(coding) => coding,
        };
        if stored.object.is_some() {
            if self.filters.is_some() || self.gate.is_some() || coding != Coding::Bare {
                return self.poll_object_copied(context, stored, coding, to);
            }
            return self.poll_object(context, stored, to);
        }
        loop {
            if !self.is_received() && !stored.is_taken() {
                let is_last = match &mut self.filters {
                    None => stored.take_portion(coding, &mut self.staged),
                    Some(filters) => stored.take_filtered(filters, coding, &mut self.staged),
                };
                if is_last {
                    self.framing = Framing::Done;
                }
            }
            match self.gate {
                None => ready!(self.poll_flush(context, to))?,
                Some(_) => ready!(self.poll_send(context, &mut Buffer::small(), to))?,
            }
            if self.is_received() {
                return self.poll_finished(context, to);
            }
            if stored.is_open() {
                // Who makes it knows when there is more.
                return Poll::Pending;
            }
            ready!(stored.poll_portion(context));
        }
    }

    /// From a cache to a socket: out of the object itself, as nothing changes the bytes or holds them
    /// back.
    fn poll_object(
        &mut self,
        context: &mut Context<'_>,
        stored: &mut Stored,
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

    /// The same in portions that are copied.
    #[cold]
    fn poll_object_copied(
        &mut self,
        context: &mut Context<'_>,
        stored: &mut Stored,
        coding: Coding,
        to: &mut Sink<'_>,
    ) -> Poll<Result<(), FlowError>> {
        let mut nothing = Buffer::small();
        loop {
            if !self.is_received() && self.staged_left() < PORTION {
                let portion = stored.rest();
                let portion = &portion[..portion.len().min(PORTION)];
                let taken = portion.len();
                match &mut self.filters {
                    None => coding.write(portion, &mut self.staged),
                    Some(filters) => {
                        filters.data(portion);
                        if taken == stored.rest().len() {
                            filters.end();
                        }
                        filters.give(coding, &mut self.staged);
                    }
                }
                stored.advance(taken);
                if stored.rest().is_empty() {
                    self.framing = Framing::Done;
                    coding.finish(&mut None, &mut self.staged);
                }
            }
            ready!(self.poll_send(context, &mut nothing, to))?;
            if self.is_received() {
                return self.poll_finished(context, to);
            }
        }
    }

    /// Reads once into `buffer` and admits what came.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Reader<'_>,
        buffer: &mut Buffer,
    ) -> Poll<Result<(), FlowError>> {
        if buffer.len() > self.ready {
            // Bytes that came with the head.
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
            // A line of the coding that no buffer holds has no end for us.
            return if self.has_unsent() { Poll::Pending } else { Poll::Ready(Err(FlowError::Coding)) };
        }
        match from.poll_read(context, buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(FlowError::read(&error))),
            Poll::Ready(Ok(0)) => Poll::Ready(self.end_of_stream(from)),
            Poll::Ready(Ok(n)) => {
                self.moved = true;
                self.slow = false;
                self.bulk = n == room || n >= buffer::small_size();
                let admitted = self.admit(buffer);
                if from.is_at_end() && self.is_until_close() && admitted.is_ok() {
                    // The end leaves with the last bytes.
                    return Poll::Ready(self.end_of_stream(from));
                }
                Poll::Ready(admitted)
            }
        }
    }

    /// Gives the empty `buffer` the size that the next read is worth.
    #[inline]
    fn fit(&self, buffer: &mut Buffer) {
        if buffer.capacity() == 0 {
            // Who took the bytes took the memory.
            *buffer = if self.bulk && !self.slow { Buffer::for_body() } else { Buffer::small() };
        } else if self.slow {
            buffer.shrink();
        } else if self.bulk && buffer.capacity() < buffer::LARGE {
            *buffer = Buffer::for_body();
        }
    }

    /// The receiver takes no more for now: what it may not take for long is kept in as little
    /// memory as holds it.
    #[cold]
    fn wait_for_receiver(&mut self, buffer: &mut Buffer) -> Poll<Result<(), FlowError>> {
        self.slow = true;
        buffer.shrink();
        Poll::Pending
    }

    fn end_of_stream(&mut self, from: &mut Reader<'_>) -> Result<(), FlowError> {
        if !self.is_until_close() {
            return Err(FlowError::Read(ConnectionError::default()));
        }
        self.framing = Framing::Done;
        self.trailers = from.take_trailers().filter(|_| !self.drops_trailers);
        if self.filters.is_some() && self.leaves_end_to_scripts() {
            return Ok(());
        }
        if let Path::Payload(coding) | Path::Filtered(coding) = self.path {
            if let Some(filters) = &mut self.filters {
                filters.end();
                filters.give(coding, &mut self.staged);
            }
            coding.finish(&mut self.trailers, &mut self.staged);
        }
        Ok(())
    }
}
