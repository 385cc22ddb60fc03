//! Splits configuration text into lines and words: quoting, environment, conditions. This crate knows no keywords.
//!
//! Follows sections 2.1 to 2.4 of the manual. [`load`] reads files and directories into a [`diag::SourceMap`]; [`Reader`] returns
//! their lines one after the other, split into words, with conditional blocks resolved and the directives `.notice`, `.warning`,
//! `.alert` and `.diag` turned into diagnostics. Keywords may change the [`Environment`] between two lines.

#![forbid(unsafe_code)]

mod arguments;
mod condition;
mod environment;
mod load;
mod predicate;
mod predicates;
mod reader;
mod split;
mod version;
mod word;

pub use condition::evaluate_condition;
pub use environment::Environment;
pub use load::load;
pub use predicates::ProgramFacts;
pub use reader::Reader;
pub use split::{PseudoVariables, split_text};
pub use version::Version;
pub use word::{Line, Word};
