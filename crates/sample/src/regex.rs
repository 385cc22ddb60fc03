//! Regular expressions, compiled once, matched against bytes without Unicode, and compatible with HAProxy's PCRE patterns.
//!
//! The linear-time `regex` crate handles every pattern that it supports. Patterns with constructs that only PCRE supports
//! (look-around, back-references, possessive quantifiers) use PCRE2, with a limit on the work of one match. In lists with many
//! expressions, each is stored as [`Lean`], which takes a few kilobytes instead of tens but matches more slowly.

mod dialect;
mod line_end;

use std::borrow::Cow;
use std::cell::RefCell;

use regex_automata::Input;
use regex_automata::nfa::thompson::NFA;
use regex_automata::nfa::thompson::backtrack::{self, BoundedBacktracker};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;
use smallvec::{SmallVec, smallvec};

use crate::value::Scratch;
pub(crate) use dialect::translate;
use line_end::{before_line_end, looks_for_end};

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub struct Regex(RegexEngine);

#[derive(Clone, Debug)]
enum RegexEngine {
    /// The flag is set if the pattern looks for the end of the text ([`line_end`]).
    Linear(regex::bytes::Regex, bool),
    Backtracking(Box<pcre2::bytes::Regex>),
}

/// The maximum number of PCRE2 backtracking steps per match. If it is exceeded, the expression does not match.
const MATCH_LIMIT: u32 = 100_000;

/// PCRE2's major and minor version, and whether its JIT is available.
pub fn pcre2_version() -> ((u32, u32), bool) {
    (pcre2::version(), pcre2::is_jit_available())
}

/// Compiles `pattern` with PCRE2, if PCRE2 accepts it.
fn backtracking(pattern: &str, ignore_case: bool) -> Option<Box<pcre2::bytes::Regex>> {
    let limited = format!("(*LIMIT_MATCH={MATCH_LIMIT}){pattern}");
    let regex =
        pcre2::bytes::RegexBuilder::new().caseless(ignore_case).jit_if_available(true).build(&limited);
    regex.ok().map(Box::new)
}

impl Regex {
    /// Compiles `pattern`.
    pub fn new(pattern: &str, ignore_case: bool) -> Result<Self, String> {
        let spelled = spell_bytes(pattern);
        let pattern: &str = &spelled;
        let linear = regex::bytes::RegexBuilder::new(&translate(pattern))
            .unicode(false)
            .case_insensitive(ignore_case)
            .build();
        let error = match linear {
            Ok(regex) => return Ok(Self(RegexEngine::Linear(regex, looks_for_end(pattern)))),
            Err(error) => error,
        };
        match backtracking(pattern, ignore_case) {
            Some(regex) => Ok(Self(RegexEngine::Backtracking(regex))),
            None => Err(explain(pattern, &error)),
        }
    }

    /// Whether the expression matches anywhere in `bytes`.
    #[inline]
    pub fn is_match(&self, bytes: &[u8]) -> bool {
        match &self.0 {
            RegexEngine::Linear(regex, end) => {
                regex.is_match(bytes)
                    || before_line_end(bytes, *end).is_some_and(|before| regex.is_match(before))
            }
            RegexEngine::Backtracking(regex) => regex.is_match(bytes).unwrap_or(false),
        }
    }

    /// Appends `template` to `out` with `\0` to `\9` replaced by the captures of the first match. Returns whether there was one.
    pub fn expand(&self, bytes: &[u8], template: &[u8], out: &mut Vec<u8>) -> bool {
        match &self.0 {
            RegexEngine::Linear(regex, end) => {
                let found = match before_line_end(bytes, *end) {
                    Some(before) => line_end::captures_at(regex, bytes, before, 0),
                    None => regex.captures(bytes),
                };
                let Some(found) = found else { return false };
                expand(|group| found.get(group).map(|part| part.as_bytes()), template, out);
            }
            RegexEngine::Backtracking(regex) => {
                let Ok(Some(found)) = regex.captures(bytes) else { return false };
                expand(|group| found.get(group).map(|part| part.as_bytes()), template, out);
            }
        }
        true
    }

