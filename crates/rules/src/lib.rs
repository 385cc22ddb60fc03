//! Actions and the evaluation of rule sets.

#![forbid(unsafe_code)]
