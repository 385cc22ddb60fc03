//! Commands on the proxy's runtime socket.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runtime::timer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The longest time that the proxy may take for a reload.
const RELOAD: Duration = Duration::from_secs(60);

/// The longest time for other commands.
const ANSWER: Duration = Duration::from_secs(10);

/// The longest answer that is read, in bytes.
const LONGEST_ANSWER: u64 = 4 << 20;

/// The number of commands in a line.
const COMMANDS_AT_ONCE: usize = 64;

/// Why a command had no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandError {
    /// The proxy cannot be reached.
    Unreachable(String),
    /// The proxy refuses the command, with its answer.
    Refused(String),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(cause) => write!(f, "the proxy does not answer: {cause}"),
            Self::Refused(answer) => f.write_str(answer),
        }
    }
}

/// The contents of a PEM file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PemKind {
    /// A certificate with its chain and key.
    Certificate,
    /// Trusted authorities.
    Authorities,
}

/// The runtime socket of the proxy.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeSocket {
    path: PathBuf,
}

impl RuntimeSocket {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a command and returns the answer.
    pub(crate) async fn ask(&self, command: &str, limit: Duration) -> Result<String, CommandError> {
        let unreachable =
            |error: &dyn fmt::Display| CommandError::Unreachable(format!("{}: {error}", self.path.display()));
        let conversation = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            stream.write_all(command.as_bytes()).await?;
            stream.write_all(b"\n").await?;
            let mut answer = Vec::new();
            stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
        };
        match timer::timeout(limit, conversation).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(unreachable(&error)),
            Err(_) => Err(unreachable(&format!("no answer within {} s", limit.as_secs()))),
        }
    }

    /// Checks that the proxy answers.
    pub(crate) async fn is_alive(&self) -> bool {
        let answer = self.ask("show version", Duration::from_secs(2)).await;
        answer.is_ok_and(|answer| !answer.trim().is_empty())
    }

    /// Reloads the configuration in place. Returns the changes.
    pub(crate) async fn reload(&self) -> Result<String, CommandError> {
        let answer = self.ask("reload", RELOAD).await?;
        let text = answer.trim_end();
        match text.ends_with("nothing else") || text.ends_with("nothing has changed") {
            true => Ok(text.to_owned()),
            false => Err(CommandError::Refused(text.to_owned())),
        }
    }

    /// Replaces certificates that were read from a file.
    pub(crate) async fn replace_pem(&self, kind: PemKind, file: &str, pem: &str) -> Result<(), CommandError> {
        let word = match kind {
            PemKind::Certificate => "cert",
            PemKind::Authorities => "ca-file",
        };
        let set = self.ask(&format!("set ssl {word} {file} <<\n{}", lines(pem)), ANSWER).await?;
        if !set.to_ascii_lowercase().contains("transaction") {
            return Err(CommandError::Refused(set.trim().to_owned()));
        }
        let committed = self.ask(&format!("commit ssl {word} {file}"), ANSWER).await?;
        if committed.contains("Success!") {
            return Ok(());
        }
        let _ = self.ask(&format!("abort ssl {word} {file}"), ANSWER).await;
        Err(CommandError::Refused(committed.trim().to_owned()))
    }

    /// Sends commands that change a map.
    pub(crate) async fn change_map(&self, commands: &[String]) -> Result<(), CommandError> {
        for some in commands.chunks(COMMANDS_AT_ONCE) {
            let answer = self.ask(&some.join(";"), ANSWER).await?;
            if !answer.trim().is_empty() {
                return Err(CommandError::Refused(answer.trim().to_owned()));
            }
        }
        Ok(())
    }

    /// Makes the proxy read the lists of endpoints of these sections now.
    pub(crate) async fn refresh_endpoints(&self, sections: &[String]) -> Result<(), CommandError> {
        for some in sections.chunks(COMMANDS_AT_ONCE) {
            let commands: Vec<String> = some.iter().map(|name| format!("refresh discovery {name}")).collect();
            self.ask(&commands.join(";"), ANSWER).await?;
        }
        Ok(())
    }
}

/// Returns a payload: an empty line would end it.
fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_no_empty_lines() {
        assert_eq!(lines("a\n\n \r\nb"), "a\nb\n");
    }
}
