//! Memory and time profiles: `show pools`, `set profiling`, `show profiling` (management manual, 9.3). The pools shown are those
//! of the workers. Only the turns of tasks for requests, streams and checks are timed; locks and memory are not profiled.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

use base::units::four_digits;
use runtime::pools::{self, Pool};
use runtime::profile::{self, Profile};

use crate::commands::streams::on_every_worker;
use crate::invocation::{Call, CommandReply, error};

/// The order of pools in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolOrder {
    None,
    Name,
    Size,
    Usage,
}

/// The options of `show pools`.
#[derive(Debug)]
struct PoolsQuery {
    order: PoolOrder,
    prefix: String,
    most: usize,
    detailed: bool,
}

fn pools_wanted(call: &Call<'_>) -> Option<PoolsQuery> {
    let mut wanted =
        PoolsQuery { order: PoolOrder::None, prefix: String::new(), most: usize::MAX, detailed: false };
    let mut words = call.args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "byname" => wanted.order = PoolOrder::Name,
            "bysize" => wanted.order = PoolOrder::Size,
            "byusage" => wanted.order = PoolOrder::Usage,
            "detailed" => wanted.detailed = true,
            "match" => wanted.prefix.clone_from(words.next().filter(|prefix| !prefix.is_empty())?),
            number => wanted.most = number.parse().ok().filter(|most| *most > 0)?,
        }
    }
    Some(wanted)
}

pub(crate) fn show_pools(call: &mut Call<'_>) -> CommandReply {
    let Some(wanted) = pools_wanted(call) else {
        return error(
            "Expects either 'byname', 'bysize', 'byusage', 'match <pfx>', 'detailed', or a max number of output lines.",
        );
    };
    let pipes = (call.runtime.statistics.pipes)();
    CommandReply::Later(Box::pin(async move {
        let mut workers = on_every_worker(pools::list).await;
        if pipes[0] > 0 {
            let of_all = Pool { name: "pipe", size: 8, allocated: pipes[1] + pipes[2], free: pipes[2] };
            workers.push(vec![of_all]);
        }
        CommandReply::Text(pools_text(&workers, &wanted))
    }))
}

/// The pools of all workers added up, in the order of their first occurrence.
fn summed(workers: &[Vec<Pool>]) -> Vec<Pool> {
    let mut all: Vec<Pool> = Vec::new();
    for pool in workers.iter().flatten() {
        match all.iter_mut().find(|own| own.name == pool.name) {
            Some(own) => {
                own.allocated += pool.allocated;
                own.free += pool.free;
            }
            None => all.push(*pool),
        }
    }
    all
}

fn pools_text(workers: &[Vec<Pool>], wanted: &PoolsQuery) -> String {
    let mut all = summed(workers);
    all.retain(|pool| pool.name.starts_with(&wanted.prefix));
    match wanted.order {
        PoolOrder::None => {}
        PoolOrder::Name => all.sort_by_key(|pool| pool.name),
        PoolOrder::Size => all.sort_by_key(|pool| std::cmp::Reverse(pool.size)),
        PoolOrder::Usage => {
            all.retain(|pool| pool.allocated > 0);
            all.sort_by_key(|pool| std::cmp::Reverse(pool.allocated * pool.size));
        }
    }
    let limit = match wanted.most {
        usize::MAX => String::new(),
        most => format!(" (limited to the first {most} entries)"),
    };
    let mut out = format!("Dumping pools usage{limit}. Use SIGQUIT to flush them.\n");
    for pool in all.iter().take(wanted.most) {
        let Pool { name, size, allocated, free } = *pool;
        // As in HAProxy, buffers cached by a worker count as used.
        let _ = writeln!(
            out,
            "  - Pool {name} ({size} bytes) : {allocated} allocated ({} bytes), {allocated} used (~{free} by thread caches), \
             needed_avg {}, 0 failures, 1 users",
            allocated * size,
            allocated - free.min(allocated),
        );
        if wanted.detailed {
            for (index, own) in workers.iter().enumerate() {
                for pool in own.iter().filter(|own| own.name == name) {
                    let _ = writeln!(
                        out,
                        "      >  thread {} : {} allocated, {} kept",
                        index + 1,
                        pool.allocated,
                        pool.free
                    );
                }
            }
        }
    }
    let bytes: usize = all.iter().map(|pool| pool.allocated * pool.size).sum();
    let kept: usize = all.iter().map(|pool| pool.free * pool.size).sum();
    let _ = writeln!(
        out,
        "Total: {} pools, {bytes} bytes allocated, {bytes} used (~{kept} by thread caches).",
        all.len()
    );
    out
}

pub(crate) fn set_profiling(call: &mut Call<'_>) -> CommandReply {
    match call.arg(0) {
        "memory" => error("Memory profiling not compiled in."),
        "tasks" => set_tasks(&call.args[1..]),
        _ => error("Expects either 'tasks' or 'memory'."),
    }
}

fn set_tasks(words: &[String]) -> CommandReply {
    const EXPECTED: &str =
        "Expects a combination of either 'on', 'auto', 'off', 'lock', 'no-lock', 'memory' or 'no-memory'.";
    let mut on = None;
    if words.is_empty() {
        return error(EXPECTED);
    }
    for word in words {
        match word.as_str() {
            "on" => on = Some(true),
            "off" => on = Some(false),
            "no-lock" | "no-memory" => {}
            "auto" => return error("'auto' is not supported: use 'on' or 'off'."),
            "lock" | "memory" => {
                return error(format!("'{word}' is not supported."));
            }
            _ => return error(EXPECTED),
        }
    }
    if let Some(on) = on {
        profile::switch(on);
    }
    CommandReply::Done
}

