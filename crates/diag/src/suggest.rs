//! "Did you mean": the nearest of a set of words, when it is near enough to be what was meant.

/// The candidate nearest to `word`, or `None` when none is near.
///
/// Near is at most one edit (a letter too many, missing or wrong, or two neighbours swapped) for
/// every three letters of the shorter word, at least one. Case differences count as half an edit
/// would: not at all for the distance, but an exact case match wins among equals. An abbreviation
/// (`set-hdr` of `set-header`), and a word with up to two letters before or behind what was meant
/// (`tolower` of `lower`), are as near as one edit. Of equally near candidates the first wins.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > 64 {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let limit = (candidate.len().min(word.len()) / 3).max(1);
        let limit = best.map_or(limit, |(distance, _)| limit.min(distance.saturating_sub(1)));
        if candidate == word {
            continue;
        }
        let other = candidate.to_ascii_lowercase();
        let distance = if abbreviates(&lower, &other) || surrounds(&lower, &other) {
            1
        } else if candidate.len().abs_diff(word.len()) > limit {
            continue;
        } else {
            distance(lower.as_bytes(), other.as_bytes())
        };
        if distance <= limit
            && !(distance > 0 && candidate.len() < 2)
            && best.is_none_or(|(d, _)| distance < d)
        {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Whether `word` is `whole` without some letters: the first is there, at least two of three are,
/// all in their order.
fn abbreviates(word: &str, whole: &str) -> bool {
    let mut rest = whole.bytes();
    word.len() >= 4
        && word.len() < whole.len()
        && word.len() * 3 >= whole.len() * 2
        && word.as_bytes().first() == whole.as_bytes().first()
        && word.bytes().all(|byte| rest.any(|other| other == byte))
}

/// Whether `word` is `inside` with one or two letters before or behind it.
fn surrounds(word: &str, inside: &str) -> bool {
    inside.len() >= 5
        && (1..=2).contains(&word.len().saturating_sub(inside.len()))
        && (word.starts_with(inside) || word.ends_with(inside))
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours,
/// each one edit.
fn distance(left: &[u8], right: &[u8]) -> usize {
    let width = right.len() + 1;
    let mut before: Vec<usize> = vec![0; width];
    let mut previous: Vec<usize> = (0..width).collect();
    let mut current = vec![0; width];
    for row in 1..=left.len() {
        current[0] = row;
        for column in 1..width {
            let same = left[row - 1] == right[column - 1];
            let mut cost = (previous[column - 1] + usize::from(!same))
                .min(previous[column] + 1)
                .min(current[column - 1] + 1);
            if row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1]
            {
                cost = cost.min(before[column - 2] + 1);
            }
            current[column] = cost;
        }
        std::mem::swap(&mut before, &mut previous);
        std::mem::swap(&mut previous, &mut current);
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[&str] =
        &["balance", "bind", "backend", "mode", "server", "option", "timeout", "acl", "id"];

    #[test]
    fn a_slip_of_the_hand_finds_its_word_and_a_stranger_does_not() {
        let cases: &[(&str, Option<&str>)] = &[
            ("balanse", Some("balance")),
            ("balnace", Some("balance")),
            ("blance", Some("balance")),
            ("biind", Some("bind")),
            ("sevrer", Some("server")),
            ("Bind", Some("bind")),
            ("timeuot", Some("timeout")),
            ("blurb", None),
            ("xyz", None),
            ("", None),
            ("redirect", None),
            ("backnd", Some("backend")),
            ("tobalance", Some("balance")),
            ("optn", Some("option")),
            ("opt", None),
        ];
        for (word, expected) in cases {
            assert_eq!(suggest(word, WORDS.iter().copied()), *expected, "{word}");
        }
    }
}
