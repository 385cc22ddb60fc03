//! A `peers` section with simulated connections: resync requests, the choice of connections, and timing.

mod memory;

use std::collections::BTreeMap;

use memory::{Memory, counters, section};
use peers::{Group, GroupCommand, LinkId, ResyncStage, SectionSettings, ShowContext, TIMEOUT, Tables};

/// A process in the section `A`, `B`, `C`.
struct Node {
    group: Group,
    memory: Memory,
}

fn node(name: &str, process: u32, successor: bool, now: u64) -> Node {
    let section = section(name, &["A", "B", "C"], vec![counters("t", 60_000)]);
    let memory = Memory::new(&section.tables);
    let settings = SectionSettings {
        section,
        shards: 0,
        parts: Box::default(),
        process,
        successor,
        seed: u64::from(process),
    };
    Node { group: Group::new(settings, now), memory }
}

impl Node {
    /// Returns the connections to be opened now.
    fn dials(&mut self) -> BTreeMap<usize, LinkId> {
        let mut dials = BTreeMap::new();
        while let Some(command) = self.group.command() {
            if let GroupCommand::Connect { peer, link } = command {
                dials.insert(peer, link);
            }
        }
        dials
    }

    fn commands(&mut self) -> Vec<GroupCommand> {
        std::iter::from_fn(|| self.group.command()).collect()
    }

    fn says(&mut self, link: LinkId, now: u64) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let before = out.len();
            self.group.output(link, &mut out, usize::MAX, now, &mut self.memory);
            if out.len() == before {
                return out;
            }
        }
    }

    fn hears(&mut self, link: LinkId, bytes: &[u8], now: u64) {
        self.group.receive(link, bytes, now, &mut self.memory);
    }

    /// A peer connects and sends a greeting; returns the connection, and the answer.
    fn greeted(&mut self, greeting: &str, now: u64) -> (LinkId, Vec<u8>) {
        let link = self.group.accept(now).expect("there is room");
        self.hears(link, greeting.as_bytes(), now);
        (link, self.says(link, now))
    }
}

/// Exchanges all output of two nodes over a connection.
fn talk(a: &mut Node, a_link: LinkId, b: &mut Node, b_link: LinkId, now: u64) {
    loop {
        let (to_b, to_a) = (a.says(a_link, now), b.says(b_link, now));
        if to_a.is_empty() && to_b.is_empty() {
            return;
        }
        b.hears(b_link, &to_b, now);
        a.hears(a_link, &to_a, now);
    }
}

/// Connects `a` to `b`, which has this index.
fn join(a: &mut Node, b: &mut Node, place: usize, now: u64) -> (LinkId, LinkId) {
    let a_link = a.dials()[&place];
    let b_link = b.group.accept(now).expect("there is room");
    a.group.connected(a_link, now);
    talk(a, a_link, b, b_link, now);
    (a_link, b_link)
}

const TABLE: &[u8] = &[10, 130, 8, 1, 1, b't', 6, 32, 4, 0xf0, 0];

#[test]
fn other_peers_are_connected_and_one_is_asked_for_a_resync() {
    let mut a = node("A", 10, false, 0);
    let dials = a.dials();
    assert_eq!(dials.keys().copied().collect::<Vec<_>>(), [1, 2]);
    let mut asked = 0;
    for (peer, name) in [(1, "B"), (2, "C")] {
        a.group.connected(dials[&peer], 0);
        assert_eq!(a.says(dials[&peer], 0), format!("HAProxyS 2.1\n{name}\nA 10 1\n").as_bytes());
        a.hears(dials[&peer], b"200\n", 0);
        asked += usize::from(a.says(dials[&peer], 0) == [0, 0]);
    }
    assert_eq!((asked, a.group.stage()), (1, ResyncStage::Remote));
}

