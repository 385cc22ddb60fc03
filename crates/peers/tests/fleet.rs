//! A table that adds up the parts of all members of a fleet, in virtual time: with delays, clocks that differ by hours, broken
//! connections, partitions and restarts. Events are derived from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

use fastrand::Rng;
use peers::{Group, GroupCommand, LinkId, PeersSection, SectionSettings, Stick, Tables};
use state::table::{Aggregate, Column, DataType, KeyType, ServerKey, Table, TableSettings};

/// The interval of sending, in milliseconds.
const EVERY: u64 = 20;

/// The period of the rate, in milliseconds.
const PERIOD: u32 = 10_000;

fn table(local: usize, names: &[String], expire_ms: u32) -> Arc<Table> {
    let others = names.iter().enumerate().filter(|(place, _)| *place != local);
    Table::new(TableSettings {
        name: "t".into(),
        kind: KeyType::Int,
        key_length: 4,
        size: 1000,
        expire_ms,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![
            Column::new(DataType::HttpReqCnt, 1, 0),
            Column::new(DataType::HttpReqRate, 1, PERIOD),
            Column::new(DataType::ConnCur, 1, 0),
        ],
        peers: Some("p".into()),
        aggregate: Some(Aggregate {
            every_ms: EVERY as u32,
            members: others.map(|(_, name)| name.as_str().into()).collect(),
        }),
    })
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

fn bytes(text: &str) -> Box<[u8]> {
    text.as_bytes().into()
}

enum Event {
    Arrives(usize),
    Established(usize),
    /// A side of a connection receives bytes, or the end.
    Receives(usize, usize, Option<Vec<u8>>),
    Timer(usize),
    /// A node sends its changes.
    Release(usize),
    /// A request at a node for a key.
    Count(usize, u32),
    Restart(usize),
    /// Separates nodes, or joins all of them.
    Partition(Vec<bool>),
}

struct Connection {
    nodes: [usize; 2],
    links: [Option<LinkId>; 2],
    /// When the last bytes to each side arrive.
    last: [u64; 2],
    broken: bool,
}

struct Node {
    group: Group,
    stick: Stick,
    table: Arc<Table>,
    links: BTreeMap<LinkId, (usize, usize)>,
    /// How far the clock is ahead, in milliseconds.
    skew: u64,
    timer: u64,
    is_due: bool,
}

/// A node, a key, the value that the node shows, and the sum of all parts.
type WrongSum = (usize, u32, u64, u64);

struct World {
    now: u64,
    expire_ms: u32,
    nodes: Vec<Node>,
    connections: Vec<Connection>,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    events: HashMap<u64, Event>,
    order: u64,
    random: Rng,
    sides: Vec<bool>,
    /// The requests of each key.
    truth: BTreeMap<u32, u64>,
    lives: u32,
    delay: u64,
}

impl World {
    fn new(count: usize, seed: u64, expire_ms: u32, delay: u64) -> World {
        let mut world = World {
            now: 1_000,
            expire_ms,
            nodes: Vec::new(),
            connections: Vec::new(),
            agenda: BinaryHeap::new(),
            events: HashMap::new(),
            order: 0,
            random: Rng::with_seed(seed),
            sides: vec![false; count],
            truth: BTreeMap::new(),
            lives: 0,
            delay,
        };
        for number in 0..count {
            let node = world.life(number, count);
            world.nodes.push(node);
        }
        for node in 0..count {
            world.plan(world.now + 1, Event::Timer(node));
        }
        world
    }

    fn life(&mut self, number: usize, count: usize) -> Node {
        let names = names(count);
        let table = table(number, &names, self.expire_ms);
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let skew = self.random.u64(0..100_000_000);
        let (stick, definitions) = Stick::new([(&table, "t")], &all, number, self.now + skew);
        self.lives += 1;
        let section = PeersSection {
            local: bytes(&names[number]),
            peers: names.iter().map(|name| bytes(name)).collect(),
            ids: stick.names(&names[number]).map(|name| bytes(&name)).collect(),
            tables: definitions.into(),
            at_once: 50,
            features: stick.features(),
        };
        let settings = SectionSettings {
            section: Arc::new(section),
            shards: 0,
            parts: Box::default(),
            process: self.lives,
            successor: false,
            seed: self.random.u64(..),
        };
        let group = Group::new(settings, self.now + skew);
        Node { group, stick, table, links: BTreeMap::new(), skew, timer: 0, is_due: false }
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.agenda.push(Reverse((at, self.order)));
        self.events.insert(self.order, event);
    }

    fn are_parted(&self, nodes: [usize; 2]) -> bool {
        self.sides[nodes[0]] != self.sides[nodes[1]]
    }

    fn send(&mut self, connection: usize, side: usize, bytes: Option<Vec<u8>>) {
        let delay = self.random.u64(1..=self.delay);
        let own = &mut self.connections[connection];
        if own.broken {
            return;
        }
        let at = (self.now + delay).max(own.last[1 - side]);
        own.last[1 - side] = at;
        self.plan(at, Event::Receives(connection, 1 - side, bytes));
    }

    /// Executes the commands of a node, and sends output.
    fn attend(&mut self, node: usize) {
        let now = self.now + self.nodes[node].skew;
        let this = &mut self.nodes[node];
        this.group.settle(now, &mut this.stick);
        while let Some(command) = self.nodes[node].group.command() {
            match command {
                GroupCommand::Connect { peer, link } => {
                    let connection = self.connections.len();
                    let links = [Some(link), None];
                    self.connections.push(Connection {
                        nodes: [node, peer],
                        links,
                        last: [0, 0],
                        broken: false,
                    });
                    self.nodes[node].links.insert(link, (connection, 0));
                    self.plan(self.now + 1, Event::Arrives(connection));
                }
                GroupCommand::Close(link) => {
                    self.speak(node, link);
                    self.nodes[node].group.closed(link, now);
                    let Some((connection, side)) = self.nodes[node].links.remove(&link) else { continue };
                    self.connections[connection].links[side] = None;
                    self.send(connection, side, None);
                }
                GroupCommand::Done => panic!("no node stops"),
            }
        }
        let links: Vec<LinkId> = self.nodes[node].links.keys().copied().collect();
        links.into_iter().for_each(|link| self.speak(node, link));
        self.announce(node);
        let skew = self.nodes[node].skew;
        let next = self.nodes[node].group.next().into_iter().chain(self.nodes[node].stick.next()).min();
        let due = next.unwrap_or(u64::MAX).saturating_sub(skew);
        let due = due.clamp(self.now + 1, self.now + 500);
        if self.nodes[node].timer <= self.now || due < self.nodes[node].timer {
            self.nodes[node].timer = due;
            self.plan(due, Event::Timer(node));
        }
    }

    fn speak(&mut self, node: usize, link: LinkId) {
        let Some((connection, side)) = self.nodes[node].links.get(&link).copied() else { return };
        loop {
            let (mut out, this) = (Vec::new(), &mut self.nodes[node]);
            this.group.output(link, &mut out, 16_384, self.now + this.skew, &mut this.stick);
            if out.is_empty() {
                return;
            }
            self.send(connection, side, Some(out));
        }
    }

    fn close(&mut self, connection: usize, side: usize) {
        let node = self.connections[connection].nodes[side];
        if let Some(link) = self.connections[connection].links[side].take() {
            self.nodes[node].links.remove(&link);
            let now = self.now + self.nodes[node].skew;
            self.nodes[node].group.closed(link, now);
            self.attend(node);
        }
    }

    /// Ends a connection without notice: bytes in transit are lost, and the sides notice the end later.
    fn break_off(&mut self, connection: usize) {
        self.connections[connection].broken = true;
        for side in 0..2 {
            let after = self.random.u64(1..3_000);
            self.plan(self.now + after, Event::Receives(connection, side, None));
        }
    }

    fn run(&mut self, until: u64) {
        while let Some(Reverse((at, order))) = self.agenda.peek().copied()
            && at <= until
        {
            self.agenda.pop();
            self.now = at;
            let event = self.events.remove(&order).expect("it is on the agenda");
            self.handle(event);
        }
        self.now = until;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrives(connection) => {
                let nodes = self.connections[connection].nodes;
                if self.are_parted(nodes) {
                    return self.close(connection, 0);
                }
                let now = self.now + self.nodes[nodes[1]].skew;
                let Some(link) = self.nodes[nodes[1]].group.accept(now) else {
                    return self.close(connection, 0);
                };
                self.connections[connection].links[1] = Some(link);
                self.nodes[nodes[1]].links.insert(link, (connection, 1));
                self.plan(self.now + 1, Event::Established(connection));
            }
            Event::Established(connection) => {
                let node = self.connections[connection].nodes[0];
                if let Some(link) = self.connections[connection].links[0] {
                    let now = self.now + self.nodes[node].skew;
                    self.nodes[node].group.connected(link, now);
                    self.attend(node);
                }
            }
            Event::Receives(connection, side, None) => self.close(connection, side),
            Event::Receives(connection, side, Some(bytes)) => {
                let own = &self.connections[connection];
                let (node, link) = (own.nodes[side], own.links[side]);
                if let Some(link) = link.filter(|_| !own.broken) {
                    let this = &mut self.nodes[node];
                    this.group.receive(link, &bytes, self.now + this.skew, &mut this.stick);
                    self.attend(node);
                }
            }
            Event::Timer(node) => {
                let this = &mut self.nodes[node];
                if this.timer <= self.now {
                    this.group.tick(self.now + this.skew);
                    this.table.sweep(self.now + this.skew, 100);
                    self.attend(node);
                }
            }
            Event::Release(node) => {
                let now = self.now + self.nodes[node].skew;
                self.nodes[node].is_due = false;
                self.nodes[node].stick.release(None, now);
                self.attend(node);
            }
            Event::Count(node, key) => self.count(node, key),
            Event::Restart(node) => {
                let own: Vec<(usize, usize)> = self.nodes[node].links.values().copied().collect();
                for (connection, side) in own {
                    self.connections[connection].links[side] = None;
                    self.break_off(connection);
                }
                self.nodes[node] = self.life(node, self.nodes.len());
                self.attend(node);
            }
            Event::Partition(sides) => {
                self.sides = sides;
                for connection in 0..self.connections.len() {
                    let own = &self.connections[connection];
                    if !own.broken && self.are_parted(own.nodes) {
                        self.break_off(connection);
                    }
                }
            }
        }
    }

    fn count(&mut self, node: usize, key: u32) {
        let now = self.now + self.nodes[node].skew;
        {
            let entry = self.nodes[node].table.get(&key.to_be_bytes(), now).expect("there is room");
            entry.add(DataType::HttpReqCnt, 0, 1, now);
            entry.add(DataType::HttpReqRate, 0, 1, now);
            entry.touch(now);
        }
        *self.truth.entry(key).or_default() += 1;
        self.announce(node);
    }

    /// Plans the next sending, if there are changes.
    fn announce(&mut self, node: usize) {
        let own = &mut self.nodes[node];
        let is_new = own.table.last_change() > own.stick.latest(0, None);
        if is_new && !std::mem::replace(&mut own.is_due, true) {
            let has_owners = own.table.aggregate().is_some_and(|own| own.has_owners());
            let every = if has_owners { EVERY / 2 } else { EVERY };
            self.plan(self.now + every, Event::Release(node));
        }
    }

    /// Returns a value of an entry at a node: the sum, and the own part.
    fn value(&self, node: usize, key: u32, data: DataType) -> (u64, u64) {
        let node = &self.nodes[node];
        let now = self.now + node.skew;
        let Some(entry) = node.table.find(&key.to_be_bytes(), now) else { return (0, 0) };
        (entry.get(data, 0, now).unwrap_or(0), entry.get_own(data, 0, now).unwrap_or(0))
    }

    /// Returns the sums of own parts by key, or the nodes that show another sum.
    fn sums(&self) -> Result<BTreeMap<u32, u64>, Vec<WrongSum>> {
        let (mut wrong, mut sums) = (Vec::new(), BTreeMap::new());
        for key in self.truth.keys().copied() {
            for data in [DataType::HttpReqCnt, DataType::HttpReqRate] {
                let all = || (0..self.nodes.len()).map(|node| self.value(node, key, data));
                let sum = all().map(|(_, own)| own).sum();
                // The age of a period includes the time on the way, so a rate fades a little later elsewhere.
                let slack =
                    if data == DataType::HttpReqRate { sum / 20 + self.nodes.len() as u64 } else { 0 };
                let differs = |(_, (shown, _)): &(usize, (u64, u64))| shown.abs_diff(sum) > slack;
                wrong.extend(
                    all().enumerate().filter(differs).map(|(node, (shown, _))| (node, key, shown, sum)),
                );
                if data == DataType::HttpReqCnt {
                    sums.insert(key, sum);
                }
            }
        }
        if wrong.is_empty() { Ok(sums) } else { Err(wrong) }
    }
}

