//! A `spoe-agent` section that is still being parsed, without the lines that are processed in order.

use std::time::Duration;

use syntax::Word;

/// A section that is still being parsed.
#[derive(Debug, Clone)]
pub struct AgentDraft<'a> {
    /// `messages`.
    pub messages: Vec<&'a Word>,
    /// `groups`.
    pub groups: Vec<&'a Word>,
    /// `use-backend`.
    pub backend: Option<&'a Word>,
    /// `timeout processing`.
    pub timeout: Option<Duration>,
    /// `max-frame-size`.
    pub frame_size: Option<&'a Word>,
    /// `option pipelining`.
    pub pipelining: bool,
    /// `option continue-on-error`.
    pub continues: bool,
    /// `option force-set-var`.
    pub forces: bool,
    /// `option dontlog-normal`.
    pub only_errors: bool,
    /// `option var-prefix`.
    pub prefix: Option<&'a Word>,
    /// `option set-on-error`.
    pub on_error: Option<&'a Word>,
    /// `option set-process-time`.
    pub process_time: Option<&'a Word>,
    /// `option set-total-time`.
    pub total_time: Option<&'a Word>,
    /// `register-var-names`.
    pub variables: Vec<&'a Word>,
}

impl Default for AgentDraft<'_> {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            groups: Vec::new(),
            backend: None,
            timeout: None,
            frame_size: None,
            pipelining: true,
            continues: false,
            forces: false,
            only_errors: false,
            prefix: None,
            on_error: None,
            process_time: None,
            total_time: None,
            variables: Vec::new(),
        }
    }
}