#[test]
fn after_a_partial_resync_another_peer_is_asked() {
    let mut a = node("A", 10, false, 0);
    let dials = a.dials();
    for link in dials.values() {
        a.group.connected(*link, 0);
        a.hears(*link, b"200\n", 0);
    }
    let asked = |a: &mut Node| {
        let asks: Vec<LinkId> =
            dials.values().copied().filter(|link| a.says(*link, 0).ends_with(&[0, 0])).collect();
        assert_eq!(asks.len(), 1, "{asks:?}");
        asks[0]
    };
    let first = asked(&mut a);
    assert_eq!(a.group.asked(), Some(first));
    a.hears(first, &[0, 2], 0);
    assert_eq!(a.says(first, 0), [0, 3]);
    assert_eq!(a.group.stage(), ResyncStage::Remote);
    let second = dials.values().copied().find(|link| *link != first).unwrap();
    assert_eq!((a.group.asked(), a.group.asked()), (Some(second), None), "it is silent otherwise");
    assert_eq!(a.says(second, 0), [0, 0]);
    a.hears(second, &[0, 1], 0);
    assert_eq!(a.says(second, 0), [0, 3]);
    assert_eq!(a.group.stage(), ResyncStage::Finished);
}

#[test]
fn losing_the_teacher_selects_another() {
    let mut a = node("A", 10, false, 0);
    let dials = a.dials();
    for link in dials.values() {
        a.group.connected(*link, 0);
        a.hears(*link, b"200\n", 0);
        a.says(*link, 0);
    }
    let teacher = (1..3).find(|peer| a.group.view(*peer).unwrap().teaches).unwrap();
    a.group.closed(dials[&teacher], 100);
    a.group.tick(100);
    let other = 3 - teacher;
    assert!(a.group.view(other).unwrap().teaches);
    // The wait for the resync is bounded even if no peer is left.
    a.group.closed(dials[&other], 200);
    a.group.tick(200 + 5000);
    assert_eq!(a.group.stage(), ResyncStage::Finished);
}

#[test]
fn without_a_teacher_a_process_considers_itself_complete() {
    let mut a = node("A", 10, false, 0);
    for link in a.dials().into_values() {
        a.group.closed(link, 1);
    }
    a.group.tick(4999);
    assert_eq!(a.group.stage(), ResyncStage::Remote);
    a.group.tick(5000);
    assert_eq!(a.group.stage(), ResyncStage::Finished);
}

#[test]
fn successors_are_taught_by_the_predecessor_and_use_its_number() {
    let mut old = node("A", 10, false, 0);
    let dials = old.dials();
    old.group.connected(dials[&1], 0);
    old.hears(dials[&1], b"200\n", 0);
    old.hears(dials[&1], &[0, 1], 0);
    for number in 0..1000_u64 {
        old.memory.count(0, format!("k{number}").as_bytes(), number, 0);
    }
    let mut new = node("A", 20, true, 1000);
    assert_eq!((new.dials().len(), new.group.stage()), (0, ResyncStage::Local));
    // Other peers come later.
    let (_, answer) = new.greeted("HAProxyS 2.1\nA\nB 1 1\n", 1000);
    assert_eq!(answer, b"300\n");

    old.group.stop(3, 1000);
    let commands = old.commands();
    assert!(commands.contains(&GroupCommand::Close(dials[&1])), "{commands:?}");
    let link = commands.iter().find_map(|command| match command {
        GroupCommand::Connect { peer: 0, link } => Some(*link),
        _ => None,
    });
    let link = link.unwrap();
    let new_link = new.group.accept(1000).unwrap();
    old.group.connected(link, 1000);
    talk(&mut old, link, &mut new, new_link, 1000);
    assert_eq!(new.memory.contents(), old.memory.contents());
    assert_eq!(new.group.stage(), ResyncStage::Finished);
    assert_eq!(old.commands(), []);

    // Requests in progress are counted, and the last of them ends the session.
    old.memory.count(0, b"late", 7, 1000);
    old.group.drained(1000, &old.memory);
    assert_eq!(old.commands(), []);
    talk(&mut old, link, &mut new, new_link, 1000);
    assert_eq!(new.memory.counted(0, b"late"), Some(7));
    assert_eq!(old.commands(), [GroupCommand::Done, GroupCommand::Close(link)]);

    new.group.closed(new_link, 1000);
    new.group.tick(1000);
    let dials = new.dials();
    new.group.connected(dials[&1], 1000);
    assert_eq!(new.says(dials[&1], 1000), b"HAProxyS 2.1\nB\nA 10 1\n");
}

/// Makes `old` stop, and connects it to its successor.
fn hand_over(old: &mut Node, new: &mut Node, now: u64) -> (LinkId, LinkId) {
    old.group.stop(3, now);
    join(old, new, 0, now)
}

