//! Compiled patterns: the structure that answers fastest for each match method (manual, 7.1).
//!
//! An [`Index`] knows nothing of where its patterns come from; [`crate::pattern`] and [`crate::acl`] make it.

use std::collections::HashMap;
use std::net::IpAddr;

use aho_corasick::AhoCorasick;
use base::network::Network;
use base::raw;
use memchr::memmem::Finder;

use crate::pattern::Method;
use crate::regex::{Regex, RegexSet};
use crate::value::{Value, embedded_ip4};

/// Below this number of patterns a plain loop is faster than any structure.
const FEW: usize = 6;

/// Compiled patterns.
#[derive(Debug)]
pub enum Index {
    /// Nothing to compare with: the presence of the value is enough.
    Found,
    /// The value is true.
    Bool,
    /// The number is in a range.
    Int(Vec<Range>),
    /// The length is in a range.
    Len(Vec<Range>),
    /// The address is in a network.
    Ip(Networks),
    /// The bytes are equal to a pattern.
    Exact(Exact),
    /// They begin (or end, if `true`) with a pattern.
    Affix(Affix, bool),
    /// They contain the only pattern.
    Contains(Box<Finder<'static>>),
    /// They contain a pattern of several, or one whatever its case.
    Sub(Box<AhoCorasick>),
    /// A part between delimiters equals a pattern.
    Parts(Vec<Box<[u8]>>, &'static [u8], bool),
    /// One regular expression matches.
    Regex(Regex),
    /// One of several does.
    Regexes(RegexSet),
    /// There are no patterns.
    Nothing,
}

/// An inclusive range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Lowest.
    pub min: i64,
    /// Highest.
    pub max: i64,
}

impl Range {
    /// Reads `7`, `1024:65535`, `1024:`, `:1023`, `3.1`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let error = || format!("`{text}` is neither a number nor a range of numbers");
        let number = |part: &str| match part.split_once('.') {
            // Two numbers in one: the versions of SSL (3.1 is 0x0301 in 16 bits each).
            Some((major, minor)) => Some((major.parse::<i64>().ok()? << 16) + minor.parse::<i64>().ok()?),
            None => part.parse::<i64>().ok(),
        };
        let range = match text.split_once(':') {
            Some(("", "")) => None,
            Some((min, "")) => number(min).map(|min| Self { min, max: i64::MAX }),
            Some(("", max)) => number(max).map(|max| Self { min: i64::MIN, max }),
            Some((min, max)) => number(min).zip(number(max)).map(|(min, max)| Self { min, max }),
            None => number(text).map(|value| Self { min: value, max: value }),
        };
        range.ok_or_else(error)
    }

    fn contains(self, value: i64) -> bool {
        self.min <= value && value <= self.max
    }
}

/// Strings compared whole.
#[derive(Debug)]
pub struct Exact {
    few: Vec<Box<[u8]>>,
    many: HashMap<Box<[u8]>, u32, foldhash::fast::FixedState>,
    ignore_case: bool,
}

/// Prefixes or suffixes.
#[derive(Debug)]
pub struct Affix {
    few: Vec<Box<[u8]>>,
    many: HashMap<Box<[u8]>, u32, foldhash::fast::FixedState>,
    /// The lengths that occur, longest first.
    lengths: Vec<usize>,
    ignore_case: bool,
}

/// Networks by mask, longest first; within a mask sorted by address.
#[derive(Debug, Default)]
pub struct Networks {
    v4: Vec<(u32, Vec<(u32, u32)>)>,
    v6: Vec<(u128, Vec<(u128, u32)>)>,
}

