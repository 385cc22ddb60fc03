//! How streams and the connection end: resets, refusals, glitches, GOAWAY (RFC 9113 sections 5.4, 6.4, 6.8).

use super::control::{PING_ANNOUNCE, PING_CALLER};
use super::{Connection, Going, Phase};
use crate::event::{By, Event};
use crate::fault::{Breach, Closed, Reason};
use crate::frame::WINDOW_MAX;
use crate::frame::kind;
use crate::limits;
use crate::stream::{LOCAL_ENDED, RESET, RESET_BY_US, TURN, WAITING};
use crate::{Code, StreamKey};
use fields::Role;

impl<B: AsRef<[u8]>> Connection<B> {
    /// Resets a stream in both directions. The stream causes no further events, but must still be released. No effect if the stream
    /// is over.
    pub fn reset(&mut self, key: StreamKey, code: Code) {
        let Some(stream) = self.streams.get(key) else { return };
        if stream.has(RESET) || stream.is_ended() {
            return;
        }
        self.end_stream(key.slot, RESET_BY_US);
        self.output.frame(kind::RST_STREAM, 0, key.id, code.number().to_be_bytes());
    }

    /// Releases a stream: the slot becomes free and the key invalid. If the stream is still open, it is reset with CANCEL. If the
    /// whole response was sent, a short rest of the request is discarded first, and the reset has NO_ERROR.
    pub fn release(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        let is_answered = self.role == Role::Server && stream.has(LOCAL_ENDED);
        if is_answered && self.keep_unfinished(key) {
            return;
        }
        self.reset(key, if is_answered { Code::NoError } else { Code::Cancel });
        self.forget(key);
    }

    /// Ends a stream in both directions.
    pub(super) fn end_stream(&mut self, slot: u32, how: u16) {
        self.ready.remove(&mut self.streams, slot);
        self.stop_receiving(slot);
        let stream = self.streams.at(slot);
        stream.flags &= !(WAITING | TURN);
        stream.flags |= how;
    }

    /// Resets an existing stream after an error of the peer.
    pub(super) fn stream_fault(&mut self, slot: u32, code: Code, reason: Reason) -> Option<Event> {
        let id = self.streams.at(slot).id;
        let is_over = self.streams.at(slot).has(RESET);
        self.end_stream(slot, RESET_BY_US);
        self.send_fault(id, code, reason);
        (!is_over).then_some(Event::Reset { key: StreamKey { slot, id }, code, by: By::Us(reason) })
    }

    /// Reports an error on a stream that no longer exists.
    pub(super) fn answer_reset(&mut self, id: u32, breach: Breach) {
        self.send_fault(id, breach.code(), Reason::Breach(breach));
    }

    /// Refuses a stream that never got a slot.
    pub(super) fn refuse(&mut self, id: u32, code: Code, reason: Reason) -> Event {
        self.streams.refuse(id);
        self.send_fault(id, code, reason);
        Event::Refused { id, code, reason }
    }

    fn send_fault(&mut self, id: u32, code: Code, reason: Reason) {
        reason.note();
        self.counts.stream_errors += 1;
        self.counts.resets_answered += 1;
        self.output.answer(kind::RST_STREAM, 0, id, code.number().to_be_bytes());
        self.glitch();
    }

    /// Sends a frame in response to the peer, on the connection.
    pub(super) fn answer<const N: usize>(&mut self, kind: u8, flags: u8, payload: [u8; N]) {
        self.output.answer(kind, flags, 0, payload);
        if self.output.answers() > limits::ANSWERS_HARD && self.closed.is_none() {
            self.fail(Breach::Answers);
        }
    }

    /// Counts a frame without effect.
    pub(super) fn waste(&mut self) -> Result<(), Breach> {
        if self.used.waste() { Err(Breach::Flood) } else { Ok(()) }
    }

