//! Payload on its way through filters of scripts: what came in waits here until whoever pumps the
//! direction has shown it to them, and gives what they pass on.
//!
//! They see the whole exchange, which a direction does not: `message::scripted` calls them.

use super::source::Framing;
use super::{Flow, Path};

impl Flow {
    /// Whether filters of scripts see it.
    pub(crate) fn is_scripted(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.scripts.is_some())
    }

    /// Whether nothing more is read before filters of scripts have seen what came.
    pub(super) fn waits_for_scripts(&self) -> bool {
        let waiting = self.filters.as_ref().and_then(|filters| filters.scripts.as_ref());
        waiting.is_some_and(|waiting| !waiting.taken.is_empty() || waiting.is_ended || waiting.is_full)
    }

    /// The sender has said all: where scripts filter it, the end is theirs to pass on. Says whether
    /// that is so.
    pub(super) fn leaves_end_to_scripts(&mut self) -> bool {
        let waiting = self.filters.as_mut().and_then(|filters| filters.scripts.as_mut());
        let Some(waiting) = waiting else { return false };
        waiting.is_ended = true;
        self.framing = Framing::Held;
        true
    }

    /// Takes what came in for them, behind what `into` holds; says whether that was the end of it. `None`
    /// where there is nothing that they have not seen.
    pub(crate) fn take_for_scripts(&mut self, into: &mut Vec<u8>) -> Option<bool> {
        let waiting = self.filters.as_mut()?.scripts.as_mut()?;
        let ends = waiting.is_ended && !waiting.is_told;
        if waiting.taken.is_empty() && !ends {
            return None;
        }
        waiting.is_told |= ends;
        into.append(&mut waiting.taken);
        Some(waiting.is_ended)
    }

    /// Passes on what they give; with `is_over` that was the last of it. With `is_full` they take no
    /// more until they have passed something on.
    pub(crate) fn put_from_scripts(&mut self, bytes: &[u8], is_over: bool, is_full: bool) {
        let (Path::Filtered(coding), Some(filters)) = (self.path, &mut self.filters) else { return };
        if let Some(waiting) = &mut filters.scripts {
            waiting.is_full = is_full;
        }
        filters.behind_scripts(bytes);
        if is_over {
            filters.scripts = None;
            filters.end();
        }
        filters.give(coding, &mut self.staged);
        if is_over {
            self.framing = Framing::Done;
            coding.finish(&mut self.trailers, &mut self.staged);
        }
    }
}
