//! A hundred peers in virtual time, with broken connections, partitions and restarts. In the end all tables must be equal. Events
//! are derived from a seed.

mod memory;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use fastrand::Rng;
use memory::{Memory, counters, section};
use peers::{Group, GroupCommand, LinkId, ResyncStage, SectionSettings};

/// The interval of a process's timer, in milliseconds.
const STEP: u64 = 500;

/// Maximum size of a read.
const LIMIT: usize = 16_384;

#[derive(Debug)]
enum Happening {
    /// A connection arrives at a node.
    Arrives { connection: usize },
    /// The connecting side learns that its connection is established.
    Stands { connection: usize },
    /// A side receives bytes, or the end.
    Comes { connection: usize, side: usize, bytes: Option<Vec<u8>> },
    /// A node's timer.
    Timer { node: usize, life: u32 },
    /// A node's traffic changes an entry.
    Change { node: usize, round: u64 },
    /// A node's traffic creates or changes an entry that no other node writes.
    Add { node: usize, number: u64, value: u64 },
    /// A node dies and restarts.
    Restart { node: usize },
}

struct Connection {
    nodes: [usize; 2],
    links: [Option<LinkId>; 2],
    broken: bool,
}

struct Node {
    group: Group,
    memory: Memory,
    links: BTreeMap<LinkId, (usize, usize)>,
    life: u32,
    timer: Option<u64>,
}

struct World {
    now: u64,
    nodes: Vec<Node>,
    connections: Vec<Connection>,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: HashMap<u64, Happening>,
    order: u64,
    random: Rng,
    /// Partitions: start, end, and the side of each node.
    partitions: Vec<(u64, u64, Vec<bool>)>,
    /// One in this many deliveries breaks the connection, until the given time.
    losses: (u64, u64),
    /// The expected value of each key.
    truth: BTreeMap<Vec<u8>, u64>,
    lives: u32,
    broken: u64,
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("peer{number}")).collect()
}

impl World {
    fn new(count: usize, seed: u64) -> World {
        let mut world = World {
            now: 0,
            nodes: Vec::new(),
            connections: Vec::new(),
            agenda: BinaryHeap::new(),
            happenings: HashMap::new(),
            order: 0,
            random: Rng::with_seed(seed),
            partitions: Vec::new(),
            losses: (u64::MAX, 0),
            truth: BTreeMap::new(),
            lives: 0,
            broken: 0,
        };
        for number in 0..count {
            let node = world.life(number, count);
            world.nodes.push(node);
        }
        (0..count).for_each(|node| world.attend(node, true));
        world
    }

    fn life(&mut self, number: usize, count: usize) -> Node {
        let names = names(count);
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let section = section(&names[number], &all, vec![counters("a", 0), counters("b", 600_000)]);
        self.lives += 1;
        let memory = Memory::new(&section.tables);
        let settings = SectionSettings {
            section,
            shards: 0,
            parts: Box::default(),
            process: self.lives,
            successor: false,
            seed: self.random.u64(..),
        };
        Node {
            group: Group::new(settings, self.now),
            memory,
            links: BTreeMap::new(),
            life: self.lives,
            timer: None,
        }
    }

    fn plan(&mut self, at: u64, happening: Happening) {
        self.order += 1;
        self.agenda.push(Reverse((at, self.order)));
        self.happenings.insert(self.order, happening);
    }

    /// Returns until when two nodes are separated, if they are.
    fn parted(&self, nodes: [usize; 2]) -> Option<u64> {
        let parts = |(from, until, sides): &(u64, u64, Vec<bool>)| {
            (*from <= self.now && self.now < *until && sides[nodes[0]] != sides[nodes[1]]).then_some(*until)
        };
        self.partitions.iter().filter_map(parts).max()
    }

    /// Sends bytes over a connection. They arrive in order, a few milliseconds later.
    fn send(&mut self, connection: usize, side: usize, bytes: Option<Vec<u8>>) {
        if !self.connections[connection].broken {
            self.plan(self.now + 5, Happening::Comes { connection, side: 1 - side, bytes });
        }
    }

