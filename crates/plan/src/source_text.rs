//! What a configuration says, section by section: kept to tell what a plan made anew changes.

/// A section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSection {
    /// `global`, `frontend` …
    pub kind: Box<str>,
    /// Its name, empty where it has none.
    pub name: Box<str>,
    /// `from`: the defaults section that it names, empty where it names none.
    pub from: Box<str>,
    /// Its lines, in their order.
    pub lines: Vec<SourceLine>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The keyword: `timeout server`, `http-request` …
    pub keyword: &'static str,
    /// The whole line, words in quotes where they need them, without what stood around them.
    pub text: Box<str>,
}

impl SourceSection {
    /// Its kind and name.
    pub fn title(&self) -> String {
        let blank = if self.name.is_empty() { "" } else { " " };
        format!("{}{blank}{}", self.kind, self.name)
    }
}
