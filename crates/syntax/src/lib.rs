//! Configuration text to lines to words: quoting, environment, conditions. Knows no keyword.

#![forbid(unsafe_code)]
