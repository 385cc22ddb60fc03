//! Spans, severities, diagnostics, suggestions, and how they are shown.
//!
//! A [`Diagnostic`] says what is wrong, where, why and how to put it right. It is shown in one of
//! two forms: for people on a terminal ([`render::terminal`]) and as HAProxy's own line
//! ([`render::line`]) for the tools that read it. This crate knows no keyword and reads no file by
//! itself.

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