impl Index {
    /// Compiles `patterns` for `method`.
    pub fn new<'a>(
        method: Method,
        ignore_case: bool,
        patterns: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, String> {
        let patterns: Vec<&str> = patterns.into_iter().collect();
        match method {
            Method::Found => return Ok(Self::Found),
            Method::Bool => return Ok(Self::Bool),
            _ if patterns.is_empty() => return Ok(Self::Nothing),
            _ => {}
        }
        Ok(match method {
            Method::Int => Self::Int(ranges(&patterns)?),
            Method::Len => Self::Len(ranges(&patterns)?),
            Method::Ip => Self::Ip(Networks::new(&patterns)?),
            Method::Str => Self::Exact(Exact::new(bytes_of(&patterns), ignore_case)),
            Method::Bin => Self::Exact(Exact::new(hex_of(&patterns)?, false)),
            Method::Beg | Method::End => {
                Self::Affix(Affix::new(bytes_of(&patterns), ignore_case), method == Method::End)
            }
            Method::Sub if patterns.len() == 1 && !ignore_case => {
                Self::Contains(Box::new(Finder::new(&raw::bytes_of(patterns[0])).into_owned()))
            }
            Method::Sub => {
                let built = AhoCorasick::builder()
                    .ascii_case_insensitive(ignore_case)
                    .build(bytes_of(&patterns))
                    .map_err(|error| error.to_string())?;
                Self::Sub(Box::new(built))
            }
            Method::Dir => Self::Parts(trimmed(&patterns, b"/?"), b"/?", ignore_case),
            Method::Dom => Self::Parts(trimmed(&patterns, b"/?.:"), b"/?.:", ignore_case),
            Method::Reg if patterns.len() == 1 => Self::Regex(Regex::new(patterns[0], ignore_case)?),
            Method::Reg => Self::Regexes(RegexSet::new(patterns, ignore_case).map_err(|(_, error)| error)?),
            Method::Found | Method::Bool => Self::Nothing,
        })
    }

    /// The number of the pattern that matches `value`, which has the type the method expects. Any of several unless
    /// `first` asks for the one a map takes: the longest prefix, the smallest network, else the first written.
    #[inline]
    pub fn find(&self, value: &Value<'_>, first: bool) -> Option<usize> {
        match (self, value) {
            (Self::Found, _) => Some(0),
            (Self::Bool, Value::Bool(value)) => value.then_some(0),
            (Self::Bool, Value::Int(value)) => (*value != 0).then_some(0),
            (Self::Int(ranges), Value::Int(value)) => ranges.iter().position(|range| range.contains(*value)),
            (Self::Int(ranges), Value::Bool(value)) => {
                ranges.iter().position(|range| range.contains(i64::from(*value)))
            }
            (Self::Ip(networks), Value::Ip4(address)) => networks.find((*address).into()),
            (Self::Ip(networks), Value::Ip6(address)) => networks.find((*address).into()),
            (Self::Nothing, _) => None,
            (_, Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes)) => {
                self.find_bytes(bytes, first)
            }
            _ => None,
        }
    }

    fn find_bytes(&self, bytes: &[u8], first: bool) -> Option<usize> {
        match self {
            Self::Len(ranges) => ranges.iter().position(|range| range.contains(bytes.len() as i64)),
            Self::Exact(exact) => exact.find(bytes),
            Self::Affix(affix, at_end) => affix.find(bytes, *at_end),
            Self::Contains(pattern) => pattern.find(bytes).map(|_| 0),
            Self::Sub(patterns) if first => {
                patterns.find_overlapping_iter(bytes).map(|found| found.pattern().as_usize()).min()
            }
            Self::Sub(patterns) => patterns.is_match(bytes).then_some(0),
            Self::Parts(patterns, delimiters, ignore_case) => {
                patterns.iter().position(|pattern| has_part(bytes, pattern, delimiters, *ignore_case))
            }
            Self::Regex(regex) => regex.is_match(bytes).then_some(0),
            Self::Regexes(set) if first => set.first(bytes),
            Self::Regexes(set) => set.is_match(bytes).then_some(0),
            _ => None,
        }
    }
}

