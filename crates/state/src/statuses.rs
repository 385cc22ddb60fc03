//! Sets of statuses: those that stick tables count as client errors and as server failures (configuration manual, 3.1
//! `http-err-codes`, `http-fail-codes`).

use std::ops::RangeInclusive;

/// Statuses from 100 to 599.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statuses([u64; 8]);

impl Statuses {
    fn place(status: u16) -> Option<(usize, u64)> {
        let number = usize::from(status.checked_sub(100)?);
        (number < 500).then_some((number / 64, 1 << (number % 64)))
    }

    /// Whether it contains the status.
    #[inline]
    pub fn holds(&self, status: u16) -> bool {
        Self::place(status).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }

    /// Adds a range.
    pub fn add(&mut self, range: RangeInclusive<u16>) {
        range.filter_map(Self::place).for_each(|(word, bit)| self.0[word] |= bit);
    }

    /// Removes a range.
    pub fn remove(&mut self, range: RangeInclusive<u16>) {
        range.filter_map(Self::place).for_each(|(word, bit)| self.0[word] &= !bit);
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.0 = [0; 8];
    }
}

/// The statuses counted by stick tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedStatuses {
    /// Client errors (`http_err_cnt`).
    pub errors: Statuses,
    /// Server failures (`http_fail_cnt`).
    pub failures: Statuses,
}

impl Default for CountedStatuses {
    fn default() -> Self {
        let (mut errors, mut failures) = (Statuses::default(), Statuses::default());
        errors.add(400..=499);
        failures.add(500..=599);
        failures.remove(501..=501);
        failures.remove(505..=505);
        Self { errors, failures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_error_and_failure_statuses() {
        let counted = CountedStatuses::default();
        let of = |set: &Statuses| (100..=700).filter(|status| set.holds(*status)).count();
        assert_eq!((of(&counted.errors), of(&counted.failures)), (100, 98));
        assert!(!counted.failures.holds(501) && !counted.failures.holds(505) && !counted.errors.holds(99));
    }
}
