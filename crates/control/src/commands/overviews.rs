//! Commands answered by `statistics`: the tables of name servers, caches, mirrors, collectors, sources of servers and policies, and the statistics file.

use statistics::{ConfigView, discovery, disks, mirrors, policies, resolvers, stats_file, telemetry};

use crate::invocation::{Call, CommandReply, error};

/// Responds with the table of everything, or of the object named by the first argument.
fn table(call: &Call<'_>, show: fn(&ConfigView, &str) -> Result<String, String>) -> CommandReply {
    match show(&call.runtime.view(), call.arg(0)) {
        Ok(text) => CommandReply::Text(text),
        Err(text) => error(text),
    }
}

pub(crate) fn resolvers(call: &mut Call<'_>) -> CommandReply {
    table(call, resolvers::show)
}

pub(crate) fn cache_disk(call: &mut Call<'_>) -> CommandReply {
    table(call, disks::show)
}

/// `show discovery`: shows the sources. With a name, also shows their instances; with `json`, shows all lists in the form for
/// another process.
pub(crate) fn discovery(call: &mut Call<'_>) -> CommandReply {
    match call.arg(0) {
        "json" => CommandReply::Text(discovery::json(&call.runtime.view())),
        _ => table(call, discovery::show),
    }
}

/// `refresh discovery`: lists in files and behind URLs are read without waiting for their interval.
pub(crate) fn refresh_discovery(call: &mut Call<'_>) -> CommandReply {
    let (view, name) = (call.runtime.view(), call.arg(0));
    let mut sources =
        view.discovery.iter().filter(|source| name.is_empty() || *source.name == *name).peekable();
    if sources.peek().is_none() && !name.is_empty() {
        return error(format!("No discovery section '{name}'."));
    }
    sources.flat_map(|source| source.feeds()).for_each(|feed| feed.refresh());
    CommandReply::Text(String::new())
}

pub(crate) fn opentelemetry(call: &mut Call<'_>) -> CommandReply {
    table(call, telemetry::show)
}

pub(crate) fn mirror(call: &mut Call<'_>) -> CommandReply {
    table(call, mirrors::show)
}

pub(crate) fn outliers(call: &mut Call<'_>) -> CommandReply {
    table(call, policies::show_outliers)
}

pub(crate) fn retry_budget(call: &mut Call<'_>) -> CommandReply {
    table(call, policies::show_retry_budget)
}

pub(crate) fn hedge(call: &mut Call<'_>) -> CommandReply {
    table(call, policies::show_hedge)
}

/// `explain`: what would happen to a request.
pub(crate) fn explain(call: &mut Call<'_>) -> CommandReply {
    let Some(keeper) = call.runtime.keeper() else { return error("This command is not available here.") };
    match keeper.explain(call.args) {
        Ok(text) => CommandReply::Text(text),
        Err(text) => error(text),
    }
}

pub(crate) fn stats_file(call: &mut Call<'_>) -> CommandReply {
    call.runtime.statistics.refresh_counters();
    CommandReply::Text(stats_file::text(&call.runtime.view()))
}
