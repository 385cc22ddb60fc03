//! Compiled patterns: for each match method (manual, 7.1) the fastest lookup structure that supports incremental changes.
//!
//! A [`PatternIndex`] holds the slots of a list; the texts are passed to each call. Built by [`super::list`] and [`crate::acl`].

use super::entries::{LineSlot, Texts};
use super::exact::{Affix, Exact};
use super::method::MatchMethod;
use super::networks::Networks;
use super::parts::PartPatterns;
use super::ranges::{Binary, Ranges};
use super::regexes::Regexes;
use super::substrings::Substrings;
use crate::value::Value;

/// Compiled patterns.
#[derive(Debug)]
pub(crate) enum PatternIndex {
    /// No patterns: a value only has to exist.
    Found,
    /// The value is true.
    Bool,
    /// The number is in a range.
    Int(Ranges),
    /// The length is in a range.
    Len(Ranges),
    /// The address is in a network.
    Ip(Box<Networks>),
    /// The bytes are equal to a pattern.
    Exact(Exact),
    /// The bytes equal a pattern written in hexadecimal.
    Binary(Binary),
    /// The bytes begin or end with a pattern.
    Affix(Affix),
    /// The bytes contain a pattern.
    Sub(Box<Substrings>),
    /// A part between delimiters equals a pattern.
    Parts(PartPatterns),
    /// A regular expression matches.
    Regex(Box<Regexes>),
}

impl PatternIndex {
    /// An index without patterns.
    pub(crate) fn new(method: MatchMethod, ignore_case: bool) -> Self {
        match method {
            MatchMethod::Found => Self::Found,
            MatchMethod::Bool => Self::Bool,
            MatchMethod::Int => Self::Int(Ranges::default()),
            MatchMethod::Len => Self::Len(Ranges::default()),
            MatchMethod::Ip => Self::Ip(Box::default()),
            MatchMethod::Str => Self::Exact(Exact::new(ignore_case)),
            MatchMethod::Bin => Self::Binary(Binary::default()),
            MatchMethod::Beg => Self::Affix(Affix::new(false, ignore_case)),
            MatchMethod::End => Self::Affix(Affix::new(true, ignore_case)),
            MatchMethod::Sub => Self::Sub(Box::new(Substrings::new(ignore_case))),
            MatchMethod::Dir => Self::Parts(PartPatterns::new(b"/?", ignore_case)),
            MatchMethod::Dom => Self::Parts(PartPatterns::new(b"/?.:", ignore_case)),
            MatchMethod::Reg => Self::Regex(Box::new(Regexes::new(ignore_case))),
        }
    }

    /// Reserves space for that many patterns.
    pub(crate) fn reserve(&mut self, more: usize, texts: &impl Texts) {
        match self {
            Self::Exact(exact) => exact.reserve(more, texts),
            Self::Affix(affix) => affix.reserve(more, texts),
            _ => {}
        }
    }

