//! The kernel's description of the machine's CPUs: sockets, NUMA nodes, caches, cores and their capacity.
//!
//! This module reads `/sys/devices/system` once at startup; [`placement`](crate::placement) makes decisions based on it. Tests pass
//! in recorded trees. Called when the global section is resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::thread::CpuSet;

/// CPU numbers of the kernel, from 0.
pub type Cpus = BTreeSet<usize>;

/// The highest CPU number that threads can be bound to.
pub const MAX_CPU: usize = CpuSet::MAX_CPU - 1;

/// A hardware thread and its position in the machine. All numbers except `id` and `node` are assigned by this module, from 0, over
/// the whole machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: usize,
    /// The NUMA node.
    pub node: usize,
    /// The core complex: the CPUs that share a last-level cache.
    pub ccx: usize,
    /// The part of a core complex with similar cores (within 5 % of capacity).
    pub cluster: usize,
    /// The core.
    pub core: usize,
    /// The index among the hardware threads of the core.
    pub thread: usize,
    /// The capacity as reported by the kernel, in arbitrary units; 0 if unknown.
    pub capacity: u64,
}

/// The CPUs that are online.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Sorted by the kernel's number.
    pub cpus: Vec<Cpu>,
}

/// The contents of one CPU's directory, before numbers are assigned.
struct Raw {
    id: usize,
    node: usize,
    package: usize,
    die: usize,
    core: usize,
    /// The first of the CPUs that share the last-level cache.
    cache: Option<usize>,
    capacity: u64,
}

/// The topology of this machine, read once.
pub fn machine() -> &'static Topology {
    static MACHINE: OnceLock<Topology> = OnceLock::new();
    MACHINE.get_or_init(|| Topology::read(Path::new("/sys/devices/system")))
}

/// The CPUs that the calling thread may run on; empty if the system does not report them.
pub fn allowed() -> Cpus {
    let set = rustix::thread::sched_getaffinity(None);
    set.map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()).unwrap_or_default()
}

/// Binds the calling thread to `cpus`.
///
/// # Errors
/// The system's error, if none of them is online or permitted.
pub fn bind(cpus: &Cpus) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Parses a list such as `0-3,8`. Invalid text yields an empty set.
pub fn parse_list(text: &str) -> Cpus {
    let mut set = Cpus::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            let (first, last) = (first.min(last), first.max(last));
            set.extend(first..=last.min(first.saturating_add(65_535)));
        }
    }
    set
}

