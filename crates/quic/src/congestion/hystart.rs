//! HyStart++ (RFC 9406): slow start that ends when the round-trip time grows, before packets are lost.

use std::time::Duration;

// The names and values of RFC 9406, 4.3.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;

/// The rounds of slow start.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    /// The last packet that was sent.
    last_sent: u64,
    /// The packet that ends the current round when it is acknowledged.
    round_end: u64,
    /// The minimum round-trip time of the last round and of this one.
    last_min: Option<Duration>,
    current_min: Option<Duration>,
    /// The number of samples in this round.
    samples: u32,
    conservative: Option<Conservative>,
}

/// Conservative slow start.
#[derive(Debug, Clone, Copy)]
struct Conservative {
    /// The round-trip time at its beginning: a smaller one means that it began too early.
    baseline: Duration,
    rounds: u32,
}

impl HyStart {
    pub(super) fn on_sent(&mut self, number: u64) {
        self.last_sent = self.last_sent.max(number);
    }

    /// The divisor of the window's growth.
    pub(super) fn divisor(&self) -> u64 {
        if self.conservative.is_some() { CSS_GROWTH_DIVISOR } else { 1 }
    }

    /// Ends an acknowledgement; returns whether slow start is over.
    pub(super) fn end_ack(&mut self, largest: u64, sample: Duration) -> bool {
        self.current_min = Some(self.current_min.map_or(sample, |least| least.min(sample)));
        self.samples += 1;
        if self.samples >= N_RTT_SAMPLE
            && let Some(current) = self.current_min
        {
            match self.conservative {
                Some(conservative) if current < conservative.baseline => self.conservative = None,
                Some(_) => {}
                None => {
                    let grew = self.last_min.is_some_and(|last| {
                        current >= last + (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH)
                    });
                    self.conservative = grew.then_some(Conservative { baseline: current, rounds: 0 });
                }
            }
        }
        if largest < self.round_end {
            return false;
        }
        self.round_end = self.last_sent;
        self.last_min = self.current_min.take().or(self.last_min);
        self.samples = 0;
        self.conservative.as_mut().is_some_and(|conservative| {
            conservative.rounds += 1;
            conservative.rounds >= CSS_ROUNDS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packets in flight.
    const FLIGHT: u64 = 10;

    /// Plays rounds of ten acknowledgements, each with the round-trip time of its round in ms; returns in which one slow start
    /// ended.
    fn play(start: &mut HyStart, rounds: &[u64]) -> Option<usize> {
        for (round, ms) in rounds.iter().enumerate() {
            for _ in 0..FLIGHT {
                let sent = start.last_sent.max(FLIGHT) + 1;
                start.on_sent(sent);
                if start.end_ack(sent - FLIGHT, Duration::from_millis(*ms)) {
                    return Some(round);
                }
            }
        }
        None
    }

    #[test]
    fn a_steady_round_trip_time_does_not_end_slow_start() {
        let mut start = HyStart::default();
        assert_eq!(play(&mut start, &[40, 42, 43, 41, 44, 40, 43, 44]), None);
        assert_eq!(start.divisor(), 1);
    }

    #[test]
    fn a_growing_round_trip_time_ends_slow_start_after_five_careful_rounds() {
        let mut start = HyStart::default();
        assert_eq!(play(&mut start, &[40, 40, 50]), None);
        assert_eq!(start.divisor(), CSS_GROWTH_DIVISOR, "a queue builds up");
        let end = play(&mut start, &[50, 52, 55, 57, 60, 60, 60]);
        assert!(end.is_some_and(|round| (3..=5).contains(&round)), "{end:?}");
    }

    #[test]
    fn a_peak_of_the_round_trip_time_is_forgotten() {
        let mut start = HyStart::default();
        assert_eq!(play(&mut start, &[40, 40, 60, 41, 41, 41, 41, 41, 41]), None);
        assert_eq!(start.divisor(), 1);
    }
}
