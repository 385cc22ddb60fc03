//! Keyword tables: draft to resolved plan.

#![forbid(unsafe_code)]