#[test]
fn a_stopping_process_waits_a_minute_at_most_for_requests() {
    let (mut old, mut new) = (node("A", 10, false, 0), node("A", 20, true, 0));
    let (link, new_link) = hand_over(&mut old, &mut new, 0);
    talk(&mut old, link, &mut new, new_link, 0);
    old.commands();
    for now in (0..60_000).step_by(1000) {
        old.group.tick(now);
        new.group.tick(now);
        talk(&mut old, link, &mut new, new_link, now);
        assert_eq!(old.commands(), []);
    }
    old.group.tick(60_000);
    assert_eq!(old.commands(), [GroupCommand::Done, GroupCommand::Close(link)]);
}

#[test]
fn a_successor_sends_no_changes_to_its_predecessor() {
    let (mut old, mut new) = (node("A", 10, false, 0), node("A", 20, true, 0));
    old.memory.count(0, b"k", 1000, 0);
    new.memory.count(0, b"k", 1, 0);
    let (link, new_link) = hand_over(&mut old, &mut new, 0);
    new.memory.count(0, b"k", 2, 0);
    talk(&mut old, link, &mut new, new_link, 0);
    assert_eq!(old.memory.counted(0, b"k"), Some(1000));
}

#[test]
fn predecessor_counts_are_added_unless_another_peer_sent_them() {
    let (mut old, mut new) = (node("A", 10, false, 0), node("A", 20, true, 0));
    old.memory.count(0, b"k", 1, 0);
    let (link, new_link) = hand_over(&mut old, &mut new, 0);
    talk(&mut old, link, &mut new, new_link, 0);
    assert!(new.memory.origins.contains_key("Predecessor"), "{:?}", new.memory.origins);

    let (mut old, mut new) = (node("A", 10, false, 0), node("A", 20, true, 0));
    old.memory.count(0, b"k", 1, 0);
    new.group.tick(5000);
    let (_, answer) = new.greeted("HAProxyS 2.1\nA\nB 1 1\n", 5000);
    assert!(answer.starts_with(b"200\n"));
    let (link, new_link) = hand_over(&mut old, &mut new, 5000);
    talk(&mut old, link, &mut new, new_link, 5000);
    assert!(new.memory.origins.contains_key("Local"), "{:?}", new.memory.origins);
}

#[test]
fn an_untaught_successor_turns_to_the_other_peers() {
    let mut new = node("A", 20, true, 0);
    assert_eq!(new.group.next(), Some(5000));
    new.group.tick(5000);
    assert_eq!((new.dials().len(), new.group.stage()), (2, ResyncStage::Remote));
}

#[test]
fn a_stopping_process_gives_up_an_unreachable_successor() {
    let mut old = node("A", 10, false, 0);
    old.dials();
    let mut now = 0;
    old.group.stop(3, now);
    for attempt in 0..3 {
        let commands = old.commands();
        let link = commands.iter().find_map(|command| match command {
            GroupCommand::Connect { peer: 0, link } => Some(*link),
            _ => None,
        });
        assert!(link.is_some(), "attempt {attempt}: {commands:?}");
        old.group.closed(link.unwrap(), now);
        now += 1000;
        old.group.tick(now);
    }
    assert_eq!(old.commands(), [GroupCommand::Done]);
}

#[test]
fn the_latest_connection_wins() {
    let mut a = node("A", 10, false, 0);
    let dials = a.dials();
    a.group.connected(dials[&1], 0);
    a.hears(dials[&1], b"200\n", 0);
    let (first, answer) = a.greeted("HAProxyS 2.1\nA\nB 5 1\n", 0);
    assert!(answer.starts_with(b"200\n"));
    assert_eq!(a.commands(), [GroupCommand::Close(dials[&1])]);
    let (second, _) = a.greeted("HAProxyS 2.1\nA\nB 5 1\n", 0);
    assert_eq!(a.commands(), [GroupCommand::Close(first)]);
    let view = a.group.view(1).unwrap();
    assert_eq!((view.is_established, view.sessions, view.collisions), (true, 3, 2));
    a.group.closed(second, 0);
    assert!(!a.group.view(1).unwrap().is_established);
}

