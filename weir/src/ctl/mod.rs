//! `weir ctl`: sends commands to the runtime socket of a process, one at a time or interactively, so that socat is not needed.

mod completion;
mod connection;

use std::borrow::Cow;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use self::completion::{Completer, is_incomplete};
use self::connection::{Answer, RuntimeSocket};
use crate::messages;

const USAGE: &str = "\
Usage: weir ctl [-s SOCKET | -f FILE] [COMMAND ...]

Sends COMMAND to the runtime socket of a process and prints the answer. Without
COMMAND, commands are read from the terminal, with completion and history, or
from standard input, one per line.

  -s, --socket SOCKET   the path or the address (127.0.0.1:9999) of the socket
  -f, --config FILE     use the first `stats socket` of this configuration

Without either, the environment variable WEIR_SOCKET or the configuration
/etc/haproxy/haproxy.cfg names the socket. A command that ends with `<<` reads
its payload from standard input.

  weir ctl show servers state
  weir ctl -s /run/haproxy/admin.sock disable server app/a1
  weir ctl set ssl cert /etc/haproxy/site.pem '<<' < site.pem

The exit status is 0, or 1 if a command fails, or 2 if there is no connection.
";

/// The configuration that names the socket by default.
const CONFIGURATION: &str = "/etc/haproxy/haproxy.cfg";

/// Runs the command. Returns `None` if `words` are another command.
pub(crate) fn run(words: &[String]) -> Option<ExitCode> {
    (words.first()? == "ctl").then(|| match converse(&words[1..]) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}", error.trim_end());
            ExitCode::from(2)
        }
    })
}

fn converse(words: &[String]) -> Result<ExitCode, String> {
    let (mut socket, mut file, mut rest) = (None, None, words.iter().peekable());
    while let Some(flag) = rest.next_if(|word| word.starts_with('-')) {
        let mut value = || rest.next().ok_or_else(|| format!("'{flag}' needs a value\n\n{USAGE}"));
        match flag.as_str() {
            "-s" | "--socket" => socket = Some(RuntimeSocket::parse(value()?)),
            "-f" | "--config" => file = Some(PathBuf::from(value()?)),
            "-h" | "--help" => {
                messages::output(USAGE);
                return Ok(ExitCode::SUCCESS);
            }
            _ => return Err(format!("unknown option '{flag}'\n\n{USAGE}")),
        }
    }
    let socket = match (socket, file) {
        (Some(socket), None) => socket,
        (None, Some(file)) => RuntimeSocket::of_configuration(&file)?,
        (None, None) => default_socket()?,
        (Some(_), Some(_)) => return Err(format!("use either -s or -f\n\n{USAGE}")),
    };
    let command: Vec<&str> = rest.map(String::as_str).collect();
    if !command.is_empty() {
        let command = command.join(" ");
        let payload = if command.trim_end().ends_with("<<") { Some(read_input()?) } else { None };
        return Ok(show(&socket.ask(&command, payload.as_deref())?));
    }
    if std::io::stdin().is_terminal() {
        return interact(socket);
    }
    Ok(show(&socket.ask_all(&read_input()?)?))
}

/// The socket named by the environment or the usual configuration.
fn default_socket() -> Result<RuntimeSocket, String> {
    if let Ok(text) = std::env::var("WEIR_SOCKET") {
        return Ok(RuntimeSocket::parse(&text));
    }
    if Path::new(CONFIGURATION).exists() {
        return RuntimeSocket::of_configuration(Path::new(CONFIGURATION));
    }
    Err(format!(
        "which process? {CONFIGURATION} does not exist and WEIR_SOCKET is not set: use -s or -f\n\n{USAGE}"
    ))
}

fn read_input() -> Result<String, String> {
    let mut text = String::new();
    match std::io::stdin().read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("cannot read standard input: {error}")),
    }
}

/// Prints an answer: an error on standard error, everything else on standard output.
fn show(answer: &Answer) -> ExitCode {
    match answer {
        Answer::Text(text) => {
            messages::output(text);
            ExitCode::SUCCESS
        }
        Answer::Error(text) => {
            eprintln!("{}", text.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// Reads commands from the terminal until `quit` or the end of input.
fn interact(mut socket: RuntimeSocket) -> Result<ExitCode, String> {
    // Fails early, before there is a prompt.
    let version = match socket.ask("show version", None)? {
        Answer::Text(text) => text.trim().to_owned(),
        Answer::Error(_) => String::new(),
    };
    messages::say(format_args!("Connected to {socket}, version {version}. Tab completes, Ctrl-D ends."));
    let config = Config::builder().auto_add_history(true).build();
    let wrong = |error: ReadlineError| format!("cannot use the terminal: {error}");
    let mut editor: Editor<Completer, FileHistory> = Editor::with_config(config).map_err(wrong)?;
    editor.set_helper(Some(Completer::new(socket.clone())));
    let history = history();
    if let Some(path) = &history {
        // The first session has no history.
        let _ = editor.load_history(path);
    }
    loop {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(wrong(error)),
        };
        let command = line.trim();
        match command {
            "" => continue,
            "quit" | "exit" => break,
            _ => {}
        }
        let payload = if is_incomplete(command) { Some(read_payload(&mut editor)) } else { None };
        match socket.ask(command, payload.as_deref()) {
            Ok(answer) => {
                show(&answer);
                socket.remember(command, &answer);
            }
            // The process may be restarting: the next command tries again.
            Err(error) => eprintln!("{error}"),
        }
        if let Some(path) = &history {
            // If the home directory is not writable, the history ends with the session.
            let _ = editor.save_history(path);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the lines of a payload, which ends with an empty line.
fn read_payload(editor: &mut Editor<Completer, FileHistory>) -> String {
    let mut text = String::new();
    while let Ok(line) = editor.readline("+ ") {
        if line.is_empty() {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The file of the history, in a folder that this creates.
fn history() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    let folder = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?.join("weir");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder.join("ctl-history"))
}

/// Quotes for the shell of the reader, if necessary.
fn shown(text: &str) -> Cow<'_, str> {
    if text.contains(' ') { Cow::Owned(format!("'{text}'")) } else { Cow::Borrowed(text) }
}
