//! Lua's patterns (manual, section 6.4.1), matched in steps that the caller can stop, because a pattern with several repetitions
//! may take exponential time.
//!
//! Called by `native::strings`, for subjects for which Lua's own matcher might take long. Both have the same limits on depth and
//! captures, and the same messages.

/// Maximum number of captures in a pattern.
const CAPTURES: usize = 32;
/// Maximum recursion depth.
const DEPTH: u32 = 200;
/// Number of steps between two calls to the caller's check.
const STEPS: u32 = 4096;
const ESCAPE: u8 = b'%';

/// The message for a malformed pattern, or a match that was stopped.
pub(crate) type MatchFailed = String;

/// The value of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchCapture {
    /// A part of the subject: its start and length.
    Part(usize, usize),
    /// A position, from 1.
    Position(i64),
}

#[derive(Debug, Clone, Copy)]
enum Length {
    Open,
    Position,
    Closed(usize),
}

/// One pattern on one subject.
pub(crate) struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    /// Whether to stop the match, checked every [`STEPS`] steps.
    is_over: &'a dyn Fn() -> bool,
    steps: u32,
    depth: u32,
    captures: [(usize, Length); CAPTURES],
    level: usize,
}

impl<'a> Matcher<'a> {
    /// Creates a matcher that regularly calls `is_over` to check whether to stop.
    pub(crate) fn new(text: &'a [u8], pattern: &'a [u8], is_over: &'a dyn Fn() -> bool) -> Self {
        let captures = [(0, Length::Open); CAPTURES];
        Self { text, pattern, is_over, steps: 0, depth: 0, captures, level: 0 }
    }

