//! The number of workers, their groups and their CPUs: `nbthread`, `thread-groups`, `cpu-map`, `cpu-set`, `cpu-policy` (manual,
//! chapter 3).
//!
//! Pure: the topology and the permitted CPUs are passed in. Called when the global section is resolved; the binary binds the
//! threads accordingly.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::topology::{Cpu, Cpus, Topology};

/// The maximum number of groups.
pub const MAX_GROUPS: usize = 64;
/// The maximum number of threads per group, limited by thread sets.
pub const MAX_GROUP_SIZE: usize = 64;

/// `cpu-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// All CPUs, no binding.
    None,
    /// Only the first NUMA node.
    FirstUsableNode,
    /// A group per this number of core complexes.
    Ccx(usize),
    /// A group per this number of clusters.
    Cluster(usize),
    /// By core complex, ignoring clearly stronger cores.
    Efficiency,
    /// By core complex, ignoring clearly weaker cores.
    #[default]
    Performance,
    /// Only the smallest and weakest cluster.
    Resource,
}

/// `cpu-affinity`: the CPUs that each thread is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// All CPUs of the thread's group; with `loose`, the CPUs of all groups from the same list of CPUs.
    Group {
        /// See the description of the variant.
        loose: bool,
    },
    /// All hardware threads of one core.
    Core,
    /// One hardware thread.
    Thread,
    /// All CPUs of one core complex.
    Ccx,
}

/// The kind of unit in a `cpu-set` directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CpuSelector {
    Cpu,
    Node,
    Cluster,
    Core,
    Thread,
}

/// A directive of `cpu-set`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuRule {
    /// Whether the named units are kept (`only-…`) or dropped (`drop-…`).
    pub only: bool,
    /// The kind of unit.
    pub part: CpuSelector,
    /// The numbers.
    pub numbers: Cpus,
}

/// `all`, `odd`, `even` or a range, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NumberSet {
    All,
    Odd,
    Even,
    Range(usize, usize),
}

impl NumberSet {
    /// Parses a set.
    ///
    /// # Errors
    /// A description of the expected syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not `all`, `odd`, `even`, a number or a range such as `1-4`");
        let part = |part: &str, missing: usize| {
            if part.is_empty() { Ok(missing) } else { part.parse::<usize>().map_err(|_| wrong()) }
        };
        match text {
            "all" => Ok(Self::All),
            "odd" => Ok(Self::Odd),
            "even" => Ok(Self::Even),
            "" => Err(wrong()),
            _ => {
                let (first, last) = match text.split_once('-') {
                    Some((first, last)) => (part(first, 1)?, part(last, usize::MAX)?),
                    None => (part(text, 1)?, part(text, 1)?),
                };
                if first == 0 || last == 0 {
                    Err(wrong())
                } else {
                    Ok(Self::Range(first.min(last), first.max(last)))
                }
            }
        }
    }

    /// Whether the set contains `n` (from 1).
    pub fn has(self, n: usize) -> bool {
        match self {
            Self::All => true,
            Self::Odd => n % 2 == 1,
            Self::Even => n.is_multiple_of(2),
            Self::Range(first, last) => (first..=last).contains(&n),
        }
    }

    /// The members of the set among the first [`MAX_GROUP_SIZE`] numbers.
    fn members(self) -> impl Iterator<Item = usize> {
        (1..=MAX_GROUP_SIZE).filter(move |n| self.has(*n))
    }
}

/// A set of threads, of a group or of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadSet {
    /// The groups. `None` if the threads are numbered over the whole process.
    pub groups: Option<NumberSet>,
    /// The threads.
    pub threads: NumberSet,
}

/// `cpu-map`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuMap {
    /// Whether each thread gets one CPU, in order.
    pub auto: bool,
    /// The threads.
    pub threads: ThreadSet,
    /// The CPUs.
    pub cpus: Cpus,
}

/// `thread-group`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupSettings {
    /// The threads of the group, numbered from 1 over the process. `None` if the group takes the remaining threads.
    pub threads: Option<(usize, usize)>,
    /// Whether the workers of the group poll without sleeping (a setting that HAProxy does not have).
    pub busy_polling: bool,
}

