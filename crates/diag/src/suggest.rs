//! "Did you mean" suggestions: the nearest of a set of words, if it is near enough.

use std::borrow::Cow;

/// Returns the candidate nearest to `word`, or `None` if none is near.
///
/// Near means at most one edit (an extra, missing or wrong letter, or two neighbours swapped) per three letters of the shorter
/// word, and at least one. Case is ignored; candidates equal to `word` are skipped. An abbreviation (`set-hdr` for `set-header`),
/// and a word with one or two extra letters before or after it (`tolower` for `lower`), count as one edit. Among equally near
/// candidates, the first is returned.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    let lower = lowercase(word);
    let used = letters(&lower);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let limit = (candidate.len().min(word.len()) / 3).max(1);
        let limit = best.map_or(limit, |(distance, _)| limit.min(distance.saturating_sub(1)));
        if candidate == word {
            continue;
        }
        let other = lowercase(candidate);
        let distance = if abbreviates(&lower, &other) || surrounds(&lower, &other) {
            1
        } else if candidate.len().abs_diff(word.len()) > limit || differ(used, letters(&other)) > limit {
            continue;
        } else {
            distance(lower.as_bytes(), other.as_bytes(), limit)
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

/// The longest word that is considered. A candidate that is longer by half or more can never be near.
const LONGEST: usize = 64;
const WIDTH: usize = LONGEST * 3 / 2;
/// Distance of words of each length from the empty word.
const FROM_NOTHING: [u8; WIDTH] = {
    let mut row = [0; WIDTH];
    let mut column = 0;
    while column < WIDTH {
        row[column] = column as u8;
        column += 1;
    }
    row
};

/// Returns the word in lower case. It is borrowed if it has no capitals; few candidates have any.
fn lowercase(word: &str) -> Cow<'_, str> {
    match word.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => word.to_ascii_lowercase().into(),
        false => word.into(),
    }
}

/// Returns the set of letters of a word, one bit each. Letters that share a bit are not distinguished.
fn letters(word: &str) -> u32 {
    word.bytes().fold(0, |all, byte| all | 1 << (byte & 31))
}

/// Returns a lower bound for the edits between words with these letter sets: each letter that only one of them has takes one edit.
fn differ(left: u32, right: u32) -> usize {
    (left & !right).count_ones().max((right & !left).count_ones()) as usize
}

/// Returns whether `word` is `whole` with letters left out. It must have the first letter and at least two thirds of the letters,
/// in order.
fn abbreviates(word: &str, whole: &str) -> bool {
    let mut rest = whole.bytes();
    word.len() >= 4
        && word.len() < whole.len()
        && word.len() * 3 >= whole.len() * 2
        && word.as_bytes().first() == whole.as_bytes().first()
        && word.bytes().all(|byte| rest.any(|other| other == byte))
}

/// Returns whether `word` is `inside` with one or two letters before or after it.
fn surrounds(word: &str, inside: &str) -> bool {
    inside.len() >= 5
        && (1..=2).contains(&word.len().saturating_sub(inside.len()))
        && (word.starts_with(inside) || word.ends_with(inside))
}

/// Returns the optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours count as one edit
/// each. If the distance exceeds `limit`, the result is any larger number.
fn distance(left: &[u8], right: &[u8], limit: usize) -> usize {
    let width = right.len() + 1;
    let far = limit + 1;
    if width > WIDTH || left.len().abs_diff(right.len()) > limit {
        return far;
    }
    let mut before = [far as u8; WIDTH];
    let mut previous = FROM_NOTHING;
    let mut current = before;
    for row in 1..=left.len() {
        // Outside these columns the distance exceeds `limit`.
        let columns = row.saturating_sub(limit).max(1)..(row + limit + 1).min(width);
        current[columns.start - 1] = if columns.start == 1 { row as u8 } else { far as u8 };
        for column in columns.clone() {
            let same = left[row - 1] == right[column - 1];
            let mut cost = (previous[column - 1] + u8::from(!same))
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
        if let Some(beyond) = current[..width].get_mut(columns.end) {
            *beyond = far as u8;
        }
        std::mem::swap(&mut before, &mut previous);
        std::mem::swap(&mut previous, &mut current);
    }
    previous[right.len()].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[&str] =
        &["balance", "bind", "backend", "mode", "server", "option", "timeout", "acl", "id"];

    #[test]
    fn typos_are_matched_and_unrelated_words_are_not() {
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

    /// Computes [`distance`] directly from its definition.
    fn plain(left: &[u8], right: &[u8]) -> usize {
        let (Some((last, left_rest)), Some((other, right_rest))) = (left.split_last(), right.split_last())
        else {
            return left.len().max(right.len());
        };
        let edits = [
            plain(left_rest, right_rest) + usize::from(last != other),
            plain(left_rest, right) + 1,
            plain(left, right_rest) + 1,
        ];
        let swapped = match (left, right) {
            ([left @ .., a, b], [right @ .., c, d]) if a == d && b == c => plain(left, right) + 1,
            _ => usize::MAX,
        };
        edits.into_iter().fold(swapped, usize::min)
    }

    #[test]
    fn distance_is_exact_up_to_the_limit() {
        let words: Vec<Vec<u8>> = (0..6u32)
            .flat_map(|length| {
                (0..1 << length).map(move |bits| (0..length).map(|at| (bits >> at & 1) as u8).collect())
            })
            .collect();
        for left in &words {
            for right in &words {
                let exact = plain(left, right);
                let text = |word: &[u8]| String::from_utf8(word.to_vec()).expect("ASCII");
                assert!(differ(letters(&text(left)), letters(&text(right))) <= exact, "{left:?} {right:?}");
                for limit in 1..4 {
                    let bounded = distance(left, right, limit);
                    assert!(bounded == exact || bounded.min(exact) > limit, "{left:?} {right:?} {limit}");
                }
            }
        }
    }
}
