//! `weir load`, also as a program called `haload`: generates load (crate `load`).

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use load::{Command, Interrupts, Options};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{messages, version};

/// The name under which HAProxy's generator is installed.
const PROGRAM: &str = "haload";

/// Runs the command if the program is called `haload`.
pub(crate) fn run_program(program: Option<&str>, words: &[String]) -> Option<ExitCode> {
    (program == Some(PROGRAM)).then(|| run(words, PROGRAM))
}

/// Runs the command. Returns `None` if `words` are another command.
pub(crate) fn run_word(words: &[String]) -> Option<ExitCode> {
    (words.first()? == "load").then(|| run(&words[1..], "weir load"))
}

fn run(words: &[String], name: &str) -> ExitCode {
    let generated = match load::arguments::parse(words) {
        Ok(Command::Help) => {
            messages::output(load::HELP);
            Ok(())
        }
        Ok(Command::Version) => {
            messages::say(format_args!("{name} version {}", version::FULL));
            Ok(())
        }
        Ok(Command::Dump(options)) => {
            messages::output(&load::dump(&options));
            Ok(())
        }
        Ok(Command::Run(options)) => generate(*options),
        Err(error) => Err(format!("{error}\n\n'{name} --help' shows the usage.")),
    };
    match generated {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(options: Options) -> Result<(), String> {
    base::clock::start();
    // Each connection needs a descriptor. If the limit cannot be raised, connections fail and are counted.
    let _ = process::descriptor_limit(u64::MAX);
    let interrupts = Arc::new(Interrupts::new(0));
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| format!("cannot watch signals: {error}"))?;
    let counter = interrupts.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            counter.fetch_add(1, Relaxed);
        }
    });
    load::run(options, &interrupts, &mut std::io::stdout().lock())
}
