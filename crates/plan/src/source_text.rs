//! The configuration text, section by section. It is kept to determine the changes in a new plan.

/// A section.
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

/// A line.
#[derive(Debug, Clone)]
pub struct SourceLine {
    /// The keyword: `timeout server`, `http-request` …
    pub keyword: &'static str,
    /// The number of the line in its file.
    pub number: u32,
    /// The whole line, with quotes where necessary, without surrounding blanks and comments.
    pub text: Box<str>,
}

/// Returns the text of a line, without its number; empty if it is not a line of these sections.
pub fn line_at<'a>(sections: &'a [SourceSection], file: &str, number: u32) -> &'a str {
    let in_file = sections.iter().filter(|section| *section.file == *file);
    let line = in_file.flat_map(|section| &section.lines).find(|line| line.number == number);
    line.map_or("", |line| &*line.text)
}

impl SourceSection {
    /// Returns the kind and name of the section.
    pub fn title(&self) -> String {
        let blank = if self.name.is_empty() { "" } else { " " };
        format!("{}{blank}{}", self.kind, self.name)
    }
}
