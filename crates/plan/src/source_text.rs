//! The configuration text, section by section. It is kept to determine the changes in a new plan, and to resolve only the changed
//! sections if that is sufficient.

use std::ops::Deref;
use std::sync::Arc;

use base::seen_files::SeenFiles;

/// A section, without its position.
#[derive(Debug, Clone)]
pub struct SourceSection {
    /// `global`, `frontend` …
    pub kind: Box<str>,
    /// The name of the section; empty if it has none.
    pub name: Box<str>,
    /// `from`: the name of its defaults section; empty if it has none.
    pub from: Box<str>,
    /// The file of the section.
    pub file: Box<str>,
    /// The lines of the section, in order.
    pub lines: Vec<SourceLine>,
}

/// A section and its position. Plans share the sections that a reload does not change.
#[derive(Debug, Clone)]
pub struct PlacedSection {
    /// The number of the line that begins the section.
    pub line: u32,
    /// The section.
    pub section: Arc<SourceSection>,
}

impl Deref for PlacedSection {
    type Target = SourceSection;

    fn deref(&self) -> &SourceSection {
        &self.section
    }
}

/// A line.
#[derive(Debug, Clone)]
pub struct SourceLine {
    /// The keyword: `timeout server`, `http-request` …
    pub keyword: &'static str,
    /// The number of lines from the beginning of the section.
    pub offset: u32,
    /// The whole line, with quotes where necessary, without surrounding blanks and comments.
    pub text: Box<str>,
}

/// Returns the text of a line, without its number; empty if it is not a line of these sections.
pub fn line_at<'a>(sections: &'a [PlacedSection], file: &str, number: u32) -> &'a str {
    let in_file = sections.iter().filter(|section| *section.file == *file);
    let lines =
        in_file.flat_map(|section| section.lines.iter().map(move |line| (section.number(line), line)));
    let mut lines = lines.filter(|(own, _)| *own == number);
    lines.next().map_or("", |(_, line)| &*line.text)
}

impl PlacedSection {
    /// Returns the number of a line of this section in the file.
    pub fn number(&self, line: &SourceLine) -> u32 {
        self.line + line.offset
    }
}

impl SourceSection {
    /// Returns the kind and name of the section.
    pub fn title(&self) -> String {
        let blank = if self.name.is_empty() { "" } else { " " };
        format!("{}{blank}{}", self.kind, self.name)
    }
}

/// The files of a configuration, divided into sections in the order of [`crate::Plan::source`].
#[derive(Debug, Clone)]
pub struct SectionedFiles {
    /// The configuration files.
    pub files: Vec<SectionedFile>,
    /// The other files that were read, such as certificates and lists.
    pub others: Arc<SeenFiles>,
}

/// A configuration file.
#[derive(Debug, Clone)]
pub struct SectionedFile {
    /// The name, as in messages.
    pub name: Box<str>,
    /// The contents.
    pub text: Arc<[u8]>,
    /// The beginnings of the sections.
    pub sections: Vec<SectionStart>,
}

/// The beginning of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionStart {
    /// The offset of the line that begins it.
    pub at: u32,
    /// The number of that line.
    pub line: u32,
    /// Whether the section can be resolved separately, and no other section depends on its contents or position.
    pub is_separate: bool,
}

impl SectionedFile {
    /// Returns the text of the section with this index in the file.
    pub fn text_of(&self, index: usize) -> &[u8] {
        let start = self.sections[index].at as usize;
        let end = self.sections.get(index + 1).map_or(self.text.len(), |next| next.at as usize);
        &self.text[start..end]
    }
}
