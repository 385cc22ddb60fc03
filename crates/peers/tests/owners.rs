//! Groups of 3 to 1,000 members in virtual time, without sessions: the tables of each member, and messages that are delayed or
//! lost. Members are killed, restarted and separated. Events are derived from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use fastrand::Rng;
use peers::{Definition, EntryOrigin, EntryValue, PeerEntry, Stick, Tables};
use state::table::{Aggregate, Column, DataType, KeyType, ServerKey, Table, TableEntry, TableSettings};

/// The interval of sending, in milliseconds.
const EVERY: u64 = 40;

/// The period of the rate, in milliseconds.
const PERIOD: u32 = 4_000;

/// The requests that a client may send in a period.
const LIMIT: u64 = 100;

/// How long it takes to notice that a member is gone, at most.
const NOTICE: u64 = 3_000;

/// A message: the definition at the receiver, the number of the change, and the entry.
type Sent = (usize, u64, Vec<u8>, Option<u32>, Vec<EntryValue>);

enum Event {
    Count(usize, u32),
    Release(usize),
    Tick(usize),
    /// From, to, the lives of both, the definition at the sender, and the message. Without a message, a member has returned all
    /// parts of another.
    Arrives(usize, usize, [u32; 2], usize, Option<Sent>),
    /// A member notices that it has no session with another, or a new one.
    Presence(usize, usize, bool),
    Kill(usize),
    Start(usize),
    /// Separates members, or joins all of them.
    Part(Vec<bool>),
}

struct Node {
    stick: Stick,
    table: Arc<Table>,
    definitions: Vec<Definition>,
    /// By peer and definition: the number of the last change that was sent, and of the last that arrived.
    cursors: Vec<HashMap<usize, [u64; 2]>>,
    present: HashSet<usize>,
    /// The members that have not returned the part of this one.
    awaited: HashSet<usize>,
    is_up: bool,
    life: u32,
    released_at: u64,
    is_due: bool,
    tick: u64,
    /// The number of messages received.
    received: u64,
}

struct World {
    now: u64,
    nodes: Vec<Node>,
    names: Vec<String>,
    agenda: BinaryHeap<Reverse<(u64, u64)>>,
    events: HashMap<u64, Event>,
    order: u64,
    random: Rng,
    sides: Vec<bool>,
    delay: u64,
    /// The requests by key that are not lost.
    truth: BTreeMap<u32, u64>,
}

fn table(local: usize, names: &[String]) -> Arc<Table> {
    let others = names.iter().enumerate().filter(|(place, _)| *place != local);
    Table::new(TableSettings {
        name: "t".into(),
        kind: KeyType::Int,
        key_length: 4,
        size: 1000,
        expire_ms: 3_600_000,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![
            Column::new(DataType::HttpReqCnt, 1, 0),
            Column::new(DataType::HttpReqRate, 1, PERIOD),
            Column::new(DataType::ConnCur, 1, 0),
            Column::new(DataType::Gpt0, 1, 0),
        ],
        peers: Some("p".into()),
        aggregate: Some(Aggregate {
            every_ms: EVERY as u32,
            members: others.map(|(_, name)| name.as_str().into()).collect(),
        }),
    })
}

impl World {
    fn new(count: usize, seed: u64, delay: u64) -> World {
        let mut world = World {
            now: 10_000,
            nodes: Vec::new(),
            names: (0..count).map(|number| format!("n{number}")).collect(),
            agenda: BinaryHeap::new(),
            events: HashMap::new(),
            order: 0,
            random: Rng::with_seed(seed),
            sides: vec![false; count],
            delay,
            truth: BTreeMap::new(),
        };
        for number in 0..count {
            let node = world.life(number, 0);
            world.nodes.push(node);
        }
        for node in 0..count {
            for peer in (0..count).filter(|peer| *peer != node) {
                world.meet(node, peer);
            }
            world.nodes[node].awaited.clear();
            world.nodes[node].stick.is_synchronized(10_000);
            world.plan_tick(node);
        }
        world
    }

    fn life(&self, number: usize, life: u32) -> Node {
        let table = table(number, &self.names);
        let all: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let (stick, definitions) = Stick::new([(&table, "t")], &all, number, self.now);
        Node {
            stick,
            table,
            definitions,
            cursors: vec![HashMap::new(); self.names.len()],
            present: HashSet::new(),
            awaited: HashSet::new(),
            is_up: true,
            life,
            released_at: 0,
            is_due: false,
            tick: u64::MAX,
            received: 0,
        }
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.agenda.push(Reverse((at, self.order)));
        self.events.insert(self.order, event);
    }

