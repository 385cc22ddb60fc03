//! `weir explain`: explains what a configuration would do with a request, without starting it.

use std::path::PathBuf;
use std::process::ExitCode;

use state::Process;

use crate::args::CommandLineArgs;
use crate::messages::MessageFormat;
use crate::{check, messages};

const USAGE: &str = "\
Usage: weir explain -f FILE [-f ...] [frontend NAME] METHOD URL [src ADDRESS]
                    ['HEADER: VALUE' ...]

Explains what the configuration in FILE would do with a request: every rule and
condition in order, the backend and the server. Nothing is started or sent, and
all servers count as up. For a running process, use the command `explain` of its
runtime socket.

  weir explain -f haproxy.cfg GET https://www.example.com/api/ src 10.1.2.3

The exit status is 0 if there is an explanation, and 2 if the configuration or
the request is invalid.
";

/// Runs the command. Returns `None` if `words` are another command.
pub(crate) fn run(words: &[String]) -> Option<ExitCode> {
    (words.first()? == "explain").then(|| explained(&words[1..]).unwrap_or_else(|code| code))
}

fn explained(words: &[String]) -> Result<ExitCode, ExitCode> {
    let invalid = |text: &str| {
        eprint!("{text}");
        ExitCode::from(2)
    };
    if matches!(words, [word] if word == "-h" || word == "--help") {
        messages::output(USAGE);
        return Ok(ExitCode::SUCCESS);
    }
    let mut files: Vec<PathBuf> = Vec::new();
    let mut rest = words.iter().peekable();
    while rest.next_if(|word| matches!(word.as_str(), "-f" | "--config")).is_some() {
        files.push(rest.next().ok_or_else(|| invalid(USAGE))?.into());
    }
    let rest: Vec<String> = rest.cloned().collect();
    if files.is_empty() || rest.is_empty() {
        return Err(invalid(USAGE));
    }
    let question =
        explain::Question::parse(&rest).map_err(|error| invalid(&format!("weir explain: {error}\n")))?;
    base::clock::start();
    let args = CommandLineArgs { files, ..CommandLineArgs::default() };
    let plan = check::plan(&args, MessageFormat::new(false)).map_err(|_| ExitCode::from(2))?;
    let process = Process { counted: plan.global.counted, ..Process::default() };
    let text = explain::explain(&plan, &process, &question);
    messages::output(&text.map_err(|error| invalid(&format!("{error}\n")))?);
    // The process ends here, so freeing the plan would only take time.
    std::mem::forget(plan);
    Ok(ExitCode::SUCCESS)
}
