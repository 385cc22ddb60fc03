//! Words and lines as the keyword tables see them: quotes and escapes are resolved, and the position in the file is kept.

use compact_str::CompactString;
use diag::{FileId, Span};
use std::fmt;
use std::ops::Deref;

/// A word of a line.
///
/// Derefs to `str`. Words of up to 24 bytes are stored inline.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Word {
    text: CompactString,
    span: Span,
    form: WordForm,
}

/// How the text relates to the bytes of the file, so that a part of the text can be underlined.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum WordForm {
    /// Byte for byte.
    #[default]
    Plain,
    /// One pair of quotes around text that is otherwise byte for byte the same.
    Quoted,
    /// The text contains escapes, inner quotes or variables, so only the whole word can be underlined.
    Altered,
}

impl Word {
    /// Returns a word that is not literally in the file, because the program generates it at `span`.
    pub fn new(text: &str, span: Span) -> Self {
        let form = if text.len() == span.len() { WordForm::Plain } else { WordForm::Altered };
        Self { text: CompactString::new(text), span, form }
    }

    pub(crate) fn from_bytes(bytes: &[u8], span: Span, form: WordForm) -> Self {
        let text = base::raw::text_of(bytes);
        let form = if text.len() == bytes.len() { form } else { WordForm::Altered };
        Self { text: CompactString::new(text), span, form }
    }

    /// Returns the text; invalid UTF-8 (`\x80`, a file in another encoding) is represented as in [`base::raw`].
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the exact bytes.
    pub fn bytes(&self) -> std::borrow::Cow<'_, [u8]> {
        base::raw::bytes_of(&self.text)
    }

    /// Returns the word's position in its file, including quotes.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the position in the file of the bytes `start..end` of the text, or of the whole word if escapes, quotes or variables
    /// make that ambiguous.
    pub fn part(&self, start: usize, end: usize) -> Span {
        match self.form {
            WordForm::Plain => self.span.part(start, end),
            WordForm::Quoted => self.span.part(start + 1, end + 1),
            WordForm::Altered => self.span,
        }
    }

    /// Returns the word from byte `start` on, such as the rest of a keyword after `no`.
    #[must_use]
    pub fn tail(&self, start: usize) -> Self {
        let text = self.text.get(start..).unwrap_or("");
        let span = self.part(start, self.text.len());
        Self::new(text, span)
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

/// A line with at least one word.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The file. A new file ends the section (section 2.1).
    pub file: FileId,
    /// The line number, from 1.
    pub number: u32,
    /// The whole line, from its first word up to its line feed, including comments.
    pub span: Span,
    /// The words.
    pub words: Vec<Word>,
}
