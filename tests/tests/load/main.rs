//! `weir load`: counts are exact, whatever the protocol.

mod arguments;
mod endings;
mod hold;
mod http1;
mod multiplexed;
mod rates;

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use weir_tests::program;

/// The command with these arguments.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("load").args(arguments).stdin(Stdio::null());
    command
}

/// Runs the command to its end.
fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program runs")
}

/// Runs the command; returns its summary.
fn load(arguments: &[&str]) -> Value {
    let output = run(&[&["--json"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    summary(&output)
}

/// Returns the summary in the output.
fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// Starts the command; its output is piped.
fn start(arguments: &[&str]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Returns a number of a summary by its path, such as `errors_by_reason/timeout`.
fn number(summary: &Value, path: &str) -> u64 {
    let found = summary.pointer(&format!("/{path}")).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {path} in {summary}"))
}

/// Asserts that all of `requests` were answered, and nothing failed.
fn assert_all(summary: &Value, requests: u64) {
    assert_eq!((number(summary, "requests"), number(summary, "errors")), (requests, 0), "{summary}");
}