fn ranges(patterns: &[&str]) -> Result<Vec<Range>, String> {
    patterns.iter().map(|pattern| Range::parse(pattern)).collect()
}

fn bytes_of(patterns: &[&str]) -> Vec<Box<[u8]>> {
    patterns.iter().map(|pattern| raw::bytes_of(pattern).into()).collect()
}

fn hex_of(patterns: &[&str]) -> Result<Vec<Box<[u8]>>, String> {
    let parse = |pattern: &&str| {
        let pairs = pattern.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = pairs
            .map(|pair| {
                u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|_| pair.len() == 2)?, 16).ok()
            })
            .collect();
        let error = || format!("`{pattern}` is not an even number of hexadecimal digits");
        bytes.map(Into::into).ok_or_else(error)
    };
    patterns.iter().map(parse).collect()
}

fn trimmed(patterns: &[&str], delimiters: &[u8]) -> Vec<Box<[u8]>> {
    let trim = |pattern: &&str| {
        let bytes = raw::bytes_of(pattern);
        let start = bytes.iter().position(|byte| !delimiters.contains(byte)).unwrap_or(bytes.len());
        let end = bytes.iter().rposition(|byte| !delimiters.contains(byte)).map_or(start, |last| last + 1);
        bytes[start..end].into()
    };
    patterns.iter().map(trim).collect()
}

/// Whether `pattern` stands in `bytes` between delimiters or ends.
fn has_part(bytes: &[u8], pattern: &[u8], delimiters: &[u8], ignore_case: bool) -> bool {
    let Some(last) = bytes.len().checked_sub(pattern.len()) else { return false };
    let delimits = |at: usize| bytes.get(at).is_none_or(|byte| delimiters.contains(byte));
    (0..=last).any(|start| {
        let part = &bytes[start..start + pattern.len()];
        let same = if ignore_case { part.eq_ignore_ascii_case(pattern) } else { part == pattern };
        same && (start == 0 || delimits(start - 1)) && delimits(start + pattern.len())
    })
}

fn hashed(patterns: &[Box<[u8]>]) -> HashMap<Box<[u8]>, u32, foldhash::fast::FixedState> {
    let mut map = HashMap::with_capacity_and_hasher(patterns.len(), foldhash::fast::FixedState::default());
    for (at, pattern) in patterns.iter().enumerate() {
        map.entry(pattern.clone()).or_insert(at as u32);
    }
    map
}

fn lowered(mut patterns: Vec<Box<[u8]>>, ignore_case: bool) -> Vec<Box<[u8]>> {
    if ignore_case {
        patterns.iter_mut().for_each(|pattern| pattern.make_ascii_lowercase());
    }
    patterns
}

/// Hands `bytes` in lower case to `look`, without allocating for what fits on the stack.
fn with_lower<R>(bytes: &[u8], look: impl FnOnce(&[u8]) -> R) -> R {
    let mut lower: smallvec::SmallVec<[u8; 256]> = smallvec::SmallVec::from_slice(bytes);
    lower.make_ascii_lowercase();
    look(&lower)
}

impl Exact {
    fn new(patterns: Vec<Box<[u8]>>, ignore_case: bool) -> Self {
        let patterns = lowered(patterns, ignore_case);
        if patterns.len() <= FEW {
            return Self { few: patterns, many: HashMap::default(), ignore_case };
        }
        Self { many: hashed(&patterns), few: Vec::new(), ignore_case }
    }

    fn find(&self, bytes: &[u8]) -> Option<usize> {
        if self.many.is_empty() {
            return match self.ignore_case {
                false => self.few.iter().position(|pattern| **pattern == *bytes),
                true => self.few.iter().position(|pattern| pattern.eq_ignore_ascii_case(bytes)),
            };
        }
        let look = |bytes: &[u8]| self.many.get(bytes).map(|at| *at as usize);
        if self.ignore_case { with_lower(bytes, look) } else { look(bytes) }
    }
}