/// The thread settings of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// `nbthread`.
    pub threads: Option<usize>,
    /// `thread-groups`.
    pub groups: Option<usize>,
    /// `max-threads-per-group`; 0 for 16.
    pub max_per_group: usize,
    /// `thread-hard-limit`.
    pub hard_limit: Option<usize>,
    /// `cpu-policy`.
    pub policy: Policy,
    /// `cpu-policy … threads-per-core 1`.
    pub one_per_core: bool,
    /// `cpu-affinity`, unless `auto`.
    pub affinity: Option<Affinity>,
    /// `cpu-set reset`.
    pub reset: bool,
    /// The other directives of `cpu-set`.
    pub rules: Vec<CpuRule>,
    /// `cpu-map`.
    pub maps: Vec<CpuMap>,
    /// `thread-group`, by number from 1.
    pub group_settings: BTreeMap<usize, GroupSettings>,
    /// `busy-polling`.
    pub busy_polling: bool,
}

/// The placement of the workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The workers of each group, counted from 0.
    pub groups: Vec<Range<usize>>,
    /// The CPUs of each worker. `None` leaves the choice to the system.
    pub cpus: Vec<Option<Cpus>>,
    /// Whether each worker polls without sleeping.
    pub busy_polling: Vec<bool>,
}

impl Default for Placement {
    fn default() -> Self {
        let one = Range { start: 0, end: 1 };
        Self { groups: Vec::from([one]), cpus: vec![None], busy_polling: vec![false] }
    }
}

impl Placement {
    /// Places the workers. `allowed` are the CPUs that the process may use, inherited at its start. Also returns warnings.
    ///
    /// # Errors
    /// The reason why the settings cannot be met.
    pub fn new(topology: &Topology, allowed: &Cpus, wishes: &Wishes) -> Result<(Self, Vec<String>), String> {
        let mut warnings = Vec::new();
        let mut usable = usable(topology, allowed, wishes);
        if usable.is_empty() {
            warnings.push("`cpu-set` excludes all CPUs: it is ignored".to_owned());
            usable =
                topology.cpus.iter().filter(|cpu| allowed.is_empty() || allowed.contains(&cpu.id)).collect();
        }
        let automatic = wishes.threads.is_none()
            && wishes.groups.is_none()
            && wishes.maps.is_empty()
            && wishes.group_settings.values().all(|group| group.threads.is_none())
            && wishes.policy != Policy::None;
        let mut placement = if automatic {
            by_policy(topology, &usable, wishes)
        } else {
            by_number(usable.len(), wishes, &mut warnings)?
        };
        placement.map(wishes);
        warnings.extend(placement.crowding(&usable));
        placement.busy_polling = (0..placement.workers())
            .map(|worker| {
                let group = placement.group_index(worker) + 1;
                wishes.busy_polling || wishes.group_settings.get(&group).is_some_and(|own| own.busy_polling)
            })
            .collect();
        Ok((placement, warnings))
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.cpus.len()
    }

    /// The index of the group of `worker`.
    pub fn group_index(&self, worker: usize) -> usize {
        self.groups.iter().position(|group| group.contains(&worker)).unwrap_or(0)
    }

    /// The workers of the group of `worker`.
    pub fn group_of(&self, worker: usize) -> Range<usize> {
        self.groups.get(self.group_index(worker)).cloned().unwrap_or(0..self.workers())
    }

    /// The workers selected by any of `sets`; all workers if there are no sets.
    pub fn select(&self, sets: &[ThreadSet]) -> Vec<usize> {
        let named = |worker: usize, set: &ThreadSet| match set.groups {
            None => set.threads.has(worker + 1),
            Some(groups) => {
                let group = self.group_index(worker);
                groups.has(group + 1) && set.threads.has(worker - self.groups[group].start + 1)
            }
        };
        (0..self.workers())
            .filter(|worker| sets.is_empty() || sets.iter().any(|set| named(*worker, set)))
            .collect()
    }

