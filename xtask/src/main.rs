//! Chores of the repository: checks on the arrows between rooms, generated documents.
#![forbid(unsafe_code)]

fn main() {}