impl Affix {
    fn new(patterns: Vec<Box<[u8]>>, ignore_case: bool) -> Self {
        let patterns = lowered(patterns, ignore_case);
        if patterns.len() <= FEW {
            return Self { few: patterns, many: HashMap::default(), lengths: Vec::new(), ignore_case };
        }
        let mut lengths: Vec<usize> = patterns.iter().map(|pattern| pattern.len()).collect();
        lengths.sort_unstable_by(|left, right| right.cmp(left));
        lengths.dedup();
        Self { many: hashed(&patterns), few: Vec::new(), lengths, ignore_case }
    }

    /// The longest pattern that `bytes` begin or end with; the first written among equals.
    fn find(&self, bytes: &[u8], at_end: bool) -> Option<usize> {
        let part = |bytes: &[u8], length: usize| match at_end {
            true => bytes.len().checked_sub(length).map(|start| (start, bytes.len())),
            false => (length <= bytes.len()).then_some((0, length)),
        };
        if self.many.is_empty() {
            let mut best: Option<(usize, usize)> = None;
            for (at, pattern) in self.few.iter().enumerate() {
                let Some((start, end)) = part(bytes, pattern.len()) else { continue };
                let same = match self.ignore_case {
                    false => bytes[start..end] == **pattern,
                    true => bytes[start..end].eq_ignore_ascii_case(pattern),
                };
                if same && best.is_none_or(|(_, length)| length < pattern.len()) {
                    best = Some((at, pattern.len()));
                }
            }
            return best.map(|(at, _)| at);
        }
        let look = |bytes: &[u8]| {
            self.lengths.iter().find_map(|length| {
                let (start, end) = part(bytes, *length)?;
                self.many.get(&bytes[start..end]).map(|at| *at as usize)
            })
        };
        if self.ignore_case { with_lower(bytes, look) } else { look(bytes) }
    }
}

impl Networks {
    fn new(patterns: &[&str]) -> Result<Self, String> {
        let mut networks = Self::default();
        for (at, pattern) in patterns.iter().enumerate() {
            let network = Network::parse(pattern)
                .map_err(|_| format!("`{pattern}` is neither an IP address nor a network"))?;
            match network {
                Network::V4 { address, mask } => insert(&mut networks.v4, mask, address & mask, at),
                Network::V6 { address, length } => {
                    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                    insert(&mut networks.v6, mask, address & mask, at);
                }
            }
        }
        // Longest masks first; a stable sort keeps the first written first among equal addresses.
        networks.v4.sort_by_key(|(mask, _)| std::cmp::Reverse(mask.count_ones()));
        networks.v6.sort_by_key(|(mask, _)| std::cmp::Reverse(mask.count_ones()));
        networks.v4.iter_mut().for_each(|(_, list)| list.sort_by_key(|(address, _)| *address));
        networks.v6.iter_mut().for_each(|(_, list)| list.sort_by_key(|(address, _)| *address));
        Ok(networks)
    }

    fn find(&self, address: IpAddr) -> Option<usize> {
        match address {
            IpAddr::V4(v4) => {
                lookup(&self.v4, u32::from(v4)).or_else(|| lookup(&self.v6, u128::from(v4.to_ipv6_mapped())))
            }
            IpAddr::V6(v6) => lookup(&self.v6, u128::from(v6))
                .or_else(|| embedded_ip4(v6).and_then(|v4| lookup(&self.v4, u32::from(v4)))),
        }
    }
}

fn insert<T: PartialEq>(groups: &mut Vec<(T, Vec<(T, u32)>)>, mask: T, address: T, at: usize) {
    match groups.iter_mut().find(|(other, _)| *other == mask) {
        Some((_, list)) => list.push((address, at as u32)),
        None => groups.push((mask, vec![(address, at as u32)])),
    }
}