/// The smallest number of nodes and the seed of each run: with parts that are sent to all, and with owners.
fn seeds(count: u64) -> impl Iterator<Item = (usize, u64)> {
    (0..count).map(|seed| (3, seed)).chain((0..3).map(|seed| (9, seed)))
}

/// Plans requests for 20 keys at random nodes.
fn traffic(world: &mut World, count: u64, from: u64, until: u64) {
    for _ in 0..count {
        let at = world.random.u64(from..until);
        let node = world.random.usize(..world.nodes.len());
        let key = world.random.u32(0..20);
        world.plan(at, Event::Count(node, key));
    }
}

#[test]
fn sums_are_exact_after_losses_and_partitions() {
    for (first, seed) in seeds(8) {
        let count = first + seed as usize % 6;
        let mut world = World::new(count, seed, 3_600_000, 40);
        // The first requests arrive before the members are connected.
        traffic(&mut world, 5_000, 1_001, 80_000);
        traffic(&mut world, 500, 1_001, 1_500);
        for _ in 0..3 {
            let from = world.random.u64(10_000..50_000);
            let until = from + world.random.u64(500..15_000);
            let sides = (0..count).map(|_| world.random.bool()).collect();
            world.plan(from, Event::Partition(sides));
            world.plan(until, Event::Partition(vec![false; count]));
        }
        world.run(82_000);
        let sums = world.sums().unwrap_or_else(|wrong| panic!("{count} nodes, seed {seed}: {wrong:?}"));
        assert_eq!(sums, world.truth, "{count} nodes, seed {seed}");
    }
}

