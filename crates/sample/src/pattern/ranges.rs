//! Matches numbers and lengths: single numbers by hash, ranges by linear search.

use std::collections::HashMap;

use super::entries::{LineSlot, Texts};
use super::exact::FEW;

/// An inclusive range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The lower bound.
    pub min: i64,
    /// The upper bound.
    pub max: i64,
}

impl Range {
    /// Parses `7`, `1024:65535`, `1024:`, `:1023` or `3.1`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let error = || format!("`{text}` is neither a number nor a range of numbers");
        let number = |part: &str| match part.split_once('.') {
            // Two numbers combined into one: SSL versions (3.1 is 0x0301 in 16 bits each).
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
        match range.ok_or_else(error)? {
            range if range.min > range.max => {
                Err(format!("`{text}` is not a valid number range: it ends before it begins"))
            }
            range => Ok(range),
        }
    }

    fn contains(self, value: i64) -> bool {
        self.min <= value && value <= self.max
    }
}

/// Ranges of numbers.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Ranges of several numbers, and the first few single numbers, in list order.
    wide: Vec<(Range, LineSlot)>,
    /// Slots by single number, each in list order.
    single: HashMap<i64, Vec<LineSlot>, foldhash::fast::RandomState>,
}

impl Ranges {
    fn parse(slot: LineSlot, texts: &impl Texts) -> Result<Range, String> {
        Range::parse(&String::from_utf8_lossy(texts.text(slot)))
    }

    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) -> Result<(), String> {
        match Self::parse(slot, texts)? {
            range if range.min == range.max && self.wide.len() >= FEW => {
                self.single.entry(range.min).or_default().push(slot)
            }
            range => self.wide.push((range, slot)),
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        self.wide.retain(|(_, other)| *other != slot);
        let Ok(range) = Self::parse(slot, texts) else { return };
        if let Some(slots) = self.single.get_mut(&range.min) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.single.remove(&range.min);
            }
        }
    }

    /// The first range in list order that contains `value`.
    #[inline]
    pub(crate) fn find(&self, value: i64, texts: &impl Texts) -> Option<LineSlot> {
        let wide = self.wide.iter().find(|(range, _)| range.contains(value)).map(|(_, slot)| *slot);
        if self.single.is_empty() {
            return wide;
        }
        let single = self.single.get(&value).and_then(|slots| slots.first().copied());
        match (wide, single) {
            (Some(wide), Some(single)) if texts.order(wide) < texts.order(single) => Some(wide),
            (wide, single) => single.or(wide),
        }
    }
}

/// Patterns written in hexadecimal.
#[derive(Debug, Default)]
pub(crate) struct Binary {
    slots: HashMap<Box<[u8]>, Vec<LineSlot>, foldhash::fast::RandomState>,
}

impl Binary {
    fn parse(slot: LineSlot, texts: &impl Texts) -> Result<Box<[u8]>, String> {
        let digits = texts.text(slot);
        let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let pair = |pair: &[u8]| match pair {
            [high, low] => Some(nibble(*high)? << 4 | nibble(*low)?),
            _ => None,
        };
        let error =
            || format!("`{}` is not an even number of hexadecimal digits", String::from_utf8_lossy(digits));
        digits.chunks(2).map(pair).collect::<Option<_>>().ok_or_else(error)
    }

    pub(crate) fn insert(&mut self, slot: LineSlot, texts: &impl Texts) -> Result<(), String> {
        let bytes = Self::parse(slot, texts)?;
        self.slots.entry(bytes).or_default().push(slot);
        Ok(())
    }

    pub(crate) fn remove(&mut self, slot: LineSlot, texts: &impl Texts) {
        let Ok(bytes) = Self::parse(slot, texts) else { return };
        if let Some(slots) = self.slots.get_mut(&bytes) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.slots.remove(&bytes);
            }
        }
    }

    pub(crate) fn find(&self, bytes: &[u8]) -> Option<LineSlot> {
        self.slots.get(bytes).and_then(|slots| slots.first().copied())
    }
}
