//! `log-profile` sections: overrides for log lines by the point at which they are created (manual, 8.3.5).
//!
//! `config` parses the sections, `rules` refers to them in `do-log`, and `proxy` applies them before a line is sent to a logger.

use std::sync::Arc;

use crate::format::Format;
use crate::log_origin::{LogOrigin, LogStep};
use crate::scope::Names;

/// A profile's overrides for the lines of one step (`on`).
#[derive(Debug, Default)]
pub struct LogOverride {
    /// `drop`: no line is written.
    pub drop: bool,
    /// `format`: used instead of the proxy's format.
    pub format: Option<Format>,
    /// `sd`: used instead of the proxy's structured data.
    pub structured: Option<Format>,
}

/// A `log-profile` section.
#[derive(Debug, Default)]
pub struct LogProfile {
    /// The name of the profile.
    pub name: Box<str>,
    /// `log-tag`.
    pub tag: Option<Box<[u8]>>,
    /// `on`, one entry per step.
    pub steps: Vec<(LogStep, LogOverride)>,
}

impl LogProfile {
    /// The overrides for lines created at `origin`.
    pub fn at(&self, origin: LogOrigin) -> Option<&LogOverride> {
        let of = |step: LogStep| self.steps.iter().find(|(own, _)| *own == step).map(|(_, own)| own);
        of(LogStep::At(origin)).or_else(|| of(LogStep::Any))
    }
}

/// The section `name`, if the configuration has it.
pub fn find(names: &dyn Names, name: &str) -> Option<Arc<LogProfile>> {
    names.log_profile(name)?.downcast().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_step_of_a_profile_wins() {
        let text = |text: &str| LogOverride {
            format: Some(Format::constant(text.as_bytes())),
            ..LogOverride::default()
        };
        let profile = LogProfile {
            steps: vec![
                (LogStep::Any, text("any")),
                (LogStep::At(LogOrigin::Connect), LogOverride { drop: true, ..LogOverride::default() }),
                (LogStep::At(LogOrigin::SessionError), text("error")),
            ],
            ..LogProfile::default()
        };
        let of = |origin| {
            let step = profile.at(origin).expect("`any` stands for all");
            step.format.as_ref().and_then(Format::as_constant)
        };
        assert_eq!(of(LogOrigin::Close), Some(b"any".as_slice()));
        assert_eq!(of(LogOrigin::Connect), None);
        assert_eq!(of(LogOrigin::SessionError), Some(b"error".as_slice()));
        assert!(LogProfile::default().at(LogOrigin::Close).is_none());
    }

    #[test]
    fn steps_are_found_by_the_names_of_the_manual() {
        assert_eq!(LogStep::find("error"), Some(LogStep::At(LogOrigin::SessionError)));
        assert_eq!(LogStep::find("close"), Some(LogStep::At(LogOrigin::Close)));
        assert_eq!(LogStep::find("http-after-res"), Some(LogStep::At(LogOrigin::HttpAfterResponse)));
        assert_eq!(LogStep::find(""), None);
        assert_eq!(LogStep::find("txn_close"), None);
        assert!(LogStep::names().all(|name| LogStep::find(name).is_some()));
    }
}