    /// A warning if threads must share CPUs, or if only some are bound to CPUs.
    fn crowding(&self, usable: &[&Cpu]) -> Option<String> {
        let threads = self.workers();
        let bound: Vec<&Cpus> = self.cpus.iter().flatten().collect();
        let cpus = match bound.len() {
            0 => usable.len(),
            all if all == threads => {
                bound.into_iter().flatten().collect::<std::collections::BTreeSet<_>>().len()
            }
            some => {
                return Some(format!(
                    "`cpu-map` binds only {some} of {threads} threads: the others may share CPUs with \
                     them, which can be slow; bind all or none"
                ));
            }
        };
        (threads > cpus && cpus > 0).then(|| {
            format!(
                "{threads} threads share {cpus} CPUs, which is slow: lower `nbthread` or change `cpu-map`"
            )
        })
    }

    /// Applies `cpu-map`; later lines override earlier ones.
    fn map(&mut self, wishes: &Wishes) {
        for map in &wishes.maps {
            let chosen = self.select(std::slice::from_ref(&map.threads));
            if !map.auto {
                for worker in chosen {
                    self.cpus[worker] = Some(map.cpus.clone());
                }
                continue;
            }
            for worker in chosen {
                let group = self.group_index(worker);
                let in_group = worker - self.groups[group].start + 1;
                // The range is of threads, or of groups with a fixed thread.
                let place = match map.threads {
                    ThreadSet { groups: Some(groups), threads: NumberSet::Range(first, last) }
                        if first == last =>
                    {
                        match groups.members().count() {
                            1 => 0,
                            _ => groups.members().position(|n| n == group + 1).unwrap_or(0),
                        }
                    }
                    ThreadSet { threads, .. } => {
                        threads.members().position(|n| n == in_group).unwrap_or(usize::MAX)
                    }
                };
                if let Some(cpu) = map.cpus.iter().nth(place) {
                    self.cpus[worker] = Some(Cpus::from([*cpu]));
                }
            }
        }
    }
}

impl CpuMap {
    /// Checks that an automatic map has as many threads, or groups, as CPUs.
    ///
    /// # Errors
    /// The numbers differ; the message contains both.
    pub fn check(&self) -> Result<(), String> {
        if !self.auto {
            return Ok(());
        }
        let groups = self.threads.groups.map_or(1, |groups| groups.members().count());
        let threads = self.threads.threads.members().count();
        let cpus = self.cpus.len();
        if (groups > 1 && groups == cpus) || threads == cpus {
            return Ok(());
        }
        let (count, what) = if groups > 1 { (groups, "groups") } else { (threads, "threads") };
        Err(format!(
            "`auto:` needs as many CPUs as threads or groups, but {count} {what} and {cpus} CPUs are given"
        ))
    }
}

/// The CPUs that remain after `cpu-set` and `threads-per-core`.
fn usable<'a>(topology: &'a Topology, allowed: &Cpus, wishes: &Wishes) -> Vec<&'a Cpu> {
    let part = |cpu: &Cpu, part: CpuSelector| match part {
        CpuSelector::Cpu => cpu.id,
        CpuSelector::Node => cpu.node,
        CpuSelector::Cluster => cpu.cluster,
        CpuSelector::Core => cpu.core,
        CpuSelector::Thread => cpu.thread,
    };
    let stays = |cpu: &&Cpu| {
        (wishes.reset || allowed.is_empty() || allowed.contains(&cpu.id))
            && wishes.rules.iter().all(|rule| rule.numbers.contains(&part(cpu, rule.part)) == rule.only)
    };
    let mut usable: Vec<&Cpu> = topology.cpus.iter().filter(stays).collect();
    if wishes.one_per_core {
        let mut seen = Cpus::new();
        usable.retain(|cpu| seen.insert(cpu.core));
    }
    usable
}

