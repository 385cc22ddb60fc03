//! Optional tools.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Returns the path of an installed program, or reports on standard error that the test is skipped.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|place| place.join(program)).find(|file| file.is_file());
    if found.is_none() {
        skipped(&format!("{program} is not installed"));
    }
    found
}

/// Reports on standard error that the test is skipped, past the output capture of the test harness.
pub fn skipped(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}

/// Runs a program with this input until it ends.
///
/// # Panics
/// The program cannot be run.
pub fn run(command: &mut Command, input: &[u8]) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the program runs");
    let mut to = process.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // The program may end without reading everything.
        let _ = to.write_all(&input);
    });
    let output = process.wait_with_output().expect("the program ends");
    writer.join().expect("the writer does not panic");
    output
}
