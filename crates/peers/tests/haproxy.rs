//! The installed HAProxy as a peer, over real sockets. Each side opens the connection in turn. Skipped if HAProxy is not installed.

mod driver;
mod memory;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use driver::{Driver, Haproxy, free, haproxy, listener};
use memory::section;
use peers::{DataColumn, DataKind, Definition, EntryValue, KeyKind, PeersSection, Rate, ResyncStage, Shape};

const HOUR: u32 = 3_600_000;

/// The connecting side.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Caller {
    We,
    They,
    Both,
}

fn column(kind: DataKind) -> DataColumn {
    DataColumn { kind, count: 1, period: if kind.shape() == Shape::Rate { HOUR } else { 0 } }
}

/// The columns that version 2.6 supports: all except glitches, and without `gpc0` and so on next to arrays.
fn plain() -> Vec<DataColumn> {
    let kinds = DataKind::all().filter(|kind| !kind.is_array() && !kind.name().starts_with("glitch"));
    kinds.map(column).collect()
}

fn tables() -> Vec<Definition> {
    let gpc0 = || vec![column(DataKind::Gpc0)];
    let arrays = vec![
        DataColumn { count: 3, ..column(DataKind::Gpt) },
        DataColumn { count: 4, ..column(DataKind::Gpc) },
        DataColumn { count: 5, ..column(DataKind::GpcRate) },
    ];
    vec![
        Definition::new(b"all", KeyKind::Ipv4, 4, HOUR, plain()),
        Definition::new(b"arrays", KeyKind::String, 40, 0, arrays),
        Definition::new(b"/numbers", KeyKind::Integer, 4, HOUR, gpc0()),
        Definition::new(b"six", KeyKind::Ipv6, 16, HOUR, gpc0()),
        Definition::new(b"bytes", KeyKind::Binary, 8, HOUR, gpc0()),
        Definition::new(b"short", KeyKind::String, 20, 600, gpc0()),
    ]
}

/// The names of the tables in HAProxy.
const NAMES: [&str; 6] = ["all", "arrays", "P/numbers", "six", "bytes", "short"];

const OUR_NUMBERS: usize = 2;
const SHORT: usize = 5;

fn configuration(ours: SocketAddr, theirs: SocketAddr, web: [SocketAddr; 2]) -> String {
    let stored: Vec<String> = plain()
        .iter()
        .map(|column| match column.period {
            0 => column.kind.name().into(),
            _ => format!("{}(1h)", column.kind.name()),
        })
        .collect();
    let [front, origin] = web;
    format!(
        "peers P\n  peer theirs {theirs}\n  peer ours {ours}\n  table numbers type integer size 200k expire 1h store gpc0\n\
         backend all\n  stick-table type ip size 1k expire 1h peers P store {}\n  stick on src\n  server origin {origin}\n\
         backend arrays\n  stick-table type string len 40 size 1k peers P store gpt(3),gpc(4),gpc_rate(5,1h)\n\
         backend six\n  stick-table type ipv6 size 1k expire 1h peers P store gpc0\n\
         backend bytes\n  stick-table type binary len 8 size 1k expire 1h peers P store gpc0\n\
         backend short\n  stick-table type string len 20 size 1k expire 600 peers P store gpc0\n\
         frontend front\n  bind {front}\n  default_backend all\n  http-request track-sc0 src table all\n\
         \x20 http-request track-sc1 path table arrays\n  http-request sc-inc-gpc(1,1)\n  http-request sc-set-gpt(2,1) 300\n\
         frontend origin\n  bind {origin}\n  http-request return status 200\n",
        stored.join(",")
    )
}

/// Both sides, connected.
struct Scene {
    ours: Driver,
    theirs: Haproxy,
    section: Arc<PeersSection>,
    path: std::path::PathBuf,
    front: SocketAddr,
    listener: TcpListener,
    /// The address on which HAProxy listens, if this side connects.
    place: Option<SocketAddr>,
}

impl Scene {
    fn new(path: &Path, caller: Caller) -> Scene {
        let (listener, here) = listener();
        let started = (0..10).find_map(|_| {
            let [nowhere, there, front, origin] = free();
            let ours = if caller == Caller::We { nowhere } else { here };
            let theirs = Haproxy::start(path, &configuration(ours, there, [front, origin]))?;
            Some((theirs, there, front))
        });
        let (theirs, there, front) = started.expect("haproxy starts");
        let section = section("ours", &["ours", "theirs"], tables());
        let place = Some(there).filter(|_| caller != Caller::They);
        let again = listener.try_clone().expect("there are descriptors");
        let ours = Driver::new(&section, again, vec![None, place], 100);
        Scene { ours, theirs, section, path: path.into(), front, listener, place }
    }

    /// Waits for a session, and until both resyncs are complete.
    fn join(&mut self) {
        self.ours.until("a session, and all that was known", |ours| {
            ours.group.view(1).is_some_and(|view| view.is_established)
                && ours.group.stage() == ResyncStage::Finished
        });
    }

