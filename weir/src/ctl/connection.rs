//! The connection to a runtime socket: one for each command, so that a session survives restarts of the process.

use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use plan::bind::BindAddress;

use super::shown;
use crate::args::CommandLineArgs;
use crate::{check, messages, probe};

/// How long connecting and each read may take. Commands that follow a ring send something more often.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the process precede messages with their severity.
const WITH_SEVERITY: &str = "set severity-output number; ";

/// Severities from this number on are not errors.
const FIRST_WARNING: u8 = 4;

/// A runtime socket, with the settings of a session.
#[derive(Debug, Clone)]
pub(super) struct RuntimeSocket {
    address: BindAddress,
    /// Commands that change settings of the connection, such as `expert-mode on`. They precede each command.
    settings: String,
}

/// The answer to a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Output, possibly empty.
    Text(String),
    /// The command failed.
    Error(String),
}

impl fmt::Display for RuntimeSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            BindAddress::Unix(path) => f.write_str(&shown(&path.display().to_string())),
            BindAddress::Ip(address) => address.fmt(f),
            other => other.fmt(f),
        }
    }
}

impl RuntimeSocket {
    /// Parses a path or an address, with or without the prefix of its family.
    pub(super) fn parse(text: &str) -> Self {
        let bare = text.strip_prefix("ipv4@").or_else(|| text.strip_prefix("ipv6@")).unwrap_or(text);
        let address = match text.strip_prefix("abns@") {
            Some(name) => BindAddress::Abstract { name: name.as_bytes().to_vec(), padded: true },
            None => match bare.parse() {
                Ok(address) => BindAddress::Ip(address),
                Err(_) => BindAddress::Unix(text.strip_prefix("unix@").unwrap_or(text).into()),
            },
        };
        Self { address, settings: String::new() }
    }

    /// The first runtime socket of a configuration.
    ///
    /// # Errors
    /// The configuration cannot be used, or has no such socket.
    pub(super) fn of_configuration(file: &Path) -> Result<Self, String> {
        let args = CommandLineArgs { files: vec![file.to_path_buf()], ..CommandLineArgs::default() };
        let loaded = config::load(&args.files, &check::boot(&args));
        let file = file.display();
        let plan = loaded
            .plan
            .ok_or_else(|| format!("{file} cannot be used: run `weir -c -f {file}` for details"))?;
        let socket = plan.global.stats_sockets.iter().find(|bind| bind.tls.is_none());
        let socket = socket.ok_or_else(|| format!("{file} has no `stats socket` in its global section"))?;
        Ok(Self { address: socket.address.clone(), settings: String::new() })
    }

    /// Sends a command, with the lines of its payload if it has one.
    ///
    /// # Errors
    /// The process cannot be reached, or closes the connection.
    pub(super) fn ask(&self, command: &str, payload: Option<&str>) -> Result<Answer, String> {
        // A master does not know the setting.
        let with_severity = !command.starts_with('@');
        let prefix = if with_severity { WITH_SEVERITY } else { "" };
        let mut text = format!("{}{prefix}{command}\n", self.settings);
        if let Some(payload) = payload {
            text.push_str(payload.trim_end_matches('\n'));
            text.push_str("\n\n");
        }
        let answer = self.send(&text)?;
        let count = self.settings.matches(';').count() + usize::from(with_severity);
        Ok(read(without_settings(&answer, count)))
    }

    /// A master does not support this setting.
    ///
    /// # Errors
    /// The process cannot be reached, or closes the connection.
    pub(super) fn ask_all(&self, lines: &str) -> Result<Answer, String> {
        self.send(lines).map(Answer::Text)
    }

    /// Keeps a successful command that changes settings of its connection for the next commands.
    pub(super) fn remember(&mut self, command: &str, answer: &Answer) {
        let is_setting = ["expert-mode ", "experimental-mode ", "set anon on", "set anon off"]
            .iter()
            .any(|start| command.starts_with(start));
        if is_setting && matches!(answer, Answer::Text(_)) {
            self.settings.push_str(command);
            self.settings.push_str("; ");
        }
    }

    fn send(&self, text: &str) -> Result<String, String> {
        let wrong = |error: std::io::Error| {
            messages::without_numbers(&format!("cannot query the process on {self}: {error}"))
        };
        let mut stream = probe::connect(&self.address, PATIENCE).map_err(wrong)?;
        stream.write_all(&base::raw::bytes_of(text)).map_err(wrong)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).map_err(wrong)?;
        Ok(base::raw::text_of(&answer).into_owned())
    }
}

/// Returns the part of the answer after those to `count` settings, each of which is an empty line.
fn without_settings(mut answer: &str, count: usize) -> &str {
    for _ in 0..count {
        answer = answer.strip_prefix('\n').unwrap_or(answer);
    }
    answer
}

/// Separates errors from output: a message begins with the number of its severity in brackets.
fn read(answer: &str) -> Answer {
    // An empty line ends each answer.
    let text = answer.strip_suffix("\n\n").map_or(answer, |_| &answer[..answer.len() - 1]);
    let text = if text == "\n" { "" } else { text };
    let message = text.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let message = message.and_then(|(number, rest)| Some((number.parse::<u8>().ok()?, rest)));
    let (severity, text) = message.unwrap_or((u8::MAX, text));
    if text.starts_with("Unknown command") {
        // The list of all commands follows.
        let first = text.split(". ").next().unwrap_or(text);
        return Answer::Error(format!("{first}. `help` lists the commands"));
    }
    if severity < FIRST_WARNING { Answer::Error(text.to_owned()) } else { Answer::Text(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_separated_into_errors_and_output() {
        let text = |text: &str| Answer::Text(text.to_owned());
        let error = |text: &str| Answer::Error(text.to_owned());
        assert_eq!(read("\n"), text(""));
        assert_eq!(read("a\nb\n\n"), text("a\nb\n"));
        assert_eq!(read("[3]: No such server.\n\n"), error("No such server.\n"));
        assert_eq!(read("[6]: done\n\n"), text("done\n"));
        assert_eq!(
            read("[6]: Unknown command: 'x'. Please …\n"),
            error("Unknown command: 'x'. `help` lists the commands")
        );
        assert_eq!(without_settings("\n\nrest", 2), "rest");
    }

    #[test]
    fn addresses_are_recognized() {
        let address = |text: &str| RuntimeSocket::parse(text).address;
        assert_eq!(address("127.0.0.1:99"), BindAddress::Ip("127.0.0.1:99".parse().unwrap()));
        assert_eq!(address("ipv6@[::1]:99"), BindAddress::Ip("[::1]:99".parse().unwrap()));
        assert_eq!(address("unix@/run/a"), BindAddress::Unix("/run/a".into()));
        assert_eq!(address("/run/a"), BindAddress::Unix("/run/a".into()));
        assert!(matches!(address("abns@a"), BindAddress::Abstract { padded: true, .. }));
    }
}
