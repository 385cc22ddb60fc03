//! Formats numbers, times and text for the page.

use std::fmt::Write;

/// Formats a number with thin spaces between thousands.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// `1.5 MiB`.
pub(super) fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// Formats a duration as its two largest parts: `2d3h`, `5m7s`.
pub(super) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// Formats a rate: one decimal below 10.
pub(super) fn rate(per_second: f64) -> String {
    if per_second > 0.0 && per_second < 9.95 {
        format!("{per_second:.1}")
    } else {
        number(per_second.round() as u64)
    }
}

/// Formats a share in percent; 0 without the sign.
pub(super) fn percent(share: f64) -> String {
    match share {
        0.0 => "0".to_owned(),
        share if share < 0.1 => "<0.1 %".to_owned(),
        share if share < 99.95 => format!("{share:.1} %"),
        _ => "100 %".to_owned(),
    }
}

/// Formats a time in units of 10 µs.
pub(super) fn time(value: u64) -> String {
    match value {
        0 => "0 ms".to_owned(),
        1..1_000 if !value.is_multiple_of(100) => format!("{:.1} ms", value as f64 / 100.0),
        1..99_500 => format!("{} ms", (value + 50) / 100),
        _ => format!("{:.1} s", value as f64 / 1e5),
    }
}

/// Formats two times in µs with one unit: `1.2 · 14 ms`. They come from a histogram, so two digits are enough.
pub(super) fn times([p50, p99]: [u64; 2]) -> String {
    let (unit, name) = if p99 < 1_000_000 { (1e3, "ms") } else { (1e6, "s") };
    let one = |us: u64| {
        let value = us as f64 / unit;
        if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
    };
    format!("{} · {} {name}", one(p50), one(p99))
}

/// `1 server`, `2 servers`.
pub(super) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", self::number(number as u64)) }
}

/// Escapes text for HTML, including attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The height of the area in which [`sparkline`] draws.
const HEIGHT: u64 = 15;

/// The distance of two points of a [`sparkline`].
const STEP: usize = 2;

/// Appends a line with room for `points` values, with the area below it. The highest value is at the top; the last one is at the
/// right end, so the line of a young object is shorter. It is stretched to the size of its place if `fills` is set, and otherwise as
/// wide as its points.
pub(super) fn sparkline(values: &[u64], points: usize, fills: bool, out: &mut String) {
    let (step, width) = (STEP, STEP * points.saturating_sub(1));
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let height = |value: u64| HEIGHT - (value * (HEIGHT - 1) + most / 2) / most;
    let begin = width.saturating_sub(step * values.len().saturating_sub(1));
    // Writing into a String cannot fail.
    let _ = match fills {
        true => write!(out, "<svg viewBox=\"0 0 {width} 16\" preserveAspectRatio=none aria-hidden=true>"),
        false => write!(out, "<svg aria-hidden=true>"),
    };
    if let Some(first) = values.first() {
        let mut at = height(*first);
        // Both ends are outside of the visible part, so that only the line itself is seen.
        let _ = match begin {
            0 => write!(out, "<path d=\"M-2 17V{at}h2"),
            _ => write!(out, "<path d=\"M{begin} 17V{at}"),
        };
        let mut flat = 0;
        for value in &values[1..] {
            let next = height(*value);
            if next == at {
                flat += step;
                continue;
            }
            if flat > 0 {
                let _ = write!(out, "h{flat}");
                flat = 0;
            }
            let _ = if next > at {
                write!(out, "l{step} {}", next - at)
            } else {
                write!(out, "l{step}-{}", at - next)
            };
            at = next;
        }
        let _ = write!(out, "h{}V17\"/>", flat + 2);
    }
    out.push_str("</svg>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_human_readable() {
        assert_eq!(number(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((bytes(512), bytes(1_572_864)), ("512 B".into(), "1.5 MiB".into()));
        assert_eq!(
            (duration(59), duration(3_700), duration(90_000)),
            ("59s".into(), "1h1m".into(), "1d1h".into())
        );
        assert_eq!([0.0, 4.36, 9.96, 1234.4].map(rate), ["0", "4.4", "10", "1\u{202f}234"]);
        assert_eq!([0.0, 0.01, 11.11, 99.96].map(percent), ["0", "<0.1 %", "11.1 %", "100 %"]);
        assert_eq!([0, 45, 300, 1_449, 250_000].map(time), ["0 ms", "0.5 ms", "3 ms", "14 ms", "2.5 s"]);
        assert_eq!(times([1_240, 13_800]), "1.2 · 14 ms");
        assert_eq!(times([40_000, 2_500_000]), "0.0 · 2.5 s");
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }

    #[test]
    fn equal_points_of_a_sparkline_are_one_stroke() {
        let line = |values: &[u64]| {
            let mut out = String::new();
            sparkline(values, 31, false, &mut out);
            out.split("d=\"").nth(1).map(|rest| rest.split('"').next().unwrap_or_default().to_owned())
        };
        assert_eq!(line(&[0; 31]).as_deref(), Some("M-2 17V15h2h62V17"));
        assert_eq!(line(&[0, 0, 7, 7, 0]).as_deref(), Some("M52 17V15h2l2-14h2l2 14h2V17"));
        assert_eq!(line(&[]), None);
    }
}
