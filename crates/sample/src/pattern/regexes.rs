//! Matches many regular expressions at once. Most of them can only match a text that contains certain literals, so
//! one search for all literals leaves few expressions to try. Expressions without known literals are tried together.

use std::collections::HashMap;
use std::sync::OnceLock;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};
use slab::Slab;
use smallvec::SmallVec;

use super::entries::{LineSlot, Texts};
use super::substrings::Substrings;
use crate::regex::{Lean, Regex, RegexSet, spell_bytes, translate};

/// Beyond this number, further expressions are compiled for size, because large programs trade memory for speed.
const FAST: usize = 32;
/// A literal that is shared by more expressions than this is not selective enough.
const SHARED: u32 = 64;
/// The maximum number of alternative literals per expression.
const ALTERNATIVES: usize = 16;

#[derive(Debug)]
enum RegexProgram {
    Fast(Regex),
    Lean(Lean),
}

impl RegexProgram {
    fn is_match(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Fast(regex) => regex.is_match(bytes),
            Self::Lean(regex) => regex.is_match(bytes),
        }
    }
}

#[derive(Debug)]
struct Member {
    program: RegexProgram,
    /// The literals of the expression, one of which occurs in every match. Without literals, the expression is in `others`.
    literals: SmallVec<[LineSlot; 1]>,
}

/// Literals and the expressions they belong to.
#[derive(Debug, Default)]
struct Literals(Slab<(Box<[u8]>, LineSlot)>);

impl Texts for Literals {
    fn text(&self, slot: LineSlot) -> &[u8] {
        self.0.get(slot as usize).map(|(text, _)| &**text).unwrap_or_default()
    }

    fn order(&self, slot: LineSlot) -> u64 {
        u64::from(slot)
    }
}

/// Regular expressions.
#[derive(Debug)]
pub(crate) struct Regexes {
    ignore_case: bool,
    members: HashMap<LineSlot, Member, foldhash::fast::RandomState>,
    literals: Literals,
    index: Substrings,
    /// The number of expressions per literal.
    sharing: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    /// Expressions without literals, in list order, and all of them combined.
    others: Vec<LineSlot>,
    together: OnceLock<Option<RegexSet>>,
}