    /// Replaces the first match or all matches by `template`, or `None` if nothing matched. As in HAProxy, an empty match skips
    /// one byte, and may directly follow another match.
    pub fn replace(&self, bytes: &[u8], template: &[u8], all: bool) -> Option<Scratch> {
        let mut out: Option<Scratch> = None;
        let mut at = 0;
        while at <= bytes.len() {
            let Some(end) = self.replace_at(bytes, at, template, &mut out) else { break };
            if end == at {
                let passed = bytes.get(at..at + 1).unwrap_or_default();
                out.get_or_insert_with(Scratch::new).extend_from_slice(passed);
            }
            at = end.max(at + 1);
            if !all {
                break;
            }
        }
        let mut out = out?;
        out.extend_from_slice(bytes.get(at..).unwrap_or_default());
        Some(out)
    }

    /// Appends to `out` the text before the first match at or after `at`, and the replacement. Returns the end of the match.
    fn replace_at(
        &self,
        bytes: &[u8],
        at: usize,
        template: &[u8],
        out: &mut Option<Scratch>,
    ) -> Option<usize> {
        let mut put = |start: usize, end: usize, group: &dyn Fn(usize) -> Option<(usize, usize)>| {
            let out = out.get_or_insert_with(Scratch::new);
            out.extend_from_slice(&bytes[at..start]);
            expand(|number| group(number).map(|(start, end)| &bytes[start..end]), template, out);
            Some(end)
        };
        match &self.0 {
            // Captures cost memory, so they are skipped if the template has no references.
            RegexEngine::Linear(regex, end)
                if before_line_end(bytes, *end).is_none() && memchr::memchr(b'\\', template).is_none() =>
            {
                let found = regex.find_at(bytes, at)?;
                put(found.start(), found.end(), &|_| None)
            }
            RegexEngine::Linear(regex, end) => {
                let found = match before_line_end(bytes, *end) {
                    Some(before) => line_end::captures_at(regex, bytes, before, at)?,
                    None => regex.captures_at(bytes, at)?,
                };
                let whole = found.get(0)?;
                let group = |number| found.get(number).map(|part| (part.start(), part.end()));
                put(whole.start(), whole.end(), &group)
            }
            RegexEngine::Backtracking(regex) => {
                let mut groups = regex.capture_locations();
                let whole = regex.captures_read_at(&mut groups, bytes, at).ok()??;
                put(whole.start(), whole.end(), &|number| groups.get(number))
            }
        }
    }

    /// Whether matching takes linear time in the length of the text.
    pub fn is_linear(&self) -> bool {
        matches!(self.0, RegexEngine::Linear(..))
    }
}

/// A compiled regular expression of a large list. It only stores the program; all matches on a thread share scratch memory.
#[derive(Clone, Debug)]
pub(crate) struct Lean(LeanEngine);

#[derive(Clone, Debug)]
enum LeanEngine {
    Linear(BoundedBacktracker, bool),
    Backtracking(Box<pcre2::bytes::Regex>),
}

thread_local! {
    static CACHE: RefCell<Option<backtrack::Cache>> = const { RefCell::new(None) };
}