    /// Replaces this side with a new process.
    fn restart(&mut self) {
        self.ours.cut();
        let again = self.listener.try_clone().expect("there are descriptors");
        self.ours = Driver::new(&self.section, again, vec![None, self.place], 200);
    }

    /// Sets numbers on both sides, and waits until both sides have all of them.
    fn exchange(&mut self, round: u64) {
        for number in 0..20_u64 {
            let command = format!("set table P/numbers key {number} data.gpc0 {}", number + round);
            assert_eq!(self.theirs.ask(&command).trim(), "");
            let now = self.ours.now();
            let key = (1000 + number as u32).to_be_bytes();
            self.ours.memory.count(OUR_NUMBERS, &key, number + 2 * round, now);
        }
        self.equal(round);
    }

    /// Waits until both sides have the values set in a round.
    fn equal(&mut self, round: u64) {
        let theirs = &self.theirs;
        let wanted =
            (0..20_u64).flat_map(|number| [(number, number + round), (1000 + number, number + 2 * round)]);
        let wanted: Vec<(u64, u64)> = wanted.collect();
        self.ours.until("numbers of both sides on both", |ours| {
            let table = theirs.table("P/numbers");
            wanted.iter().all(|(key, value)| {
                let there = table.get(&key.to_string()).map(|entry| entry["gpc0"].clone());
                let here = ours.memory.counted(OUR_NUMBERS, &(*key as u32).to_be_bytes());
                here == Some(*value) && there == Some(value.to_string())
            })
        });
    }
}

fn with_each_caller(run: impl Fn(Scene)) {
    let Some(path) = haproxy() else { return };
    for caller in [Caller::We, Caller::They, Caller::Both] {
        println!("{caller:?}");
        run(Scene::new(&path, caller));
    }
}

#[test]
fn changes_on_either_side_reach_both() {
    with_each_caller(|mut scene| {
        scene.join();
        scene.exchange(5);
        scene.exchange(300_000);
        let view = scene.ours.group.view(1).unwrap();
        assert_eq!((view.breaches, view.timeouts, view.is_established), (0, 0, true));
    });
}

#[test]
fn tables_converge_after_cuts_kills_and_restarts() {
    with_each_caller(|mut scene| {
        scene.join();
        scene.exchange(1);
        scene.ours.cut();
        scene.exchange(100);

        // HAProxy restarts without entries, and requests a resync.
        scene.theirs.kill();
        let now = scene.ours.now();
        scene.ours.memory.count(OUR_NUMBERS, &1000_u32.to_be_bytes(), 200, now);
        scene.theirs.begin(&scene.path);
        scene.equal(100);

        scene.restart();
        assert_eq!(scene.ours.memory.tables[OUR_NUMBERS].entries.len(), 0);
        scene.join();
        scene.equal(100);

        // This side has received everything, and the other side forgets it.
        scene.theirs.kill();
        scene.theirs.begin(&scene.path);
        scene.equal(100);
        scene.exchange(1000);
    });
}

/// Sends a request with this path to the frontend.
fn request(front: SocketAddr, path: &str) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(front).expect("it listens");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: h\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn everything_that_haproxy_stores_is_learned() {
    let Some(path) = haproxy() else { return };
    let mut scene = Scene::new(&path, Caller::Both);
    scene.join();
    (0..3).for_each(|_| request(scene.front, "/path"));
    let definition = &scene.section.tables[0];
    let place = |kind| definition.columns.iter().position(|column| column.kind == kind).unwrap();
    let number = |values: &[EntryValue], kind| match &values[place(kind)] {
        EntryValue::Number(number) => *number,
        other => panic!("{other:?}"),
    };
    let theirs = &scene.theirs;
    scene.ours.until("three requests, and what was counted in them", |ours| {
        let Some(entry) = ours.memory.tables[0].entries.get(&[127, 0, 0, 1][..]) else { return false };
        let shown = theirs.table("all").remove("127.0.0.1").unwrap();
        let counted = number(&entry.values, DataKind::HttpReqCnt) == 3
            && number(&entry.values, DataKind::BytesOutCnt) > 0;
        let named = shown["server_key"] == "origin";
        counted
            && named
            && definition.columns.iter().zip(&entry.values).all(|(column, value)| {
                let told = match value {
                    EntryValue::Number(number) => number.to_string(),
                    EntryValue::Rate(rate) if rate.age > HOUR => "0".into(),
                    EntryValue::Rate(rate) => rate.current.to_string(),
                    EntryValue::Name(name) => {
                        name.as_ref().map_or("-".into(), |name| String::from_utf8_lossy(name).into())
                    }
                    EntryValue::Absent => return false,
                };
                told == shown[column.kind.name()]
            })
    });

    scene.ours.until("arrays", |ours| {
        let Some(entry) = ours.memory.tables[1].entries.get(&b"/path"[..]) else { return false };
        let numbers: Vec<u64> = entry.values[..7]
            .iter()
            .map(|value| match value {
                EntryValue::Number(number) => *number,
                other => panic!("{other:?}"),
            })
            .collect();
        let rate = matches!(entry.values[8], EntryValue::Rate(Rate { current: 3, .. }));
        numbers == [0, 0, 300, 0, 3, 0, 0] && rate
    });
    assert_eq!(scene.theirs.ask("set table six key ::5 data.gpc0 70000").trim(), "");
    scene.ours.until("an address of 128 bits", |ours| {
        ours.memory.counted(3, &5_u128.to_be_bytes()) == Some(70_000)
    });
}

