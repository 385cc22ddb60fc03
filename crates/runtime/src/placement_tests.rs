//! Placements on recorded machines.

use super::*;

/// A core complex: its node, and its clusters as (cores, threads per core, capacity).
type Complex = (usize, &'static [(usize, usize, u64)]);

/// Numbers CPUs like Linux: the first threads of all cores, then the second threads.
fn machine(complexes: &[Complex]) -> Topology {
    let mut cpus = Vec::new();
    let (mut core, mut cluster) = (0, 0);
    for (ccx, (node, clusters)) in complexes.iter().enumerate() {
        for &(cores, threads, capacity) in *clusters {
            for _ in 0..cores {
                for thread in 0..threads {
                    cpus.push(Cpu { id: 0, node: *node, ccx, cluster, core, thread, capacity });
                }
                core += 1;
            }
            cluster += 1;
        }
    }
    cpus.sort_by_key(|cpu| (cpu.thread, cpu.core));
    for (id, cpu) in cpus.iter_mut().enumerate() {
        cpu.id = id;
    }
    Topology { cpus }
}

/// EPYC 9334-like: 4 complexes of 8 cores with 2 threads on one node.
fn epyc() -> Topology {
    const COMPLEX: Complex = (0, &[(8, 2, 0)]);
    machine(&[COMPLEX; 4])
}

/// Two sockets of 28 cores with 2 threads, one cache each.
fn xeon() -> Topology {
    machine(&[(0, &[(28, 2, 0)]), (1, &[(28, 2, 0)])])
}

/// Neoverse N1: 80 cores, one thread each, one system-level cache.
fn neoverse() -> Topology {
    machine(&[(0, &[(80, 1, 1024)])])
}

/// A laptop: 6 strong cores with 2 threads, 8 weak ones.
fn laptop() -> Topology {
    machine(&[(0, &[(6, 2, 34), (8, 1, 21)])])
}

fn place(topology: &Topology, wishes: &Wishes) -> Placement {
    Placement::new(topology, &Cpus::new(), wishes).unwrap().0
}

fn sizes(placement: &Placement) -> Vec<usize> {
    placement.groups.iter().map(Range::len).collect()
}

#[test]
fn policies_form_the_groups_of_the_manual() {
    let policy = |policy| Wishes { policy, ..Wishes::default() };
    for (name, topology, wishes, groups) in [
        ("EPYC by complex", epyc(), policy(Policy::Performance), vec![16; 4]),
        ("EPYC two complexes a group, at most 16 threads", epyc(), policy(Policy::Ccx(2)), vec![16; 4]),
        ("Xeon: 56 threads a socket in fair shares", xeon(), policy(Policy::Performance), vec![14; 8]),
        ("Xeon's first node", xeon(), policy(Policy::FirstUsableNode), vec![14; 4]),
        ("Neoverse", neoverse(), policy(Policy::Performance), vec![16; 5]),
        ("laptop: strong cores only", laptop(), policy(Policy::Performance), vec![12]),
        ("laptop: weak cores only", laptop(), policy(Policy::Efficiency), vec![8]),
        ("laptop: the weakest cluster", laptop(), policy(Policy::Resource), vec![8]),
        ("laptop by complex", laptop(), policy(Policy::Ccx(1)), vec![10, 10]),
        ("laptop by cluster", laptop(), policy(Policy::Cluster(1)), vec![12, 8]),
        ("laptop, no policy", laptop(), policy(Policy::None), vec![10, 10]),
    ] {
        assert_eq!(sizes(&place(&topology, &wishes)), groups, "{name}");
    }
}

#[test]
fn groups_have_exclusive_cpus() {
    let topology = xeon();
    let placement = place(&topology, &Wishes::default());
    for (number, group) in placement.groups.iter().enumerate() {
        let own = placement.cpus[group.start].clone().unwrap();
        assert_eq!(own.len(), 14);
        let complexes: Cpus =
            topology.cpus.iter().filter(|cpu| own.contains(&cpu.id)).map(|cpu| cpu.ccx).collect();
        assert_eq!(complexes.len(), 1, "group {number} stays within one cache");
        for other in placement.groups.iter().skip(number + 1) {
            assert!(own.is_disjoint(placement.cpus[other.start].as_ref().unwrap()));
        }
    }
}

#[test]
fn one_thread_per_core_gets_both_hardware_threads() {
    let wishes = Wishes { one_per_core: true, ..Wishes::default() };
    let placement = place(&epyc(), &wishes);
    assert_eq!(sizes(&placement), [8; 4]);
    assert_eq!(placement.cpus[0], Some(Cpus::from([0, 32])));
}

#[test]
fn affinity_binds_to_threads_cores_complexes_or_loosely() {
    let with = |affinity| Wishes { affinity: Some(affinity), ..Wishes::default() };
    let count = |affinity| place(&xeon(), &with(affinity)).cpus[0].as_ref().unwrap().len();
    assert_eq!(count(Affinity::Thread), 1);
    assert_eq!(count(Affinity::Core), 2);
    assert_eq!(count(Affinity::Ccx), 56);
    assert_eq!(count(Affinity::Group { loose: true }), 56);
    assert_eq!(count(Affinity::Group { loose: false }), 14);
}

#[test]
fn cpu_sets_drop_and_keep_units() {
    let rule =
        |only, part, numbers: &str| CpuRule { only, part, numbers: crate::topology::parse_list(numbers) };
    for (rules, workers) in [
        (vec![rule(true, CpuSelector::Node, "1")], 56),
        (vec![rule(false, CpuSelector::Thread, "1")], 56),
        (vec![rule(true, CpuSelector::Cpu, "0-7")], 8),
        (vec![rule(true, CpuSelector::Core, "0-3"), rule(false, CpuSelector::Cpu, "0")], 7),
        (vec![rule(false, CpuSelector::Cluster, "0")], 56),
    ] {
        let wishes = Wishes { rules: rules.clone(), ..Wishes::default() };
        assert_eq!(place(&xeon(), &wishes).workers(), workers, "{rules:?}");
    }
    let nothing = Wishes { rules: vec![rule(true, CpuSelector::Node, "7")], ..Wishes::default() };
    let (placement, warnings) = Placement::new(&xeon(), &Cpus::new(), &nothing).unwrap();
    assert_eq!((placement.workers(), warnings.len()), (112, 1), "{warnings:?}");
}

#[test]
fn shared_cpus_cause_a_warning() {
    let set = |groups: &str, threads: &str| ThreadSet {
        groups: Some(NumberSet::parse(groups).unwrap()),
        threads: NumberSet::parse(threads).unwrap(),
    };
    let map = |threads, cpus: &str| CpuMap { auto: false, threads, cpus: crate::topology::parse_list(cpus) };
    let some = |threads, maps| Wishes { threads: Some(threads), maps, ..Wishes::default() };
    for (wishes, told) in [
        (some(14, Vec::new()), None),
        (some(15, Vec::new()), Some("15 threads share 14 CPUs")),
        (some(2, vec![map(set("1", "all"), "0")]), Some("2 threads share 1 CPUs")),
        (some(2, vec![map(set("1", "all"), "0-1")]), None),
        (some(2, vec![map(set("1", "1"), "0")]), Some("1 of 2 threads")),
        (Wishes { groups: Some(1), ..some(70, Vec::new()) }, Some("starting 64 threads")),
    ] {
        let machine = machine(&[(0, &[(6, 2, 34), (2, 1, 21)])]);
        let (_, warnings) = Placement::new(&machine, &Cpus::new(), &wishes).unwrap();
        assert_eq!(warnings.is_empty(), told.is_none(), "{warnings:?}");
        assert!(told.is_none_or(|told| warnings[0].contains(told)), "{warnings:?}");
    }
}

#[test]
fn a_range_may_be_written_backwards() {
    assert_eq!(NumberSet::parse("4-2"), Ok(NumberSet::Range(2, 4)));
    assert!(NumberSet::parse("0-2").is_err());
    assert_eq!(crate::topology::parse_list("3-1"), Cpus::from([1, 2, 3]));
}

#[test]
fn inherited_cpus_limit_the_process_unless_reset() {
    let allowed = Cpus::from([3, 4]);
    let bound = |wishes: &Wishes| Placement::new(&xeon(), &allowed, wishes).unwrap().0.workers();
    assert_eq!(bound(&Wishes::default()), 2);
    assert_eq!(bound(&Wishes { reset: true, ..Wishes::default() }), 112);
}

#[test]
fn explicit_numbers_override_the_policy_without_binding() {
    let wishes = Wishes { threads: Some(40), ..Wishes::default() };
    let placement = place(&epyc(), &wishes);
    assert_eq!(sizes(&placement), [14, 13, 13]);
    assert!(placement.cpus.iter().all(Option::is_none));
    let wishes = Wishes { threads: Some(8), groups: Some(2), ..Wishes::default() };
    assert_eq!(place(&epyc(), &wishes).groups, [0..4, 4..8]);
}

#[test]
fn the_hard_limit_caps_detected_and_configured_numbers() {
    let found = Wishes { hard_limit: Some(20), ..Wishes::default() };
    assert_eq!(sizes(&place(&epyc(), &found)), [16, 4]);
    let said = Wishes { hard_limit: Some(4), threads: Some(9), ..Wishes::default() };
    let (placement, warnings) = Placement::new(&epyc(), &Cpus::new(), &said).unwrap();
    assert_eq!((placement.workers(), warnings.len()), (4, 1));
}

#[test]
fn groups_take_configured_threads_and_share_the_rest() {
    let settings = |list: &[(usize, Option<(usize, usize)>)]| {
        list.iter()
            .map(|(n, threads)| (*n, GroupSettings { threads: *threads, busy_polling: false }))
            .collect()
    };
    let wishes = |list: &[(usize, Option<(usize, usize)>)]| Wishes {
        threads: Some(10),
        groups: Some(3),
        group_settings: settings(list),
        ..Wishes::default()
    };
    assert_eq!(place(&epyc(), &wishes(&[(1, Some((1, 2)))])).groups, [0..2, 2..6, 6..10]);
    for (list, message) in [
        (&[(1, Some((1, 2))), (2, Some((2, 4)))][..], "already"),
        (&[(1, Some((9, 11)))], "does not exist"),
        (&[(4, None)], "there are 3 groups"),
        (&[(2, Some((2, 3)))], "contiguous"),
        (&[(1, Some((1, 2))), (2, Some((3, 4))), (3, Some((5, 6)))], "belong to no `thread-group`"),
    ] {
        let error = Placement::new(&epyc(), &Cpus::new(), &wishes(list)).unwrap_err();
        assert!(error.contains(message), "{list:?}: {error}");
    }
}

#[test]
fn later_cpu_maps_override_earlier_ones() {
    let set = |groups: &str, threads: &str| ThreadSet {
        groups: Some(NumberSet::parse(groups).unwrap()),
        threads: NumberSet::parse(threads).unwrap(),
    };
    let map = |auto, threads, cpus: &str| CpuMap { auto, threads, cpus: crate::topology::parse_list(cpus) };
    let wishes = Wishes {
        threads: Some(4),
        maps: vec![
            map(false, set("1", "all"), "0-3"),
            map(true, set("1", "1-2"), "6-7"),
            map(false, set("1", "even"), "9"),
        ],
        ..Wishes::default()
    };
    let cpus: Vec<String> = place(&epyc(), &wishes)
        .cpus
        .iter()
        .map(|cpus| crate::topology::show_list(cpus.as_ref().unwrap()))
        .collect();
    assert_eq!(cpus, ["6", "9", "0-3", "9"]);
    assert!(map(true, set("1", "1-4"), "0").check().is_err());
    assert!(map(true, set("1", "1"), "0-3").check().is_err());
    assert!(map(true, set("1", "all"), "0-63").check().is_ok());
    assert!(map(true, set("1", "odd"), "32-63").check().is_ok());
    assert!(map(true, set("1-2", "1-2"), "0-3").check().is_err());
    // A set without threads consists of groups, each of which starts at the first CPU.
    assert!(map(true, set("1-2", "all"), "0-1").check().is_ok());
    let maps = vec![map(true, set("1-2", "all"), "0-1")];
    let wishes = Wishes { threads: Some(4), groups: Some(2), maps, ..Wishes::default() };
    let cpus: Vec<String> = place(&epyc(), &wishes)
        .cpus
        .iter()
        .map(|cpus| crate::topology::show_list(cpus.as_ref().unwrap()))
        .collect();
    assert_eq!(cpus, ["0", "1", "0", "1"]);
}

#[test]
fn thread_sets_count_over_the_process_or_within_groups() {
    let wishes = Wishes { threads: Some(8), groups: Some(2), ..Wishes::default() };
    let placement = place(&epyc(), &wishes);
    let set = |groups: Option<&str>, threads: &str| ThreadSet {
        groups: groups.map(|text| NumberSet::parse(text).unwrap()),
        threads: NumberSet::parse(threads).unwrap(),
    };
    assert_eq!(placement.select(&[set(None, "5-")]), [4, 5, 6, 7]);
    assert_eq!(placement.select(&[set(Some("2"), "1-2")]), [4, 5]);
    assert_eq!(placement.select(&[set(Some("all"), "odd")]), [0, 2, 4, 6]);
    assert_eq!(placement.select(&[set(Some("1"), "1"), set(None, "8")]), [0, 7]);
    assert_eq!(placement.select(&[]).len(), 8);
}

#[test]
fn busy_polling_applies_to_the_process_or_a_group() {
    let mut wishes = Wishes { threads: Some(4), groups: Some(2), ..Wishes::default() };
    wishes.group_settings.insert(2, GroupSettings { threads: None, busy_polling: true });
    assert_eq!(place(&epyc(), &wishes).busy_polling, [false, false, true, true]);
    wishes.busy_polling = true;
    assert_eq!(place(&epyc(), &wishes).busy_polling, [true; 4]);
}
