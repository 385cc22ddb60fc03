//! Configurations: verdicts on them, the values of expressions, and the seeds of the fuzzers.

mod configs;
mod expressions;
mod hostile_configs;
mod raw_bytes;
mod seeds;
mod surface;
mod verdicts;
