//! Server states as `show servers state` prints them and as files keep them across restarts
//! (management manual, 9.3): the lines of version 1, taken apart. What the columns mean is for
//! those who use them: `init-addr last` while the configuration is resolved, and whoever puts the
//! states back.

use std::collections::HashMap;

/// How many columns the first writers of version 1 knew; it has grown at its end.
const FEWEST: usize = 20;

/// Why a text cannot be used, as a whole: what stands in one line is trusted only where all lines
/// are as they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// It does not begin with a version that is known.
    Version,
    /// The line of that number, counted behind the version, has too few columns, or no end.
    Line(usize),
}

/// The columns, in their order.
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
    /// What stands in a column; empty in those that the writer did not know.
    pub fn get(&self, column: StateFileColumn) -> &'a str {
        self.0.get(column as usize).copied().unwrap_or_default()
    }

    /// What stands in a column, unless that is nothing (`-`).
    pub fn word(&self, column: StateFileColumn) -> Option<&'a str> {
        Some(self.get(column)).filter(|word| !matches!(*word, "-" | ""))
    }
}

/// Rows by the names of backend and server; of two about the same server the first counts.
pub fn by_name<'a>(rows: Vec<SavedServer<'a>>) -> HashMap<(&'a str, &'a str), SavedServer<'a>> {
    let mut found = HashMap::with_capacity(rows.len());
    for row in rows {
        found
            .entry((row.get(StateFileColumn::BackendName), row.get(StateFileColumn::ServerName)))
            .or_insert(row);
    }
    found
}

/// Takes a text apart.
///
/// # Errors
/// The first thing that is not as it was written.
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
        // A line that was cut off may end within a number.
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
    fn lines_are_taken_apart_and_comments_passed_over() {
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
    fn a_text_that_is_broken_anywhere_is_not_used() {
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
