//! Transport parameters (RFC 9000, 18) that the engine does not publish.

use std::time::Duration;

/// The ID of `max_idle_timeout`.
const MAX_IDLE_TIMEOUT: u64 = 1;

/// Returns how long a connection may be idle by the parameters of one side; `None` without a limit.
pub(crate) fn max_idle_timeout(mut parameters: &[u8]) -> Option<Duration> {
    while let Some(id) = var_int(&mut parameters) {
        let length = usize::try_from(var_int(&mut parameters)?).ok()?;
        let (mut value, rest) = parameters.split_at_checked(length)?;
        parameters = rest;
        if id == MAX_IDLE_TIMEOUT {
            return var_int(&mut value).filter(|ms| *ms > 0).map(Duration::from_millis);
        }
    }
    None
}

/// Takes a variable-length integer (RFC 9000, 16).
fn var_int(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    *bytes = rest;
    Some(number[1..].iter().fold(u64::from(first & 0x3f), |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_timeout_is_found_among_other_parameters() {
        let parameters = [4, 1, 9, 0x40, 0xff, 0, 1, 2, 0x47, 0xd0, 5, 1, 1];
        assert_eq!(max_idle_timeout(&parameters), Some(Duration::from_secs(2)));
        for none in [&[][..], &[4, 1, 9], &[1, 1, 0], &[1, 2, 0x47], &[1]] {
            assert_eq!(max_idle_timeout(none), None, "{none:?}");
        }
    }
}
