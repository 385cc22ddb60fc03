//! The lines of a list: keys and values as bytes. Each line is in a numbered slot, to which indexes refer.
//!
//! The contents of a file stay in a single buffer to which the lines point; only lines that are added or changed later own their
//! bytes. Freed slots are reused, so a list does not grow if rules add and delete lines in equal numbers.

use std::ops::Range;

/// The index of a line. The list is ordered by [`PatternEntry::id`], not by slots.
pub(crate) type LineSlot = u32;

/// Keys by slot, for indexes that compare them again.
pub(crate) trait Texts {
    /// The text of a slot; empty for a free slot.
    fn text(&self, slot: LineSlot) -> &[u8];
    /// The slot's position in the order of the list.
    fn order(&self, slot: LineSlot) -> u64;
}

/// One line of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternEntry<'a> {
    /// The ID of the line, unique in the list and shown by the runtime socket. IDs increase in list order.
    pub id: u64,
    /// The pattern as configured.
    pub key: &'a [u8],
    /// The value of a map's line.
    pub value: Option<&'a [u8]>,
}

/// A range of the file's text, an owned text, or no text.
#[derive(Clone, Copy, Debug)]
struct EntryText {
    at: u32,
    length: u32,
}

/// A value in place of a length, for an owned text or a missing text.
const OWN: u32 = u32::MAX;
const NONE: EntryText = EntryText { at: 0, length: u32::MAX - 1 };
/// The longest file that ranges can address.
const LONGEST_FILE: usize = (u32::MAX - 2) as usize;

#[derive(Clone, Copy, Debug)]
struct EntryLine {
    /// The ID of the line; 0 for a free slot.
    id: u64,
    key: EntryText,
    value: EntryText,
}

/// The lines of one list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    file: Box<[u8]>,
    own: slab::Slab<Box<[u8]>>,
    lines: Vec<EntryLine>,
    free: Vec<LineSlot>,
    last_id: u64,
    /// Whether slot order no longer equals list order.
    shuffled: bool,
}

impl Texts for Entries {
    #[inline]
    fn text(&self, slot: LineSlot) -> &[u8] {
        self.lines.get(slot as usize).and_then(|line| self.resolve(line.key)).unwrap_or_default()
    }

    fn order(&self, slot: LineSlot) -> u64 {
        self.lines.get(slot as usize).map_or(u64::MAX, |line| line.id)
    }
}

impl Entries {
    /// Reads the text of a pattern file. With `split_values`, the first word of a line is the key (manual, 7.1 and `map`).
    pub(crate) fn load(file: Vec<u8>, split_values: bool) -> Result<Self, String> {
        if file.len() > LONGEST_FILE {
            return Err("the file is longer than 4 GiB".into());
        }
        let mut entries = Self::default();
        entries.lines.reserve(memchr::memchr_iter(b'\n', &file).count() + 1);
        let mut start = 0;
        while start < file.len() {
            let end = memchr::memchr(b'\n', &file[start..]).map_or(file.len(), |length| start + length);
            if let Some((key, value)) = line(&file, start..end, split_values) {
                entries.last_id += 1;
                let text =
                    |range: Range<usize>| EntryText { at: range.start as u32, length: range.len() as u32 };
                let value = value.map_or(NONE, text);
                entries.lines.push(EntryLine { id: entries.last_id, key: text(key), value });
            }
            start = end + 1;
        }
        entries.lines.shrink_to_fit();
        entries.file = file.into();
        Ok(entries)
    }

    /// The number of lines ever added, including those of replaced lists.
    pub(crate) fn added(&self) -> u64 {
        self.last_id
    }

    #[inline]
    fn resolve(&self, text: EntryText) -> Option<&[u8]> {
        match text.length {
            OWN => self.own.get(text.at as usize).map(|own| &**own),
            length if length == NONE.length => None,
            length => self.file.get(text.at as usize..text.at as usize + length as usize),
        }
    }

    fn keep(&mut self, text: &[u8]) -> EntryText {
        EntryText { at: self.own.insert(text.into()) as u32, length: OWN }
    }

    fn drop_text(&mut self, text: EntryText) {
        if text.length == OWN {
            self.own.try_remove(text.at as usize);
        }
    }

    /// Adds a line at the end of the list.
    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> LineSlot {
        self.last_id += 1;
        let key = self.keep(key);
        let value = value.map_or(NONE, |value| self.keep(value));
        let line = EntryLine { id: self.last_id, key, value };
        match self.free.pop() {
            Some(slot) => {
                self.lines[slot as usize] = line;
                self.shuffled = true;
                slot
            }
            None => {
                self.lines.push(line);
                (self.lines.len() - 1) as LineSlot
            }
        }
    }

    /// Frees a slot, which must already be removed from the indexes.
    pub(crate) fn remove(&mut self, slot: LineSlot) {
        let Some(line) = self.lines.get_mut(slot as usize).filter(|line| line.id != 0) else { return };
        let EntryLine { key, value, .. } =
            std::mem::replace(line, EntryLine { id: 0, key: NONE, value: NONE });
        self.drop_text(key);
        self.drop_text(value);
        self.free.push(slot);
    }