#[test]
fn parts_dropped_in_a_partition_come_back() {
    for (first, seed) in seeds(8) {
        let count = first + seed as usize % 4;
        let mut world = World::new(count, seed, 6_000, 40);
        // Each key is used within the lifetime on both sides, so that only the parts of separated nodes are dropped. The last node's
        // part does not change during the partition.
        for key in 0..5 {
            for node in 0..count {
                for turn in 0..if node == count - 1 { 5 } else { 40 } {
                    let at = 2_000 + turn * 2_000 + world.random.u64(0..1_500);
                    world.plan(at, Event::Count(node, key));
                }
            }
        }
        let sides: Vec<bool> = (0..count).map(|node| node == 0).collect();
        world.plan(15_000, Event::Partition(sides));
        world.run(40_000);
        let (alone, own) = world.value(0, 0, DataType::HttpReqCnt);
        assert!(alone == own && own > 0, "seed {seed}: {alone} {own}");
        world.plan(40_001, Event::Partition(vec![false; count]));
        world.run(83_000);
        let sums = world.sums().unwrap_or_else(|wrong| panic!("{count} nodes, seed {seed}: {wrong:?}"));
        assert_eq!(sums, world.truth, "{count} nodes, seed {seed}");
    }
}

#[test]
fn restarted_members_continue_and_count_nothing_twice() {
    for (first, seed) in seeds(8) {
        let count = first + seed as usize % 4;
        let mut world = World::new(count, seed, 3_600_000, 10);
        traffic(&mut world, 3_000, 2_000, 30_000);
        for turn in 0..3 {
            let node = world.random.usize(..count);
            // Nothing is on its way when the process is killed, so nothing is lost.
            world.plan(40_000 + turn * 30_000, Event::Restart(node));
            traffic(&mut world, 1_000, 40_001 + turn * 30_000, 60_000 + turn * 30_000);
            traffic(&mut world, 300, 40_001 + turn * 30_000, 42_000 + turn * 30_000);
        }
        world.run(135_000);
        let sums = world.sums().unwrap_or_else(|wrong| panic!("{count} nodes, seed {seed}: {wrong:?}"));
        assert_eq!(sums, world.truth, "{count} nodes, seed {seed}");
    }
}