pub(crate) fn show_profiling(call: &mut Call<'_>) -> CommandReply {
    let (mut status, mut tasks, mut most, mut by_time) = (true, true, usize::MAX, false);
    for word in call.args {
        match word.as_str() {
            "all" => (status, tasks) = (true, true),
            "status" => (status, tasks) = (true, false),
            "tasks" => (status, tasks) = (false, true),
            "memory" => (status, tasks) = (false, false),
            "bytime" => by_time = true,
            // There are no addresses or contexts, and kinds of tasks are already aggregated.
            "byaddr" | "byctx" | "aggr" => {}
            number => match number.parse() {
                Ok(number) if number > 0 => most = number,
                _ => {
                    return error(
                        "Expects either 'all', 'status', 'tasks', 'memory', 'byaddr', 'bytime', 'byctx', 'aggr' or a max number of output lines.",
                    );
                }
            },
        }
    }
    CommandReply::Later(Box::pin(async move {
        let mut out = String::new();
        if status {
            let on = if profile::is_on() { "on" } else { "off" };
            let _ =
                writeln!(out, "{:<36}: {on:<14}# set profiling tasks {{on|off}}", "Per-task CPU profiling");
            let _ = writeln!(out, "{:<36}: {:<14}# not measured here", "Memory usage profiling", "off");
        }
        if tasks {
            write_tasks(on_every_worker(profile::list).await, by_time, most, &mut out);
        }
        CommandReply::Text(out)
    }))
}

fn write_tasks(workers: Vec<Vec<Profile>>, by_time: bool, most: usize, out: &mut String) {
    let (since, until) = profile::period();
    let now = Instant::now();
    let end = until.unwrap_or(now);
    let lasted = since.map_or(0.0, |since| end.duration_since(since).as_secs_f64());
    let ago = now.duration_since(end).as_secs_f64();
    let _ = writeln!(out, "Tasks activity over {lasted:.3} sec till {ago:.3} sec ago:");
    let _ = writeln!(
        out,
        "  {:<24}{:>11}   cpu_tot   cpu_avg   lkw_avg   lkd_avg   mem_avg   lat_avg",
        "function", "calls"
    );
    let mut all: BTreeMap<&str, Profile> = BTreeMap::new();
    for own in workers.into_iter().flatten() {
        let sum = all.entry(own.name).or_insert(Profile { calls: 0, ns: 0, waited_ns: 0, ..own });
        sum.calls += own.calls;
        sum.ns += own.ns;
        sum.waited_ns += own.waited_ns;
    }
    let mut all: Vec<Profile> = all.into_values().collect();
    all.sort_by_key(|own| std::cmp::Reverse(if by_time { own.ns } else { own.calls }));
    for own in all.iter().take(most) {
        let calls = own.calls.max(1);
        let [total, mean, waited] = [own.ns, own.ns / calls, own.waited_ns / calls].map(short_time);
        let _ = writeln!(
            out,
            "  {:<24}{:>11}{total:>10}{mean:>10}      -         -         -   {waited:>10}",
            own.name, own.calls
        );
    }
}

/// Formats a time with four digits and a unit: `871.0ns`, `1.176us`, `20.21ms`.
fn short_time(ns: u64) -> String {
    let (number, prefix) = four_digits(ns);
    format!("{number}{prefix}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_four_digits_and_a_unit() {
        let cases = [
            (0, "0.000ns"),
            (871, "871.0ns"),
            (1_176, "1.176us"),
            (20_210, "20.21us"),
            (2_020_000_000, "2.020s"),
        ];
        for (ns, text) in cases {
            assert_eq!(short_time(ns), text);
        }
    }

    #[test]
    fn pools_are_summed_sorted_matched_and_cut() {
        let pool = |name, size, allocated, free| Pool { name, size, allocated, free };
        let workers = [
            vec![pool("buffer", 16, 3, 1), pool("pipe", 8, 0, 0)],
            vec![pool("buffer", 16, 1, 1), pool("exchange", 100, 1, 0)],
        ];
        let text = |order, prefix: &str, most| {
            let wanted = PoolsQuery { order, prefix: prefix.to_owned(), most, detailed: false };
            pools_text(&workers, &wanted)
        };
        assert_eq!(
            text(PoolOrder::Usage, "", 1),
            "Dumping pools usage (limited to the first 1 entries). Use SIGQUIT to flush them.\n  \
             - Pool exchange (100 bytes) : 1 allocated (100 bytes), 1 used (~0 by thread caches), needed_avg 1, 0 failures, 1 users\n\
             Total: 2 pools, 164 bytes allocated, 164 used (~32 by thread caches).\n"
        );
        let names = |text: String| -> Vec<String> {
            text.lines()
                .filter_map(|line| Some(line.strip_prefix("  - Pool ")?.split(' ').next()?.to_owned()))
                .collect()
        };
        assert_eq!(names(text(PoolOrder::None, "", 9)), ["buffer", "pipe", "exchange"]);
        assert_eq!(names(text(PoolOrder::Name, "", 9)), ["buffer", "exchange", "pipe"]);
        assert_eq!(names(text(PoolOrder::Size, "", 2)), ["exchange", "buffer"]);
        assert_eq!(names(text(PoolOrder::None, "pi", 9)), ["pipe"]);
    }
}
