//! Completion of commands and of the names in their arguments, as the process lists them.

use std::cell::OnceCell;

use rustyline::completion::{Completer as Complete, Pair};
use rustyline::{Context, Helper, Highlighter, Hinter, Validator};

use super::connection::{Answer, RuntimeSocket};

/// Whether a command needs a payload.
pub(super) fn is_incomplete(command: &str) -> bool {
    command.ends_with("<<")
}

/// A command: its own words and the words of its usage.
#[derive(Debug, PartialEq, Eq)]
struct CommandHelp {
    words: Vec<String>,
    arguments: Vec<String>,
}

/// Completes words. The commands are read from the process on first use, names each time.
#[derive(Helper, Highlighter, Hinter, Validator)]
pub(super) struct Completer {
    socket: RuntimeSocket,
    commands: OnceCell<Vec<CommandHelp>>,
}

impl Completer {
    pub(super) fn new(socket: RuntimeSocket) -> Self {
        Self { socket, commands: OnceCell::new() }
    }

    fn commands(&self) -> &[CommandHelp] {
        self.commands.get_or_init(|| match self.socket.ask("help", None) {
            Ok(Answer::Text(text)) => commands(&text),
            // There is nothing to complete.
            Ok(Answer::Error(_)) | Err(_) => Vec::new(),
        })
    }

    /// The possible words after `before`.
    fn candidates(&self, before: &[&str]) -> Vec<String> {
        let mut found: Vec<String> = next_words(self.commands(), before);
        for kind in next_arguments(self.commands(), before) {
            found.extend(self.names(&kind));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The names for an argument such as `<bk>/<srv>`.
    fn names(&self, kind: &str) -> Vec<String> {
        let (command, column): (_, fn(&str) -> Option<String>) = match kind {
            "<bk>/<srv>" => ("show servers conn", |line| first(line).filter(|name| name.contains('/'))),
            "<bk>" | "<backend>" => ("show stat -1 2 -1", |line| csv(line)),
            "<frontend>" => ("show stat -1 1 -1", |line| csv(line)),
            "<table>" => {
                ("show table", |line| Some(line.strip_prefix("# table: ")?.split(',').next()?.to_owned()))
            }
            "<map>" => ("show map", in_parentheses),
            "<acl>" => ("show acl", in_parentheses),
            "<certfile>" => ("show ssl cert", first),
            "<cache>" => ("show cache", |line| Some(line.split_once(": ")?.1.split(' ').next()?.to_owned())),
            // The alternatives themselves.
            choice if choice.contains('|') => {
                let inner = choice.trim_matches(['[', ']', '{', '}', '*']);
                let words = inner.split('|').filter(|word| !word.contains(['<', '[', ' ']));
                return words.map(str::to_owned).collect();
            }
            _ => return Vec::new(),
        };
        match self.socket.ask(command, None) {
            Ok(Answer::Text(text)) => {
                text.lines().filter(|line| !line.starts_with("# pxname")).filter_map(column).collect()
            }
            Ok(Answer::Error(_)) | Err(_) => Vec::new(),
        }
    }
}

fn first(line: &str) -> Option<String> {
    line.split(' ').next().filter(|word| !word.is_empty() && !word.starts_with('#')).map(str::to_owned)
}

fn csv(line: &str) -> Option<String> {
    line.split(',').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The name of a list: `3 (/etc/hosts.map) pattern …`.
fn in_parentheses(line: &str) -> Option<String> {
    let name = line.split_once('(')?.1.split(')').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Reads the output of `help`: a command on each line, its usage, and a description after a colon.
fn commands(help: &str) -> Vec<CommandHelp> {
    let of_line = |line: &str| {
        let usage = line.strip_prefix("  ")?;
        let end = usage.find(" : ").or_else(|| usage.find(": ")).unwrap_or(usage.len());
        let all: Vec<String> = usage[..end].split_whitespace().map(str::to_owned).collect();
        let is_argument = |word: &String| word.starts_with(['<', '[', '{', '@']) || word.contains('|');
        let own = all.iter().position(is_argument).unwrap_or(all.len());
        Some(CommandHelp { words: all[..own].to_vec(), arguments: all[own..].to_vec() })
    };
    help.lines().filter_map(of_line).filter(|command| !command.words.is_empty()).collect()
}

/// The words that may follow `before` in the name of a command.
fn next_words(commands: &[CommandHelp], before: &[&str]) -> Vec<String> {
    let continues = |command: &&CommandHelp| {
        command.words.len() > before.len()
            && command.words.iter().zip(before).all(|(own, given)| own == given)
    };
    commands.iter().filter(continues).map(|command| command.words[before.len()].clone()).collect()
}

/// The kinds of arguments that may follow `before`.
fn next_arguments(commands: &[CommandHelp], before: &[&str]) -> Vec<String> {
    let next = |command: &CommandHelp| {
        let rest = before.len().checked_sub(command.words.len())?;
        let begins = command.words.iter().zip(before).all(|(own, given)| own == given);
        command.arguments.get(rest).filter(|_| begins).cloned()
    };
    commands.iter().filter_map(next).collect()
}

impl Complete for Completer {
    type Candidate = Pair;

    fn complete(&self, line: &str, end: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..end];
        // After a semicolon, another command begins.
        let command = typed.rfind(';').map_or(0, |at| at + 1);
        let start = typed.rfind([' ', ';']).map_or(0, |at| at + 1);
        let before: Vec<&str> = typed[command..start].split_whitespace().collect();
        let fitting = self.candidates(&before).into_iter().filter(|word| word.starts_with(&typed[start..]));
        let pair = |word: String| Pair { display: word.clone(), replacement: format!("{word} ") };
        Ok((start, fitting.map(pair).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "The following commands are valid at this level:\n  \
        show servers conn [<backend>]           : dump connections\n  \
        show stat                               : report counters\n  \
        disable server <bk>/<srv>               : disable a server\n  \
        set severity-output [none|number|string]: set the format\n  \
        help [<command>]                        : list commands\n";

    #[test]
    fn commands_and_kinds_of_arguments_follow_each_other() {
        let all = commands(HELP);
        assert_eq!(all.len(), 5);
        assert_eq!(next_words(&all, &["show"]), ["servers", "stat"]);
        assert_eq!(next_words(&all, &["show", "servers"]), ["conn"]);
        assert_eq!(next_arguments(&all, &["disable", "server"]), ["<bk>/<srv>"]);
        assert_eq!(next_arguments(&all, &["set", "severity-output"]), ["[none|number|string]"]);
        assert!(next_words(&all, &["help"]).is_empty() && next_words(&all, &[]).contains(&"help".to_owned()));
    }

    #[test]
    fn alternatives_complete_themselves() {
        let completer = Completer::new(RuntimeSocket::parse("/nonexistent"));
        assert_eq!(completer.names("[none|number|string]"), ["none", "number", "string"]);
        assert!(completer.names("<bk>/<srv>").is_empty(), "without a process");
    }
}