fn lookup<T>(groups: &[(T, Vec<(T, u32)>)], address: T) -> Option<usize>
where
    T: Copy + Ord + std::ops::BitAnd<Output = T>,
{
    groups.iter().find_map(|(mask, list)| {
        let wanted = address & *mask;
        let at = list.partition_point(|(other, _)| *other < wanted);
        list.get(at).filter(|(other, _)| *other == wanted).map(|(_, number)| *number as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(method: Method, ignore_case: bool, patterns: &[&str], text: &str) -> Option<usize> {
        let index = Index::new(method, ignore_case, patterns.iter().copied()).unwrap();
        let value = Value::str(text.as_bytes()).cast(method.expects())?;
        index.find(&value, true)
    }

    #[test]
    fn each_method_matches_what_the_manual_says() {
        let url = "http://www1.dc-eu.example.com:80/blah";
        type Case = (Method, bool, &'static [&'static str], &'static str, Option<usize>);
        let cases: &[Case] = &[
            (Method::Str, false, &["a", "b"], "b", Some(1)),
            (Method::Str, false, &["a", "b"], "B", None),
            (Method::Str, true, &["a", "b"], "B", Some(1)),
            (Method::Beg, false, &["/a", "/api"], "/api/x", Some(1)),
            (Method::Beg, true, &["/API"], "/api/x", Some(0)),
            (Method::End, false, &[".gif", ".png"], "/x.png", Some(1)),
            (Method::Sub, false, &["foo", "bar"], "a bar foo", Some(0)),
            (Method::Sub, true, &["FOO"], "a foo", Some(0)),
            (Method::Dir, false, &["png"], "/images/png/logo", Some(0)),
            (Method::Dir, false, &["/png/logo"], "/images/png/logo", Some(0)),
            (Method::Dir, false, &["pn"], "/images/png/logo", None),
            (Method::Dom, false, &[".www1"], url, Some(0)),
            (Method::Dom, false, &["dc-eu.example:80"], "http://www1.dc-eu.example:80/", Some(0)),
            (Method::Dom, false, &["eu"], url, None),
            (Method::Int, false, &["1:5", "7"], "7", Some(1)),
            (Method::Int, false, &[":5"], "-4", Some(0)),
            (Method::Int, false, &["1024:"], "80", None),
            (Method::Len, false, &["3"], "abc", Some(0)),
            (Method::Bin, false, &["4142"], "AB", Some(0)),
            (Method::Reg, false, &["^/x", "y$"], "/ay", Some(1)),
            (Method::Reg, true, &["^ABC"], "abcd", Some(0)),
            (Method::Ip, false, &["10.0.0.0/8", "10.1.0.0/16"], "10.1.2.3", Some(1)),
            (Method::Ip, false, &["10.0.0.0/8"], "::ffff:10.0.0.1", Some(0)),
            (Method::Ip, false, &["::ffff:0:0/96"], "10.0.0.1", Some(0)),
            (Method::Ip, false, &["2001:db8::/32"], "2001:db8:1::1", Some(0)),
            (Method::Ip, false, &["127.0.0.1/8"], "128.0.0.1", None),
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
    fn many_patterns_answer_as_few_do() {
        let many: Vec<String> = (0..1000).map(|n| format!("/path{n:04}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for method in [Method::Str, Method::Beg, Method::End, Method::Sub, Method::Dir] {
            assert_eq!(find(method, true, &many, "/PATH0123"), Some(123), "{method:?}");
            assert_eq!(find(method, false, &many, "/nothing"), None, "{method:?}");
        }
        assert_eq!(find(Method::Beg, false, &many, "/path0999/x"), Some(999));
    }

    #[test]
    fn a_pattern_of_the_wrong_kind_is_named_in_the_error() {
        for (method, pattern) in
            [(Method::Int, "x"), (Method::Ip, "300.1.1.1"), (Method::Bin, "abc"), (Method::Reg, "(")]
        {
            assert!(Index::new(method, false, [pattern]).unwrap_err().contains(pattern), "{method:?}");
        }
    }
}
