//! Health checks and what they decide.

#![forbid(unsafe_code)]