/// Creates as many workers as `nbthread`, by default one per CPU, in groups as configured or according to `max-threads-per-group`.
fn by_number(available: usize, wishes: &Wishes, warnings: &mut Vec<String>) -> Result<Placement, String> {
    let largest = wishes.largest_group();
    let mut threads = wishes.threads.unwrap_or_else(|| match wishes.groups {
        Some(groups) => available.min(groups * MAX_GROUP_SIZE),
        None => available,
    });
    if let Some(limit) = wishes.hard_limit.filter(|limit| threads > *limit) {
        if wishes.threads.is_some() {
            warnings
                .push(format!("`nbthread {threads}` exceeds `thread-hard-limit`: starting {limit} threads"));
        }
        threads = limit;
    }
    let named = wishes.group_settings.keys().max().copied().unwrap_or(0);
    let groups = wishes.groups.unwrap_or_else(|| threads.div_ceil(largest).max(named)).clamp(1, MAX_GROUPS);
    if groups > threads {
        return Err(format!(
            "{groups} thread groups need at least as many threads, but there are only {threads}"
        ));
    }
    if threads > groups * MAX_GROUP_SIZE {
        let room = groups * MAX_GROUP_SIZE;
        warnings.push(format!(
            "{threads} threads do not fit into {groups} groups of at most {MAX_GROUP_SIZE}: starting {room} threads"
        ));
        threads = room;
    }
    if let Some(number) = wishes.group_settings.keys().find(|number| **number > groups) {
        return Err(format!(
            "`thread-group {number}` does not exist: there are {groups} groups; increase `thread-groups`"
        ));
    }
    let ranges = ranges(threads, groups, wishes)?;
    Ok(Placement { groups: ranges, cpus: vec![None; threads], busy_polling: Vec::new() })
}

/// The threads of each group: as configured, or else an equal share of the remaining threads.
fn ranges(threads: usize, groups: usize, wishes: &Wishes) -> Result<Vec<Range<usize>>, String> {
    let own_range = |group: usize| wishes.group_settings.get(&(group + 1)).and_then(|own| own.threads);
    let mut taken = vec![false; threads];
    let mut free_groups = 0;
    for group in 0..groups {
        let Some((first, last)) = own_range(group) else {
            free_groups += 1;
            continue;
        };
        let number = group + 1;
        if last > threads {
            return Err(format!(
                "`thread-group {number}`: thread {last} does not exist, the number of threads is {threads}"
            ));
        }
        for thread in &mut taken[first - 1..last] {
            if std::mem::replace(thread, true) {
                return Err(format!("`thread-group {number}`: a thread already belongs to another group"));
            }
        }
    }
    let mut left = taken.iter().filter(|taken| !**taken).count();
    if free_groups == 0 && left > 0 {
        return Err(format!("{left} threads belong to no `thread-group`"));
    }
    if left < free_groups {
        return Err(format!("{free_groups} thread groups have no threads"));
    }
    let mut next = 0;
    let mut ranges = Vec::with_capacity(groups);
    for group in 0..groups {
        if let Some((first, last)) = own_range(group) {
            ranges.push(first - 1..last);
            continue;
        }
        let share = left.div_ceil(free_groups);
        next += taken[next..].iter().take_while(|taken| **taken).count();
        if taken[next..].iter().take(share).any(|taken| *taken) {
            return Err(
                "the threads left for the other groups are not contiguous: set `thread-group` for all groups"
                    .into(),
            );
        }
        ranges.push(next..next + share);
        next += share;
        left -= share;
        free_groups -= 1;
    }
    Ok(ranges)
}

/// Workers and groups by the structure of the machine.
fn by_policy(topology: &Topology, usable: &[&Cpu], wishes: &Wishes) -> Placement {
    let sets = sets(usable, wishes.policy);
    let affinity = wishes.affinity.unwrap_or(if wishes.one_per_core {
        Affinity::Core
    } else {
        Affinity::Group { loose: false }
    });
    let limit = wishes.hard_limit.unwrap_or(usize::MAX).max(1);
    let mut groups = Vec::new();
    let mut cpus = Vec::new();
    for set in &sets {
        let whole: Cpus = set.iter().map(|cpu| cpu.id).collect();
        let count = set.len().div_ceil(wishes.largest_group());
        for part in 0..count {
            let share = &set[set.len() * part / count..set.len() * (part + 1) / count];
            let own: Cpus = share.iter().map(|cpu| cpu.id).collect();
            let room = limit.saturating_sub(cpus.len()).min(share.len());
            if room == 0 || groups.len() == MAX_GROUPS {
                break;
            }
            let start = cpus.len();
            for cpu in &share[..room] {
                let same = |other: &&Cpu, of: fn(&Cpu) -> usize| of(other) == of(cpu);
                let all = |of: fn(&Cpu) -> usize| {
                    topology.cpus.iter().filter(|other| same(other, of)).map(|other| other.id).collect()
                };
                cpus.push(Some(match affinity {
                    Affinity::Group { loose: true } => whole.clone(),
                    Affinity::Group { loose: false } => own.clone(),
                    Affinity::Core => all(|cpu| cpu.core),
                    Affinity::Thread => Cpus::from([cpu.id]),
                    Affinity::Ccx => all(|cpu| cpu.ccx),
                }));
            }
            groups.push(start..cpus.len());
        }
    }
    Placement { groups, cpus, busy_polling: Vec::new() }
}

