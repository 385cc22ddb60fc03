//! A cursor over the words of a configuration line or runtime command, with their spans, for the compilers of expressions,
//! conditions and rules.

use std::borrow::Cow;

use diag::Span;

/// One word.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    /// The text of the word, with quotes and escapes resolved. It may contain placeholders ([`base::raw`]).
    pub text: &'a str,
    /// The location of the word.
    pub span: Span,
}

impl<'a> Word<'a> {
    /// The exact bytes of the word, for messages and comparisons with them.
    pub fn bytes(self) -> Cow<'a, [u8]> {
        base::raw::bytes_of(self.text)
    }
}

/// A cursor over words.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    list: &'a [Word<'a>],
    next: usize,
    /// The span for errors about a missing word: the end of the line.
    end: Span,
}

impl<'a> Words<'a> {
    /// Creates a cursor before the first word of `list`; errors about a missing word point at `end`.
    pub fn new(list: &'a [Word<'a>], end: Span) -> Self {
        Self { list, next: 0, end }
    }

    /// The word at the cursor.
    pub fn peek(&self) -> Option<Word<'a>> {
        self.list.get(self.next).copied()
    }

    /// The text of the word at the cursor, `""` at the end.
    pub fn peek_text(&self) -> &'a str {
        self.peek().map_or("", |word| word.text)
    }

    /// Takes and returns the word at the cursor.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    /// Takes the word at the cursor if it equals `text`.
    pub fn take(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == text);
        self.next += usize::from(found);
        found
    }

    /// The remaining words.
    pub fn rest(&self) -> &'a [Word<'a>] {
        &self.list[self.next..]
    }

    /// The span of the word at the cursor, or the end of the line.
    pub fn span(&self) -> Span {
        self.peek().map_or(self.end, |word| word.span)
    }

    /// The end of the line.
    pub fn end(&self) -> Span {
        self.end
    }
}
