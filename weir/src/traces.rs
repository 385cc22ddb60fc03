//! Applies `traces` sections (configuration manual, 12.1) at startup, and at an in-place reload if their lines have changed. Also
//! applies `-dt` (management manual, chapter 3).

use plan::Plan;
use runtime::trace::TraceSource;
use runtime::trace::command::TraceCommand;

use crate::args::CommandLineArgs;

/// Starts the configured traces.
///
/// # Errors
/// A trace has no valid destination.
pub(crate) fn begin(plan: &Plan, args: &CommandLineArgs) -> Result<(), String> {
    of_command_line(args)?.iter().try_for_each(|command| apply(plan, command))?;
    plan.traces.iter().try_for_each(|command| apply(plan, command))
}

fn apply(plan: &Plan, command: &TraceCommand) -> Result<(), String> {
    command.apply(&control::sinks::Sinks::new(&plan.rings)).map(drop)
}

/// Returns the commands for the traces of `-dt`. These are written to standard error from the start.
///
/// # Errors
/// A message for the operator (HAProxy's if it has one): an unknown source, level or verbosity.
pub(crate) fn of_command_line(args: &CommandLineArgs) -> Result<Vec<TraceCommand>, String> {
    let Some(traces) = &args.traces else { return Ok(Vec::new()) };
    let mut commands = Vec::new();
    for trace in traces.split(',') {
        let mut fields = trace.split(':');
        let mut field = || fields.next().filter(|field| !field.is_empty());
        let (name, level, verbosity) = (field().unwrap_or("all"), field().unwrap_or("error"), field());
        let sources: Vec<TraceSource> =
            TraceSource::ALL.into_iter().filter(|source| name == "all" || source.name() == name).collect();
        if sources.is_empty() {
            return Err(format!("-dt: unknown trace source '{name}'."));
        }
        if name == "all" && verbosity.is_some_and(|verbosity| verbosity != "quiet") {
            return Err("-dt: trace source must be specified for verbosity other than 'quiet'.".to_owned());
        }
        for source in sources {
            let mut words = vec![source.name(), "sink", "stderr", "level", level];
            words.extend(verbosity.into_iter().flat_map(|verbosity| ["verbosity", verbosity]));
            words.extend(["start", "now"]);
            let command = TraceCommand::read(words, |_| true);
            commands.push(command.map_err(|error| format!("-dt: {}", error.trim_end()))?);
        }
    }
    Ok(commands)
}

/// Applies the traces of `new` if those of `old` differ.
///
/// # Errors
/// A trace has no valid destination.
pub(crate) fn change(old: &Plan, new: &Plan) -> Result<(), String> {
    if lines(old) == lines(new) {
        return Ok(());
    }
    new.traces.iter().try_for_each(|command| apply(new, command))
}

fn lines(plan: &Plan) -> Vec<&str> {
    let sections = plan.source.iter().filter(|section| &*section.kind == "traces");
    sections.flat_map(|section| &section.lines).map(|line| &*line.text).collect()
}
