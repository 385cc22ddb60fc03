//! Stick tables that add up the counts of all members of a `peers` section (`aggregate`). The connections between the processes
//! pass through relays, which delay bytes and can be cut.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use weir_tests::client::{Client, get};
use weir_tests::{Haproxy, Scratch, Weir, ask, eventually, free_port, scratch};

/// A relay between two members, for connections in one direction.
struct Relay {
    port: u16,
    state: Arc<RelayState>,
}

struct RelayState {
    /// The delay of each piece, in milliseconds.
    delay: AtomicU64,
    is_cut: AtomicBool,
    ended: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Relay {
    fn start(to: u16, delay: u64) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(RelayState {
            delay: AtomicU64::new(delay),
            is_cut: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if !shared.is_cut.load(Relaxed)
                    && let Ok(other) = TcpStream::connect((Ipv4Addr::LOCALHOST, to))
                {
                    shared.join(stream, other);
                }
            }
        });
        Relay { port, state }
    }

    fn set_cut(&self, is_cut: bool) {
        self.state.is_cut.store(is_cut, Relaxed);
        if is_cut {
            for stream in self.state.streams.lock().expect("no panic").drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl RelayState {
    fn join(self: &Arc<Self>, one: TcpStream, other: TcpStream) {
        let copy = |stream: &TcpStream| stream.try_clone().expect("descriptors");
        for stream in [&one, &other] {
            let _ = stream.set_nodelay(true);
            self.streams.lock().expect("no panic").push(copy(stream));
        }
        for (mut from, mut to) in [(copy(&one), copy(&other)), (other, one)] {
            let (send, receive) = mpsc::channel::<(Instant, Vec<u8>)>();
            let state = self.clone();
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(length @ 1..) = from.read(&mut bytes) {
                    let due = Instant::now() + Duration::from_millis(state.delay.load(Relaxed));
                    if send.send((due, bytes[..length].to_vec())).is_err() {
                        return;
                    }
                }
            });
            std::thread::spawn(move || {
                for (due, bytes) in receive {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    if to.write_all(&bytes).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.ended.store(true, Relaxed);
        self.set_cut(true);
        // The listener's thread sees the end.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// The settings of a fleet that are the same for all members.
pub(crate) struct Fleet {
    directory: Scratch,
    /// The ports for peers and for clients, by member.
    peers: Vec<u16>,
    clients: Vec<u16>,
    /// The relays from each member to each other one.
    relays: Vec<Vec<Option<Relay>>>,
    /// The parameters of the table.
    table: String,
    /// Lines for the `peers` section. They declare the table `limits`, unless they are empty.
    of_section: String,
}

impl Fleet {
    fn new(members: usize, table: &str, delay: u64) -> Fleet {
        let peers: Vec<u16> = (0..members).map(|_| free_port()).collect();
        let relay = |from: usize, to: usize| (from != to).then(|| Relay::start(peers[to], delay));
        let relays = (0..members).map(|from| (0..members).map(|to| relay(from, to)).collect()).collect();
        Fleet {
            directory: scratch("fleet"),
            clients: (0..members).map(|_| free_port()).collect(),
            peers,
            relays,
            table: table.to_owned(),
            of_section: String::new(),
        }
    }

    /// Creates a fleet with direct connections.
    pub(crate) fn without_relays(members: usize, table: &str) -> Fleet {
        let mut fleet = Fleet::new(0, table, 0);
        let ports = || (0..members).map(|_| free_port()).collect::<Vec<u16>>();
        (fleet.peers, fleet.clients) = (ports(), ports());
        fleet.relays = (0..members).map(|_| (0..members).map(|_| None).collect()).collect();
        fleet
    }

    pub(crate) fn socket(&self, place: usize) -> PathBuf {
        self.directory.join(format!("n{place}"))
    }

    /// The `peers` section of a member, with the addresses of the relays.
    fn section(&self, place: usize) -> String {
        let lines = self.relays[place].iter().enumerate().map(|(to, relay)| {
            let port = relay.as_ref().map_or(self.peers[to], |relay| relay.port);
            format!("  peer n{to} 127.0.0.1:{port}\n")
        });
        format!("peers P\n{}{}", lines.collect::<String>(), self.of_section)
    }

    fn configuration(&self, place: usize) -> String {
        let (name, table) = match self.of_section.is_empty() {
            true => {
                let settings = format!("type string size 10k peers P {}", self.table);
                ("limits", format!("backend limits\n  stick-table {settings}\n"))
            }
            false => ("P/limits", String::new()),
        };
        format!(
            "global\n  stats socket {} level admin expose-fd listeners\n\
             defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
             {}{table}\
             frontend f\n  bind 127.0.0.1:{}\n  \
             http-request use-service prometheus-exporter if {{ path /metrics }}\n  \
             http-request track-sc0 path table {name}\n  \
             http-request sc-inc-gpc0(0)\n  http-request wait-for-body time 20s if METH_POST\n  \
             http-request return status 200 content-type text/plain \
             lf-string \"%[sc0_http_req_cnt] %[sc0_http_req_cnt(,own)]\"\n",
            self.socket(place).display(),
            self.section(place),
            self.clients[place],
        )
    }

    pub(crate) fn start(&self, place: usize) -> Weir {
        self.start_with(place, &[])
    }

    fn start_with(&self, place: usize, arguments: &[&str]) -> Weir {
        let name = format!("n{place}");
        let ports = [self.peers[place], self.clients[place]];
        let arguments = [&["-db", "-L", &name], arguments].concat();
        Weir::start_with(&self.configuration(place), &arguments, &ports)
    }

    fn start_all(&self) -> Vec<Weir> {
        let all = (0..self.peers.len()).map(|place| self.start(place)).collect();
        self.all_connected();
        all
    }

    /// Waits until every member has a session with every other one.
    pub(crate) fn all_connected(&self) {
        for place in 0..self.peers.len() {
            let others = self.peers.len() - 1;
            let mut shown = String::new();
            let connected = eventually(|| {
                shown = ask(&self.socket(place), "show peers");
                shown.matches("last_status=ESTA").count() == others
            });
            assert!(connected, "n{place}: {shown}");
        }
    }

    /// Sends a GET to a member. Returns the count of the entry with that path, and the member's own part.
    pub(crate) fn count(&self, place: usize, path: &str) -> (u64, u64) {
        let response = get(self.clients[place], path).expect("it answers");
        assert_eq!(response.status, 200);
        let text = response.text();
        let mut numbers = text.split(' ').map(|number| number.parse().expect("a number"));
        (numbers.next().expect("the sum"), numbers.next().expect("the own part"))
    }

    /// Returns a value of an entry as a member shows it; 0 without an entry.
    fn shown(&self, place: usize, key: &str, data: &str) -> u64 {
        let line = ask(&self.socket(place), &format!("show table limits key {key}"));
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(data)?.strip_prefix('='));
        value.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Waits until these members show this value.
    pub(crate) fn all_show(&self, places: &[usize], key: &str, data: &str, wanted: u64) {
        for place in places {
            let mut seen = 0;
            let same = eventually(|| {
                seen = self.shown(*place, key, data);
                seen == wanted
            });
            let peers = ask(&self.socket(*place), "show peers");
            assert!(same, "n{place} shows {data}={seen} of {key} instead of {wanted}\n{peers}");
        }
    }

    /// Cuts or restores all connections of a member.
    fn set_cut(&self, place: usize, is_cut: bool) {
        for (from, relays) in self.relays.iter().enumerate() {
            for (to, relay) in relays.iter().enumerate() {
                if let Some(relay) = relay.as_ref().filter(|_| from == place || to == place) {
                    relay.set_cut(is_cut);
                }
            }
        }
    }
}

const ALL: [usize; 3] = [0, 1, 2];

#[test]
fn counts_of_all_members_are_added_up() {
    let table = "expire 1h aggregate every 5ms store gpc0,gpc0_rate(1h),http_req_cnt,http_req_rate(1h),conn_cnt,\
                 conn_cur,bytes_out_cnt,gpt0";
    let fleet = Fleet::new(3, table, 2);
    let _running = fleet.start_all();
    for sent in 1..=300 {
        let (sum, own) = fleet.count(sent as usize % 3, "/k");
        // Changes in transit are missing, and nothing is counted twice.
        assert!(own <= sum && sum <= sent, "{own} of {sum} after {sent}");
    }
    for data in ["gpc0", "gpc0_rate(3600000)", "http_req_cnt", "http_req_rate(3600000)", "conn_cnt"] {
        fleet.all_show(&ALL, "/k", data, 300);
    }
    fleet.all_show(&ALL, "/k", "conn_cur", 0);
    let bytes = fleet.shown(0, "/k", "bytes_out_cnt");
    fleet.all_show(&ALL, "/k", "bytes_out_cnt", bytes);
    // Tags are not added up: the last one is used everywhere.
    for (place, tag) in [(0, 5), (1, 7), (2, 6), (0, 0)] {
        ask(&fleet.socket(place), &format!("set table limits key /k data.gpt0 {tag}"));
        fleet.all_show(&ALL, "/k", "gpt0", tag);
    }
    assert_eq!(fleet.count(1, "/k"), (301, 101));
}

#[test]
fn open_connections_of_all_members_are_added_up() {
    let fleet = Fleet::new(3, "expire 1h aggregate every 1ms store conn_cur", 0);
    let mut running = fleet.start_all();
    let mut held: Vec<Client> = [0, 1, 1, 2]
        .map(|place| {
            let mut client = Client::connect(fleet.clients[place]);
            // The request waits for its body.
            client.send("POST /k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n");
            client
        })
        .into();
    fleet.all_show(&ALL, "/k", "conn_cur", 4);
    // The connections of a killed process no longer count once its successor has connected.
    drop(running.remove(1));
    running.insert(1, fleet.start(1));
    fleet.all_show(&ALL, "/k", "conn_cur", 2);
    held.drain(1..3);
    for left in (0..2).rev() {
        drop(held.pop());
        fleet.all_show(&ALL, "/k", "conn_cur", left);
    }
}

#[test]
fn restarted_member_continues_with_its_own_part() {
    let fleet = Fleet::new(3, "expire 1h aggregate store gpc0,http_req_cnt", 0);
    let mut running = fleet.start_all();
    for sent in 0..30 {
        fleet.count(sent % 3, "/k");
    }
    fleet.all_show(&ALL, "/k", "http_req_cnt", 30);
    for place in ALL {
        // The process is killed; the others know its part.
        drop(running.remove(place));
        fleet.all_show(&[(place + 1) % 3, (place + 2) % 3], "/k", "http_req_cnt", 30 + 2 * place as u64);
        running.insert(place, fleet.start(place));
        // Counted before and after the process has got its previous part.
        fleet.count(place, "/k");
        fleet.count(place, "/k");
        fleet.all_show(&ALL, "/k", "http_req_cnt", 32 + 2 * place as u64);
    }
}

#[test]
fn eight_members_agree_although_one_is_killed() {
    let fleet = Fleet::new(8, "expire 1h aggregate store gpc0,http_req_cnt", 15);
    let mut running = fleet.start_all();
    let all: Vec<usize> = (0..8).collect();
    for sent in 0..160 {
        fleet.count(sent % 8, "/k");
    }
    fleet.all_show(&all, "/k", "http_req_cnt", 160);
    drop(running.remove(5));
    for sent in 0..70 {
        fleet.count([0, 1, 2, 3, 4, 6, 7][sent % 7], "/k");
    }
    let others = [0, 1, 2, 3, 4, 6, 7];
    fleet.all_show(&others, "/k", "http_req_cnt", 230);
    running.insert(5, fleet.start(5));
    fleet.count(5, "/k");
    fleet.all_show(&all, "/k", "http_req_cnt", 231);
}

#[test]
fn successor_continues_with_the_parts_of_all_members() {
    let fleet = Fleet::new(2, "expire 1h aggregate store gpc0,http_req_cnt,http_req_rate(1h)", 0);
    let mut running = fleet.start_all();
    let (ended, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for place in [0, 1] {
            let (ended, requests, fleet) = (&ended, &requests, &fleet);
            scope.spawn(move || {
                while !ended.load(Relaxed) {
                    fleet.count(place, "/k");
                    requests.fetch_add(1, Relaxed);
                }
            });
        }
        for take_over in [false, true, false] {
            let before = requests.load(Relaxed);
            assert!(eventually(|| requests.load(Relaxed) > before + 100));
            let (socket, pid) = (fleet.socket(0).display().to_string(), running[0].pid().to_string());
            let arguments: &[&str] = if take_over { &["-x", &socket, "-sf", &pid] } else { &["-sf", &pid] };
            let new = fleet.start_with(0, arguments);
            let mut old = std::mem::replace(&mut running[0], new);
            assert_eq!(old.await_end(), Some(0), "{}", old.messages());
        }
        ended.store(true, Relaxed);
    });
    let sent = requests.into_inner();
    for data in ["gpc0", "http_req_cnt", "http_req_rate(3600000)"] {
        fleet.all_show(&[0, 1], "/k", data, sent);
    }
}

#[test]
fn partitioned_member_is_dropped_and_complete_again_afterwards() {
    let fleet = Fleet::new(3, "expire 3s aggregate store gpc0,http_req_cnt", 0);
    let _running = fleet.start_all();
    for sent in 0..30 {
        fleet.count(sent % 3, "/k");
    }
    fleet.all_show(&ALL, "/k", "http_req_cnt", 30);
    fleet.set_cut(2, true);
    // Requests on both sides keep the entry, until neither has the other's part any more.
    let mut counts = [10, 10, 10];
    let separate = eventually(|| {
        [0, 1, 2].iter().for_each(|place| {
            fleet.count(*place, "/k");
            counts[*place] += 1;
        });
        let alone = fleet.shown(2, "/k", "http_req_cnt") == counts[2];
        alone && fleet.shown(0, "/k", "http_req_cnt") == counts[0] + counts[1]
    });
    assert!(separate, "{counts:?}: {}", ask(&fleet.socket(2), "show table limits"));
    // An entry that only one side keeps, and does not change.
    fleet.set_cut(2, false);
    let whole = eventually(|| {
        fleet.count(0, "/k");
        counts[0] += 1;
        let sum = counts.iter().sum::<u64>();
        eventually_shown(&fleet, sum)
    });
    assert!(whole, "{counts:?}: {}", ask(&fleet.socket(2), "show table limits"));
}

/// Whether all members show this count before the entry could expire.
fn eventually_shown(fleet: &Fleet, sum: u64) -> bool {
    (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        ALL.iter().all(|place| fleet.shown(*place, "/k", "http_req_cnt") == sum)
    })
}

/// Runs a member in HAProxy: its own part is a table, and those of the others are tables that only peers update.
#[test]
fn haproxy_takes_part_with_a_table_for_each_member() {
    let mut fleet = Fleet::new(3, "", 0);
    let columns = "type string len 32 size 10k expire 1h store gpc0,http_req_cnt,http_req_rate(1h)";
    fleet.of_section = format!("  table limits {columns} aggregate every 1ms\n");
    let weir = [0, 1].map(|place| fleet.start(place));
    // Versions before 3.0 have no `recv-only`; the tables are the same, because rules do not change them.
    let recv_only = if Haproxy::version() < (3, 0) { "" } else { " recv-only" };
    let section = fleet.section(2).replace("  table limits ", "  # table limits ");
    let text = format!(
        "global\n  localpeer n2\n  stats socket {} level admin\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         {section}  table limits@n2 {columns}\n  table limits@n0 {columns}{recv_only}\n  table limits@n1 {columns}{recv_only}\n\
         frontend f\n  bind 127.0.0.1:{}\n  http-request track-sc0 path table P/limits@n2\n  \
         http-request sc-inc-gpc0(0)\n  http-request return status 200 content-type text/plain \
         lf-string \"%[path,table_http_req_cnt(P/limits@n0)] %[path,table_http_req_cnt(P/limits@n1)] \
         %[path,table_http_req_cnt(P/limits@n2)]\"\n",
        fleet.socket(2).display(),
        fleet.clients[2],
    );
    let haproxy = Haproxy::start(&text, fleet.clients[2]);
    let count = |place: usize| {
        let text = get(fleet.clients[place], "/k").expect("it answers").text();
        text.split(' ').map(|number| number.parse().expect("a number")).collect::<Vec<u64>>()
    };
    for _ in 0..10 {
        ALL.iter().for_each(|place| drop(count(*place)));
    }
    // Until all have all parts. While HAProxy gets the entries of a resync, they may replace newer counts.
    let all_agree = || {
        let mut seen = (Vec::new(), Vec::new());
        let agree = eventually(|| {
            let parts = count(2);
            let own = parts[2];
            let lines = [0, 1].map(|place| ask(&fleet.socket(place), "show table P/limits key /k"));
            let has = |line: &String| {
                let data = ["gpc0", "http_req_cnt", "http_req_rate(3600000)"];
                data.iter().all(|data| line.contains(&format!(" {data}={}", 20 + own)))
            };
            let agree = parts[..2] == [10, 10] && lines.iter().all(has);
            seen = (parts, lines.into());
            agree
        });
        assert!(agree, "{seen:#?}\n{}", ask(&fleet.socket(0), "show peers"));
        seen.0[2]
    };
    let before = all_agree();
    // A restarted HAProxy gets its part from the others.
    drop(haproxy);
    let _haproxy = Haproxy::start(&text, fleet.clients[2]);
    let is_back = eventually(|| count(2)[2] > before);
    assert!(is_back, "{}", ask(&fleet.socket(2), "show table P/limits@n2"));
    all_agree();
    drop(weir);
}

#[test]
fn members_and_traffic_are_shown() {
    let fleet = Fleet::new(2, "expire 1h aggregate every 5ms store http_req_cnt", 3);
    let mut running = fleet.start_all();
    fleet.count(0, "/k");
    fleet.all_show(&[0, 1], "/k", "http_req_cnt", 1);
    let mut shown = String::new();
    let measured = eventually(|| {
        shown = ask(&fleet.socket(0), "show peers");
        let words: Vec<&str> = shown
            .lines()
            .find_map(|line| line.trim().strip_prefix("aggregate every=5ms "))
            .map_or(Vec::new(), |line| line.split(' ').collect());
        // The change takes 3 ms, and its acknowledgement too.
        let number = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok());
        let lag = words.iter().find_map(|word| word.strip_prefix("lag=")?.strip_suffix("ms")?.parse().ok());
        lag.is_some_and(|lag: u64| lag >= 6)
            && number("bytes_sent=").is_some_and(|sent| sent > 0)
            && number("dropped=") == Some(0)
    });
    assert!(measured, "{shown}");
    assert!(shown.contains(" id=limits@n0 ") && shown.contains(" id=limits@n1 "), "{shown}");
    let metrics = || get(fleet.clients[0], "/metrics").expect("it answers").text();
    let up = "weir_table_aggregate_member_up{table=\"limits\",member=\"n1\"}";
    let excess = "weir_table_aggregate_excess_seconds{table=\"limits\"}";
    let first = metrics();
    assert!(first.contains(&format!("{up} 1\n")) && first.contains(&format!("{excess} 0.0")), "{first}");
    drop(running.pop());
    let mut last = String::new();
    let is_gone = eventually(|| {
        last = metrics();
        last.contains(&format!("{up} 0\n")) && last.contains(&format!("{excess} +Inf\n"))
    });
    assert!(is_gone, "{last}");
}

#[test]
fn unusable_aggregates_are_refused() {
    let verdict = |table: &str, section: &str| {
        let directory = scratch("aggregate");
        let file = directory.join("haproxy.cfg");
        let text = format!(
            "global\n  localpeer n0\npeers P\n{section}  peer n0 127.0.0.1:1\n  peer n1 127.0.0.1:2\n\
             backend limits\n  stick-table type ip size 1k {table}\n\
             backend other\n  stick-table type ip size 1k store gpc0 peers P\n"
        );
        std::fs::write(&file, text).expect("it is writable");
        weir_tests::check(&file, &directory)
    };
    let usual = "expire 10s store gpc0 peers P aggregate";
    assert!(verdict(usual, "").accepted(), "{:?}", verdict(usual, "").alerts());
    assert!(verdict(&format!("{usual} every 10s"), "").accepted());
    let many: String = (2..1025).map(|member| format!("  peer n{member} 127.0.0.1:3\n")).collect();
    for (table, section, message) in [
        (
            "expire 10s store gpc0 aggregate",
            "",
            "`aggregate` adds up the counts of the members of a peers section",
        ),
        ("store gpc0 peers P aggregate", "", "`aggregate` needs `expire`"),
        ("expire 10s store gpt0 peers P aggregate", "", "`aggregate` has nothing to add up"),
        ("expire 10s store gpc0 peers P aggregate every 0", "", "invalid interval `0`"),
        ("expire 10s store gpc0 peers P aggregate every 11s", "", "invalid interval `11s`"),
        ("expire 10s store gpc0 peers P aggregate recv-only", "", "cannot be combined with `recv-only`"),
        ("expire 10s store gpc0 peers P aggregate write-to other", "", "cannot be combined with `write-to`"),
        (usual, "  shards 2\n", "cannot be used in a peers section with `shards`"),
        (usual, &many, "`aggregate` supports up to 1024 members, and `peers P` has 1025"),
    ] {
        let verdict = verdict(table, section);
        let alerts = verdict.alerts().join("\n");
        assert!(!verdict.accepted() && alerts.contains(&message.replace('`', "'")), "{table}: {alerts}");
    }
}

#[test]
fn own_is_refused_without_effect() {
    let verdict = |expression: &str| {
        let directory = scratch("aggregate");
        let file = directory.join("haproxy.cfg");
        let text = format!(
            "global\n  localpeer n0\npeers P\n  peer n0 127.0.0.1:1\n  peer n1 127.0.0.1:2\n\
             backend limits\n  stick-table type ip size 1k expire 10s store gpc(2),gpt(1) peers P aggregate\n\
             backend plain\n  stick-table type ip size 1k store gpc(2)\n\
             defaults\n  mode http\n  timeout client 1s\n\
             frontend f\n  bind 127.0.0.1:3\n  http-request set-header x %[{expression}]\n"
        );
        std::fs::write(&file, text).expect("it is writable");
        weir_tests::check(&file, &directory)
    };
    for expression in [
        "sc_get_gpc(1,0,limits,own)",
        "sc_gpc_rate(1,0,,own)",
        "sc0_get_gpc0(limits,own)",
        "src_get_gpc(0,limits,own)",
        "src,table_gpc(0,limits,own)",
        "src,table_conn_cnt(limits,own)",
    ] {
        let verdict = verdict(expression);
        assert!(verdict.accepted(), "{expression}: {:?}", verdict.alerts());
    }
    for (expression, message) in [
        ("sc_get_gpc(1,0,limits,mine)", "unknown part `mine`; use `own` or nothing"),
        ("src_get_gpc(0,plain,own)", "stick table `plain` is not an `aggregate`"),
        ("src,table_gpc(0,plain,own)", "stick table `plain` is not an `aggregate`"),
        ("src,table_conn_cnt(limits,1)", "unknown part `1`"),
        ("sc_get_gpt(0,0,limits,own)", "takes at most 3 arguments"),
    ] {
        let verdict = verdict(expression);
        let alerts = verdict.alerts().join("\n");
        assert!(!verdict.accepted() && alerts.contains(&message.replace('`', "'")), "{expression}: {alerts}");
    }
}
