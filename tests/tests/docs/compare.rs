//! Whether output is like the output on a page.
//!
//! `…` matches any text within a line, and any number of lines if it is alone. Words with a `/`, `:` or
//! a unit of time in them (addresses, dates, timers), and numbers in parentheses (processes) may differ in their numbers.

/// Whether `actual` is like `expected`. Blank lines are ignored.
pub(crate) fn is_like(expected: &[String], actual: &[&str]) -> bool {
    let expected: Vec<&str> =
        expected.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    let actual: Vec<&str> = actual.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    lines(&expected, &actual)
}

fn lines(expected: &[&str], actual: &[&str]) -> bool {
    match (expected.split_first(), actual.split_first()) {
        (None, None) => true,
        (Some((&"…", rest)), _) => (0..=actual.len()).any(|skipped| lines(rest, &actual[skipped..])),
        (Some((first, rest)), Some((line, others))) => is_line_like(first, line) && lines(rest, others),
        _ => false,
    }
}

fn is_line_like(expected: &str, actual: &str) -> bool {
    let of = |text: &str| text.split_whitespace().map(normalized).collect::<Vec<String>>().join(" ");
    matches_glob(&of(expected), &of(actual))
}

/// A word with its numbers replaced if it looks like a time or an address.
fn normalized(word: &str) -> String {
    // The mark below a word of a configuration, which may have a longer port.
    if word.bytes().all(|byte| byte == b'^') {
        return "^".to_owned();
    }
    let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
    // Such as `12ms` or `0d00h00m05s`.
    let time = word.trim_end_matches([',', '.']);
    if word.starts_with(|c: char| c.is_ascii_digit())
        && time.ends_with(['s', 'm', 'h', 'd'])
        && time.chars().all(|c| c.is_ascii_digit() || "dhmsu.".contains(c))
    {
        return format!("TIME{}", &word[time.len()..]);
    }
    // The process in a message.
    let is_pid = word.len() == digits.len() + 2 && word.starts_with('(') && word.ends_with(')');
    if digits.is_empty() || !(is_pid || word.contains(['/', ':'])) {
        return word.to_owned();
    }
    let mut out = String::new();
    let mut before = ' ';
    for c in word.chars() {
        // A digit after a letter belongs to a name, as in `s1`, but not in `2026-11-28T20:16:09`.
        let is_in_time = out.ends_with("NT") || out.ends_with("NTN");
        let is_number = c.is_ascii_digit() && (!before.is_alphabetic() || is_in_time);
        if is_number {
            if out.ends_with('-') && out[..out.len() - 1].ends_with(['/', ' ']) {
                out.pop();
            }
            if !out.ends_with('N') {
                out.push('N');
            }
        } else {
            out.push(c);
            before = c;
        }
    }
    out
}

/// Whether a text matches a pattern in which `…` is any text.
fn matches_glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('…') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|left| {
            let ends = left.char_indices().map(|(at, _)| at).chain([left.len()]);
            ends.into_iter().any(|at| matches_glob(rest, &left[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(expected: &str, actual: &str) -> bool {
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        is_like(&expected, &actual.lines().collect::<Vec<_>>())
    }

    #[test]
    fn times_and_addresses_may_differ_in_numbers() {
        let log = "127.0.0.1:4711 [28/Nov/2026:13:00:00.123] web app/s1 0/0/1/-1/3 503 1 SC-- 1/1 \"GET / HTTP/1.1\"";
        let other =
            log.replace("4711", "50000").replace("13:00:00.123", "09:12:59.1").replace("-1/3", "2/30");
        assert!(like(log, &other));
        assert!(!like(log, &log.replace("503", "502")));
        assert!(like("2026-11-28T15:22:43Z", "2026-12-01T20:16:08Z"));
        assert!(!like(log, &log.replace("s1", "s2")));
        assert!(like("in 12ms, done", "in 7ms, done") && !like("took 12", "took 7"));
    }

    #[test]
    fn an_ellipsis_matches_text_and_lines() {
        assert!(like("a … c", "a b b c") && !like("a … c", "a b"));
        assert!(like("a\n…\nd", "a\nb\nc\nd") && like("a\n…\nd", "a\nd") && !like("a\n…\nd", "a\nb"));
        assert!(like("a\n\nb\n", "a\nb") && !like("a", "a\nb"));
    }
}
