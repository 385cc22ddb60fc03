//! Spans, severities, diagnostics, suggestions, and their display.
//!
//! A [`Diagnostic`] contains the error, its location, its cause and its remedy. There are three output formats: one for people on a
//! terminal ([`render::terminal`]), HAProxy's one-line format ([`render::line`]) for tools that parse it, and JSON
//! ([`json::diagnostic`]). This crate knows no keywords and reads no files.

#![forbid(unsafe_code)]

mod collect;
mod diagnostic;
pub mod json;
pub mod render;
mod source;
mod suggest;

pub use collect::Diagnostics;
pub use diagnostic::{Diagnostic, Severity};
pub use source::{FileId, Position, SourceFile, SourceMap, Span};
pub use suggest::suggest;
