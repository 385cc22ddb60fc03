//! The source texts that spans refer to: configuration files, and other texts that are parsed the same way (maps, certificate
//! lists, conditions from the command line).
//!
//! Line starts are computed only when the first message needs them, so a file without errors costs nothing here.

use std::sync::OnceLock;

/// A file of a [`SourceMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub u32);

/// A range of bytes in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// Byte offset of the first byte.
    pub start: u32,
    /// The offset after the last byte.
    pub end: u32,
}

impl Span {
    /// Returns the span from `start` up to, but not including, `end`.
    pub fn new(file: FileId, start: usize, end: usize) -> Self {
        Self { file, start: start as u32, end: end as u32 }
    }

    /// Extends this span to the end of `last`, a later span in the same file.
    pub fn to(self, last: Self) -> Self {
        Self { end: last.end.max(self.end), ..self }
    }

    /// Returns the part of this span from `start` up to `end`. Both are relative to the span, and limited to it.
    pub fn part(self, start: usize, end: usize) -> Self {
        let length = (self.end - self.start) as usize;
        Self {
            start: self.start + start.min(length) as u32,
            end: self.start + end.clamp(start.min(length), length) as u32,
            ..self
        }
    }

    /// Returns the length in bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns whether the span is empty.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A line and a column, both counted from 1; the column counts bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Byte in the line, from 1.
    pub column: u32,
}

/// A source text and its name.
#[derive(Debug)]
pub struct SourceFile {
    name: String,
    text: Vec<u8>,
    line_starts: OnceLock<Vec<u32>>,
}

impl SourceFile {
    /// Returns the name shown in messages, as given on the command line.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the whole text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the line and column of a byte offset.
    pub fn position(&self, offset: u32) -> Position {
        let starts = self.line_starts();
        let line = starts.partition_point(|start| *start <= offset).max(1);
        Position { line: line as u32, column: offset - starts[line - 1] + 1 }
    }

    /// Returns line `number`, counted from 1, without its line feed, and the offset at which it starts.
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

/// All source texts read so far.
#[derive(Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// Returns an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text. A text beyond 4 GiB is truncated, because spans use 32-bit offsets.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Vec<u8>>) -> FileId {
        let mut text = text.into();
        text.truncate(u32::MAX as usize - 1);
        self.files.push(SourceFile { name: name.into(), text, line_starts: OnceLock::new() });
        FileId(self.files.len() as u32 - 1)
    }

    /// Returns the file of an id that [`SourceMap::add`] of this map returned.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// Iterates over all files with their ids.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.files.iter().enumerate().map(|(index, file)| (FileId(index as u32), file))
    }

    /// Returns the bytes of a span.
    pub fn bytes(&self, span: Span) -> &[u8] {
        let text = &self.file(span.file).text;
        let end = (span.end as usize).min(text.len());
        &text[(span.start as usize).min(end)..end]
    }

    /// Returns the text of a span; invalid UTF-8 becomes U+FFFD.
    pub fn text(&self, span: Span) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.bytes(span))
    }

    /// Returns the position where a span begins.
    pub fn position(&self, span: Span) -> Position {
        self.file(span.file).position(span.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_map_to_lines_and_columns() {
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
    fn part_is_clamped_to_the_span() {
        let span = Span::new(FileId(0), 10, 20);
        assert_eq!(span.part(2, 4), Span::new(FileId(0), 12, 14));
        assert_eq!(span.part(8, 40), Span::new(FileId(0), 18, 20));
        assert_eq!(span.part(30, 40), Span::new(FileId(0), 20, 20));
    }
}
