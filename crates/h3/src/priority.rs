//! Priorities of requests (RFC 9218): as values for the transport, and those that arrive before their streams.

use fields::Priority;

/// The number of updates kept for streams that are not open yet.
const EARLY: usize = 4;
/// The transport priority of the control stream and the QPACK streams, above all requests.
pub(crate) const CRITICAL: i32 = 8;

/// The transport priority of a request; 0 without an explicit one. Only the urgency is expressed: requests of equal urgency share
/// the connection.
pub(crate) fn of_transport(priority: Priority) -> i32 {
    i32::from(Priority::default().urgency) - i32::from(priority.urgency.min(7))
}

/// The last few priorities that arrived before their streams (RFC 9218 section 7).
#[derive(Debug, Default)]
pub(crate) struct EarlyPriorities {
    kept: [Option<(u64, Priority)>; EARLY],
    at: u8,
}

impl EarlyPriorities {
    pub(crate) fn keep(&mut self, id: u64, priority: Priority) {
        if let Some(same) = self.kept.iter_mut().flatten().find(|kept| kept.0 == id) {
            same.1 = priority;
            return;
        }
        self.kept[self.at as usize] = Some((id, priority));
        self.at = (self.at + 1) % EARLY as u8;
    }

    pub(crate) fn take(&mut self, id: u64) -> Option<Priority> {
        let kept = self.kept.iter_mut().find(|kept| kept.is_some_and(|kept| kept.0 == id))?;
        kept.take().map(|kept| kept.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_requests_have_a_higher_transport_priority() {
        let of = |text: &[u8]| of_transport(Priority::parse(text));
        assert_eq!([of(b"u=0"), of(b""), of(b"i"), of(b"u=7")], [3, 0, 0, -4]);
        assert!(of(b"u=0") < CRITICAL);
    }

    #[test]
    fn few_early_priorities_are_kept() {
        let mut early = EarlyPriorities::default();
        for id in [0, 4, 4, 8, 12, 16] {
            early.keep(id, Priority { urgency: (id % 7) as u8, incremental: false });
        }
        assert_eq!(early.take(0), None);
        assert_eq!(early.take(16).map(|p| p.urgency), Some(2));
        assert_eq!((early.take(16), early.take(4).is_some()), (None, true));
    }
}