    /// Returns the start and end of the first match that begins at `from` or later, and does not end at `last`. An `anchored`
    /// pattern matches only at `from`; its `^` is not part of `pattern`.
    ///
    /// # Errors
    /// The pattern is malformed or too complex, or the caller's check stopped the search.
    pub(crate) fn search(
        &mut self,
        from: usize,
        last: Option<usize>,
        anchored: bool,
    ) -> Result<Option<(usize, usize)>, MatchFailed> {
        for start in from..=self.text.len() {
            (self.level, self.depth) = (0, 0);
            match self.run(start, 0)? {
                Some(end) if last != Some(end) => return Ok(Some((start, end))),
                _ if anchored => break,
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns the captures of a match, or the whole match if the pattern has no captures.
    ///
    /// # Errors
    /// A capture was not closed.
    pub(crate) fn captured(&self, start: usize, end: usize) -> Result<Vec<MatchCapture>, MatchFailed> {
        (0..self.level.max(1)).map(|number| self.capture(number, start, end)).collect()
    }

    /// Returns the capture with that number, from 0.
    ///
    /// # Errors
    /// The capture does not exist, or was not closed.
    pub(crate) fn capture(
        &self,
        number: usize,
        start: usize,
        end: usize,
    ) -> Result<MatchCapture, MatchFailed> {
        if number >= self.level {
            return match number {
                0 => Ok(MatchCapture::Part(start, end - start)),
                _ => Err(format!("invalid capture index %{}", number + 1)),
            };
        }
        match self.captures[number] {
            (_, Length::Open) => Err("unfinished capture".to_owned()),
            (start, Length::Position) => Ok(MatchCapture::Position(start as i64 + 1)),
            (start, Length::Closed(length)) => Ok(MatchCapture::Part(start, length)),
        }
    }

    /// Whether the last match has explicit captures.
    pub(crate) fn has_captures(&self) -> bool {
        self.level > 0
    }

    fn step(&mut self) -> Result<(), MatchFailed> {
        self.steps += 1;
        if self.steps < STEPS {
            return Ok(());
        }
        self.steps = 0;
        if (self.is_over)() { Err(crate::budget::TIMEOUT.to_owned()) } else { Ok(()) }
    }

    fn at(&self, at: usize) -> Option<u8> {
        self.pattern.get(at).copied()
    }

    /// Matches the pattern from `at` on against the subject from `place` on; returns the end of the match.
    fn run(&mut self, place: usize, at: usize) -> Result<Option<usize>, MatchFailed> {
        self.depth += 1;
        if self.depth >= DEPTH {
            return Err("pattern too complex".to_owned());
        }
        let end = self.items(place, at)?;
        self.depth -= 1;
        Ok(end)
    }

    fn items(&mut self, mut place: usize, mut at: usize) -> Result<Option<usize>, MatchFailed> {
        loop {
            self.step()?;
            let Some(item) = self.at(at) else { return Ok(Some(place)) };
            match (item, self.at(at + 1)) {
                (b'(', Some(b')')) => return self.open(place, at + 2, Length::Position),
                (b'(', _) => return self.open(place, at + 1, Length::Open),
                (b')', _) => return self.close(place, at + 1),
                (b'$', None) => return Ok((place == self.text.len()).then_some(place)),
                (ESCAPE, Some(b'b')) => match self.balanced(place, at + 2)? {
                    Some(end) => (place, at) = (end, at + 4),
                    None => return Ok(None),
                },
                (ESCAPE, Some(b'f')) => match self.frontier(place, at + 2)? {
                    Some(next) => at = next,
                    None => return Ok(None),
                },
                (ESCAPE, Some(digit @ b'0'..=b'9')) => match self.repeated(place, digit)? {
                    Some(end) => (place, at) = (end, at + 2),
                    None => return Ok(None),
                },
                _ => {
                    let behind = self.class_end(at)?;
                    let matches = self.single(place, at, behind);
                    match self.at(behind) {
                        Some(b'?') => {
                            if matches && let Some(end) = self.run(place + 1, behind + 1)? {
                                return Ok(Some(end));
                            }
                            at = behind + 1;
                        }
                        Some(b'*') => return self.longest(place, at, behind),
                        Some(b'+') if matches => return self.longest(place + 1, at, behind),
                        Some(b'-') => return self.shortest(place, at, behind),
                        Some(b'+') => return Ok(None),
                        _ if matches => (place, at) = (place + 1, behind),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    /// Returns the end of the class that begins at `at`.
    fn class_end(&self, at: usize) -> Result<usize, MatchFailed> {
        let mut next = at + 1;
        match self.at(at) {
            Some(ESCAPE) => match self.at(next) {
                Some(_) => Ok(next + 1),
                None => Err("malformed pattern (ends with '%')".to_owned()),
            },
            Some(b'[') => {
                next += usize::from(self.at(next) == Some(b'^'));
                loop {
                    let unclosed = || "malformed pattern (missing ']')".to_owned();
                    let byte = self.at(next).ok_or_else(unclosed)?;
                    next += 1;
                    next += usize::from(byte == ESCAPE && next < self.pattern.len());
                    if self.at(next) == Some(b']') {
                        return Ok(next + 1);
                    }
                }
            }
            _ => Ok(next),
        }
    }

    /// Whether a byte of the subject is in the class from `at` to `behind`.
    fn single(&self, place: usize, at: usize, behind: usize) -> bool {
        let Some(&byte) = self.text.get(place) else { return false };
        match self.pattern[at] {
            b'.' => true,
            ESCAPE => is_of_class(byte, self.pattern[at + 1]),
            b'[' => self.set(byte, at, behind - 1),
            other => other == byte,
        }
    }

    /// Whether a byte is in the set from `at` to its closing bracket.
    fn set(&self, byte: u8, at: usize, bracket: usize) -> bool {
        let negated = self.pattern[at + 1] == b'^';
        let mut at = at + 1 + usize::from(negated);
        while at < bracket {
            let member = self.pattern[at];
            let (is_in, used) = if member == ESCAPE {
                (is_of_class(byte, self.pattern[at + 1]), 2)
            } else if self.pattern[at + 1] == b'-' && at + 2 < bracket {
                ((member..=self.pattern[at + 2]).contains(&byte), 3)
            } else {
                (member == byte, 1)
            };
            if is_in {
                return !negated;
            }
            at += used;
        }
        negated
    }

    fn longest(&mut self, place: usize, at: usize, behind: usize) -> Result<Option<usize>, MatchFailed> {
        let mut count = 0;
        while self.single(place + count, at, behind) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(end) = self.run(place + count, behind + 1)? {
                return Ok(Some(end));
            }
            match count {
                0 => return Ok(None),
                _ => count -= 1,
            }
        }
    }

    fn shortest(&mut self, mut place: usize, at: usize, behind: usize) -> Result<Option<usize>, MatchFailed> {
        loop {
            if let Some(end) = self.run(place, behind + 1)? {
                return Ok(Some(end));
            }
            if !self.single(place, at, behind) {
                return Ok(None);
            }
            place += 1;
        }
    }

    fn open(&mut self, place: usize, at: usize, length: Length) -> Result<Option<usize>, MatchFailed> {
        let Some(capture) = self.captures.get_mut(self.level) else {
            return Err("too many captures".to_owned());
        };
        *capture = (place, length);
        self.level += 1;
        let end = self.run(place, at)?;
        if end.is_none() {
            self.level -= 1;
        }
        Ok(end)
    }

    fn close(&mut self, place: usize, at: usize) -> Result<Option<usize>, MatchFailed> {
        let open = self.captures[..self.level].iter().rposition(|(_, length)| matches!(length, Length::Open));
        let Some(open) = open else { return Err("invalid pattern capture".to_owned()) };
        self.captures[open].1 = Length::Closed(place - self.captures[open].0);
        let end = self.run(place, at)?;
        if end.is_none() {
            self.captures[open].1 = Length::Open;
        }
        Ok(end)
    }

    /// `%bxy`: returns the end of the match.
    fn balanced(&mut self, place: usize, at: usize) -> Result<Option<usize>, MatchFailed> {
        let (Some(opening), Some(closing)) = (self.at(at), self.at(at + 1)) else {
            return Err("malformed pattern (missing arguments to '%b')".to_owned());
        };
        if self.text.get(place) != Some(&opening) {
            return Ok(None);
        }
        let mut depth = 1;
        for (number, &byte) in self.text[place + 1..].iter().enumerate() {
            self.step()?;
            if byte == closing {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(place + number + 2));
                }
            } else if byte == opening {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: returns where the pattern continues.
    fn frontier(&self, place: usize, at: usize) -> Result<Option<usize>, MatchFailed> {
        if self.at(at) != Some(b'[') {
            return Err("missing '[' after '%f' in pattern".to_owned());
        }
        let behind = self.class_end(at)?;
        let before = place.checked_sub(1).map_or(0, |before| self.text[before]);
        let next = self.text.get(place).copied().unwrap_or(0);
        let is_one = !self.set(before, at, behind - 1) && self.set(next, at, behind - 1);
        Ok(is_one.then_some(behind))
    }

    /// `%1`: returns the end of the repeated capture.
    fn repeated(&mut self, place: usize, digit: u8) -> Result<Option<usize>, MatchFailed> {
        let invalid = || format!("invalid capture index %{}", digit - b'0');
        let number = usize::from(digit).checked_sub(usize::from(b'1')).ok_or_else(invalid)?;
        let (start, length) = match self.captures[..self.level].get(number) {
            None | Some((_, Length::Open)) => return Err(invalid()),
            // A position matches nothing.
            Some((_, Length::Position)) => return Ok(None),
            Some((start, Length::Closed(length))) => (*start, *length),
        };
        for _ in 0..length / STEPS as usize {
            self.steps = STEPS;
            self.step()?;
        }
        let end = place + length;
        let is_same = self.text.get(place..end).is_some_and(|part| *part == self.text[start..start + length]);
        Ok(is_same.then_some(end))
    }
}

/// Whether a byte is in the class denoted by a letter, or equals that letter.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | 9..=13),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        // No longer in the manual.
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

/// Whether a pattern has no special characters.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// The maximum number of steps for a search in Lua's own matcher, which cannot be interrupted. This takes less than a millisecond.
const SHORT: f64 = 100_000.0;

/// Returns the maximum length of a subject for which every search for a pattern is short.
pub(crate) fn longest_short(pattern: &[u8]) -> usize {
    let is_repetition = |(at, &byte): (usize, &u8)| match byte {
        b'*' | b'+' | b'-' | b'?' => true,
        ESCAPE => matches!(pattern.get(at + 1), Some(b'b' | b'f' | b'0'..=b'9')),
        _ => false,
    };
    let repetitions = pattern.iter().enumerate().filter(|found| is_repetition(*found)).count();
    // A search that is not anchored begins at each byte.
    let power = repetitions + usize::from(pattern.first() != Some(&b'^'));
    let each = SHORT / pattern.len().max(1) as f64;
    (each.powf(1.0 / power.max(1) as f64) as usize).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlua::{Function, Lua, MultiValue, Value};
    use proptest::prelude::*;

    /// Returns the result of Lua's own `string.find`, or its message.
    fn by_lua(lua: &Lua, text: &[u8], pattern: &[u8]) -> Result<Vec<Value>, String> {
        let find: Function = lua.load("string.find").eval().expect("it is there");
        let given = (lua.create_string(text).expect("memory"), lua.create_string(pattern).expect("memory"));
        let found: Result<MultiValue, _> = find.call(given);
        found.map(|values| values.into_iter().collect()).map_err(|error| error.to_string())
    }

    /// Returns the result of this matcher in the same form.
    fn by_us(lua: &Lua, text: &[u8], pattern: &[u8]) -> Result<Vec<Value>, String> {
        let anchored = pattern.first() == Some(&b'^');
        let mut matcher = Matcher::new(text, &pattern[usize::from(anchored)..], &|| false);
        let Some((start, end)) = matcher.search(0, None, anchored)? else { return Ok(vec![Value::Nil]) };
        let mut values = vec![Value::Integer(start as i64 + 1), Value::Integer(end as i64)];
        let has_captures = matcher.has_captures();
        for captured in matcher.captured(start, end)?.into_iter().filter(|_| has_captures) {
            values.push(match captured {
                MatchCapture::Position(position) => Value::Integer(position),
                MatchCapture::Part(start, length) => {
                    Value::String(lua.create_string(&text[start..start + length]).expect("memory"))
                }
            });
        }
        Ok(values)
    }

    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let known: &[&str] = &[
            "a", "b", ".", "%a", "%W", "%d", "%s", "%p", "[ab]", "[^a]", "[a-c]", "[]]", "[%a_]", "[^%s-]",
            "(", ")", "()", "*", "+", "-", "?", "^", "$", "%b()", "%f[%w]", "%1", "%2", "%", "[", "%b", "%f",
            "%z", "\0", "%x",
        ];
        prop::collection::vec(prop::sample::select(known), 0..8)
            .prop_map(|pieces| pieces.concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn searches_match_those_of_lua(pattern in pieces(), text in "[abc1 ()_\0-]{0,12}") {
            // `string.find` treats such a text literally.
            prop_assume!(!is_plain(&pattern));
            let lua = Lua::new();
            match (by_lua(&lua, text.as_bytes(), &pattern), by_us(&lua, text.as_bytes(), &pattern)) {
                (Ok(theirs), Ok(ours)) => prop_assert_eq!(theirs, ours),
                (Err(theirs), Err(ours)) => prop_assert!(theirs.contains(&ours), "{} / {}", theirs, ours),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn exponential_patterns_stop_on_request() {
        let text = [b'a'; 64];
        let pattern = "a-".repeat(20) + "b";
        let calls = std::cell::Cell::new(0);
        let is_over = || {
            calls.set(calls.get() + 1);
            calls.get() == 100
        };
        let found = Matcher::new(&text, pattern.as_bytes(), &is_over).search(0, None, false);
        assert_eq!((found, calls.get()), (Err(crate::budget::TIMEOUT.to_owned()), 100));
    }

    #[test]
    fn short_subjects_depend_on_the_repetitions() {
        assert!(longest_short(b"abc") > 10_000 && longest_short(b"^%d+$") > 10_000);
        assert!((100..1000).contains(&longest_short(b"%d+")));
        assert!(longest_short(b"(.-)(.-)(.-)(.-)x") < 20);
    }
}
