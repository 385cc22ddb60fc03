//! Matches parts of a path or a name between delimiters (`-m dir`, `-m dom`): a hash table of the patterns, in which
//! each sequence of parts is looked up.

use smallvec::SmallVec;

use super::entries::{LineSlot, Texts};
use super::exact::{FEW, Keys};

/// The pattern of a slot without the delimiters around it.
struct Trimmed<'t, T>(&'t T, &'static [u8]);

impl<T: Texts> Texts for Trimmed<'_, T> {
    fn text(&self, slot: LineSlot) -> &[u8] {
        trim(self.0.text(slot), self.1)
    }

    fn order(&self, slot: LineSlot) -> u64 {
        self.0.order(slot)
    }
}

fn trim<'b>(bytes: &'b [u8], delimiters: &[u8]) -> &'b [u8] {
    let start = bytes.iter().position(|byte| !delimiters.contains(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !delimiters.contains(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Patterns that equal a part, or several consecutive parts with their delimiters.
#[derive(Debug)]
pub(crate) struct PartPatterns {
    delimiters: &'static [u8],
    ignore_case: bool,
    /// Used while there are few patterns.
    few: Vec<(Box<[u8]>, LineSlot)>,
    many: Option<Keys>,
    /// How many inner delimiters the patterns in `many` have: each count, with the number of patterns that have it.
    inner: Vec<(usize, u32)>,
}

impl PartPatterns {
    pub(crate) fn new(delimiters: &'static [u8], ignore_case: bool) -> Self {
        Self { delimiters, ignore_case, few: Vec::new(), many: None, inner: Vec::new() }
    }

    fn inner_of(&self, pattern: &[u8]) -> usize {
        pattern.iter().filter(|byte| self.delimiters.contains(byte)).count()
    }

    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) {
        let texts = Trimmed(texts, self.delimiters);
        if self.many.is_none() && self.few.len() < FEW {
            self.few.push((texts.text(slot).into(), slot));
            return;
        }
        let few: Vec<LineSlot> = self.few.drain(..).map(|(_, slot)| slot).collect();
        for slot in few.into_iter().chain([slot]) {
            self.many.get_or_insert_with(|| Keys::new(self.ignore_case)).insert(slot, &texts);
            let inner = self.inner_of(texts.text(slot));
            match self.inner.iter_mut().find(|(count, _)| *count == inner) {
                Some((_, patterns)) => *patterns += 1,
                None => self.inner.push((inner, 1)),
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        self.few.retain(|(_, other)| *other != slot);
        let texts = Trimmed(texts, self.delimiters);
        let inner = self.inner_of(texts.text(slot));
        let Some(many) = &mut self.many else { return };
        many.remove(slot, &texts);
        if let Some((_, patterns)) = self.inner.iter_mut().find(|(count, _)| *count == inner) {
            *patterns -= 1;
        }
        self.inner.retain(|(_, patterns)| *patterns > 0);
    }

    /// The first pattern in list order that is a part of `bytes`.
    pub(crate) fn find(&self, bytes: &[u8], texts: &impl Texts) -> Option<LineSlot> {
        let Some(many) = &self.many else {
            let has = |pattern: &[u8]| has_part(bytes, pattern, self.delimiters, self.ignore_case);
            return self.few.iter().find(|(pattern, _)| has(pattern)).map(|(_, slot)| *slot);
        };
        let texts = Trimmed(texts, self.delimiters);
        let delimits = |(at, byte): (usize, &u8)| self.delimiters.contains(byte).then_some(at);
        // A part can end at each delimiter and at the end of the text.
        let ends: SmallVec<[usize; 32]> =
            bytes.iter().enumerate().filter_map(delimits).chain([bytes.len()]).collect();
        let starts = std::iter::once(0).chain(ends.iter().map(|end| end + 1)).zip(0..);
        let mut best: Option<LineSlot> = None;
        for (start, first_end) in starts {
            for (inner, _) in &self.inner {
                let Some(part) = ends.get(first_end + inner).and_then(|end| bytes.get(start..*end)) else {
                    continue;
                };
                let found = if part.is_empty() { None } else { many.find(part, &texts) };
                best = [best, found].into_iter().flatten().min_by_key(|slot| texts.order(*slot));
            }
        }
        best
    }
}

/// Whether `pattern` occurs in `bytes` between delimiters or ends. A pattern that only consists of delimiters never does.
fn has_part(bytes: &[u8], pattern: &[u8], delimiters: &[u8], ignore_case: bool) -> bool {
    if pattern.is_empty() {
        return false;
    }
    let Some(last) = bytes.len().checked_sub(pattern.len()) else { return false };
    let delimits = |at: usize| bytes.get(at).is_none_or(|byte| delimiters.contains(byte));
    (0..=last).any(|start| {
        let part = &bytes[start..start + pattern.len()];
        let same = if ignore_case { part.eq_ignore_ascii_case(pattern) } else { part == pattern };
        same && (start == 0 || delimits(start - 1)) && delimits(start + pattern.len())
    })
}
