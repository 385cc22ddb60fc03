//! When to renew a certificate: in the last twelfth of its validity, as HAProxy does, and after failures with increasing pauses.
//! Times are seconds since 1970.

/// The pause after the first failure. It doubles with each further failure. Authorities permit only a few failures per hour.
const PAUSE_MIN: i64 = 5 * 60;
/// The longest pause, unless the authority requests another.
const PAUSE_MAX: i64 = 12 * 3600;
/// The longest pause that an authority may request.
const ASKED_MAX: i64 = 7 * 86_400;
/// The time before expiry at which a certificate with an unknown start of validity is renewed.
const UNKNOWN: i64 = 7 * 86_400;

/// When to renew a certificate with this validity.
pub(crate) fn due((from, until): (i64, i64)) -> i64 {
    if from <= 0 || from >= until { until - UNKNOWN } else { until - (until - from) / 12 }
}

/// The pause after `failures` consecutive failures. `asked` is the pause in seconds that the authority requested at the last one.
pub(crate) fn pause(failures: u32, asked: Option<u64>) -> i64 {
    let own = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(PAUSE_MAX);
    let asked = asked.map_or(0, |seconds| i64::try_from(seconds).unwrap_or(ASKED_MAX).min(ASKED_MAX));
    own.max(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_renewed_in_the_last_twelfth_of_their_validity() {
        let day = 86_400;
        assert_eq!(due((day, 91 * day)), 91 * day - 90 * day / 12);
        assert_eq!(due((0, 91 * day)), 84 * day);
    }

    #[test]
    fn pauses_grow_and_the_authority_may_extend_them() {
        let own: Vec<i64> = (1..12).map(|failures| pause(failures, None)).collect();
        assert_eq!(own[..4], [300, 600, 1200, 2400]);
        assert_eq!(own[10], PAUSE_MAX);
        assert_eq!(pause(u32::MAX, None), PAUSE_MAX);
        assert_eq!(pause(1, Some(3600)), 3600);
        assert_eq!(pause(1, Some(1)), 300);
        assert_eq!(pause(1, Some(u64::MAX)), ASKED_MAX);
    }
}