#[test]
fn both_sides_keep_the_same_of_two_simultaneous_connections() {
    for (one, other) in [(0, 1), (1, 0)] {
        let mut nodes = [node("A", 10, false, 0), node("B", 20, false, 0)];
        let mine = [nodes[0].dials()[&1], nodes[1].dials()[&0]];
        let theirs = [nodes[0].group.accept(0).unwrap(), nodes[1].group.accept(0).unwrap()];
        let mut greetings = [Vec::new(), Vec::new()];
        for side in 0..2 {
            nodes[side].group.connected(mine[side], 0);
            greetings[side] = nodes[side].says(mine[side], 0);
        }
        // Both have sent greetings before either receives the other's, in either order.
        nodes[one].hears(theirs[one], &greetings[other], 0);
        nodes[other].hears(theirs[other], &greetings[one], 0);
        let answers = [nodes[0].says(theirs[0], 0), nodes[1].says(theirs[1], 0)];
        for side in [one, other] {
            nodes[side].hears(mine[side], &answers[1 - side], 0);
        }
        let closed = nodes.each_mut().map(|node| node.commands());
        assert_eq!(closed[0], [GroupCommand::Close(theirs[0])]);
        assert_eq!(closed[1], [GroupCommand::Close(mine[1])]);
        assert!(
            nodes.iter().enumerate().all(|(side, node)| node.group.view(1 - side).unwrap().is_established)
        );
    }
}

#[test]
fn restarted_peers_get_all_changes_and_others_only_new_ones() {
    let mut a = node("A", 10, false, 0);
    a.dials();
    a.memory.count(0, b"k", 1, 0);
    let (first, answer) = a.greeted("HAProxyS 2.1\nA\nB 5 1\n", 0);
    assert!(answer.windows(2).any(|two| two == [1, b'k']), "{answer:?}");
    a.hears(first, &[10, 132, 5, 1, 0, 0, 0, 1], 0);
    a.group.closed(first, 0);
    for (process, again) in [(5, false), (6, true)] {
        let (link, answer) = a.greeted(&format!("HAProxyS 2.1\nA\nB {process} 1\n"), 0);
        assert_eq!(answer.windows(2).any(|two| two == [1, b'k']), again, "{process}: {answer:?}");
        a.group.closed(link, 0);
    }
}

#[test]
fn peers_that_connected_first_are_asked_too() {
    let mut a = node("A", 10, false, 0);
    a.dials();
    for (name, process) in [("B", 1), ("C", 2)] {
        let (link, answer) = a.greeted(&format!("HAProxyS 2.1\nA\n{name} {process} 1\n"), 0);
        assert!(answer.ends_with(&[0, 0]), "{name}: {answer:?}");
        a.hears(link, &[0, 1], 0);
        assert_eq!((a.says(link, 0), a.group.stage()), (vec![0, 3], ResyncStage::Finished));
        a.group.closed(link, 0);
        // The peer knows this process by now.
        let (link, answer) = a.greeted(&format!("HAProxyS 2.1\nA\n{name} {process} 1\n"), 0);
        assert_eq!(answer, b"200\n");
        a.group.closed(link, 0);
    }
}

#[test]
fn two_processes_share_their_changes() {
    let (mut a, mut b) = (node("A", 10, false, 0), node("B", 20, false, 0));
    b.dials();
    let (a_link, b_link) = join(&mut a, &mut b, 1, 0);
    for number in 0..500_u64 {
        a.memory.count(0, format!("a{}", number % 100).as_bytes(), number, 0);
        b.memory.count(0, format!("b{}", number % 100).as_bytes(), number, 0);
    }
    talk(&mut a, a_link, &mut b, b_link, 0);
    assert_eq!(a.memory.contents(), b.memory.contents());
    let progress = a.group.progress(1, 0);
    assert_eq!((progress.sent, progress.acknowledged, progress.remote_id), (500, 500, 1));
    assert_eq!((progress.learned, progress.confirmed), (500, 500));
    assert_eq!(a.memory.latest(0, None), 500);
}

#[test]
fn connections_without_a_greeting_are_limited() {
    let mut a = node("A", 10, false, 0);
    a.dials();
    let links: Vec<LinkId> = std::iter::from_fn(|| a.group.accept(0)).take(1000).collect();
    assert!(links.len() < 50, "{}", links.len());
    a.group.tick(TIMEOUT);
    let closed = a.commands().iter().filter(|command| matches!(command, GroupCommand::Close(_))).count();
    assert!(closed >= links.len(), "{closed} of {}", links.len());
    links.iter().for_each(|link| a.group.closed(*link, TIMEOUT));
    assert!(a.group.accept(TIMEOUT).is_some());
}

