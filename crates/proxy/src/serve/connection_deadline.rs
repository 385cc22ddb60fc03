//! Decides when an idle or stalled multiplexed client connection is closed. Called by `multiplexed` after each turn with
//! progress.
//!
//! Streams have separate deadlines. The deadline of the connection applies between streams, and to output that the client does
//! not read. Only events that are relevant to a timeout restart it, not PINGs, SETTINGS or the bytes of an unfinished header
//! block.

use std::time::Duration;

use plan::proxy::Timeouts;
use runtime::timer::NEVER;

/// The state of a connection after a turn.
pub(super) struct DeadlineState {
    /// The worker's clock, in ms.
    pub(super) now: u64,
    /// Whether streams are being served.
    pub(super) has_streams: bool,
    /// Whether the connection has received a request before.
    pub(super) had_requests: bool,
    /// Whether anything was received in this turn.
    pub(super) received: bool,
    /// Whether a header block, or a frame that precedes one, is incomplete.
    pub(super) is_within_head: bool,
    /// Whether there is output that the client has not read yet.
    pub(super) has_output: bool,
    /// Whether the client accepted some output in this turn.
    pub(super) wrote: bool,
}

/// When each kind of wait began, in ms, or [`NEVER`] if the connection is not waiting in that way. Each idle connection has these
/// values, so they are kept small and are not `Option`s.
#[derive(Debug)]
pub(super) struct ConnectionDeadline {
    heard: u64,
    /// No stream is being served.
    idle: u64,
    /// A header block is incomplete.
    within_head: u64,
    /// The client does not read the output.
    stalled: u64,
}

impl ConnectionDeadline {
    /// Creates the state of a connection without streams at `now`.
    pub(super) fn new(now: u64) -> Self {
        Self { heard: now, idle: now, within_head: NEVER, stalled: NEVER }
    }

    /// Records a turn. Returns when to close the connection if nothing else happens, in ms, or [`NEVER`].
    pub(super) fn note(&mut self, turn: &DeadlineState, timeouts: &Timeouts) -> u64 {
        let now = turn.now;
        if turn.received {
            self.heard = now;
        }
        let since = |waits: bool, since: u64| if waits { since.min(now) } else { NEVER };
        self.idle = since(!turn.has_streams, self.idle);
        self.within_head = since(turn.is_within_head, self.within_head);
        self.stalled = since(turn.has_output, if turn.wrote { now } else { self.stalled });
        let stalled = after(self.stalled, timeouts.client);
        let within_head = after(self.within_head, timeouts.http_request);
        // As in HTTP/1, `timeout http-keep-alive` no longer applies once the next request has begun (manual, 4.2).
        let has_begun = within_head != NEVER && turn.had_requests;
        let idle = if has_begun { NEVER } else { self.idle_until(turn, timeouts) };
        stalled.min(within_head).min(idle)
    }

    /// Returns when a connection without streams stops waiting for the next request.
    fn idle_until(&self, turn: &DeadlineState, timeouts: &Timeouts) -> u64 {
        let allowed = match turn.had_requests {
            true => timeouts.http_keep_alive.or(timeouts.http_request),
            false => timeouts.http_request,
        };
        // `timeout client` limits silence, whereas the other timeouts limit requests.
        match allowed {
            _ if self.idle == NEVER => NEVER,
            None => after(self.heard.max(self.idle), timeouts.client),
            allowed => after(self.idle, allowed),
        }
    }
}

fn after(since: u64, allowed: Option<Duration>) -> u64 {
    allowed.map_or(NEVER, |allowed| since.saturating_add(allowed.as_millis() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: DeadlineState = DeadlineState {
        now: 0,
        has_streams: false,
        had_requests: true,
        received: true,
        is_within_head: false,
        has_output: false,
        wrote: false,
    };

    fn timeouts(client: u64, http_request: Option<u64>, http_keep_alive: Option<u64>) -> Timeouts {
        Timeouts {
            client: Some(Duration::from_millis(client)),
            http_request: http_request.map(Duration::from_millis),
            http_keep_alive: http_keep_alive.map(Duration::from_millis),
            ..Timeouts::default()
        }
    }

    #[test]
    fn frames_without_a_request_do_not_extend_the_keep_alive_timeout() {
        let timeouts = timeouts(50, Some(10), Some(20));
        let mut deadline = ConnectionDeadline::new(0);
        for now in 0..20 {
            assert_eq!(deadline.note(&DeadlineState { now, ..TURN }, &timeouts), 20);
        }
        assert_eq!(deadline.note(&DeadlineState { now: 15, has_streams: true, ..TURN }, &timeouts), NEVER);
        assert_eq!(deadline.note(&DeadlineState { now: 18, ..TURN }, &timeouts), 38);
    }

    #[test]
    fn a_dripped_header_block_is_limited_by_the_request_timeout() {
        let timeouts = timeouts(50, Some(10), Some(20));
        let mut deadline = ConnectionDeadline::new(0);
        let turn = |now, has_streams| DeadlineState { now, has_streams, is_within_head: true, ..TURN };
        for now in 15..20 {
            assert_eq!(deadline.note(&turn(now, false), &timeouts), 25);
            assert_eq!(deadline.note(&turn(now, true), &timeouts), 25, "with another stream");
        }
        let mut first = ConnectionDeadline::new(0);
        let turn = DeadlineState { now: 5, had_requests: false, is_within_head: true, ..TURN };
        assert_eq!(first.note(&turn, &timeouts), 10, "the first request is due since the beginning");
    }

    #[test]
    fn only_reading_extends_the_time_of_a_client_with_output_waiting() {
        let timeouts = timeouts(50, None, None);
        let mut deadline = ConnectionDeadline::new(0);
        let turn = |now, wrote| DeadlineState { now, wrote, has_streams: true, has_output: true, ..TURN };
        assert_eq!(deadline.note(&turn(10, false), &timeouts), 60);
        assert_eq!(deadline.note(&turn(40, false), &timeouts), 60);
        assert_eq!(deadline.note(&turn(50, true), &timeouts), 100);
    }

    #[test]
    fn only_the_client_timeout_is_about_silence() {
        let timeouts = timeouts(50, None, None);
        let mut deadline = ConnectionDeadline::new(0);
        assert_eq!(deadline.note(&DeadlineState { now: 30, ..TURN }, &timeouts), 80);
        assert_eq!(deadline.note(&DeadlineState { now: 40, received: false, ..TURN }, &timeouts), 80);
    }
}