/// Whichever of the two restarted members connects to the other one first, the third one has the parts of both.
#[test]
fn members_that_restart_together_get_their_parts_from_a_third() {
    for (first, seed) in seeds(16) {
        let count = first + seed as usize % 4;
        let mut world = World::new(count, seed, 3_600_000, 40);
        traffic(&mut world, 2_000, 2_000, 30_000);
        // With owners, three members have a part.
        let kept = world.random.usize(..count);
        let restarted = (0..count).filter(|node| *node != kept).take(if count > 8 { 2 } else { count });
        for node in restarted {
            let at = 40_000 + world.random.u64(0..50);
            world.plan(at, Event::Restart(node));
        }
        traffic(&mut world, 500, 40_100, 60_000);
        traffic(&mut world, 300, 40_100, 42_000);
        world.run(80_000);
        let sums = world.sums().unwrap_or_else(|wrong| panic!("{count} nodes, seed {seed}: {wrong:?}"));
        assert_eq!(sums, world.truth, "{count} nodes, seed {seed}");
    }
}

/// The others cannot return the part of a member that is restarted in a partition, and must not keep it afterwards.
#[test]
fn former_parts_do_not_remain_at_members_that_could_not_return_them() {
    for (first, seed) in seeds(8) {
        let count = if first == 3 { 2 + seed as usize % 4 } else { first + seed as usize };
        let mut world = World::new(count, seed, 3_600_000, 20);
        traffic(&mut world, 2_000, 2_000, 30_000);
        world.plan(35_000, Event::Partition((0..count).map(|node| node == 0).collect()));
        world.plan(40_000, Event::Restart(0));
        // Some keys are counted by the new process, and the others are not.
        for key in 0..10 {
            world.plan(48_000 + u64::from(key), Event::Count(0, key));
        }
        let end = 41_000 + world.random.u64(0..20_000);
        world.plan(end, Event::Partition(vec![false; count]));
        world.run(80_000);
        let sums = world.sums().unwrap_or_else(|wrong| panic!("{count} nodes, seed {seed}: {wrong:?}"));
        assert!(sums.iter().all(|(key, sum)| *sum <= world.truth[key]), "{count} nodes, seed {seed}");
    }
}

