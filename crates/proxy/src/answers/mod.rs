//! Answers that no server gives: pages of errors, replies of rules, services.

pub(crate) mod page;
pub(crate) mod service;
