//! Sample lines of the text format of Prometheus.

/// A sample line.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleLine<'a> {
    /// The name, with a suffix such as `_bucket`.
    pub name: &'a str,
    /// The labels in order, with values without escapes.
    pub labels: Vec<(&'a str, String)>,
    /// The value as written.
    pub text: &'a str,
    /// The value, possibly NaN.
    pub value: f64,
}

impl<'a> SampleLine<'a> {
    /// Parses `name{label="value",…} value`, ignoring a timestamp or exemplar after the value. Returns `None` if the line is malformed.
    pub fn parse(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                rest = rest.trim_start_matches([',', ' ']);
                if let Some(after) = rest.strip_prefix('}') {
                    rest = after;
                    break;
                }
                let (label, after) = rest.split_once("=\"")?;
                let (value, after) = read_quoted(after)?;
                labels.push((label, value));
                rest = after;
            }
        }
        let text = rest.split_ascii_whitespace().next()?;
        let value: f64 = text.parse().ok()?;
        (!name.is_empty()).then_some(Self { name, labels, text, value })
    }
}

/// Reads a label value up to its closing quote; returns it without escapes, and the rest.
fn read_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_lines_are_parsed() {
        let sample = SampleLine::parse("a_total{proxy=\"x\\\"y\",code=\"2xx\"} 12").expect("a sample");
        assert_eq!((sample.name, sample.value), ("a_total", 12.0));
        assert_eq!(sample.labels, [("proxy", "x\"y".to_owned()), ("code", "2xx".to_owned())]);
        let sample = SampleLine::parse("b 1.50 # {trace_id=\"1\"} 2").expect("a sample");
        assert_eq!((sample.name, sample.labels.len(), sample.text, sample.value), ("b", 0, "1.50", 1.5));
        assert!(SampleLine::parse("a NaN").expect("a sample").value.is_nan());
        for wrong in ["", "a", "a{", "a{b=\"c} 1", "a{b} 1", "{} x"] {
            assert!(SampleLine::parse(wrong).is_none(), "{wrong}");
        }
    }
}