    fn plan_tick(&mut self, node: usize) {
        let next = self.nodes[node].stick.next().unwrap_or(u64::MAX);
        if next < self.nodes[node].tick {
            let at = next.max(self.now + 1);
            self.nodes[node].tick = at;
            self.plan(at, Event::Tick(node));
        }
    }

    /// A session with a peer is established.
    fn meet(&mut self, node: usize, peer: usize) {
        let features = self.nodes[peer].stick.features();
        let own = &mut self.nodes[node];
        for cursors in own.cursors[peer].values_mut() {
            cursors[0] = cursors[1];
        }
        own.present.insert(peer);
        own.awaited.insert(peer);
        own.stick.note_presence(peer, true, self.now);
        own.stick.note_program(peer, features, self.now);
    }

    /// Returns the receiver's definition for a table of the sender.
    fn target(&self, from: usize, to: usize, definition: usize) -> usize {
        if self.nodes[from].definitions[1].of_peer {
            // The part of the sender is that of the peer at the receiver.
            return if definition == 0 { 1 } else { definition };
        }
        let own = &self.nodes[from].definitions[definition];
        let name = if own.of_peer { format!("t@{}", self.names[to]).into_bytes() } else { own.name.to_vec() };
        let of_sender = format!("t@{}", self.names[from]).into_bytes();
        let fits = |other: &Definition| {
            if other.of_peer { name == of_sender } else { *other.name == *name }
        };
        self.nodes[to].definitions.iter().position(fits).expect("the peer has the table")
    }

    fn send(&mut self, from: usize, to: usize, definition: usize, message: Option<Sent>) {
        if self.sides[from] == self.sides[to] && self.nodes[to].is_up {
            // Messages arrive in order.
            let at = self.now + self.delay;
            let lives = [self.nodes[from].life, self.nodes[to].life];
            self.plan(at, Event::Arrives(from, to, lives, definition, message));
        }
    }

