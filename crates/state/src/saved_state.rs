//! Server states as printed by `show servers state` and saved in files across restarts (management manual, 9.3): parses the lines
//! of version 1. The callers interpret the columns: `init-addr last` while the configuration is resolved, and the code that
//! restores the states.

use std::collections::HashMap;

/// The number of columns in the first release of version 1. Further columns were appended later.
const FEWEST: usize = 20;

/// Why a text is unusable as a whole. Lines are only trusted if all of them are intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The text does not begin with a known version.
    Version,
    /// The line with this number, counted after the version, has too few columns, or no line end.
    Line(usize),
}

/// The columns, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the format")]
pub enum StateFileColumn {
    BackendId,
    BackendName,
    ServerId,
    ServerName,
    Address,
    OperationalState,
    AdminState,
    UserWeight,
    InitialWeight,
    TimeSinceLastChange,
    CheckStatus,
    CheckResult,
    CheckHealth,
    CheckState,
    AgentState,
    BackendForcedId,
    ServerForcedId,
    Fqdn,
    Port,
    SrvRecord,
    UseSsl,
    CheckPort,
    CheckAddress,
    AgentAddress,
    AgentPort,
}

/// One server's line.
#[derive(Debug, Clone)]
pub struct SavedServer<'a>(Vec<&'a str>);

impl<'a> SavedServer<'a> {
    /// Returns the value of a column. Columns that the writer of the file did not know are empty.
    pub fn get(&self, column: StateFileColumn) -> &'a str {
        self.0.get(column as usize).copied().unwrap_or_default()
    }

    /// Returns the value of a column, unless the value is missing (`-`).
    pub fn word(&self, column: StateFileColumn) -> Option<&'a str> {
        Some(self.get(column)).filter(|word| !matches!(*word, "-" | ""))
    }
}

/// Indexes rows by the names of backend and server. If there are several rows for a server, the first one is used.
pub fn by_name<'a>(rows: Vec<SavedServer<'a>>) -> HashMap<(&'a str, &'a str), SavedServer<'a>> {
    let mut found = HashMap::with_capacity(rows.len());
    for row in rows {
        found
            .entry((row.get(StateFileColumn::BackendName), row.get(StateFileColumn::ServerName)))
            .or_insert(row);
    }
    found
}

/// Parses a text.
///
/// # Errors
/// The first damage found.
pub fn read(text: &str) -> Result<Vec<SavedServer<'_>>, Broken> {
    let mut lines = text.split_inclusive('\n').enumerate();
    match lines.next() {
        Some((_, first)) if first.trim_start() == "1\n" => {}
        _ => return Err(Broken::Version),
    }
    let mut rows = Vec::new();
    for (index, line) in lines {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        // A truncated line may end within a number.
        if words.len() < FEWEST || !line.ends_with('\n') {
            return Err(Broken::Line(index));
        }
        rows.push(SavedServer(words));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "3 b 1 s1 192.0.2.1 2 0 1 1 5 6 3 4 6 0 0 0 - 80 - 0 0 - - 0\n";

    #[test]
    fn lines_are_parsed_and_comments_skipped() {
        let text = format!("1\n# be_id be_name\n\n  {LINE}# more\n");
        let rows = read(&text).expect("as it was written");
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].get(StateFileColumn::Port), rows[0].word(StateFileColumn::SrvRecord)),
            ("80", None)
        );
        let other = LINE.replace(" 80 ", " 81 ");
        let twice = format!("1\n{LINE}{other}");
        let named = by_name(read(&twice).expect("as it was written"));
        assert_eq!(named[&("b", "s1")].get(StateFileColumn::Port), "80");
        assert_eq!(named.len(), 1);
        let old: String = LINE.split(' ').take(20).collect::<Vec<_>>().join(" ");
        assert_eq!(
            read(&format!("1\n{old}\n")).expect("an older writer's")[0].get(StateFileColumn::AgentPort),
            ""
        );
    }

    #[test]
    fn damaged_texts_are_rejected_as_a_whole() {
        for (text, broken) in [
            (String::new(), Broken::Version),
            ("2\n".to_owned(), Broken::Version),
            ("1 x\n".to_owned(), Broken::Version),
            (format!("1\n{LINE}garbage\n{LINE}"), Broken::Line(2)),
            (format!("1\n{LINE}{}", LINE.trim_end()), Broken::Line(2)),
        ] {
            assert_eq!(read(&text).map(|rows| rows.len()), Err(broken), "{text}");
        }
    }
}