impl Regexes {
    pub(crate) fn new(ignore_case: bool) -> Self {
        Self {
            ignore_case,
            members: HashMap::default(),
            literals: Literals::default(),
            index: Substrings::new(ignore_case),
            sharing: HashMap::default(),
            others: Vec::new(),
            together: OnceLock::new(),
        }
    }

    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) -> Result<(), String> {
        let text = base::raw::text_of(texts.text(slot));
        let pattern = spell_bytes(&text);
        let program = match self.members.len() < FAST {
            true => RegexProgram::Fast(Regex::new(&pattern, self.ignore_case)?),
            false => RegexProgram::Lean(Lean::new(&pattern, self.ignore_case)?),
        };
        let mut literals = SmallVec::new();
        for text in self.choose(&pattern) {
            *self.sharing.entry(text.clone()).or_default() += 1;
            let number = self.literals.0.insert((text, slot)) as LineSlot;
            self.index.insert(number, &self.literals);
            literals.push(number);
        }
        if literals.is_empty() {
            self.others.push(slot);
            self.together = OnceLock::new();
        }
        self.members.insert(slot, Member { program, literals });
        Ok(())
    }

    /// The most selective literals of `pattern`.
    fn choose(&self, pattern: &str) -> Vec<Box<[u8]>> {
        // The index handles case: a case-insensitive parse would turn letters into classes.
        let parsed = ParserBuilder::new().unicode(false).utf8(false).build().parse(&translate(pattern));
        let mut choices = Vec::new();
        if let Ok(hir) = &parsed {
            required(hir, &mut choices);
        }
        let sharing = |choice: &Vec<Vec<u8>>| {
            choice.iter().map(|text| self.sharing.get(&**text).copied().unwrap_or(0)).max().unwrap_or(0)
        };
        let shortest = |choice: &Vec<Vec<u8>>| choice.iter().map(Vec::len).min().unwrap_or(0);
        choices
            .into_iter()
            .filter(|choice| shortest(choice) >= 2 && sharing(choice) < SHARED)
            .min_by_key(|choice| (sharing(choice), usize::MAX - shortest(choice)))
            .map(|choice| choice.into_iter().map(Into::into).collect())
            .unwrap_or_default()
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, _: &impl Texts) {
        let Some(member) = self.members.remove(&slot) else { return };
        for number in member.literals {
            self.index.remove(number, &self.literals);
            let (text, _) = self.literals.0.remove(number as usize);
            if let Some(count) = self.sharing.get_mut(&text) {
                *count -= 1;
                if *count == 0 {
                    self.sharing.remove(&text);
                }
            }
        }
        if self.others.contains(&slot) {
            self.others.retain(|other| *other != slot);
            self.together = OnceLock::new();
        }
    }

    fn is_match(&self, slot: LineSlot, bytes: &[u8]) -> bool {
        self.members.get(&slot).is_some_and(|member| member.program.is_match(bytes))
    }

    /// Any matching expression, or the first in list order.
    pub(crate) fn find(&self, bytes: &[u8], first: bool, texts: &impl Texts) -> Option<LineSlot> {
        if self.members.len() == 1 {
            return self.members.keys().copied().find(|slot| self.is_match(*slot, bytes));
        }
        let mut candidates: SmallVec<[LineSlot; 16]> = SmallVec::new();
        self.index.each(bytes, &self.literals, |number| {
            candidates.extend(self.literals.0.get(number as usize).map(|(_, slot)| *slot));
            false
        });
        candidates.sort_unstable_by_key(|slot| texts.order(*slot));
        candidates.dedup();
        let found = candidates.iter().copied().find(|slot| self.is_match(*slot, bytes));
        if self.others.is_empty() || (found.is_some() && !first) {
            return found;
        }
        let other = self.find_other(bytes, texts);
        [found, other].into_iter().flatten().min_by_key(|slot| texts.order(*slot))
    }

    /// The first matching expression without literals.
    fn find_other(&self, bytes: &[u8], texts: &impl Texts) -> Option<LineSlot> {
        if let [slot] = self.others[..] {
            return self.is_match(slot, bytes).then_some(slot);
        }
        let together = self.together.get_or_init(|| {
            let patterns: Vec<_> =
                self.others.iter().map(|slot| base::raw::text_of(texts.text(*slot))).collect();
            RegexSet::new(patterns.iter().map(|pattern| &**pattern), self.ignore_case).ok()
        });
        self.others.get(together.as_ref()?.first(bytes)?).copied()
    }

    /// Appends `template`, in which references are replaced by the captures of the expression in `slot`.
    pub(crate) fn expand(&self, slot: LineSlot, bytes: &[u8], template: &[u8], out: &mut Vec<u8>) -> bool {
        self.members.get(&slot).is_some_and(|member| match &member.program {
            RegexProgram::Fast(regex) => regex.expand(bytes, template, out),
            RegexProgram::Lean(regex) => regex.expand(bytes, template, out),
        })
    }
}

/// Adds to `choices` sets of literals. Every match of `hir` contains at least one member of each set.
fn required(hir: &Hir, choices: &mut Vec<Vec<Vec<u8>>>) {
    match hir.kind() {
        HirKind::Literal(literal) => choices.push(vec![literal.0.to_vec()]),
        HirKind::Capture(capture) => required(&capture.sub, choices),
        HirKind::Repetition(repetition) if repetition.min > 0 => required(&repetition.sub, choices),
        HirKind::Concat(parts) => parts.iter().for_each(|part| required(part, choices)),
        HirKind::Alternation(parts) => {
            let best = |part: &Hir| {
                let mut inner = Vec::new();
                required(part, &mut inner);
                inner.into_iter().max_by_key(|choice| choice.iter().map(Vec::len).min())
            };
            let all: Option<Vec<_>> = parts.iter().map(best).collect();
            let all: Vec<Vec<u8>> = all.into_iter().flatten().flatten().collect();
            if !all.is_empty() && all.len() <= ALTERNATIVES {
                choices.push(all);
            }
        }
        _ => {}
    }
}