    /// Sends the due messages.
    fn flush(&mut self, node: usize) {
        for peer in 0..self.nodes.len() {
            let own = &mut self.nodes[node];
            if !own.present.contains(&peer) || own.awaited.contains(&peer) || !own.stick.take_due(peer) {
                continue;
            }
            for definition in 0..self.nodes[node].definitions.len() {
                let own = &mut self.nodes[node];
                let latest = own.stick.latest(definition, Some(peer));
                let after = own.cursors[peer].get(&definition).map_or(0, |cursors| cursors[0]);
                if latest <= after {
                    continue;
                }
                let mut messages = Vec::new();
                own.stick.changed(definition, after, Some(peer), self.now, &mut |number, row| {
                    messages.push((number, row.key.to_vec(), row.expire, row.values.to_vec()));
                    true
                });
                own.cursors[peer].entry(definition).or_default()[0] = latest;
                let target = self.target(node, peer, definition);
                for (number, key, expire, values) in messages {
                    self.send(node, peer, definition, Some((target, number, key, expire, values)));
                }
            }
        }
        self.plan_tick(node);
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
            Event::Count(node, key) => self.count(node, key),
            Event::Release(node) => {
                let own = &mut self.nodes[node];
                own.is_due = false;
                own.released_at = self.now;
                own.stick.release(None, self.now);
                self.flush(node);
            }
            Event::Tick(node) => {
                let own = &mut self.nodes[node];
                own.tick = u64::MAX;
                if own.stick.tick(self.now) {
                    self.flush(node);
                }
                self.plan_tick(node);
                self.announce(node);
            }
            Event::Arrives(from, to, lives, definition, message) => {
                let is_valid = [from, to].map(|node| self.nodes[node].life) == lives
                    && self.nodes[to].is_up
                    && self.sides[from] == self.sides[to];
                if is_valid {
                    self.arrive(from, to, definition, message);
                }
            }
            Event::Presence(node, peer, is_present) => {
                if is_present {
                    self.meet(node, peer);
                    self.return_parts(node, peer);
                } else if self.nodes[node].present.remove(&peer) {
                    self.nodes[node].stick.note_presence(peer, false, self.now);
                }
                self.plan_tick(node);
            }
            Event::Kill(node) => {
                self.nodes[node].is_up = false;
                for peer in (0..self.nodes.len()).filter(|peer| *peer != node) {
                    let at = self.now + self.random.u64(1..NOTICE);
                    self.plan(at, Event::Presence(peer, node, false));
                }
            }
            Event::Start(node) => {
                let life = self.nodes[node].life + 1;
                self.nodes[node] = self.life(node, life);
                for peer in (0..self.nodes.len()).filter(|peer| *peer != node) {
                    // Sessions with the earlier process end.
                    let other = &mut self.nodes[peer];
                    if other.present.remove(&node) {
                        other.stick.note_presence(node, false, self.now);
                    }
                    other.cursors[node].clear();
                    for (one, other) in [(node, peer), (peer, node)] {
                        self.plan(self.now + NOTICE, Event::Presence(one, other, true));
                    }
                }
                self.plan_tick(node);
            }
            Event::Part(sides) => {
                let before = std::mem::replace(&mut self.sides, sides);
                for one in 0..before.len() {
                    for other in (0..before.len()).filter(|other| *other != one) {
                        let [was, is] = [&before, &self.sides].map(|sides| sides[one] == sides[other]);
                        if was && !is {
                            let at = self.now + self.random.u64(1..NOTICE);
                            self.plan(at, Event::Presence(one, other, false));
                        } else if is && !was {
                            self.plan(self.now + NOTICE, Event::Presence(one, other, true));
                        }
                    }
                }
            }
        }
    }

    /// Returns the part of a peer to it.
    fn return_parts(&mut self, node: usize, peer: usize) {
        let mut rows = Vec::new();
        for definition in 0..self.nodes[node].definitions.len() {
            let own = &mut self.nodes[node];
            let mut cursor = own.stick.is_part_of(definition, peer).then_some(0);
            while let Some(from) = cursor {
                cursor = own.stick.walk(definition, from, Some(peer), self.now, &mut |row| {
                    rows.push((row.key.to_vec(), row.expire, row.values.to_vec()));
                    true
                });
            }
        }
        let name = format!("t@{}", self.names[peer]).into_bytes();
        let target = self.nodes[peer].definitions.iter().position(|own| *own.name == *name);
        for (key, expire, values) in rows {
            let target = target.expect("each member has its part");
            self.send(node, peer, usize::MAX, Some((target, 0, key, expire, values)));
        }
        self.send(node, peer, usize::MAX, None);
    }

    fn arrive(&mut self, from: usize, to: usize, definition: usize, message: Option<Sent>) {
        let own = &mut self.nodes[to];
        let Some((target, number, key, expire, values)) = message else {
            own.awaited.remove(&from);
            // Other members may be unreachable.
            if own.awaited.is_empty() {
                own.stick.is_synchronized(self.now);
            }
            self.flush(to);
            return;
        };
        own.received += 1;
        let row = PeerEntry { key: &key, expire, values: &values };
        let origin = EntryOrigin::Remote { peer: from, resync: definition == usize::MAX };
        own.stick.learn(target, &row, origin, self.now);
        if definition != usize::MAX {
            let cursors = self.nodes[from].cursors[to].entry(definition).or_default();
            cursors[1] = cursors[1].max(number);
        }
        self.plan_tick(to);
        self.announce(to);
    }

    /// Plans the next sending, if there are changes.
    fn announce(&mut self, node: usize) {
        let own = &mut self.nodes[node];
        let latest = own.table.last_change();
        let is_new = latest > own.stick.latest(0, None);
        if is_new && !std::mem::replace(&mut own.is_due, true) {
            let every =
                if own.table.aggregate().is_some_and(Aggregate::has_owners) { EVERY / 2 } else { EVERY };
            let at = (own.released_at + every).max(self.now);
            self.plan(at, Event::Release(node));
        }
    }

    /// Changes an entry as a request does.
    fn change(&mut self, node: usize, key: u32, change: impl FnOnce(&TableEntry<'_>, u64)) {
        {
            let entry = self.nodes[node].table.get(&key.to_be_bytes(), self.now).expect("there is room");
            change(&entry, self.now);
            entry.touch(self.now);
        }
        self.announce(node);
    }

    fn count(&mut self, node: usize, key: u32) {
        self.change(node, key, |entry, now| {
            entry.add(DataType::HttpReqCnt, 0, 1, now);
            entry.add(DataType::HttpReqRate, 0, 1, now);
        });
        *self.truth.entry(key).or_default() += 1;
    }

    fn value(&self, node: usize, key: u32, data: DataType) -> u64 {
        let entry = self.nodes[node].table.find(&key.to_be_bytes(), self.now);
        entry.and_then(|entry| entry.get(data, 0, self.now)).unwrap_or(0)
    }

    /// Returns a node that sends sums.
    fn owner(&mut self) -> Option<usize> {
        let count = self.nodes.len();
        let mut nodes: Vec<usize> = (0..count).filter(|node| self.nodes[*node].is_up).collect();
        nodes.retain(|node| {
            let own = &self.nodes[*node];
            own.definitions[1].of_peer && own.stick.latest(2, Some((node + 1) % count)) > 0
        });
        self.random.choice(nodes)
    }

    /// Returns the nodes that do not show the number of requests of a key.
    fn wrong(&self) -> Vec<(usize, u32, u64, u64)> {
        let nodes = || (0..self.nodes.len()).filter(|node| self.nodes[*node].is_up);
        let all = self.truth.iter().flat_map(|(key, truth)| nodes().map(move |node| (node, *key, *truth)));
        let shown =
            all.map(|(node, key, truth)| (node, key, self.value(node, key, DataType::HttpReqCnt), truth));
        shown.filter(|(_, _, shown, truth)| shown != truth).collect()
    }
}

