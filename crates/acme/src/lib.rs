//! draft
#![forbid(unsafe_code)]
mod answers;
mod engine;
mod jws;