/// One client sends each request to a random node. A request passes if the node's view of the rate is below the limit, and each is
/// counted. In any window, at most k(T + 2L)/W of the limit passes in addition.
#[test]
fn requests_beyond_a_limit_stay_within_the_bound() {
    const LIMIT: u64 = 100;
    for (count, delay, times) in [(3, 15, 10), (12, 15, 10), (12, 1, 50)] {
        let mut world = World::new(count, count as u64, 3_600_000, delay);
        world.run(20_000);
        let per_second = LIMIT * times * 1000 / u64::from(PERIOD);
        let mut passed = Vec::new();
        for request in 0..25 * per_second {
            let at = 20_000 + request * 1000 / per_second;
            world.run(at);
            let node = world.random.usize(..count);
            if world.value(node, 1, DataType::HttpReqRate).0 < LIMIT {
                passed.push(at);
            }
            world.handle(Event::Count(node, 1));
        }
        let in_window = |from: &u64| {
            passed.iter().filter(|at| (*from..*from + u64::from(PERIOD)).contains(at)).count() as u64
        };
        let worst = passed.iter().map(in_window).max().unwrap_or(0);
        let excess = (LIMIT * times * (EVERY + 2 * delay)).div_ceil(u64::from(PERIOD));
        assert!((LIMIT..=LIMIT + excess).contains(&worst), "{count} nodes: {worst} with {excess} allowed");
    }
}
