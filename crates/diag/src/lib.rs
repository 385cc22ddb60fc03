//! Spans, severities, diagnostics, suggestions, and their display.
//!
//! A [`Diagnostic`] contains the error, its location, its cause and its remedy. There are two output formats: one for people on a
//! terminal ([`render::terminal`]) and HAProxy's one-line format ([`render::line`]) for tools. This crate knows no keywords and
//! reads no files.

#![forbid(unsafe_code)]

mod collect;
mod diagnostic;
pub mod render;
mod source;
mod suggest;

pub use collect::Diagnostics;
pub use diagnostic::{Diagnostic, Severity};
pub use source::{FileId, Position, SourceFile, SourceMap, Span};
pub use suggest::suggest;
