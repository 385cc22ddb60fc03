//! Actions and the evaluation of rule sets (configuration manual, 4.3 and 4.4).
//!
//! A rule is an action with a condition, compiled once ([`compile`]). Running a set changes the session and the transaction;
//! actions that need a socket or time are returned to the caller ([`RuleOutcome`]), which performs them and continues with the next
//! rule. Called by `proxy`; compiled by `config`.

#![forbid(unsafe_code)]

mod action;
mod apply;
mod authority;
mod binary;
mod context;
mod edit;
mod explain;
mod intern;
mod normalize;
mod parse;
mod redirect;
mod reply;
mod rule;
mod stage;
mod table;
mod tables;
mod wording;

pub use context::{ActionRow, Ruleset};
pub use edit::{Edit, Side};
pub use explain::{ExplainedRule, RuleEffect};
pub use redirect::Redirect;
pub use reply::{Content, Page, Reply, ReplyBody, challenge};
pub use rule::{Rule, RuleSet, compile, compile_redirect};
pub use stage::{Final, Hold, RuleOutcome, ScriptCall, Service, Spoken, Stage};
pub use table::ACTIONS;