    /// Executes a node's commands, and sends output on one of its connections or all.
    fn attend(&mut self, node: usize, all: bool) {
        while let Some(command) = self.nodes[node].group.command() {
            match command {
                GroupCommand::Connect { peer, link } => {
                    let connection = self.connections.len();
                    let links = [Some(link), None];
                    self.connections.push(Connection { nodes: [node, peer], links, broken: false });
                    self.nodes[node].links.insert(link, (connection, 0));
                    self.plan(self.now + 5, Happening::Arrives { connection });
                }
                GroupCommand::Close(link) => {
                    self.speak(node, link);
                    self.nodes[node].group.closed(link, self.now);
                    let Some((connection, side)) = self.nodes[node].links.remove(&link) else { continue };
                    self.connections[connection].links[side] = None;
                    self.send(connection, side, None);
                }
                GroupCommand::Done => panic!("nobody stops"),
            }
        }
        if all {
            let links: Vec<LinkId> = self.nodes[node].links.keys().copied().collect();
            links.into_iter().for_each(|link| self.speak(node, link));
        }
        let due = self.nodes[node].group.next().map(|due| due.max(self.now + 1).next_multiple_of(STEP));
        if let Some(due) = due.filter(|due| self.nodes[node].timer.is_none_or(|timer| *due < timer)) {
            self.nodes[node].timer = Some(due);
            self.plan(due, Happening::Timer { node, life: self.nodes[node].life });
        }
    }

    fn speak(&mut self, node: usize, link: LinkId) {
        let Some((connection, side)) = self.nodes[node].links.get(&link).copied() else { return };
        loop {
            let mut out = Vec::new();
            let this = &mut self.nodes[node];
            this.group.output(link, &mut out, LIMIT, self.now, &mut this.memory);
            if out.is_empty() {
                return;
            }
            self.send(connection, side, Some(out));
        }
    }

    /// Processes the next event; returns `false` if there is none before `until`.
    fn step(&mut self, until: u64) -> bool {
        match self.agenda.peek() {
            Some(Reverse((at, _))) if *at <= until => self.now = self.now.max(*at),
            _ => return false,
        }
        let Some(Reverse((_, order))) = self.agenda.pop() else { return false };
        let happening = self.happenings.remove(&order).expect("what is on the agenda is known");
        match happening {
            Happening::Arrives { connection } => {
                let nodes = self.connections[connection].nodes;
                if self.parted(nodes).is_some() {
                    return true;
                }
                let Some(link) = self.nodes[nodes[1]].group.accept(self.now) else {
                    self.send(connection, 1, None);
                    return true;
                };
                self.connections[connection].links[1] = Some(link);
                self.nodes[nodes[1]].links.insert(link, (connection, 1));
                self.plan(self.now + 5, Happening::Stands { connection });
            }
            Happening::Stands { connection } => {
                let node = self.connections[connection].nodes[0];
                if let Some(link) = self.connections[connection].links[0] {
                    self.nodes[node].group.connected(link, self.now);
                    self.speak(node, link);
                    self.attend(node, false);
                } else {
                    self.send(connection, 0, None);
                }
            }
            Happening::Comes { connection, side, bytes } => self.comes(order, connection, side, bytes),
            Happening::Timer { node, life } => {
                if self.nodes[node].life == life {
                    self.nodes[node].timer = None;
                    self.nodes[node].group.tick(self.now);
                    self.attend(node, true);
                }
            }
            Happening::Change { node, round } => {
                let key = format!("{node}/{}", round % 5).into_bytes();
                self.change(node, (round % 2) as usize, &key, round);
            }
            Happening::Add { node, number, value } => {
                self.change(node, (number % 2) as usize, format!("{node}:{number}").as_bytes(), value);
            }
            Happening::Restart { node } => {
                let links: Vec<(usize, usize)> = self.nodes[node].links.values().copied().collect();
                links.into_iter().for_each(|(connection, side)| self.break_off(connection, Some(side)));
                self.nodes[node] = self.life(node, self.nodes.len());
                self.attend(node, true);
            }
        }
        true
    }

    fn change(&mut self, node: usize, table: usize, key: &[u8], value: u64) {
        self.nodes[node].memory.count(table, key, value, self.now);
        self.truth.insert([&[table as u8], key].concat(), value);
        self.attend(node, true);
    }

    fn comes(&mut self, order: u64, connection: usize, side: usize, bytes: Option<Vec<u8>>) {
        let Connection { nodes, links, broken } = &self.connections[connection];
        let (nodes, node, link) = (*nodes, nodes[side], links[side]);
        if *broken && bytes.is_some() {
            return;
        }
        if let Some(heals) = self.parted(nodes) {
            // The event keeps its position in the order.
            self.agenda.push(Reverse((heals, order)));
            self.happenings.insert(order, Happening::Comes { connection, side, bytes });
            return;
        }
        let Some(link) = link else { return };
        let Some(bytes) = bytes else {
            self.nodes[node].links.remove(&link);
            self.connections[connection].links[side] = None;
            self.nodes[node].group.closed(link, self.now);
            return self.attend(node, false);
        };
        if self.now < self.losses.1 && self.random.u64(..self.losses.0) == 0 {
            self.broken += 1;
            return self.break_off(connection, None);
        }
        let this = &mut self.nodes[node];
        this.group.receive(link, &bytes, self.now, &mut this.memory);
        self.speak(node, link);
        self.attend(node, false);
    }