impl Lean {
    /// Compiles `pattern`.
    pub(crate) fn new(pattern: &str, ignore_case: bool) -> Result<Self, String> {
        let syntax = syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignore_case);
        let compiled = NFA::compiler()
            .configure(NFA::config().utf8(false).nfa_size_limit(Some(10 << 20)))
            .syntax(syntax)
            .build(&translate(pattern));
        if let Some(regex) = compiled.ok().and_then(|nfa| BoundedBacktracker::new_from_nfa(nfa).ok()) {
            return Ok(Self(LeanEngine::Linear(regex, looks_for_end(pattern))));
        }
        match backtracking(pattern, ignore_case) {
            Some(regex) => Ok(Self(LeanEngine::Backtracking(regex))),
            // The full compiler produces a better error message.
            None => Regex::new(pattern, ignore_case).and(Err(format!("`{pattern}` is too large"))),
        }
    }

    /// Runs the program over `bytes`. Captures are stored in `slots` if there is room.
    fn run(regex: &BoundedBacktracker, bytes: &[u8], slots: &mut [Option<NonMaxUsize>]) -> bool {
        let input = Input::new(bytes);
        if bytes.len() <= regex.max_haystack_len() {
            return CACHE.with_borrow_mut(|cache| {
                let cache = cache.get_or_insert_with(|| regex.create_cache());
                cache.reset(regex);
                regex.try_search_slots(cache, &input, slots).is_ok_and(|found| found.is_some())
            });
        }
        // Texts that are too long for the backtracker's visited set use the slower engine, which is rare.
        let Ok(general) = PikeVM::new_from_nfa(regex.get_nfa().clone()) else { return false };
        general.search_slots(&mut general.create_cache(), &input, slots).is_some()
    }

    /// Whether the expression matches anywhere in `bytes`.
    pub(crate) fn is_match(&self, bytes: &[u8]) -> bool {
        match &self.0 {
            LeanEngine::Linear(regex, end) => {
                Self::run(regex, bytes, &mut [])
                    || before_line_end(bytes, *end).is_some_and(|before| Self::run(regex, before, &mut []))
            }
            LeanEngine::Backtracking(regex) => regex.is_match(bytes).unwrap_or(false),
        }
    }

    /// Like [`Regex::expand`].
    pub(crate) fn expand(&self, bytes: &[u8], template: &[u8], out: &mut Vec<u8>) -> bool {
        match &self.0 {
            LeanEngine::Linear(regex, end) => {
                let capture = |bytes: &[u8]| {
                    let mut slots: SmallVec<[Option<NonMaxUsize>; 20]> =
                        smallvec![None; regex.get_nfa().group_info().slot_len()];
                    Self::run(regex, bytes, &mut slots).then_some(slots)
                };
                let start = |slots: &SmallVec<_>| slots.first().copied().flatten().map(NonMaxUsize::get);
                let mut found = capture(bytes);
                if let Some(earlier) = before_line_end(bytes, *end).and_then(capture)
                    && found.as_ref().is_none_or(|found| start(&earlier) < start(found))
                {
                    found = Some(earlier);
                }
                let Some(slots) = found else { return false };
                let place = |slot: usize| slots.get(slot).copied().flatten().map(NonMaxUsize::get);
                let group = |group: usize| bytes.get(place(group * 2)?..place(group * 2 + 1)?);
                expand(group, template, out);
            }
            LeanEngine::Backtracking(regex) => {
                let Ok(Some(found)) = regex.captures(bytes) else { return false };
                expand(|group| found.get(group).map(|part| part.as_bytes()), template, out);
            }
        }
        true
    }
}

/// Expands HAProxy's references: a backslash and one digit. `\xNN` is a byte; any other escaped byte represents itself.
fn expand<'m>(group: impl Fn(usize) -> Option<&'m [u8]>, template: &[u8], out: &mut Vec<u8>) {
    let mut rest = template.iter().copied().enumerate();
    while let Some((at, byte)) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some((_, digit @ b'0'..=b'9')) => {
                if let Some(captured) = group(usize::from(digit - b'0')) {
                    out.extend_from_slice(captured);
                }
            }
            Some((_, b'x')) => match template.get(at + 2..at + 4).and_then(hex_byte) {
                Some(byte) => {
                    out.push(byte);
                    rest.next();
                    rest.next();
                }
                None => out.push(b'x'),
            },
            Some((_, other)) => out.push(other),
            None => out.push(b'\\'),
        }
    }
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Several regular expressions, matched together if all are linear, otherwise one after the other.
#[derive(Clone, Debug)]
pub struct RegexSet(Set);

#[derive(Clone, Debug)]
enum Set {
    /// The flags are set for patterns that look for the end of the text.
    Together(regex::bytes::RegexSet, Box<[bool]>),
    OneByOne(Vec<Regex>),
}