#[test]
fn a_misbehaving_peer_is_avoided_for_a_while() {
    let mut a = node("A", 10, false, 0);
    a.dials();
    let (link, _) = a.greeted("HAProxyS 2.1\nA\nB 5 1\n", 0);
    a.hears(link, &[TABLE, &[10, 128, 3, 0, 0, 0]].concat(), 0);
    assert_eq!(a.commands(), [GroupCommand::Close(link)]);
    assert_eq!(a.says(link, 0), [1, 0]);
    a.group.closed(link, 0);
    let view = a.group.view(1).unwrap();
    assert_eq!((view.is_established, view.breaches), (false, 1));
    assert_eq!(view.retry, 5000);
}

#[test]
fn a_section_is_shown_like_in_haproxy() {
    let (mut a, mut b) = (node("A", 10, false, 0), node("B", 20, false, 0));
    b.dials();
    a.memory.count(0, b"k", 1, 0);
    let (a_link, b_link) = join(&mut a, &mut b, 1, 0);
    talk(&mut a, a_link, &mut b, b_link, 0);
    let addresses = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(str::to_owned);
    let mut shown = ShowContext {
        name: "P",
        date: "24/Nov/2026:21:04:36",
        is_disabled: false,
        addresses: &addresses,
        latest: &[1],
        number: 0x10_0000,
        with_names: false,
        notes: &[],
    };
    let mut out = String::new();
    a.group.show(&shown, 65_000, &mut out);
    let wanted = [
        "0x100000: [24/Nov/2026:21:04:36] id=P disabled=0 flags=0x1 resync_timeout=<PAST> task_calls=0\n",
        "  0x101000: id=A(local,inactive) addr=127.0.0.1:1 app_state=STOPPED learn_state=NOTASSIGNED \
         last_status=NONE last_hdshk=<NEVER>\n        reconnect=<NEVER> heartbeat=<NEVER> ",
        "  0x102000: id=B(remote,active) addr=127.0.0.1:2 app_state=RUNNING learn_state=NOTASSIGNED \
         last_status=ESTA last_hdshk=1m05s\n        reconnect=<PAST> heartbeat=<PAST> confirm=0 tx_hbt=0 rx_hbt=0 \
         no_hbt=0 new_conn=1 proto_err=0 coll=0\n        flags=0x0 appctx:0x102001 st0=7 st1=0 task_calls=0 state=EST\n",
        "        last_local_table:0x102010 id=t local_id=1 remote_id=1\n        shared tables:\n          \
         0x102010 local_id=1 remote_id=1 flags=0x0 remote_data=0x4\n              \
         last_acked=0 last_pushed=1 last_get=0 teaching_origin=0 update=1\n              \
         table:0x100001 id=t update=1 localupdate=1 refcnt=1\n        \
         Dictionary cache not dumped (use \"show peers dict\")\n",
        "id=C(remote,active) addr=127.0.0.1:3 app_state=STOPPED learn_state=NOTASSIGNED last_status=CONN ",
    ];
    for text in wanted {
        assert!(out.contains(text), "{text}\n{out}");
    }
    shown.with_names = true;
    out.clear();
    a.group.show(&shown, 65_000, &mut out);
    let names = "        TX dictionary cache:\n        RX dictionary cache:\n            0 -> -    1 -> -    2 -> -    3 -> -\n";
    assert!(
        out.contains(names) && out.contains("\n          124 -> -  125 -> -  126 -> -  127 -> -\n"),
        "{out}"
    );
}

#[test]
fn failed_attempts_are_shown_as_new_connections() {
    let mut a = node("A", 10, false, 0);
    let link = a.dials()[&1];
    a.group.closed(link, 0);
    let addresses = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"].map(str::to_owned);
    let shown = ShowContext {
        name: "P",
        date: "24/Nov/2026:21:04:36",
        is_disabled: false,
        addresses: &addresses,
        latest: &[1],
        number: 0x10_0000,
        with_names: false,
        notes: &[],
    };
    let mut out = String::new();
    a.group.show(&shown, 0, &mut out);
    assert_eq!((out.matches("new_conn=1 ").count(), out.matches("new_conn=0 ").count()), (1, 2), "{out}");
}

