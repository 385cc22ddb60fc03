//! `traces` sections (configuration manual, 12.1) put into effect: at the start, and by a reload in
//! place where their lines have changed.

use plan::Plan;

/// Begins with the traces that the configuration wants.
///
/// # Errors
/// One has nowhere to go.
pub(crate) fn begin(plan: &Plan) -> Result<(), String> {
    let sinks = control::sinks::Sinks::new(&plan.rings);
    plan.traces.iter().try_for_each(|command| command.apply(&sinks).map(drop))
}

/// The same where `old` wanted others.
///
/// # Errors
/// One has nowhere to go.
pub(crate) fn change(old: &Plan, new: &Plan) -> Result<(), String> {
    if lines(old) == lines(new) { Ok(()) } else { begin(new) }
}

fn lines(plan: &Plan) -> Vec<&str> {
    let sections = plan.said.iter().filter(|section| &*section.kind == "traces");
    sections.flat_map(|section| &section.lines).map(|line| &*line.text).collect()
}