/// The lists of CPUs that become groups under `policy`. The cores of each list are adjacent.
fn sets<'a>(usable: &[&'a Cpu], policy: Policy) -> Vec<Vec<&'a Cpu>> {
    let clusters = |cpus: &[&'a Cpu]| by(cpus, |cpu| cpu.cluster);
    let strength = |cluster: &[&Cpu]| cluster.iter().map(|cpu| cpu.capacity).max().unwrap_or(0);
    let sets = match policy {
        Policy::None => vec![usable.to_vec()],
        Policy::FirstUsableNode => by(usable, |cpu| cpu.node).into_iter().take(1).collect(),
        Policy::Ccx(count) => merge(by(usable, |cpu| cpu.ccx), count),
        Policy::Cluster(count) => merge(clusters(usable), count),
        Policy::Performance | Policy::Efficiency => {
            let kept = evict(clusters(usable), policy == Policy::Performance).concat();
            by(&kept, |cpu| cpu.ccx)
        }
        Policy::Resource => {
            let all = clusters(usable);
            let weakest = all.iter().map(|cluster| strength(cluster)).min().unwrap_or(0);
            let smallest =
                all.into_iter().filter(|cluster| strength(cluster) == weakest).min_by_key(Vec::len);
            smallest.into_iter().collect()
        }
    };
    let mut sets: Vec<Vec<&Cpu>> = sets.into_iter().filter(|set| !set.is_empty()).collect();
    for set in &mut sets {
        set.sort_by_key(|cpu| (cpu.node, cpu.ccx, cpu.core, cpu.thread));
    }
    sets
}

/// Groups `cpus` by `of`, in the order of first occurrence.
fn by<'a>(cpus: &[&'a Cpu], of: impl Fn(&Cpu) -> usize) -> Vec<Vec<&'a Cpu>> {
    let mut sets: Vec<(usize, Vec<&Cpu>)> = Vec::new();
    for cpu in cpus {
        let key = of(cpu);
        match sets.iter_mut().find(|(other, _)| *other == key) {
            Some((_, set)) => set.push(cpu),
            None => sets.push((key, vec![cpu])),
        }
    }
    sets.into_iter().map(|(_, set)| set).collect()
}

fn merge(sets: Vec<Vec<&Cpu>>, count: usize) -> Vec<Vec<&Cpu>> {
    sets.chunks(count.max(1)).map(<[_]>::concat).collect()
}

/// Drops clusters that are clearly weaker than the next stronger one (below 80 %), or clearly stronger than the next weaker one
/// (above 125 %).
fn evict(clusters: Vec<Vec<&Cpu>>, weak: bool) -> Vec<Vec<&Cpu>> {
    let strength = |cluster: &Vec<&Cpu>| cluster.iter().map(|cpu| cpu.capacity).max().unwrap_or(0);
    let mut levels: Vec<u64> = clusters.iter().map(strength).collect();
    levels.sort_unstable();
    levels.dedup();
    let limit = if weak {
        // From the strongest down to the first gap.
        levels.windows(2).rev().find(|pair| pair[0] * 10 < pair[1] * 8).map(|pair| pair[1]..=u64::MAX)
    } else {
        levels.windows(2).find(|pair| pair[1] * 4 > pair[0] * 5).map(|pair| 0..=pair[0])
    };
    match limit {
        Some(range) => clusters.into_iter().filter(|cluster| range.contains(&strength(cluster))).collect(),
        None => clusters,
    }
}

impl Wishes {
    fn largest_group(&self) -> usize {
        if self.max_per_group == 0 { 16 } else { self.max_per_group.min(MAX_GROUP_SIZE) }
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
