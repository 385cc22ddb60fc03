//! Numbers in few characters.

use base::units::four_digits;

use crate::clock::Nanos;

/// A number in four characters: three digits, and the unit in place of the decimal point (`9k75`, `33k7`, `220k`, `997m`). The rest is
/// cut off.
pub(crate) fn short(value: f64) -> String {
    const UNITS: [char; 6] = ['m', '.', 'k', 'M', 'G', 'T'];
    if value.is_nan() || value < 0.001 {
        return "0.00".into();
    }
    let (mut value, mut unit) = if value < 1.0 { (value * 1000.0, 0) } else { (value, 1) };
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let unit = UNITS[unit];
    // The addition keeps numbers like 74.4 from losing a digit.
    let hundredths = (value * 100.0 + 1e-6) as u64;
    match hundredths {
        0..1000 => format!("{}{unit}{:02}", hundredths / 100, hundredths % 100),
        1000..10_000 => format!("{}{unit}{}", hundredths / 100, hundredths / 10 % 10),
        _ => format!("{}{unit}", hundredths / 100),
    }
}

/// A time with four digits and its unit (`29.58u`, `2.044m`).
pub(crate) fn time(value: Nanos) -> String {
    let (number, prefix) = four_digits(value);
    let unit = if prefix.is_empty() { "s" } else { prefix };
    format!("{number}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_characters() {
        for (value, expected) in [
            (0.0, "0.00"),
            (1.0, "1.00"),
            (94.0, "94.0"),
            (973.0, "973."),
            (0.997, "997m"),
            (0.0744, "74m4"),
            (9750.0, "9k75"),
            (33_794.0, "33k7"),
            (220_832.0, "220k"),
            (32_900_001.0, "32M9"),
            (999.999, "999."),
            (1e12, "1T00"),
            (f64::NAN, "0.00"),
        ] {
            assert_eq!(short(value), expected, "{value}");
        }
    }

    #[test]
    fn times_have_four_digits() {
        for (value, expected) in [
            (874, "874.0n"),
            (29_580, "29.58u"),
            (515_700, "515.7u"),
            (2_044_000, "2.044m"),
            (455_500_000, "455.5m"),
            (1_500_000_000, "1.500s"),
            (2_000_000_000_000, "2000s"),
        ] {
            assert_eq!(time(value), expected);
        }
    }
}
