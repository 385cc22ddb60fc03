//! `traces` sections (manual, section 12.1): their lines are commands of the runtime socket, parsed here and executed when the
//! process starts.

use diag::Diagnostic;
use runtime::trace::command::TraceCommand;

use crate::draft::{Draft, SectionKind, Statement};
use crate::resolve::ResolveContext;

/// Parses the lines of all sections, in order.
pub(crate) fn read(draft: &Draft, context: &mut ResolveContext<'_>) -> Vec<TraceCommand> {
    let mut commands = Vec::new();
    if context.around.is_some() {
        return commands;
    }
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Traces) {
        for statement in &section.statements {
            match line(statement, context) {
                Ok(command) => {
                    warn_of_lists(statement, &command, context);
                    commands.push(command);
                }
                Err(error) => context.diagnostics.push(error),
            }
        }
    }
    commands
}

fn line(statement: &Statement, context: &ResolveContext<'_>) -> Result<TraceCommand, Diagnostic> {
    let words = statement.arguments();
    let Some(first) = words.first() else {
        return Err(Diagnostic::alert("`trace` expects a source")
            .at(statement.end())
            .help("use `trace` on the runtime socket to list the sources")
            .haproxy("'trace' expects a trace source and a sub-command."));
    };
    let has_sink = |name: &str| matches!(name, "stdout" | "stderr") || context.log.rings.contains_key(name);
    TraceCommand::read(words.iter().map(|word| word.as_str()), has_sink).map_err(|error| {
        let mut lines = error.lines();
        let message = lines.next().unwrap_or_default();
        let wrong = words.iter().rev().find(|word| message.contains(&format!("'{word}'")));
        let known: Vec<&str> = lines.filter_map(|line| line.get(4..)?.split(' ').next()).collect();
        let diagnostic = Diagnostic::alert(message.trim().to_owned())
            .at(wrong.unwrap_or(first).span())
            .haproxy(format!("'trace' : {}", message.trim()));
        match known.is_empty() {
            true => diagnostic.help("use `trace <source>` on the runtime socket to list the options"),
            false => diagnostic.help(format!("one of: {}", known.join(", "))),
        }
    })
}

/// Warns about commands that only list something: there is no client for the output.
fn warn_of_lists(statement: &Statement, command: &TraceCommand, context: &mut ResolveContext<'_>) {
    if command.only_lists() {
        context.diagnostics.push(
            Diagnostic::warning("an option on this line has no value: the line enables no trace")
                .at(statement.span)
                .help("on the runtime socket, it lists the possible values"),
        );
    }
}
