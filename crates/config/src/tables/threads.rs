//! The `global` keywords for threads and CPUs (manual, chapter 3.1 and 3.2), stored as [`runtime::placement::Wishes`], from which
//! the workers are placed.

use diag::Diagnostic;
use plan::bind::Shards;
use runtime::placement::{
    Affinity, CpuMap, CpuRule, CpuSelector, GroupSettings, MAX_GROUP_SIZE, MAX_GROUPS, NumberSet, Policy,
    ThreadSet,
};
use runtime::topology::{Cpus, MAX_CPU, parse_list};
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global};
use crate::draft::row::Outcome;
use crate::draft::settings::GlobalSettings;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //     name                     arguments                            description                                                      setting
    global("busy-polling",          "",                                  "polls without sleeping: lower latency, more CPU usage",         |g, a| { g.plan.wishes.busy_polling = !a.negated(); a.finish() }).negatable(),
    global("nbthread",              "<number>",                          "number of threads; one per CPU core by default",                nbthread),
    global("thread-groups",         "<number>",                          "number of thread groups",                                       |g, a| some(&mut g.plan.wishes.groups, a, MAX_GROUPS)),
    global("thread-group",          "<group> [<range>...] [busy-polling]", "threads of a group; Weir extension: whether they poll without sleeping", thread_group),
    global("max-threads-per-group", "<number>",                          "maximum number of threads per group",                           |g, a| { g.plan.wishes.max_per_group = a.integer("an integer", 1, MAX_GROUP_SIZE)?; a.finish() }),
    global("thread-hard-limit",     "<number>",                          "upper bound of the number of threads",                          |g, a| some(&mut g.plan.wishes.hard_limit, a, 4096)),
    global("cpu-map",               "[auto:]<group>[/<threads>] <cpu>...", "binds threads to CPUs",                                       cpu_map),
    global("cpu-set",               "{ reset | drop-<part> <set> | only-<part> <set> }...", "CPUs that may be used",                      cpu_set),
    global("cpu-policy",            "<policy> [threads-per-core { 1 | auto }]", "how CPUs are assigned to thread groups",                 cpu_policy),
    global("cpu-affinity",          "{ auto | per-core | per-group [auto | loose] | per-thread | per-ccx }", "CPUs that each thread is bound to", cpu_affinity),
    global("tune.listener.default-shards", "{ by-process | by-thread | by-group }", "number of sockets of a bind line without `shards`",  default_shards),
];

fn some(value: &mut Option<usize>, args: &mut Args<'_, '_>, high: usize) -> Outcome {
    *value = Some(args.integer("an integer", 1, high)?);
    args.finish()
}

fn nbthread<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.take("default") {
        global.plan.wishes.threads = None;
        return args.finish();
    }
    some(&mut global.plan.wishes.threads, args, MAX_GROUPS * MAX_GROUP_SIZE)
}

fn thread_group<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let number = args.integer("a group number", 1, MAX_GROUPS)?;
    let mut settings = GroupSettings::default();
    while let Some(word) = args.next() {
        if word == "busy-polling" {
            settings.busy_polling = true;
            continue;
        }
        let (first, last) = match NumberSet::parse(word) {
            Ok(NumberSet::Range(first, last)) if last < usize::MAX => (first, last),
            _ => {
                return Err(Diagnostic::alert(format!("invalid range of threads `{word}`"))
                    .at(word.span())
                    .help("use a number or a range such as `1-16`; threads are numbered from 1 across the process"));
            }
        };
        settings.threads = Some(match settings.threads {
            None => (first, last),
            Some((start, end)) if first == end + 1 => (start, last),
            Some(_) => {
                return Err(Diagnostic::alert("the threads of a group must be contiguous")
                    .at(word.span())
                    .help("use one range per group"));
            }
        });
    }
    if let Some((first, last)) = settings.threads {
        if last - first >= MAX_GROUP_SIZE {
            return Err(Diagnostic::alert(format!(
                "`thread-group {number}` has {} threads, the maximum is {MAX_GROUP_SIZE}",
                last - first + 1
            ))
            .at(args.statement.keyword_span()));
        }
        take_threads(global, args, number, (first, last));
    }
    global.plan.wishes.group_settings.insert(number, settings);
    Ok(())
}

