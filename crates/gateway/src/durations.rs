//! Durations of the Gateway API (GEP-2257): `1h30m`, `500ms`.

/// The duration in milliseconds.
///
/// # Errors
/// The text is not a duration.
pub(crate) fn milliseconds(text: &str) -> Result<u64, String> {
    let invalid = || format!("`{text}` is not a duration");
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_lowercase).count();
        let unit = match &rest[..letters] {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return Err(invalid()),
        };
        rest = &rest[letters..];
        total = number.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(invalid)?;
    }
    // The configuration language has no longer ones.
    if text.is_empty() || total > 2_000_000_000 { Err(invalid()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_add_up() {
        assert_eq!(milliseconds("1h30m"), Ok(5_400_000));
        assert_eq!(milliseconds("1s500ms"), Ok(1500));
        assert_eq!(milliseconds("0s"), Ok(0));
        for text in ["", "s", "1", "1d", "-1s", "1.5s", "99999999h", "1s\n"] {
            assert!(milliseconds(text).is_err(), "{text}");
        }
    }
}