#[test]
fn old_peers_are_greeted_with_their_version() {
    let mut a = node("A", 10, false, 0);
    let mut now = 0;
    for version in ["2.1", "2.0", "2.1"] {
        let link = a.dials()[&1];
        a.group.connected(link, now);
        assert_eq!(a.says(link, now), format!("HAProxyS {version}\nB\nA 10 1\n").as_bytes());
        a.hears(link, b"502\n", now);
        a.group.closed(link, now);
        now += 5000;
        a.group.tick(now);
    }
}

#[test]
fn hanging_attempts_are_abandoned_and_repeated() {
    let mut a = node("A", 10, false, 0);
    let dials = a.dials();
    a.group.tick(TIMEOUT);
    let commands = a.commands();
    assert!(dials.values().all(|link| commands.contains(&GroupCommand::Close(*link))), "{commands:?}");
    dials.values().for_each(|link| a.group.closed(*link, TIMEOUT));
    a.group.tick(TIMEOUT + 2050);
    assert_eq!(a.dials().len(), 2);
}

impl Node {
    /// Sets the names that DNS provides for places 1 and 2.
    fn named(&mut self, names: [Option<&str>; 2], now: u64) {
        let names: Vec<(usize, Option<String>)> =
            names.into_iter().enumerate().map(|(at, name)| (at + 1, name.map(str::to_owned))).collect();
        self.group.rename(&names, now, &mut self.memory);
    }
}

/// Returns process `A`, with two places for peers that DNS provides.
fn with_free_places() -> Node {
    let section = section("A", &["A", "", ""], vec![counters("t", 60_000)]);
    let memory = Memory::new(&section.tables);
    let settings =
        SectionSettings { section, shards: 0, parts: Box::default(), process: 10, successor: false, seed: 1 };
    Node { group: Group::new(settings, 0), memory }
}

#[test]
fn places_without_a_name_are_not_connected() {
    let mut a = with_free_places();
    assert!(a.commands().is_empty());
    let greeting = |name: &str| format!("HAProxyS 2.1\nA\n{name} 7 1\n");
    let (early, _) = a.greeted("HAPro", 0);
    for name in ["", "B"] {
        assert_eq!(a.greeted(&greeting(name), 0).1, b"504\n", "{name:?}");
    }
    // This process itself and a repeated name take no place.
    a.named([Some("A"), Some("B")], 0);
    assert_eq!(a.dials().keys().copied().collect::<Vec<_>>(), [2]);
    a.named([Some("B"), Some("B")], 0);
    assert_eq!(a.dials().keys().copied().collect::<Vec<_>>(), [1], "the first record counts");
    // A connection that was accepted before can use the new name.
    a.hears(early, &greeting("B").as_bytes()[5..], 0);
    assert!(a.says(early, 0).starts_with(b"200\n"));
}

#[test]
fn a_peer_without_a_record_stays_until_its_place_is_reused() {
    let mut a = with_free_places();
    a.named([Some("B"), None], 0);
    let mut b = node("B", 20, false, 0);
    let (link, _) = join(&mut a, &mut b, 1, 0);
    assert!(a.group.view(1).is_some_and(|view| view.is_established));
    a.named([None, Some("C")], 10);
    assert!(a.group.view(1).is_some_and(|view| view.is_established));
    assert_eq!(a.dials().keys().copied().collect::<Vec<_>>(), [2]);
    a.named([Some("D"), Some("C")], 20);
    let commands = a.commands();
    assert!(commands.contains(&GroupCommand::Close(link)), "{commands:?}");
    assert!(commands.iter().any(|command| matches!(command, GroupCommand::Connect { peer: 1, .. })));
    a.group.closed(link, 20);
    // When B is back in another place, it has to send entries again that it sent before.
    a.named([Some("D"), Some("B")], 30);
    let link = a.dials()[&2];
    a.group.connected(link, 30);
    assert_eq!(a.says(link, 30), b"HAProxyS 2.1\nB\nA 10 1\n");
    a.hears(link, b"200\n", 30);
    a.group.settle(30, &mut a.memory);
    assert_eq!(a.group.asked(), Some(link));
    assert!(a.says(link, 30).starts_with(&[0, 0]), "it requests a resync");
}