/// Assigns a thread to a group. A thread belongs to the group that named it last. The remaining threads of another group must still
/// be contiguous, which is checked when workers are placed.
fn take_threads(
    global: &mut GlobalSettings<'_>,
    args: &mut Args<'_, '_>,
    number: usize,
    taken: (usize, usize),
) {
    for (other, settings) in
        global.plan.wishes.group_settings.iter_mut().filter(|(other, _)| **other != number)
    {
        let Some((first, last)) = settings.threads else { continue };
        let left = match taken {
            (from, to) if from > last || to < first => continue,
            (from, to) if from > first && to >= last => (first, from - 1),
            (from, to) if from <= first && to < last => (to + 1, last),
            _ => continue,
        };
        settings.threads = Some(left);
        args.warn(format!(
            "`thread-group {number}` reuses threads of `thread-group {other}`, which keeps threads {} to {}",
            left.0, left.1
        ));
    }
}

fn set(word: &Word, text: &str) -> Result<NumberSet, Diagnostic> {
    NumberSet::parse(text).map_err(|message| Diagnostic::alert(message).at(word.span()))
}

/// Parses `all`, `1-4`, `1/odd` or `2/1-4` for `thread` of a bind line: a set without a group counts threads of the whole process.
pub fn thread_set(word: &Word, text: &str) -> Result<ThreadSet, Diagnostic> {
    match text.split_once('/') {
        Some((group, threads)) => {
            if group.parse::<usize>().is_err() {
                return Err(Diagnostic::alert(format!("invalid thread group `{group}`"))
                    .at(word.span())
                    .help("use one number before the slash: `2/1-4` means threads 1 to 4 of group 2"));
            }
            Ok(ThreadSet { groups: Some(set(word, group)?), threads: set(word, threads)? })
        }
        None => Ok(ThreadSet { groups: None, threads: set(word, text)? }),
    }
}

fn cpu_map<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("threads, as `[auto:]<group>[/<threads>]`")?;
    let (auto, text) = match word.strip_prefix("auto:") {
        Some(rest) => (true, rest),
        None => (false, word.as_str()),
    };
    // On this line, a set without threads is a set of groups.
    let (groups, threads) = text.split_once('/').unwrap_or((text, "all"));
    let groups = within(word, groups, set(word, groups)?, "groups", MAX_GROUPS)?;
    let threads = within(word, threads, set(word, threads)?, "threads of a group", MAX_GROUP_SIZE)?;
    let threads = ThreadSet { groups: Some(groups), threads };
    let cpus = cpus(args)?;
    let map = CpuMap { auto, threads, cpus };
    map.check().map_err(|message| Diagnostic::alert(message).at(word.span()))?;
    global.plan.wishes.maps.push(map);
    Ok(())
}

/// Refuses numbers above `most`.
fn within(word: &Word, text: &str, set: NumberSet, what: &str, most: usize) -> Result<NumberSet, Diagnostic> {
    match set {
        NumberSet::Range(first, last) if first > most || (last > most && last != usize::MAX) => {
            Err(Diagnostic::alert(format!("`{text}` is out of range: {what} are numbered from 1 to {most}"))
                .at(word.span())
                .haproxy(format!(
                    "cpu-map : '{text}' is not a valid number/range. It supports numbers from 1 to {most}."
                )))
        }
        set => Ok(set),
    }
}

/// Parses the rest of the line as CPUs: numbers and ranges, separated by commas and blanks.
fn cpus(args: &mut Args<'_, '_>) -> Result<Cpus, Diagnostic> {
    let mut all = Cpus::new();
    let first = args.required("a set of CPUs, such as `0-3`")?;
    for word in std::iter::once(first).chain(args.rest()) {
        all.extend(numbers(word, "cpu-map :", MAX_CPU)?);
    }
    Ok(all)
}

/// The end of an open range of CPUs, higher than in any machine.
const LAST: usize = 63;