/// Sends the requests of one client to random nodes for some time, and returns the largest number that passed in a period. Members
/// are killed and restarted at these times, owners of the client's key if there are any.
fn flood(world: &mut World, times: u64, length: u64, kills: &[u64]) -> u64 {
    let per_second = LIMIT * times * 1000 / u64::from(PERIOD);
    let from = world.now;
    let mut passed = Vec::new();
    let mut started = vec![from; world.nodes.len()];
    let mut lives: Vec<u32> = world.nodes.iter().map(|node| node.life).collect();
    let mut kills = kills.iter().map(|at| from + at).peekable();
    for request in 0..length * per_second / 1000 {
        let at = from + request * 1000 / per_second;
        world.run(at);
        if kills.next_if(|kill| *kill <= at).is_some() {
            let node = world.owner().unwrap_or_else(|| world.random.usize(..world.nodes.len()));
            world.plan(at, Event::Kill(node));
            world.plan(at + 1_500, Event::Start(node));
        }
        for (node, own) in world.nodes.iter().enumerate() {
            if own.life != lives[node] {
                lives[node] = own.life;
                // Until it has connected to the others.
                started[node] = at + NOTICE + 500;
            }
        }
        let node = world.random.usize(..world.nodes.len());
        if !world.nodes[node].is_up || at < started[node] {
            continue;
        }
        if world.value(node, 1, DataType::HttpReqRate) < LIMIT {
            passed.push(at);
        }
        world.count(node, 1);
    }
    let in_window = |from: &u64| {
        passed.iter().filter(|at| (*from..*from + u64::from(PERIOD)).contains(at)).count() as u64
    };
    passed.iter().map(in_window).max().unwrap_or(0)
}

/// In any window, at most k(T + 2L)/W of a limit passes in addition, however many members there are, even if members are killed and
/// restarted. The requests that a killed member has not sent are lost.
#[test]
fn the_bound_holds_for_any_number_of_members() {
    for (count, delay, times, kills) in
        [(3, 15, 10, 1), (8, 15, 10, 2), (50, 15, 10, 5), (50, 1, 50, 5), (1000, 5, 10, 3)]
    {
        let mut world = World::new(count, count as u64 + times, delay);
        let times_of_kills: Vec<u64> = (0..kills).map(|kill| 2_000 + kill * 500).collect();
        let worst = flood(&mut world, times, 7_000, &times_of_kills);
        let excess = (LIMIT * times * (EVERY + 2 * delay)).div_ceil(u64::from(PERIOD)) + kills;
        assert!((LIMIT..=LIMIT + excess).contains(&worst), "{count} nodes: {worst}, {excess} allowed");
    }
}

#[test]
fn sums_are_exact_after_partitions_and_restarts() {
    for (count, seeds) in [(3, 4), (8, 4), (12, 8), (50, 2)] {
        for seed in 0..seeds {
            let mut world = World::new(count, seed, 20);
            let keys = 10;
            let traffic = |world: &mut World, from: u64, until: u64, skip: &[usize]| {
                for _ in 0..2_000 {
                    let (at, node) = (world.random.u64(from..until), world.random.usize(..count));
                    let key = world.random.u32(..keys);
                    if !skip.contains(&node) {
                        world.plan(at, Event::Count(node, key));
                    }
                }
            };
            let restarted = [world.random.usize(..count), world.random.usize(..count)];
            traffic(&mut world, 10_000, 40_000, &[]);
            let sides = (0..count).map(|_| world.random.bool()).collect();
            world.plan(20_000, Event::Part(sides));
            world.plan(30_000, Event::Part(vec![false; count]));
            world.run(50_000);
            assert_eq!(world.wrong(), [], "{count} nodes, seed {seed}, after a partition");
            // Nothing is on its way, so nothing is lost.
            for node in restarted {
                world.plan(50_000, Event::Kill(node));
                world.plan(52_000, Event::Start(node));
            }
            traffic(&mut world, 50_001, 65_000, &restarted);
            traffic(&mut world, 65_001, 70_000, &[]);
            world.run(80_000);
            assert_eq!(world.wrong(), [], "{count} nodes, seed {seed}, after restarts");
        }
    }
}

