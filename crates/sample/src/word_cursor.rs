//! The words of a configuration line (or of a runtime command) as the compilers of expressions,
//! conditions and rules read them: text and the place to point at.

use diag::Span;

/// One word.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    /// Its text, quotes and escapes resolved.
    pub text: &'a str,
    /// Where it stands.
    pub span: Span,
}

/// A cursor over words.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    list: &'a [Word<'a>],
    next: usize,
    /// The place to point at when a word is missing: the end of the line.
    end: Span,
}

impl<'a> Words<'a> {
    /// A cursor before the first of `list`; `end` is pointed at when a word is missing.
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

    /// Takes the word at the cursor.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    /// Takes the word at the cursor if it is `text`.
    pub fn take(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|word| word.text == text);
        self.next += usize::from(found);
        found
    }

    /// The words not taken yet.
    pub fn rest(&self) -> &'a [Word<'a>] {
        &self.list[self.next..]
    }

    /// Where the word at the cursor stands, or the end of the line.
    pub fn span(&self) -> Span {
        self.peek().map_or(self.end, |word| word.span)
    }

    /// Where the line ends.
    pub fn end(&self) -> Span {
        self.end
    }
}