/// Parses comma-separated numbers and ranges, none above `most`. A trailing comma is allowed.
fn numbers(word: &Word, who: &str, most: usize) -> Result<Cpus, Diagnostic> {
    let mut all = Cpus::new();
    for part in word.strip_suffix(',').unwrap_or(word).split(',') {
        let open = part.strip_suffix('-').map(|first| format!("{first}-{LAST}"));
        let found = parse_list(open.as_deref().unwrap_or(part));
        if found.is_empty() {
            return Err(Diagnostic::alert(format!("invalid set of CPUs `{part}`"))
                .at(word.span())
                .help("use a number or a range such as `0-3`; CPUs are numbered from 0"));
        }
        if let Some(beyond) = found.last().filter(|last| **last > most) {
            return Err(Diagnostic::alert(format!(
                "CPU {beyond} is out of range: CPUs are numbered from 0 to {most}"
            ))
            .at(word.span())
            .haproxy(format!("{who} supports CPU numbers from 0 to {most}.")));
        }
        all.extend(found);
    }
    Ok(all)
}

const PARTS: &[(&str, CpuSelector)] = &[
    ("cpu", CpuSelector::Cpu),
    ("node", CpuSelector::Node),
    ("cluster", CpuSelector::Cluster),
    ("core", CpuSelector::Core),
    ("thread", CpuSelector::Thread),
];

fn cpu_set<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let mut word = args.required("a directive")?;
    loop {
        let parts = || word.strip_prefix("only-").map(|part| (true, part));
        let split = parts().or_else(|| word.strip_prefix("drop-").map(|part| (false, part)));
        let rule = split.and_then(|(only, part)| {
            PARTS.iter().find(|(name, _)| *name == part).map(|(_, part)| (only, *part))
        });
        match rule {
            None if word == "reset" => global.plan.wishes.reset = true,
            None => {
                let names =
                    PARTS.iter().flat_map(|(name, _)| [format!("drop-{name}"), format!("only-{name}")]);
                let names: Vec<String> = names.chain(["reset".to_owned()]).collect();
                return Err(Diagnostic::alert(format!("unknown argument `{word}` for `cpu-set`"))
                    .at(word.span())
                    .did_you_mean(diag::suggest(word, names.iter().map(String::as_str)))
                    .help(format!("one of: {}", names.join(", "))));
            }
            Some((only, part)) => {
                let most = if part == CpuSelector::Cpu { MAX_CPU } else { usize::MAX };
                let who = format!("'cpu-set {word}':");
                let numbers = numbers(args.required("a set of numbers, such as `0-3`")?, &who, most)?;
                global.plan.wishes.rules.push(CpuRule { only, part, numbers });
            }
        }
        match args.next() {
            Some(next) => word = next,
            None => return Ok(()),
        }
    }
}

fn cpu_policy<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.wishes.policy = args.one_of(&[
        ("none", Policy::None),
        ("efficiency", Policy::Efficiency),
        ("first-usable-node", Policy::FirstUsableNode),
        ("group-by-ccx", Policy::Ccx(1)),
        ("group-by-2-ccx", Policy::Ccx(2)),
        ("group-by-3-ccx", Policy::Ccx(3)),
        ("group-by-4-ccx", Policy::Ccx(4)),
        ("group-by-cluster", Policy::Cluster(1)),
        ("group-by-2-clusters", Policy::Cluster(2)),
        ("group-by-3-clusters", Policy::Cluster(3)),
        ("group-by-4-clusters", Policy::Cluster(4)),
        ("performance", Policy::Performance),
        ("resource", Policy::Resource),
    ])?;
    if args.take("threads-per-core") {
        global.plan.wishes.one_per_core = args.one_of(&[("1", true), ("auto", false)])?;
    }
    args.finish()
}

fn cpu_affinity<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let affinity = args.one_of(&[
        ("auto", None),
        ("per-core", Some(Affinity::Core)),
        ("per-group", Some(Affinity::Group { loose: false })),
        ("per-thread", Some(Affinity::Thread)),
        ("per-ccx", Some(Affinity::Ccx)),
    ])?;
    global.plan.wishes.affinity = affinity;
    if matches!(affinity, Some(Affinity::Group { .. })) && args.peek().is_some() {
        let loose = args.one_of(&[("auto", false), ("loose", true)])?;
        global.plan.wishes.affinity = Some(Affinity::Group { loose });
    }
    args.finish()
}

fn default_shards<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.tune.default_shards = args.one_of(&[
        ("by-process", Shards::Count(1)),
        ("by-thread", Shards::ByThread),
        ("by-group", Shards::ByGroup),
    ])?;
    args.finish()
}
