//! The `global` sections, and the placement of the workers, on which everything created later depends.

use base::keyword_support::Support;
use diag::{Diagnostic, Diagnostics};
use plan::Bind;
use runtime::placement::Placement;
use runtime::{shard, topology};

use crate::draft::args::Args;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::settings::GlobalSettings;
use crate::draft::{Draft, SectionKind, Statement};
use crate::resolve::ResolveContext;
use crate::resolve::lines::warn_ineffective;

/// Reads all `global` sections and decides how many workers run, so that counters can be made for each.
pub(crate) fn read<'a>(draft: &'a Draft, context: &mut ResolveContext<'a>) -> GlobalSettings<'a> {
    let mut global = GlobalSettings::default();
    let plan = &mut global.plan;
    if let Some(around) = context.around {
        *plan = around.global();
    }
    plan.stats_timeout = std::time::Duration::from_secs(10);
    plan.stats_maxconn = 10;
    plan.stats_history = true;
    plan.strict_limits = true;
    let mut seen = Vec::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Global) {
        for statement in &section.statements {
            if is_repeated(statement, &mut seen, context.diagnostics) {
                continue;
            }
            match apply_of(statement) {
                Apply::Global(apply) => {
                    let mut args = Args::new(statement, context.diagnostics, context.environment);
                    let outcome = apply(&mut global, &mut args);
                    context.note(outcome);
                    if let Support::None(reason) = statement.keyword.support {
                        warn_ineffective(statement, reason, context.diagnostics);
                    }
                }
                Apply::Ineffective(reason) => warn_ineffective(statement, reason, context.diagnostics),
                _ => {}
            }
        }
        context.tls_steps.push((section.keyword.span(), global.tls.clone()));
    }
    // The manual's limit, whichever of the two was set last.
    let tune = &mut global.plan.tune;
    tune.maxrewrite = tune.maxrewrite.min(tune.bufsize / 2);
    global.plan.insecure_fork_wanted |= context.setting.insecure_fork;
    if let (Some(set), Some(priority)) = (context.setting.set_priority, global.plan.tune.renice_startup)
        && let Err(error) = set(priority)
    {
        let text = format!("cannot set the priority {priority} of `tune.renice.startup`: {error}");
        context.diagnostics.push(Diagnostic::warning(text));
    }
    global.plan.unix_bind = global.unix_bind.clone();
    context.names.experimental = global.experimental;
    context.names.default_path = global.plan.default_path.clone();
    context.names.stick_counters = global.plan.tune.stick_counters;
    // The rest is process-wide and was decided by the plan in use.
    if let Some(around) = context.around {
        context.placement = around.placement().clone();
        global.plan.placement = context.placement.clone();
    } else {
        sample::limits::limit(global.plan.tune.vars_max);
        let (algorithms, encryptions) = sample::convert::jwe::DEFAULT_ALLOWED;
        let [own_algorithms, own_encryptions] = global.allowed_jwt;
        sample::convert::jwe::allow(
            own_algorithms.unwrap_or(algorithms),
            own_encryptions.unwrap_or(encryptions),
        );
        place_workers(&mut global, context);
    }
    global
}

/// Whether an earlier `global` line takes precedence over this one, which is reported as a warning. As in HAProxy, the arguments of
/// this line are then not parsed.
fn is_repeated(statement: &Statement, seen: &mut Vec<&'static str>, diagnostics: &mut Diagnostics) -> bool {
    let Some(name) = statement.keyword.once else { return false };
    if !seen.contains(&name) {
        seen.push(name);
        return false;
    }
    let shown = if name == statement.keyword.name { format!("'{name}'") } else { name.to_owned() };
    diagnostics.push(
        Diagnostic::warning(format!("`{name}` is already set: the first line is used"))
            .tolerated()
            .at(statement.keyword_span())
            .haproxy(format!("{shown} already specified. Continuing.")),
    );
    true
}

/// Decides how many workers run and where. Objects created after this have a copy of their counters for each worker.
fn place_workers(global: &mut GlobalSettings<'_>, context: &mut ResolveContext<'_>) {
    match Placement::new(topology::machine(), &topology::allowed(), &global.plan.wishes) {
        Ok((placement, warnings)) => {
            context.placement = placement.clone();
            global.plan.placement = placement;
            for warning in warnings {
                context.diagnostics.push(Diagnostic::warning(warning));
            }
        }
        Err(message) => context.diagnostics.push(Diagnostic::alert(message)),
    }
    shard::set_workers(global.plan.workers());
    shard::set_groups(global.plan.placement.groups.len());
}

/// The environment of the process after reading: the variables set by the configuration, and `HAPROXY_CLI` with the addresses of
/// the runtime sockets (manual, section 2.3).
pub(crate) fn environment(draft: &Draft, sockets: &[Bind]) -> Vec<(String, String)> {
    let variables = draft.environment.iter().filter(|(name, _)| *name != RUNTIME_SOCKETS);
    let mut environment: Vec<(String, String)> =
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if !sockets.is_empty() {
        let addresses: Vec<String> = sockets.iter().map(|socket| socket.address.to_string()).collect();
        environment.push((RUNTIME_SOCKETS.to_owned(), addresses.join(";")));
        environment.sort();
    }
    environment
}

/// The variable with the runtime sockets' addresses.
const RUNTIME_SOCKETS: &str = "HAPROXY_CLI";
