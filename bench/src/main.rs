//! The benchmarks, each a subcommand: `cargo run -p weir-bench -- h2`, or `make bench BENCH=h2`.
//!
//! A benchmark builds the programs that it measures with the required profile, and installs missing tools. `WEIR` in the
//! environment names another binary of Weir, `HAPROXY` another one of HAProxy. Most are shell scripts, `bench/NAME.sh`, which use
//! the load generator of this program; the others are its modules. Not called by tests.
#![forbid(unsafe_code)]

mod contention;
mod datagrams;
mod diff;
mod exchanges;
mod generator;
mod run;
mod table;
mod trials;

use std::process::ExitCode;

use crate::table::{BENCHMARKS, Benchmark};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = words.split_first() else {
        print!("{}", help());
        return ExitCode::SUCCESS;
    };
    // These are parts of the benchmarks, which their scripts call.
    match name.as_str() {
        "generator" => return ended(generator::run().map_err(|error| error.to_string())),
        "forwarder" => return ended(generator::forward(rest).map_err(|error| error.to_string())),
        "datagrams" => return ended(datagrams::run(rest)),
        "contention" => {
            contention::run(rest);
            return ExitCode::SUCCESS;
        }
        "help" | "-h" | "--help" => {
            print!("{}", help());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    match BENCHMARKS.iter().find(|benchmark| benchmark.name == name) {
        Some(benchmark) => run::benchmark(benchmark, rest).unwrap_or_else(|error| ended(Err(error))),
        None => {
            eprint!("weir-bench: `{name}` is no benchmark\n\n{}", help());
            ExitCode::from(2)
        }
    }
}

fn ended(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn help() -> String {
    let width = BENCHMARKS.iter().map(|Benchmark { name, .. }| name.len()).max().unwrap_or_default();
    let rows = BENCHMARKS.iter().map(|Benchmark { name, about, .. }| format!("  {name:width$}  {about}\n"));
    format!("usage: weir-bench BENCHMARK [WORD…]\n\n{}", rows.collect::<String>())
}
