//! HTTP dates (RFC 9110 section 5.6.7): written as IMF-fixdate, read in all three forms. Seconds
//! since 1970, UTC.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Days since 1970-01-01 for a date in the Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a day number.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Formats as `Sun, 06 Nov 1994 08:49:37 GMT`. Years are limited to 9999.
#[must_use]
pub fn format(seconds: i64) -> String {
    let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Parses an IMF-fixdate, an RFC 850 date (years from 70 to 99 are in the last century) or an asctime date.
#[must_use]
pub fn parse(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split([' ', '-']).filter(|word| !word.is_empty());
    let first = words.next()?;
    let (day, month, year, time);
    if let Some(weekday) = first.strip_suffix(',') {
        if weekday.len() < 3 {
            return None;
        }
        (day, month) = (words.next()?, words.next()?);
        let number = words.next()?;
        time = words.next()?;
        year = match (number.len(), number.parse::<i64>().ok()?) {
            (2, y @ 70..) => 1900 + y,
            (2, y) => 2000 + y,
            (4, y) => y,
            _ => return None,
        };
        if words.next()? != "GMT" {
            return None;
        }
    } else {
        (month, day, time) = (words.next()?, words.next()?, words.next()?);
        year = words.next()?.parse().ok()?;
    }
    let month = MONTHS.iter().position(|m| *m == month)? as i64 + 1;
    let number = |digits: &str| {
        let is_short = digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|_| is_short)
    };
    let day = number(day)?;
    let mut parts = time.split(':').map(|part| number(part).filter(|_| part.len() == 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let sound = parts.next().is_none()
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second)
        && (1..=9999).contains(&year)
        && civil_from_days(days_from_civil(year, month, day)) == (year, month, day);
    (words.next().is_none() && sound)
        .then(|| days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_date_forms_are_equivalent() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn dates_round_trip_over_leap_years() {
        for seconds in (-2_000_000_000i64..5_000_000_000).step_by(7_654_321) {
            assert_eq!(parse(format(seconds).as_bytes()), Some(seconds));
        }
        assert_eq!(format(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }

    #[test]
    fn malformed_dates_are_refused() {
        for text in [
            "",
            "now",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT x",
            "Sun, +6 Nov 199 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 +8:49:37 GMT",
            "Sun, 9223372036854775807 Nov 1994 08:49:37 GMT",
            "Sun Nov 9223372036854775807 08:49:37 1994",
            "Sun Nov 6 08:49:37 9223372036854775807",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
