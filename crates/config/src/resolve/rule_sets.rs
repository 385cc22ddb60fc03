//! The compiled rules of a proxy.

use std::collections::BTreeMap;
use std::sync::Arc;

use diag::Span;
use plan::proxy::{StickRules, UseBackend, UseServer};
use rules::{Reply, RuleSet};
use sample::Acls;
use sample::condition::Condition;
use sample::transaction::CaptureSlot;

use crate::resolve::names::CaptureDraft;

/// A slot used by a rule, with its location.
pub(crate) struct CaptureUse {
    pub(crate) slot: CaptureSlot,
    pub(crate) place: Span,
}

/// The compiled rules of a proxy.
#[derive(Default)]
pub(crate) struct CompiledRules {
    pub(crate) acls: Acls,
    pub(crate) quic_initial: RuleSet,
    pub(crate) udp_request: RuleSet,
    pub(crate) tcp_connection: RuleSet,
    pub(crate) tcp_session: RuleSet,
    pub(crate) tcp_request: RuleSet,
    pub(crate) tcp_response: RuleSet,
    pub(crate) http_request: RuleSet,
    pub(crate) http_response: RuleSet,
    pub(crate) http_after_response: RuleSet,
    pub(crate) redirects: RuleSet,
    pub(crate) stats_rules: RuleSet,
    pub(crate) stats_admin: Vec<Condition>,
    pub(crate) monitor_fail: Vec<Condition>,
    pub(crate) force_be_switch: Vec<Condition>,
    pub(crate) force_persist: Vec<Condition>,
    pub(crate) ignore_persist: Vec<Condition>,
    pub(crate) use_backends: Vec<UseBackend>,
    pub(crate) use_servers: Vec<UseServer>,
    pub(crate) stick: Option<Box<StickRules>>,
    pub(crate) errors: Vec<(u16, Arc<Reply>)>,
    /// Captures declared or created by rules.
    pub(crate) request_captures: Vec<CaptureDraft>,
    /// The slots used by rules.
    pub(crate) captures_used: Vec<CaptureUse>,
    /// The sets that end with an unconditional final rule, as bits of [`rules::Ruleset`].
    pub(crate) ended: u16,
    /// Jumps to labels that have not been defined yet, by the bit of their rule set, with the place of the first one.
    pub(crate) open_jumps: BTreeMap<(u16, Box<[u8]>), Span>,
}
