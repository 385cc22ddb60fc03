//! The texts of `weir --help` and `weir load --help`, split into their sections and options.

/// The text of `weir --help`.
const HELP: &str = include_str!("../../weir/src/help.txt");

/// The text of `weir load --help`.
const LOAD: &str = include_str!("../../crates/load/src/help.txt");

/// A line of the help: `flags` and their description, or an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HelpEntry {
    /// Such as `-f, --config FILE|DIR`.
    pub(crate) flags: String,
    /// The description, on one line.
    pub(crate) text: String,
}

/// A title and the entries below it.
pub(crate) type HelpSection = (String, Vec<HelpEntry>);

/// The sections of the help with their entries; the first has the examples.
pub(crate) fn sections() -> Vec<HelpSection> {
    split(HELP)
}

/// The sections of the help of `weir load`.
pub(crate) fn load_sections() -> Vec<HelpSection> {
    split(LOAD)
}

fn split(help: &str) -> Vec<HelpSection> {
    let mut sections: Vec<HelpSection> = Vec::new();
    for line in help.lines().skip_while(|line| !line.ends_with(':')) {
        let Some((_, entries)) = sections.last_mut().filter(|_| line.starts_with(' ')) else {
            if let Some(title) = line.strip_suffix(':') {
                sections.push((title.to_owned(), Vec::new()));
            }
            continue;
        };
        let text = line.trim_start();
        let is_continuation = line.len() - text.len() > 2;
        match (is_continuation, entries.last_mut()) {
            (true, Some(entry)) => {
                entry.text.push(' ');
                entry.text.push_str(text);
            }
            _ => {
                let (flags, text) = text.split_once("  ").unwrap_or((text, ""));
                entries.push(HelpEntry { flags: flags.to_owned(), text: text.trim_start().to_owned() });
            }
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_load_generator_is_an_entry() {
        let sections = load_sections();
        let titles: Vec<&str> = sections.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, ["Load", "Requests", "Report", "Connections", "Other"]);
        let entries: Vec<_> = sections.iter().flat_map(|(_, entries)| entries).collect();
        assert_eq!(entries.len(), LOAD.lines().filter(|line| line.starts_with("  -")).count());
        assert!(entries.iter().all(|entry| !entry.text.is_empty()));
    }

    #[test]
    fn every_option_of_the_help_is_an_entry() {
        let sections = sections();
        let titles: Vec<&str> = sections.iter().map(|(title, _)| title.as_str()).collect();
        assert_eq!(titles, ["Try a configuration", "Configuration", "Process", "Messages"]);
        let entries: Vec<_> = sections.iter().flat_map(|(_, entries)| entries).collect();
        let flags = HELP.lines().filter(|line| line.starts_with("  -")).count();
        assert_eq!(entries.iter().filter(|entry| entry.flags.starts_with('-')).count(), flags);
        let wrapped = entries.iter().find(|entry| entry.flags == "-dC[KEY]").expect("an entry");
        assert!(wrapped.text.ends_with("secrets as hashes"), "{}", wrapped.text);
        assert!(entries.iter().all(|entry| !entry.text.is_empty()));
    }
}