#[test]
fn haproxy_learns_all_types_it_stores() {
    let Some(path) = haproxy() else { return };
    let mut scene = Scene::new(&path, Caller::Both);
    scene.join();
    let (now, mut wanted) = (scene.ours.now(), Vec::new());
    let mut values = Vec::new();
    for (place, column) in plain().iter().enumerate() {
        let number = 1 + 1000 * place as u64;
        let (value, shown) = match column.kind.shape() {
            Shape::Number => (EntryValue::Number(number), number.to_string()),
            Shape::Rate => {
                let rate = Rate { age: 10, current: number as u32, previous: 0 };
                (EntryValue::Rate(rate), number.to_string())
            }
            Shape::Name => (EntryValue::Name(Some(Arc::from(*b"some-server"))), "some-server".into()),
        };
        values.push(value);
        wanted.push((column.kind.name(), shown));
    }
    for last in 1..=3 {
        scene.ours.memory.set(0, &[192, 0, 2, last], &values, now);
    }
    let theirs = &scene.theirs;
    scene.ours.until("three addresses", |_| theirs.table("all").len() == 3);
    for (key, entry) in theirs.table("all") {
        for (name, shown) in &wanted {
            // The number of HAProxy's own connections is not shared.
            if *name != "conn_cur" {
                assert_eq!(entry[*name], *shown, "{key} {name}");
            }
        }
    }

    let rate = |current| EntryValue::Rate(Rate { age: 0, current, previous: 0 });
    let mut arrays: Vec<EntryValue> = (1..=7).map(EntryValue::Number).collect();
    arrays.extend((1..=5).map(rate));
    scene.ours.memory.set(1, b"/a string", &arrays, now);
    scene.ours.memory.count(3, &7_u128.to_be_bytes(), 11, now);
    scene.ours.memory.count(4, b"\x01\x02abc\0\0\0", 12, now);
    scene.ours.until("the other tables", |_| {
        NAMES[..5].iter().all(|name| *name == "P/numbers" || !theirs.table(name).is_empty())
    });
    let answer = theirs.ask("show table arrays");
    for field in ["gpt0=1", "gpt2=3", "gpc0=4", "gpc3=7", "gpc0_rate(3600000)=1", "gpc4_rate(3600000)=5"] {
        assert!(answer.contains(field), "{field}: {answer}");
    }
    assert_eq!(theirs.table("six")["::7"]["gpc0"], "11");
    assert_eq!(theirs.table("bytes")["0102616263000000"]["gpc0"], "12");
}

#[test]
fn expired_entries_are_gone_on_both_sides() {
    let Some(path) = haproxy() else { return };
    let mut scene = Scene::new(&path, Caller::Both);
    scene.join();
    let now = scene.ours.now();
    scene.ours.memory.count(SHORT, b"ours", 1, now);
    let theirs = &scene.theirs;
    scene
        .ours
        .until("learned", |_| theirs.table("P/numbers").is_empty() && !theirs.table("short").is_empty());
    scene.ours.until("expired", |_| theirs.table("short").is_empty());

    assert_eq!(theirs.ask("set table short key theirs data.gpc0 1").trim(), "");
    scene.ours.until("learned", |ours| ours.memory.tables[SHORT].entries.contains_key(&b"theirs"[..]));
    let expires = scene.ours.memory.tables[SHORT].entries[&b"theirs"[..]].expires;
    assert!(expires <= scene.ours.now() + 600);
}

#[test]
fn a_hundred_thousand_entries_are_sent_both_ways() {
    let Some(path) = haproxy() else { return };
    let mut scene = Scene::new(&path, Caller::Both);
    scene.join();
    let count = 100_000;
    for number in 0..count {
        scene.ours.memory.count(OUR_NUMBERS, &u32::to_be_bytes(number), number.into(), 0);
    }
    let used = format!("used:{count}");
    let theirs = &scene.theirs;
    let holds_all = |_: &mut Driver| {
        theirs.ask("show table").lines().any(|line| line.contains("P/numbers") && line.ends_with(&used))
    };
    scene.ours.until("all on their side", holds_all);
    scene.restart();
    scene
        .ours
        .until("all here again", |ours| ours.memory.tables[OUR_NUMBERS].entries.len() == count as usize);
    let right = |number: &u32| {
        scene.ours.memory.counted(OUR_NUMBERS, &number.to_be_bytes()) == Some((*number).into())
    };
    assert!((0..count).all(|number| right(&number)));
}
