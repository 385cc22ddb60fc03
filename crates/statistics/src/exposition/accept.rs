//! Chooses the format by the `Accept` field (RFC 9110, 12.5.1).

use super::ExpositionFormat;

/// Returns the format with the highest quality in a list of media ranges, the first one if there are several. Without a range that
/// matches, the result is the text format, as if the header was missing.
pub(crate) fn choose(accept: &[u8]) -> ExpositionFormat {
    let mut best = (ExpositionFormat::Text, 0);
    for range in http::list_values(accept) {
        let Some((format, quality)) = read_range(range) else { continue };
        if quality > best.1 {
            best = (format, quality);
        }
    }
    best.0
}

/// Reads a media range: the format that it matches, and its quality in thousandths.
fn read_range(range: &[u8]) -> Option<(ExpositionFormat, u32)> {
    let range = std::str::from_utf8(range).ok()?;
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?;
    let (mut version, mut proto, mut encoding, mut quality) = (None, None, None, 1000);
    for part in parts {
        let (name, value) = part.split_once('=')?;
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        match () {
            () if name.eq_ignore_ascii_case("version") => version = Some(value),
            () if name.eq_ignore_ascii_case("proto") => proto = Some(value),
            () if name.eq_ignore_ascii_case("encoding") => encoding = Some(value),
            () if name.eq_ignore_ascii_case("q") => quality = thousandths(value)?,
            // The character set is UTF-8 anyway, and no name needs escapes (`escaping`).
            () => {}
        }
    }
    let is = |name: &str| kind.eq_ignore_ascii_case(name);
    let format = if is("application/openmetrics-text") && version.is_none_or(|version| version == "1.0.0") {
        ExpositionFormat::OpenMetrics
    } else if is("application/vnd.google.protobuf")
        && proto == Some("io.prometheus.client.MetricFamily")
        && encoding == Some("delimited")
    {
        ExpositionFormat::Protobuf
    } else if is("text/plain") && version.is_none_or(|version| version == "0.0.4")
        || is("text/*")
        || is("*/*")
    {
        ExpositionFormat::Text
    } else {
        return None;
    };
    Some((format, quality))
}

/// Parses a quality: 0 to 1 with at most three decimal places.
fn thousandths(value: &str) -> Option<u32> {
    let (whole, decimals) = value.split_once('.').unwrap_or((value, ""));
    let is_valid = matches!(whole, "0" | "1")
        && decimals.len() <= 3
        && decimals.bytes().all(|digit| digit.is_ascii_digit());
    let decimals: u32 = if decimals.is_empty() { 0 } else { format!("{decimals:0<3}").parse().ok()? };
    is_valid.then(|| (whole.parse::<u32>().unwrap_or(0) * 1000 + decimals).min(1000))
}

#[cfg(test)]
mod tests {
    use super::ExpositionFormat::{OpenMetrics, Protobuf, Text};
    use super::*;

    #[test]
    fn the_range_with_the_highest_quality_decides() {
        let messages =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accept, format) in [
            ("", Text),
            ("*/*", Text),
            ("text/html, application/json", Text),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; version=\"1.0.0\"; charset=utf-8", OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Text),
            ("application/openmetrics-text;version=2.0.0, text/plain;q=0.1", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;q=0.5,text/plain;version=0.0.4", Text),
            ("text/plain;q=0.5,application/openmetrics-text;q=0.501", OpenMetrics),
            ("text/plain,application/openmetrics-text", Text),
            ("application/openmetrics-text, text/plain", OpenMetrics),
            ("application/openmetrics-text;q=2, */*;q=0.1", Text),
            ("application/openmetrics-text;q=0.12345", Text),
            ("application/openmetrics-text;q=", Text),
            ("application/openmetrics-text;q", Text),
            ("application/*", Text),
            (messages, Protobuf),
            ("application/vnd.google.protobuf", Text),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", Text),
            // Prometheus 2.42, 3.5, and 2.42 with native histograms.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                 application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Protobuf,
            ),
        ] {
            assert_eq!(choose(accept.as_bytes()), format, "{accept}");
        }
        assert_eq!(choose(b"\xff, application/openmetrics-text"), OpenMetrics);
    }
}
