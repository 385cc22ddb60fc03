//! What load generators and tests both send: frames of HTTP/2, and floods of them.

#![forbid(unsafe_code)]

pub mod floods;
pub mod frames;