    /// Counts a glitch (`fc_glitches`). As in HAProxy these are stream resets caused by an error, requests reset by their client,
    /// windows reduced by SETTINGS, and header blocks in many pieces.
    pub(super) fn glitch(&mut self) {
        self.used.glitches = self.used.glitches.saturating_add(1);
        self.judge_glitches();
    }

    /// Asks the peer to leave at three quarters of the glitches threshold, and closes the connection at the threshold.
    pub(super) fn judge_glitches(&mut self) {
        let threshold = self.config.glitches_threshold;
        if threshold == 0 || self.closed.is_some() {
            return;
        }
        let glitches = self.used.glitches;
        if glitches >= threshold && self.is_busy {
            self.fail(Breach::Glitches);
        } else if u64::from(glitches) * 4 >= u64::from(threshold) * 3 {
            self.shutdown(Phase::Announce);
        }
    }

    /// Closes the connection after a connection error of the peer.
    pub(super) fn fail(&mut self, breach: Breach) -> Closed {
        breach.note();
        self.counts.connection_errors += 1;
        self.counts.goaways_answered += 1;
        let code = match breach.code() {
            // This code is only valid for streams.
            Code::RefusedStream => Code::ProtocolError,
            code => code,
        };
        self.end(code, Some(breach))
    }

    /// Closes the connection immediately: GOAWAY is the last frame of the output.
    pub fn close(&mut self, code: Code) {
        if self.closed.is_none() {
            self.end(code, None);
        }
    }

    fn end(&mut self, code: Code, breach: Option<Breach>) -> Closed {
        self.go_away(self.last_of_peer(), code);
        let closed = Closed { code, breach };
        self.closed = Some(closed);
        closed
    }

    /// The last peer-initiated stream that was processed or is being processed.
    fn last_of_peer(&self) -> u32 {
        match self.going {
            Going::Final(last) => last,
            _ if self.is_server() => self.streams.last,
            _ => 0,
        }
    }

    fn go_away(&mut self, last: u32, code: Code) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&last.to_be_bytes());
        payload[4..].copy_from_slice(&code.number().to_be_bytes());
        self.output.frame(kind::GOAWAY, 0, 0, payload);
    }

    /// Starts a shutdown; open streams continue. If the peer takes too long, call this again with the final phase.
    pub fn shutdown(&mut self, phase: Phase) {
        self.stop_all_unfinished();
        match (phase, self.going) {
            (_, Going::Final(_)) | (Phase::Announce, Going::Announced) => {}
            _ if self.closed.is_some() => {}
            (Phase::Announce, Going::No) if self.is_server() => {
                self.going = Going::Announced;
                self.go_away(WINDOW_MAX, Code::NoError);
                self.output.frame(kind::PING, 0, 0, PING_ANNOUNCE);
            }
            _ => {
                let last = self.last_of_peer();
                self.going = Going::Final(last);
                self.go_away(last, Code::NoError);
            }
        }
    }

    /// Whether the connection is closed or shutting down: no streams may be opened on it.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.closed.is_some() || self.going != Going::No || self.peer_last.is_some()
    }

    /// Whether the only remaining work is to send the output and close the socket.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_last = matches!(self.going, Going::Final(_)) || self.peer_last.is_some();
        self.closed.is_some() || (is_last && self.streams.len() == 0)
    }

    /// Whether this side closes the socket once the output is sent: its final GOAWAY was sent, and no stream is open. If the peer
    /// sent the GOAWAY, the peer closes the connection.
    #[must_use]
    pub fn is_ours_to_close(&self) -> bool {
        self.closed.is_some() || (matches!(self.going, Going::Final(_)) && self.streams.len() == 0)
    }

    /// How the connection was closed, if at all.
    #[must_use]
    pub fn closed(&self) -> Option<Closed> {
        self.closed
    }

    /// Pings the peer; the response is reported as [`Event::Pong`].
    pub fn ping(&mut self) {
        if !std::mem::replace(&mut self.is_pinging, true) {
            self.output.frame(kind::PING, 0, 0, PING_CALLER);
        }
    }
}
