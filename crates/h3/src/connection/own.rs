//! Our unidirectional streams: the control stream and the QPACK streams (RFC 9114 section 6.2, RFC 9204 section 4.2).
//!
//! A QPACK stream is opened only when there is something to write to it.

use super::Role;
use crate::fault::Violation;
use crate::frame::uni;
use crate::limits::{self, Config};
use crate::priority::CRITICAL;
use crate::transport::{Stopped, Streams};
use crate::{settings, varint};

/// One of our streams.
#[derive(Debug)]
pub(super) struct OwnStream {
    id: Option<u64>,
    /// Bytes that the transport did not take yet.
    pub(super) output: Vec<u8>,
}

impl OwnStream {
    fn new(kind: u64) -> OwnStream {
        let mut output = Vec::new();
        varint::put(kind, &mut output);
        OwnStream { id: None, output }
    }

    /// Whether there is anything to write besides the stream's type.
    pub(super) fn is_needed(&self) -> bool {
        self.output.len() > usize::from(self.id.is_none())
    }

    /// Writes as much as the transport takes; returns whether all is written.
    fn flush(&mut self, streams: &mut impl Streams) -> Result<bool, Violation> {
        if !self.is_needed() {
            return Ok(true);
        }
        let Some(id) = self.id.or_else(|| streams.open_uni()) else { return Ok(false) };
        if self.id.replace(id).is_none() {
            streams.set_priority(id, CRITICAL);
        }
        let written = super::send::write_all(streams, id, &self.output);
        let written = written.map_err(|Stopped(_)| Violation::CriticalClosed)?;
        self.output.drain(..written);
        Ok(self.output.is_empty())
    }
}

/// All of our unidirectional streams.
#[derive(Debug)]
pub(super) struct OwnStreams {
    pub(super) control: OwnStream,
    pub(super) encoder: OwnStream,
    pub(super) decoder: OwnStream,
    /// Whether a write may succeed: something was added, or the transport reported progress.
    is_due: bool,
}

impl OwnStreams {
    /// The control stream starts with SETTINGS.
    pub(super) fn new(role: Role, config: &Config) -> OwnStreams {
        let mut control = OwnStream::new(uni::CONTROL);
        settings::write_ours(role, config, &mut control.output);
        OwnStreams {
            control,
            encoder: OwnStream::new(uni::QPACK_ENCODER),
            decoder: OwnStream::new(uni::QPACK_DECODER),
            is_due: true,
        }
    }

    /// Called when a stream may take more, or has more to write.
    pub(super) fn wake(&mut self) {
        self.is_due = true;
    }

    /// Whether a stream is one of ours.
    pub(super) fn has(&self, id: u64) -> bool {
        [&self.control, &self.encoder, &self.decoder].iter().any(|own| own.id == Some(id))
    }

    /// Writes as much as the transport takes. The control stream comes first: no other may be opened before it.
    pub(super) fn flush(&mut self, streams: &mut impl Streams) -> Result<(), Violation> {
        if !std::mem::take(&mut self.is_due) {
            return Ok(());
        }
        self.control.flush(streams)?;
        if self.control.id.is_some() {
            self.encoder.flush(streams)?;
            self.decoder.flush(streams)?;
        }
        let waiting = self.encoder.output.len() + self.decoder.output.len();
        if waiting > limits::ANSWERS_HARD { Err(Violation::Answers) } else { Ok(()) }
    }

    /// The number of bytes that wait on open streams.
    pub(super) fn pending(&self) -> usize {
        let own = [&self.control, &self.encoder, &self.decoder];
        own.iter().filter(|own| own.is_needed()).map(|own| own.output.len()).sum()
    }

    pub(super) fn shrink(&mut self) {
        for own in [&mut self.control, &mut self.encoder, &mut self.decoder] {
            own.output.shrink_to_fit();
        }
    }

    pub(super) fn heap(&self) -> usize {
        self.control.output.capacity() + self.encoder.output.capacity() + self.decoder.output.capacity()
    }
}