    /// Changes the value of a line.
    pub(crate) fn set_value(&mut self, slot: LineSlot, value: &[u8]) {
        let Some(line) = self.lines.get(slot as usize).filter(|line| line.id != 0) else { return };
        let old = line.value;
        // Values of equal length, such as counters, are overwritten in place because they change often.
        if let Some(own) = (old.length == OWN).then(|| self.own.get_mut(old.at as usize)).flatten()
            && own.len() == value.len()
        {
            own.copy_from_slice(value);
            return;
        }
        let new = self.keep(value);
        self.lines[slot as usize].value = new;
        self.drop_text(old);
    }

    /// The line in a slot.
    pub(crate) fn get(&self, slot: LineSlot) -> Option<PatternEntry<'_>> {
        let line = self.lines.get(slot as usize).filter(|line| line.id != 0)?;
        let key = self.resolve(line.key)?;
        Some(PatternEntry { id: line.id, key, value: self.resolve(line.value) })
    }

    /// The value in a slot.
    #[inline]
    pub(crate) fn value(&self, slot: LineSlot) -> Option<&[u8]> {
        self.lines.get(slot as usize).and_then(|line| self.resolve(line.value))
    }

    /// The number of lines.
    pub(crate) fn len(&self) -> usize {
        self.lines.len() - self.free.len()
    }

    /// The slots in use, in the order of slots.
    pub(crate) fn slots(&self) -> impl Iterator<Item = LineSlot> + '_ {
        self.lines.iter().zip(0..).filter(|(line, _)| line.id != 0).map(|(_, slot)| slot)
    }

    /// The slots in use, in the order of the list.
    pub(crate) fn in_order(&self) -> Vec<LineSlot> {
        let mut slots: Vec<LineSlot> = self.slots().collect();
        if self.shuffled {
            slots.sort_unstable_by_key(|slot| self.order(*slot));
        }
        slots
    }

    /// The slot of the line with ID `id`.
    pub(crate) fn find_id(&self, id: u64) -> Option<LineSlot> {
        if self.shuffled {
            return self.slots().find(|slot| self.order(*slot) == id);
        }
        let at = self.lines.iter().zip(0..).filter(|(line, _)| line.id == id && id != 0);
        at.map(|(_, slot)| slot).next()
    }

    /// Continues the IDs of `before`, so that a list never reuses an ID.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        for line in self.lines.iter_mut().filter(|line| line.id != 0) {
            line.id += before.last_id;
        }
        self.last_id += before.last_id;
    }
}

/// Parses one line of a file into key and value, or `None` for blank lines and comments.
fn line(
    file: &[u8],
    range: Range<usize>,
    split_values: bool,
) -> Option<(Range<usize>, Option<Range<usize>>)> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let text = &file[range.clone()];
    let text = &text[..text.len() - text.iter().rev().take_while(|byte| **byte == b'\r').count()];
    let indent = text.iter().take_while(|byte| blank(byte)).count();
    let (start, end) = (range.start + indent, range.start + text.len());
    // An indented `#` is a pattern, as the manual advises for patterns that begin with `#`.
    if start == end || (file[start] == b'#' && indent == 0) {
        return None;
    }
    if !split_values {
        return Some((start..end, None));
    }
    let key_end = file[start..end].iter().position(blank).map_or(end, |length| start + length);
    let gap = file[key_end..end].iter().take_while(|byte| blank(byte)).count();
    let value = key_end + gap..end;
    let trailing = file[value.clone()].iter().rev().take_while(|byte| blank(byte)).count();
    Some((start..key_end, Some(value.start..value.end - trailing)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(entries: &Entries) -> Vec<(u64, String, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let entry = |slot| entries.get(slot).map(|e| (e.id, text(e.key), e.value.map(text)));
        entries.in_order().into_iter().filter_map(entry).collect()
    }

    fn entry(id: u64, key: &str, value: &str) -> (u64, String, Option<String>) {
        (id, key.into(), Some(value.into()))
    }

    #[test]
    fn a_pattern_file_skips_comments_and_blank_lines() {
        let text = b"# comment\n\n  key  value with spaces \t\r\n #sharp x\nlone \n\t\nlast 1".to_vec();
        let entries = Entries::load(text, true).unwrap();
        let expected = [
            entry(1, "key", "value with spaces"),
            entry(2, "#sharp", "x"),
            entry(3, "lone", ""),
            entry(4, "last", "1"),
        ];
        assert_eq!(shown(&entries), expected);
        assert_eq!(Entries::load(b"a b\n\xff\n".to_vec(), false).unwrap().text(1), b"\xff");
    }

    #[test]
    fn freed_slots_are_reused_and_list_order_is_kept() {
        let mut entries = Entries::load(b"a 1\nb 2\nc 3\n".to_vec(), true).unwrap();
        entries.remove(1);
        entries.remove(1);
        assert_eq!(entries.push(b"d", Some(b"4")), 1);
        entries.set_value(0, b"one");
        entries.set_value(0, b"two");
        entries.set_value(2, b"long");
        assert_eq!(shown(&entries), [entry(1, "a", "two"), entry(3, "c", "long"), entry(4, "d", "4")]);
        assert_eq!((entries.find_id(4), entries.find_id(2), entries.len()), (Some(1), None, 3));
        assert_eq!(entries.own.len(), 4, "values that were replaced are gone");
    }
}
