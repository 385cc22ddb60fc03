//! When a certificate is renewed: in the last twelfth of its time, as HAProxy does, and after a
//! failure with pauses that grow. Seconds since 1970.

/// The pause after the first failure; it doubles with each. Authorities take few failures an hour.
const PAUSE_MIN: i64 = 5 * 60;
/// The longest pause that is our own.
const PAUSE_MAX: i64 = 12 * 3600;
/// The longest pause that an authority may ask for.
const ASKED_MAX: i64 = 7 * 86_400;
/// How long before its end a certificate is renewed that does not say when it began.
const UNKNOWN: i64 = 7 * 86_400;

/// When a certificate with this validity is renewed.
pub(crate) fn due((from, until): (i64, i64)) -> i64 {
    if from <= 0 || from >= until { until - UNKNOWN } else { until - (until - from) / 12 }
}

/// How long to wait after so many failures in a row, the last of which asked for `asked` seconds.
pub(crate) fn pause(failures: u32, asked: Option<u64>) -> i64 {
    let own = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(PAUSE_MAX);
    let asked = asked.map_or(0, |seconds| i64::try_from(seconds).unwrap_or(ASKED_MAX).min(ASKED_MAX));
    own.max(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_in_the_last_twelfth_of_its_time() {
        let day = 86_400;
        assert_eq!(due((day, 91 * day)), 91 * day - 90 * day / 12);
        assert_eq!(due((0, 91 * day)), 84 * day);
    }

    #[test]
    fn pauses_grow_and_the_authority_may_ask_for_longer_ones() {
        let own: Vec<i64> = (1..12).map(|failures| pause(failures, None)).collect();
        assert_eq!(own[..4], [300, 600, 1200, 2400]);
        assert_eq!(own[10], PAUSE_MAX);
        assert_eq!(pause(u32::MAX, None), PAUSE_MAX);
        assert_eq!(pause(1, Some(3600)), 3600);
        assert_eq!(pause(1, Some(1)), 300);
        assert_eq!(pause(1, Some(u64::MAX)), ASKED_MAX);
    }
}