/// Connections end before the members have noticed that owners of their keys were killed. No member may continue to count them,
/// although no part changes after the keys have new owners.
#[test]
fn connections_that_end_while_owners_are_gone_are_not_counted() {
    for (count, kills, seeds) in [(9, 1, 4), (9, 2, 4), (12, 6, 4), (50, 2, 1)] {
        for seed in 0..seeds {
            let mut world = World::new(count, seed, 20);
            let keys: Vec<(u32, usize)> =
                (0..60).map(|key| (key, world.random.usize(kills..count))).collect();
            for (key, node) in &keys {
                world.change(*node, *key, |entry, now| assert!(entry.set(DataType::ConnCur, 0, 1, now)));
            }
            world.run(12_000);
            let shown = |world: &World| {
                let nodes = (0..count).filter(|node| world.nodes[*node].is_up);
                let all = nodes.flat_map(|node| keys.iter().map(move |(key, _)| (node, *key)));
                let value = |(node, key)| (node, key, world.value(node, key, DataType::ConnCur));
                all.map(value).filter(|(.., value)| *value > 0).collect::<Vec<_>>()
            };
            assert_eq!(shown(&world).len(), count * keys.len(), "all members know all connections");
            (0..kills).for_each(|node| world.plan(12_001, Event::Kill(node)));
            world.run(12_100);
            for (key, node) in &keys {
                world.change(*node, *key, |entry, _| entry.take(DataType::ConnCur));
            }
            world.run(40_000);
            assert_eq!(shown(&world), [], "{count} nodes, seed {seed}, {kills} of them killed");
        }
    }
}

/// All members have the tag that was set last, even if members were restarted and got outdated tags back.
#[test]
fn tags_have_the_last_value_at_all_members() {
    for (count, seeds) in [(9, 6), (12, 4), (50, 1)] {
        for seed in 0..seeds {
            let mut world = World::new(count, seed, 20);
            let mut tags = BTreeMap::new();
            for turn in 1..=32 {
                for key in 0..10 {
                    // Some members also count.
                    let node = world.random.usize(..count);
                    world.count(node, key);
                    if turn % 4 > 0 {
                        let set =
                            |entry: &TableEntry<'_>, now| assert!(entry.set(DataType::Gpt0, 0, turn, now));
                        world.change(node, key, set);
                        tags.insert(key, turn);
                    }
                }
                if turn % 4 == 0 {
                    let node = world.random.usize(..count);
                    world.run(world.now + 500);
                    world.plan(world.now, Event::Kill(node));
                    world.plan(world.now + 1_000, Event::Start(node));
                    world.run(world.now + 15_000);
                }
                world.run(world.now + 500);
                for (key, tag) in &tags {
                    for node in 0..count {
                        let shown = world.value(node, *key, DataType::Gpt0);
                        assert_eq!(shown, *tag, "{count} nodes, seed {seed}, turn {turn}: {key} at {node}");
                    }
                }
            }
        }
    }
}

/// A thousand members, of which some are killed for good: the others agree.
#[test]
fn a_thousand_members_agree() {
    let mut world = World::new(1000, 1, 5);
    for _ in 0..200 {
        let (at, node) = (world.random.u64(10_000..14_000), world.random.usize(..1000));
        let key = world.random.u32(..20);
        world.plan(at, Event::Count(node, key));
    }
    world.run(15_000);
    for node in [3, 500, 501] {
        world.plan(15_001, Event::Kill(node));
    }
    world.run(22_000);
    for _ in 0..50 {
        let (at, node) = (world.random.u64(22_000..23_000), world.random.usize(600..1000));
        let key = world.random.u32(..20);
        world.plan(at, Event::Count(node, key));
    }
    world.run(26_000);
    assert_eq!(world.wrong(), []);
}