    /// Adds the pattern of a slot. Returns an error if the pattern is invalid for the method.
    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) -> Result<(), String> {
        match self {
            Self::Found | Self::Bool => {}
            Self::Int(ranges) | Self::Len(ranges) => return ranges.insert(slot, texts),
            Self::Ip(networks) => return networks.insert(slot, texts),
            Self::Exact(exact) => exact.insert(slot, texts),
            Self::Binary(binary) => return binary.insert(slot, texts),
            Self::Affix(affix) => affix.insert(slot, texts),
            Self::Sub(substrings) => substrings.insert(slot, texts),
            Self::Parts(parts) => parts.insert(slot, texts),
            Self::Regex(regexes) => return regexes.insert(slot, texts),
        }
        Ok(())
    }

    /// Removes the pattern of a slot, which must have been inserted and still have its text.
    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        match self {
            Self::Found | Self::Bool => {}
            Self::Int(ranges) | Self::Len(ranges) => ranges.remove(slot, texts),
            Self::Ip(networks) => networks.remove(slot, texts),
            Self::Exact(exact) => exact.remove(slot, texts),
            Self::Binary(binary) => binary.remove(slot, texts),
            Self::Affix(affix) => affix.remove(slot, texts),
            Self::Sub(substrings) => substrings.remove(slot, texts),
            Self::Parts(parts) => parts.remove(slot, texts),
            Self::Regex(regexes) => regexes.remove(slot, texts),
        }
    }

    /// Returns the slot of a pattern that matches `value`, which has the type that the method expects. If several match, any of
    /// them is returned. If `first` is set, it is the one that a map uses: the longest prefix, the smallest network, or otherwise
    /// the first in list order.
    #[inline]
    pub(crate) fn find(&self, value: &Value<'_>, first: bool, texts: &impl Texts) -> Option<LineSlot> {
        match (self, value) {
            (Self::Found, _) => Some(0),
            (Self::Bool, Value::Bool(value)) => value.then_some(0),
            (Self::Bool, Value::Int(value)) => (*value != 0).then_some(0),
            (Self::Int(ranges), Value::Int(value)) => ranges.find(*value, texts),
            (Self::Int(ranges), Value::Bool(value)) => ranges.find(i64::from(*value), texts),
            (Self::Ip(networks), Value::Ip4(address)) => networks.find((*address).into()),
            (Self::Ip(networks), Value::Ip6(address)) => networks.find((*address).into()),
            (_, Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes)) => {
                self.find_bytes(bytes, first, texts)
            }
            _ => None,
        }
    }

    /// Like [`Self::find`] for a string.
    #[inline]
    pub(crate) fn find_bytes(&self, bytes: &[u8], first: bool, texts: &impl Texts) -> Option<LineSlot> {
        match self {
            Self::Len(ranges) => ranges.find(bytes.len() as i64, texts),
            Self::Exact(exact) => exact.find(bytes, texts),
            Self::Binary(binary) => binary.find(bytes),
            Self::Affix(affix) => affix.find(bytes, texts),
            Self::Sub(substrings) => substrings.find(bytes, first, texts),
            Self::Parts(parts) => parts.find(bytes, texts),
            Self::Regex(regexes) => regexes.find(bytes, first, texts),
            Self::Found => Some(0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::entries::Entries;

    fn build(
        method: MatchMethod,
        ignore_case: bool,
        patterns: &[&str],
    ) -> Result<(PatternIndex, Entries), String> {
        let (mut index, mut entries) = (PatternIndex::new(method, ignore_case), Entries::default());
        for pattern in patterns {
            let slot = entries.push(pattern.as_bytes(), None);
            index.insert(slot, &entries)?;
        }
        Ok((index, entries))
    }

    fn find(method: MatchMethod, ignore_case: bool, patterns: &[&str], text: &str) -> Option<LineSlot> {
        let (index, entries) = build(method, ignore_case, patterns).unwrap();
        let value = Value::str(text.as_bytes()).cast(method.expects())?;
        index.find(&value, true, &entries)
    }

    #[test]
    fn each_method_matches_what_the_manual_says() {
        let url = "http://www1.dc-eu.example.com:80/blah";
        type Case = (MatchMethod, bool, &'static [&'static str], &'static str, Option<LineSlot>);
        let cases: &[Case] = &[
            (MatchMethod::Str, false, &["a", "b"], "b", Some(1)),
            (MatchMethod::Str, false, &["a", "b"], "B", None),
            (MatchMethod::Str, true, &["a", "b"], "B", Some(1)),
            (MatchMethod::Beg, false, &["/a", "/api"], "/api/x", Some(1)),
            (MatchMethod::Beg, true, &["/API"], "/api/x", Some(0)),
            (MatchMethod::End, false, &[".gif", ".png"], "/x.png", Some(1)),
            (MatchMethod::End, false, &["g", ".png"], "/x.png", Some(0)),
            (MatchMethod::Sub, false, &["foo", "bar"], "a bar foo", Some(0)),
            (MatchMethod::Sub, true, &["FOO"], "a foo", Some(0)),
            (MatchMethod::Dir, false, &["png"], "/images/png/logo", Some(0)),
            (MatchMethod::Dir, false, &["/png/logo"], "/images/png/logo", Some(0)),
            (MatchMethod::Dir, false, &["pn"], "/images/png/logo", None),
            (MatchMethod::Dom, false, &[".www1"], url, Some(0)),
            (MatchMethod::Dom, false, &["dc-eu.example:80"], "http://www1.dc-eu.example:80/", Some(0)),
            (MatchMethod::Dom, false, &["eu"], url, None),
            (MatchMethod::Int, false, &["1:5", "7"], "7", Some(1)),
            (MatchMethod::Int, false, &[":5"], "-4", Some(0)),
            (MatchMethod::Int, false, &["1024:"], "80", None),
            (MatchMethod::Len, false, &["3"], "abc", Some(0)),
            (MatchMethod::Bin, false, &["4142"], "AB", Some(0)),
            (MatchMethod::Reg, false, &["^/x", "y$"], "/ay", Some(1)),
            (MatchMethod::Reg, true, &["^ABC"], "abcd", Some(0)),
            (MatchMethod::Ip, false, &["10.0.0.0/8", "10.1.0.0/16"], "10.1.2.3", Some(1)),
            (MatchMethod::Ip, false, &["10.0.0.0/8"], "::ffff:10.0.0.1", Some(0)),
            (MatchMethod::Ip, false, &["::ffff:0:0/96"], "10.0.0.1", Some(0)),
            (MatchMethod::Ip, false, &["2001:db8::/32"], "2001:db8:1::1", Some(0)),
            (MatchMethod::Ip, false, &["127.0.0.1/8"], "128.0.0.1", None),
        ];
        for (method, ignore_case, patterns, text, expected) in cases {
            assert_eq!(
                find(*method, *ignore_case, patterns, text),
                *expected,
                "{method:?} {patterns:?} {text}"
            );
        }
    }

    #[test]
    fn large_indexes_match_like_small_ones() {
        let many: Vec<String> = (0..1000).map(|n| format!("/path{n:04}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for method in
            [MatchMethod::Str, MatchMethod::Beg, MatchMethod::End, MatchMethod::Sub, MatchMethod::Dir]
        {
            assert_eq!(find(method, true, &many, "/PATH0123"), Some(123), "{method:?}");
            assert_eq!(find(method, false, &many, "/nothing"), None, "{method:?}");
        }
        assert_eq!(find(MatchMethod::Beg, false, &many, "/path0999/x"), Some(999));
    }

    #[test]
    fn errors_name_the_invalid_pattern() {
        for (method, pattern) in [
            (MatchMethod::Int, "x"),
            (MatchMethod::Ip, "300.1.1.1"),
            (MatchMethod::Bin, "abc"),
            (MatchMethod::Reg, "("),
        ] {
            assert!(build(method, false, &[pattern]).unwrap_err().contains(pattern), "{method:?}");
        }
    }

    /// The reference result of `find` for a map: the first match; for prefixes, the longest one.
    fn by_hand(method: MatchMethod, ignore_case: bool, entries: &Entries, text: &str) -> Option<LineSlot> {
        let lower = |bytes: &[u8]| if ignore_case { bytes.to_ascii_lowercase() } else { bytes.to_vec() };
        let text = lower(text.as_bytes());
        let trimmed = |key: &[u8], delimiters: &[u8]| {
            let key = key.iter().skip_while(|byte| delimiters.contains(byte)).copied().collect::<Vec<_>>();
            let end = key.iter().rposition(|byte| !delimiters.contains(byte)).map_or(0, |last| last + 1);
            key[..end].to_vec()
        };
        let part = |key: &[u8], delimiters: &[u8]| {
            let key = trimmed(key, delimiters);
            let around =
                |at: Option<usize>| at.and_then(|at| text.get(at)).is_none_or(|b| delimiters.contains(b));
            !key.is_empty()
                && (0..=text.len()).any(|at| {
                    text[at..].starts_with(&key) && around(at.checked_sub(1)) && around(Some(at + key.len()))
                })
        };
        let matches = |slot: &LineSlot| {
            let key = lower(entries.text(*slot));
            match method {
                MatchMethod::Str => text == key,
                MatchMethod::Beg => text.starts_with(&key),
                MatchMethod::End => text.ends_with(&key),
                MatchMethod::Sub => key.is_empty() || text.windows(key.len()).any(|window| window == key),
                MatchMethod::Dir => part(&key, b"/?"),
                MatchMethod::Dom => part(&key, b"/?.:"),
                _ => regex::bytes::Regex::new(std::str::from_utf8(&key).unwrap()).unwrap().is_match(&text),
            }
        };
        let found = entries.in_order().into_iter().filter(matches);
        match method {
            MatchMethod::Beg => found.min_by_key(|slot| usize::MAX - entries.text(*slot).len()),
            _ => found.into_iter().next(),
        }
    }

    #[test]
    fn changing_lists_match_like_a_linear_search() {
        const LETTERS: &[u8] = b"aAbB/.?c";
        let random = &mut fastrand::Rng::with_seed(7);
        let word = |random: &mut fastrand::Rng, longest: usize| {
            let length = random.usize(..=longest);
            (0..length).map(|_| char::from(LETTERS[random.usize(..LETTERS.len())])).collect::<String>()
        };
        use MatchMethod::{Beg, Dir, Dom, End, Reg, Str, Sub};
        for (method, ignore_case) in [Str, Beg, End, Sub, Dir, Dom, Reg]
            .into_iter()
            .flat_map(|method| [(method, false), (method, true)])
        {
            let (mut index, mut entries) = (PatternIndex::new(method, ignore_case), Entries::default());
            let mut present: Vec<LineSlot> = Vec::new();
            for _ in 0..3000 {
                if random.bool() || present.is_empty() {
                    let key = word(random, 10);
                    // Regular expressions only have to be valid.
                    let key = if method == Reg { key.replace('?', "[bc]") } else { key };
                    let slot = entries.push(key.as_bytes(), None);
                    index.insert(slot, &entries).unwrap();
                    present.push(slot);
                } else {
                    let slot = present.swap_remove(random.usize(..present.len()));
                    index.remove(slot, &entries);
                    entries.remove(slot);
                }
                let text = word(random, 24);
                let value = Value::str(text.as_bytes());
                let (found, expected) =
                    (index.find(&value, true, &entries), by_hand(method, ignore_case, &entries, &text));
                assert_eq!(found, expected, "{method:?} {ignore_case} {text}");
                assert_eq!(index.find(&value, false, &entries).is_some(), expected.is_some(), "{method:?}");
            }
        }
    }

    #[test]
    fn changing_ranges_match_like_a_linear_search() {
        let random = &mut fastrand::Rng::with_seed(8);
        for method in [MatchMethod::Int, MatchMethod::Ip] {
            let (mut index, mut entries) = (PatternIndex::new(method, false), Entries::default());
            let mut present: Vec<(LineSlot, i64, i64)> = Vec::new();
            for _ in 0..3000 {
                if random.bool() || present.is_empty() {
                    // A network of at most 256 addresses, or a range, as first and last number.
                    let length = random.u32(24..=32);
                    let first = random.i64(0..256) & !((1 << (32 - length)) - 1);
                    let (first, last, text) = match method {
                        MatchMethod::Ip => {
                            (first, first + (1 << (32 - length)) - 1, format!("10.0.0.{first}/{length}"))
                        }
                        _ if random.bool() => (first, first, first.to_string()),
                        _ => (first, first + 9, format!("{first}:{}", first + 9)),
                    };
                    let slot = entries.push(text.as_bytes(), None);
                    index.insert(slot, &entries).unwrap();
                    present.push((slot, first, last));
                } else {
                    let (slot, ..) = present.swap_remove(random.usize(..present.len()));
                    index.remove(slot, &entries);
                    entries.remove(slot);
                }
                let number = random.i64(0..256);
                let holds = present.iter().filter(|(_, first, last)| (*first..=*last).contains(&number));
                let (value, expected) = match method {
                    MatchMethod::Ip => (
                        Value::ip(std::net::Ipv4Addr::from(0x0a00_0000 + number as u32).into()),
                        holds.min_by_key(|(slot, first, last)| (last - first, entries.order(*slot))),
                    ),
                    _ => (Value::Int(number), holds.min_by_key(|(slot, ..)| entries.order(*slot))),
                };
                assert_eq!(
                    index.find(&value, true, &entries),
                    expected.map(|(slot, ..)| *slot),
                    "{method:?} {number}"
                );
            }
        }
    }
}