    /// Drops all data in transit on a connection, and notifies its sides, except for a side that is gone.
    fn break_off(&mut self, connection: usize, gone: Option<usize>) {
        self.connections[connection].broken = true;
        if let Some(side) = gone {
            self.connections[connection].links[side] = None;
        }
        for side in 0..2 {
            let after = self.random.u64(0..3000);
            self.plan(self.now + after, Happening::Comes { connection, side, bytes: None });
        }
    }

    fn run(&mut self, until: u64) {
        while self.step(until) {}
        self.now = until;
    }

    /// Returns the nodes with wrong tables.
    fn wrong(&self) -> Vec<usize> {
        let right = |node: &usize| {
            let memory = &self.nodes[*node].memory;
            let entries: usize = memory.tables.iter().map(|table| table.entries.len()).sum();
            let holds =
                |(key, value): (&Vec<u8>, &u64)| memory.counted(key[0].into(), &key[1..]) == Some(*value);
            entries == self.truth.len() && self.truth.iter().all(holds)
        };
        (0..self.nodes.len()).filter(|node| !right(node)).collect()
    }
}

/// Simulates `count` peers with traffic during a minute of failures; returns when all tables are equal.
fn bad_minute(count: usize, seed: u64, changes: u64, restarts: usize) -> World {
    let mut world = World::new(count, seed);
    world.run(7_000);
    for node in 0..count {
        for round in 1..=changes {
            let at = world.random.u64(7_000..60_000);
            world.plan(at, Happening::Change { node, round: round * 1000 + node as u64 });
        }
    }
    for _ in 0..4 {
        let from = world.random.u64(8_000..50_000);
        let until = from + world.random.u64(500..15_000);
        let sides = (0..count).map(|_| world.random.bool()).collect();
        world.partitions.push((from, until, sides));
    }
    world.losses = (2000, 60_000);
    for _ in 0..restarts {
        let node = world.random.usize(..count);
        let at = world.random.u64(10_000..60_000);
        world.plan(at, Happening::Restart { node });
        // Traffic continues, so that values which a node forgot before any peer received them are written again.
        for round in 1..=10 {
            world.plan(66_000 + round, Happening::Change { node, round: 1_000_000 + round });
        }
    }
    world.run(67_000);
    world
}

fn converges(mut world: World) {
    let deadline = world.now + 60_000;
    while !world.wrong().is_empty() {
        assert!(world.now < deadline, "{:?} are still wrong, of {}", world.wrong(), world.nodes.len());
        let next = world.now + 500;
        world.run(next);
    }
    let after = world.now + 10_000;
    world.run(after);
    assert_eq!(world.wrong(), Vec::<usize>::new(), "what was right stays so");
    for node in 0..world.nodes.len() {
        assert_eq!(world.nodes[node].group.stage(), ResyncStage::Finished, "{node}");
        let of = |peer: usize| world.nodes[node].group.view(peer).expect("it is a peer");
        assert!((0..world.nodes.len()).all(|peer| of(peer).is_local || of(peer).is_established), "{node}");
    }
}

#[test]
fn a_hundred_peers_converge_after_losses_and_partitions() {
    let world = bad_minute(100, 1, 10, 0);
    assert!(world.broken > 50, "{} connections broke", world.broken);
    converges(world);
}

#[test]
fn restarted_peers_converge() {
    for seed in 0..20 {
        converges(bad_minute(12, seed, 40, 6));
    }
}

/// Simulates a few peers with breaking connections and resyncs, while one of them creates many entries, with `values` in quick
/// succession.
fn learning(seed: u64, overwrites: bool, values: &[u64]) -> World {
    let count = 2 + seed as usize % 3;
    let mut world = World::new(count, seed);
    world.nodes.iter_mut().for_each(|node| node.memory.overwrites = overwrites);
    world.losses = (1 + world.random.u64(3..40), 14_000);
    for number in 0..40 {
        let (mut at, node) = (world.random.u64(0..14_000), world.random.usize(..count));
        for &value in values {
            world.plan(at, Happening::Add { node, number, value });
            at += world.random.u64(1..10);
        }
    }
    world.run(15_000);
    world
}

/// Resync data cannot be older than an entry that was never changed. So if an entry is missing, its change was not sent.
#[test]
fn new_entries_during_resyncs_reach_all_peers() {
    let mut broken = 0;
    for seed in 0..100 {
        for overwrites in [false, true] {
            let world = learning(seed, overwrites, &[1]);
            broken += world.broken;
            converges(world);
        }
    }
    assert!(broken > 1000, "{broken} connections broke");
}

/// Tables that treat resync data as possibly outdated lose nothing.
#[test]
fn changes_during_resyncs_reach_all_peers() {
    (0..100).for_each(|seed| converges(learning(seed, false, &[1, 2, 3])));
}
