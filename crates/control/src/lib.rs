//! Runtime API commands and the statistics page.

#![forbid(unsafe_code)]
