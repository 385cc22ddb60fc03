//! The texts that spans point into: configuration files, and others that are parsed alike (maps,
//! certificate lists, conditions from the command line).
//!
//! Lines are counted only when the first message needs them, so a file without errors costs nothing
//! here.

use std::sync::OnceLock;

/// A file of a [`SourceMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub u32);

/// A run of bytes in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// Byte offset of the first byte.
    pub start: u32,
    /// Byte offset behind the last byte.
    pub end: u32,
}

impl Span {
    /// A span from `start` to before `end`.
    pub fn new(file: FileId, start: usize, end: usize) -> Self {
        Self { file, start: start as u32, end: end as u32 }
    }

    /// From the start of this span to the end of `last`, which stands behind it in the same file.
    pub fn to(self, last: Self) -> Self {
        Self { end: last.end.max(self.end), ..self }
    }

    /// The part of this span from `start` to before `end`, offsets relative to it and kept within
    /// it.
    pub fn part(self, start: usize, end: usize) -> Self {
        let length = (self.end - self.start) as usize;
        Self {
            start: self.start + start.min(length) as u32,
            end: self.start + end.clamp(start.min(length), length) as u32,
            ..self
        }
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether the span holds no byte.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A line and column, both from 1; the column counts bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Byte in the line, from 1.
    pub column: u32,
}

/// One text and its name.
#[derive(Debug)]
pub struct SourceFile {
    name: String,
    text: Vec<u8>,
    line_starts: OnceLock<Vec<u32>>,
}

impl SourceFile {
    /// The name messages show, as given on the command line.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The line and column of a byte offset.
    pub fn position(&self, offset: u32) -> Position {
        let starts = self.line_starts();
        let line = starts.partition_point(|start| *start <= offset).max(1);
        Position { line: line as u32, column: offset - starts[line - 1] + 1 }
    }

    /// The bytes of a line counted from 1, without its line feed, and the offset at which it
    /// starts.
    pub fn line(&self, number: u32) -> (usize, &[u8]) {
        let starts = self.line_starts();
        let index = (number.max(1) as usize - 1).min(starts.len() - 1);
        let start = starts[index] as usize;
        let end = starts.get(index + 1).map_or(self.text.len(), |next| *next as usize);
        let line = &self.text[start..end];
        (start, line.strip_suffix(b"\n").unwrap_or(line))
    }

    fn line_starts(&self) -> &[u32] {
        self.line_starts.get_or_init(|| {
            let ends = self.text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            std::iter::once(0).chain(ends.map(|(index, _)| index as u32 + 1)).collect()
        })
    }
}

/// Every text that was read.
#[derive(Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// No text yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text. Texts beyond 4 GiB are cut: spans count in 32 bits.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Vec<u8>>) -> FileId {
        let mut text = text.into();
        text.truncate(u32::MAX as usize - 1);
        self.files.push(SourceFile { name: name.into(), text, line_starts: OnceLock::new() });
        FileId(self.files.len() as u32 - 1)
    }

    /// The file of an id given by [`SourceMap::add`] of this map.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// Every file with its id.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.files.iter().enumerate().map(|(index, file)| (FileId(index as u32), file))
    }

    /// The bytes under a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        let text = &self.file(span.file).text;
        let end = (span.end as usize).min(text.len());
        &text[(span.start as usize).min(end)..end]
    }

    /// The text under a span; bytes that are no UTF-8 are shown as U+FFFD.
    pub fn text(&self, span: Span) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(span))
    }

    /// Where a span begins.
    pub fn position(&self, span: Span) -> Position {
        self.file(span.file).position(span.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_lines_and_columns() {
        let mut map = SourceMap::new();
        let id = map.add("a.cfg", "one\ntwo\n\nfour");
        let file = map.file(id);
        let cases = [(0, 1, 1), (2, 1, 3), (3, 1, 4), (4, 2, 1), (8, 3, 1), (9, 4, 1), (13, 4, 5)];
        for (offset, line, column) in cases {
            assert_eq!(file.position(offset), Position { line, column }, "{offset}");
        }
        assert_eq!(file.line(2), (4, &b"two"[..]));
        assert_eq!(file.line(4), (9, &b"four"[..]));
        assert_eq!(map.bytes(Span::new(id, 4, 7)), b"two");
    }

    #[test]
    fn a_part_of_a_span_stays_within_it() {
        let span = Span::new(FileId(0), 10, 20);
        assert_eq!(span.part(2, 4), Span::new(FileId(0), 12, 14));
        assert_eq!(span.part(8, 40), Span::new(FileId(0), 18, 20));
        assert_eq!(span.part(30, 40), Span::new(FileId(0), 20, 20));
    }
}