/// Formats a set as the kernel does: `0-3,8`.
pub fn show_list(cpus: &Cpus) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let part = |(first, last): (usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.into_iter().map(part).collect::<Vec<_>>().join(",")
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<usize> {
    read(path)?.parse().ok()
}

impl Topology {
    /// Reads the tree under `root`, usually `/sys/devices/system`. If it has no information, each CPU of
    /// [`std::thread::available_parallelism`] is treated as a core.
    pub fn read(root: &Path) -> Self {
        let online = read(&root.join("cpu/online")).map(|text| parse_list(&text)).unwrap_or_default();
        let nodes = nodes(root);
        let raw: Vec<Raw> = online.iter().map(|id| raw(root, *id, &nodes)).collect();
        if raw.is_empty() {
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            return Self::number((0..count).map(Raw::alone).collect());
        }
        Self::number(raw)
    }

    /// Numbers complexes, clusters and cores.
    fn number(raw: Vec<Raw>) -> Self {
        let mut complexes = BTreeMap::new();
        let mut cores: BTreeMap<(usize, usize, usize), (usize, usize)> = BTreeMap::new();
        let mut clusters: Vec<(usize, u64)> = Vec::new();
        let mut cpus = Vec::with_capacity(raw.len());
        for one in raw {
            let count = complexes.len();
            let ccx = *complexes.entry((one.package, one.die, one.cache)).or_insert(count);
            let count = cores.len();
            let core = cores.entry((one.package, one.die, one.core)).or_insert((count, 0));
            let thread = core.1;
            core.1 += 1;
            let core = core.0;
            let alike =
                |(other, capacity): &(usize, u64)| *other == ccx && are_alike(*capacity, one.capacity);
            let cluster = clusters.iter().position(alike).unwrap_or_else(|| {
                clusters.push((ccx, one.capacity));
                clusters.len() - 1
            });
            cpus.push(Cpu { id: one.id, node: one.node, ccx, cluster, core, thread, capacity: one.capacity });
        }
        Self { cpus }
    }
}

/// Whether two capacities are within 5 % of each other.
fn are_alike(left: u64, right: u64) -> bool {
    left.abs_diff(right) * 20 <= left.max(right)
}

impl Raw {
    /// A CPU of which only the number is known.
    fn alone(id: usize) -> Self {
        Self { id, node: 0, package: 0, die: 0, core: id, cache: None, capacity: 0 }
    }
}

fn nodes(root: &Path) -> BTreeMap<usize, usize> {
    let mut nodes = BTreeMap::new();
    let online = read(&root.join("node/online")).map(|text| parse_list(&text)).unwrap_or_default();
    for node in online {
        let list = read(&root.join(format!("node/node{node}/cpulist"))).unwrap_or_default();
        nodes.extend(parse_list(&list).into_iter().map(|cpu| (cpu, node)));
    }
    nodes
}

fn raw(root: &Path, id: usize, nodes: &BTreeMap<usize, usize>) -> Raw {
    let cpu = root.join(format!("cpu/cpu{id}"));
    let topology = cpu.join("topology");
    let fact = |name: &str| number(&topology.join(name));
    Raw {
        id,
        node: nodes.get(&id).copied().unwrap_or(0),
        package: fact("physical_package_id").unwrap_or(0),
        die: fact("die_id").unwrap_or(0),
        core: fact("core_id").unwrap_or(id),
        cache: last_cache(&cpu.join("cache")),
        capacity: capacity(&cpu),
    }
}

/// The first of the CPUs that share the highest-level cache.
fn last_cache(cache: &Path) -> Option<usize> {
    let mut best: Option<(usize, usize)> = None;
    for index in 0..16 {
        let one = cache.join(format!("index{index}"));
        let Some(level) = number(&one.join("level")) else { continue };
        if read(&one.join("type")).as_deref() == Some("Instruction") {
            continue;
        }
        let sharing = read(&one.join("shared_cpu_list")).map(|text| parse_list(&text)).unwrap_or_default();
        if let Some(first) = sharing.first()
            && best.is_none_or(|(highest, _)| level > highest)
        {
            best = Some((level, *first));
        }
    }
    best.map(|(_, first)| first)
}

/// The capacity of a CPU: the scheduler's value if available (ARM), otherwise the nominal performance from the firmware, otherwise
/// the maximum frequency.
fn capacity(cpu: &Path) -> u64 {
    ["cpu_capacity", "acpi_cppc/nominal_perf", "cpufreq/cpuinfo_max_freq"]
        .iter()
        .find_map(|name| number(&cpu.join(name)))
        .unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use scratch::Scratch;

    use super::*;

    #[test]
    fn cpu_lists_round_trip() {
        for text in ["0", "0-3", "0-3,8", "1,3,5-7"] {
            assert_eq!(show_list(&parse_list(text)), text);
        }
        assert_eq!(parse_list("x"), Cpus::new());
    }

    /// Writes files below a new directory.
    fn tree(name: &str, files: &[(String, String)]) -> Scratch {
        let root = Scratch::new(name);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        root
    }

    #[test]
    fn hybrid_laptops_have_one_complex_and_two_clusters() {
        // Two strong cores with two threads each, four weak ones, one third-level cache.
        let mut files = vec![
            ("cpu/online".to_owned(), "0-7".to_owned()),
            ("node/online".to_owned(), "0".to_owned()),
            ("node/node0/cpulist".to_owned(), "0-7".to_owned()),
        ];
        for id in 0..8usize {
            let (core, perf) = if id < 4 { (id / 2 * 4, 34) } else { (4 + id, 21) };
            for (name, value) in [
                ("topology/physical_package_id", 0),
                ("topology/core_id", core),
                ("acpi_cppc/nominal_perf", perf),
                ("cache/index0/level", 1),
                ("cache/index3/level", 3),
            ] {
                files.push((format!("cpu/cpu{id}/{name}"), value.to_string()));
            }
            files.push((format!("cpu/cpu{id}/cache/index0/type"), "Data".into()));
            files.push((format!("cpu/cpu{id}/cache/index0/shared_cpu_list"), id.to_string()));
            files.push((format!("cpu/cpu{id}/cache/index3/type"), "Unified".into()));
            files.push((format!("cpu/cpu{id}/cache/index3/shared_cpu_list"), "0-7".into()));
        }
        let root = tree("hybrid", &files);
        let topology = Topology::read(&root);
        assert_eq!(topology.cpus.iter().map(|cpu| cpu.ccx).collect::<Vec<_>>(), [0; 8]);
        assert_eq!(topology.cpus.iter().map(|cpu| cpu.cluster).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(topology.cpus.iter().map(|cpu| cpu.core).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 3, 4, 5]);
        assert_eq!(topology.cpus.iter().map(|cpu| cpu.thread).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn empty_trees_still_yield_cpus() {
        assert!(!Topology::read(Path::new("/nowhere")).cpus.is_empty());
    }

    #[test]
    fn this_machine_can_be_read() {
        let topology = Topology::read(Path::new("/sys/devices/system"));
        assert!(topology.cpus.iter().all(|cpu| cpu.core < topology.cpus.len()));
    }
}