impl RegexSet {
    /// Compiles `patterns`. Returns the error of the first that does not compile.
    pub fn new<'a>(
        patterns: impl IntoIterator<Item = &'a str>,
        ignore_case: bool,
    ) -> Result<Self, (usize, String)> {
        let patterns: Vec<&str> = patterns.into_iter().collect();
        let together = regex::bytes::RegexSetBuilder::new(
            patterns.iter().map(|pattern| translate(&spell_bytes(pattern))),
        )
        .unicode(false)
        .case_insensitive(ignore_case)
        .size_limit(64 << 20)
        .build();
        if let Ok(set) = together {
            let ends = patterns.iter().map(|pattern| looks_for_end(pattern)).collect();
            return Ok(Self(Set::Together(set, ends)));
        }
        let compile =
            |(at, pattern): (usize, &&str)| Regex::new(pattern, ignore_case).map_err(|error| (at, error));
        let single: Result<Vec<Regex>, _> = patterns.iter().enumerate().map(compile).collect();
        single.map(|list| Self(Set::OneByOne(list)))
    }

    /// The index of the first matching pattern.
    pub fn first(&self, bytes: &[u8]) -> Option<usize> {
        match &self.0 {
            Set::Together(set, ends) => {
                let first = set.matches(bytes).iter().next();
                let before = Self::before_line_end(set, ends, bytes);
                first.into_iter().chain(before).min()
            }
            Set::OneByOne(list) => list.iter().position(|regex| regex.is_match(bytes)),
        }
    }

    /// Whether any pattern matches.
    pub fn is_match(&self, bytes: &[u8]) -> bool {
        match &self.0 {
            Set::Together(set, ends) => {
                set.is_match(bytes) || Self::before_line_end(set, ends, bytes).is_some()
            }
            Set::OneByOne(list) => list.iter().any(|regex| regex.is_match(bytes)),
        }
    }

    /// The first pattern that looks for the end of the text and matches before a final line end.
    fn before_line_end(set: &regex::bytes::RegexSet, ends: &[bool], bytes: &[u8]) -> Option<usize> {
        let before = bytes.strip_suffix(b"\n")?;
        set.matches(before).iter().find(|at| ends.get(*at).copied().unwrap_or(false))
    }
}

/// Replaces bytes that are not UTF-8 with escapes.
pub(crate) fn spell_bytes(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains(|c| base::raw::byte_of(c).is_some()) {
        return Cow::Borrowed(pattern);
    }
    let spell = |c: char| match base::raw::byte_of(c) {
        Some(byte) => format!("\\x{byte:02x}"),
        None => c.to_string(),
    };
    Cow::Owned(pattern.chars().map(spell).collect())
}

fn explain(pattern: &str, error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("the regular expression `{pattern}` is too large: it would take more than {limit} bytes")
        }
        // The last line has the cause. The lines before it draw an underline, which the diagnostic draws itself.
        other => {
            let text = other.to_string();
            let cause = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("regular expression `{pattern}` is invalid: {cause}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_written_for_pcre_compile_and_match() {
        let cases: &[(&str, &str, bool)] = &[
            (r"^/api/v[0-9]{1,2}/", "/api/v12/x", true),
            (r"^[[a]", "[", true),
            (r"[]x]", "]", true),
            (r"a{b}", "a{b}", true),
            (r"\/path\/", "/path/", true),
            (r"[a&&b]", "&", true),
            (r"[[:digit:]]+$", "a12", true),
            (r"^[\w.-]+$", "a-b.c", true),
            (r"^\x41$", "A", true),
            (r"^é$", "é", true),
        ];
        for (pattern, text, expected) in cases {
            let regex = Regex::new(pattern, false).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(regex.is_match(text.as_bytes()), *expected, "{pattern}");
        }
    }

    #[test]
    fn lean_expressions_match_like_full_ones() {
        let long = [&b"/x/"[..], &[b'a'; 300_000], b"/end"].concat();
        for (pattern, ignore_case, text) in [
            (r"^/api/v([0-9]+)/(\w+)$", false, &b"/api/v12/users"[..]),
            (r"B(.*)d", true, b"aBcd"),
            (r"^/x/a+/end$", false, &long),
            (r"^(a)(?=b)", false, b"ab"),
            (r"^$", false, b""),
            (r"none", false, b"other"),
        ] {
            let (lean, other) =
                (Lean::new(pattern, ignore_case).unwrap(), Regex::new(pattern, ignore_case).unwrap());
            assert_eq!(lean.is_match(text), other.is_match(text), "{pattern}");
            let (mut left, mut right) = (Vec::new(), Vec::new());
            assert_eq!(
                lean.expand(text, br"<\1-\2>", &mut left),
                other.expand(text, br"<\1-\2>", &mut right)
            );
            assert_eq!(left, right, "{pattern}");
        }
        assert!(Lean::new("(", false).unwrap_err().contains("`(` is invalid"));
    }

    #[test]
    fn empty_matches_are_replaced_as_in_haproxy() {
        for (pattern, text, all, first) in [
            ("x*", "/axxb", "-/-a--b-", "-/axxb"),
            ("x*", "/xx", "-/--", "-/xx"),
            ("x*", "", "-", "-"),
            ("x*", "xx", "--", "-"),
            ("a|", "/axb", "-/--x-b-", "-/axb"),
            ("[a-z]?", "/ab", "-/---", "-/ab"),
            ("^", "/a", "-/a", "-/a"),
            ("$", "/a", "/a--", "/a-"),
            ("b", "/bab", "/-a-", "/-ab"),
            // Handled by PCRE.
            ("x*(?!y)", "/axxb", "-/-a--b-", "-/axxb"),
            ("(?=a)", "/aa", "/--a-a", "/-aa"),
        ] {
            let regex = Regex::new(pattern, false).unwrap();
            for (template, hyphens) in [(&b"-"[..], "-"), (br"<\0>", "")] {
                let replaced = |all| regex.replace(text.as_bytes(), template, all).unwrap().to_vec();
                if !hyphens.is_empty() {
                    assert_eq!(String::from_utf8(replaced(true)).unwrap(), all, "{pattern} {text}");
                    assert_eq!(String::from_utf8(replaced(false)).unwrap(), first, "{pattern} {text}");
                }
                let count = |text: &[u8], byte| text.iter().filter(|other| **other == byte).count();
                let wanted = count(all.as_bytes(), b'-');
                let mark = if hyphens.is_empty() { b'<' } else { b'-' };
                assert_eq!(count(&replaced(true), mark), wanted, "{pattern} {text}");
            }
        }
    }

    #[test]
    fn look_around_and_back_references_are_left_to_pcre() {
        let regex = Regex::new("^/(?!admin)([a-z]+)/\\1$", true).unwrap();
        assert!(!regex.is_linear());
        assert!(regex.is_match(b"/X/x") && !regex.is_match(b"/admin/admin"));
        assert_eq!(&regex.replace(b"/a/a", br"<\1>", false).unwrap()[..], b"<a>");
        let set = RegexSet::new(["^b$", "a(?=b)"], false).unwrap();
        assert_eq!((set.first(b"xab"), set.first(b"b"), set.first(b"ac")), (Some(1), Some(0), None));
        assert!(Regex::new("(?<!", false).is_err());
    }

    #[test]
    fn endless_backtracking_is_aborted() {
        let regex = Regex::new("^(?=a)(a+)+$", false).unwrap();
        let text = [&[b'a'; 5000][..], b"b"].concat();
        assert!(!regex.is_match(&text));
    }

    #[test]
    fn references_are_filled_from_the_match() {
        let regex = Regex::new("^/(here)(/|$)", false).unwrap();
        let replaced = regex.replace(b"/here/x", br"my/\1\x2d\\", true).unwrap();
        assert_eq!(&replaced[..], br"my/here-\x");
        assert!(regex.replace(b"/there", b"", true).is_none());
    }
}
