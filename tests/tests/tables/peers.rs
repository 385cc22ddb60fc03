//! Stick tables shared by several processes, both Weir and the machine's HAProxy: changes in one reach the others, whichever
//! processes start or stop.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use weir_tests::{Authority, Haproxy, Scratch, Weir, ask, eventually, free_port, scratch};

/// The names of the peers of a group, in order.
const NAMES: [&str; 3] = ["A", "B", "C"];

/// Tables with all key types that a command can set, and every kind of data that the machine's HAProxy has too.
const TABLES: &str = "backend all\n  stick-table type ip size 1k expire 1h peers P store server_id,gpt0,gpc0,\
    gpc0_rate(1h),conn_cnt,conn_rate(1h),sess_cnt,sess_rate(1h),http_req_cnt,http_req_rate(1h),http_err_cnt,\
    http_err_rate(1h),bytes_in_cnt,bytes_in_rate(1h),bytes_out_cnt,bytes_out_rate(1h),gpc1,gpc1_rate(1h),\
    http_fail_cnt,http_fail_rate(1h)\n\
    backend arrays\n  stick-table type string len 40 size 1k peers P store gpt(3),gpc(4),gpc_rate(5,1h)\n\
    backend six\n  stick-table type ipv6 size 1k expire 1h peers P store gpc0\n";

/// The table names for `show table`, including those of the section itself.
const SHOWN: [&str; 4] = ["all", "arrays", "six", "P/numbers"];

const OWN: &str = "  table numbers type integer size 1k expire 1h store gpc0\n";

enum Program {
    Weir(Weir),
    Haproxy { _running: Haproxy },
}

/// A process of a group.
struct Member {
    program: Program,
    socket: PathBuf,
}

impl Member {
    fn weir(arguments: &[&str], configuration: &str, socket: PathBuf, ports: &[u16]) -> Member {
        let arguments = [&["-db"], arguments].concat();
        Member { program: Program::Weir(Weir::start_with(configuration, &arguments, ports)), socket }
    }

    fn haproxy(configuration: &str, socket: PathBuf, port: u16) -> Member {
        Member { program: Program::Haproxy { _running: Haproxy::start(configuration, port) }, socket }
    }

    fn ask(&self, command: &str) -> String {
        ask(&self.socket, command)
    }

    /// Returns the entries of a table, without the parts that differ between processes.
    fn entries(&self, table: &str) -> Vec<String> {
        let shown = self.ask(&format!("show table {table}"));
        let mut entries: Vec<String> = shown.lines().filter_map(entry).collect();
        entries.sort();
        entries
    }

    fn messages(&self) -> String {
        match &self.program {
            Program::Weir(weir) => weir.messages(),
            Program::Haproxy { .. } => String::new(),
        }
    }
}

/// Returns an entry's key and data.
fn entry(line: &str) -> Option<String> {
    let (_, line) = line.split_once(": key=")?;
    let differs = |word: &&str| !["use=", "exp=", "shard="].iter().any(|start| word.starts_with(start));
    Some(line.split(' ').filter(differs).collect::<Vec<_>>().join(" "))
}

/// A group of processes that are not started yet.
struct Group {
    directory: Scratch,
    ports: [u16; 3],
    tables: String,
    own: String,
    /// Additional lines of the section.
    extra: String,
}

impl Group {
    fn new(tables: &str, own: &str) -> Group {
        Group {
            directory: scratch("peers"),
            ports: [(); 3].map(|()| free_port()),
            tables: tables.to_owned(),
            own: own.to_owned(),
            extra: String::new(),
        }
    }

    fn socket(&self, place: usize) -> PathBuf {
        self.directory.join(NAMES[place])
    }

    /// Returns the configuration of the peer at `place`, which knows the peers in `names`.
    fn configuration(&self, place: usize, names: &[&str]) -> String {
        let peers: String = names
            .iter()
            .zip(self.ports)
            .map(|(name, port)| format!("  peer {name} 127.0.0.1:{port}\n"))
            .collect();
        self.with_peers(place, &peers)
    }

    fn with_peers(&self, place: usize, peers: &str) -> String {
        format!(
            "global\n  stats socket {} level admin expose-fd listeners\n\
             defaults\n  timeout client 10s\n  timeout connect 10s\n  timeout server 10s\n\
             peers P\n{}{peers}{}{}",
            self.socket(place).display(),
            self.extra,
            self.own,
            self.tables
        )
    }

    fn weir(&self, place: usize, names: &[&str]) -> Member {
        self.weir_with(place, names, &[])
    }

    fn weir_with(&self, place: usize, names: &[&str], arguments: &[&str]) -> Member {
        let arguments = [&["-L", NAMES[place]], arguments].concat();
        let text = self.configuration(place, names);
        Member::weir(&arguments, &text, self.socket(place), &[self.ports[place]])
    }

    fn haproxy(&self, place: usize, names: &[&str]) -> Member {
        let own = format!("global\n  localpeer {}\n", NAMES[place]);
        let text = self.configuration(place, names).replacen("global\n", &own, 1);
        Member::haproxy(&text, self.socket(place), self.ports[place])
    }
}

impl Drop for Group {
    fn drop(&mut self) {}
}

/// Waits until a table has these entries in each process.
fn all_have(members: &[&Member], table: &str, wanted: &[String]) {
    let mut seen = Vec::new();
    for (place, member) in members.iter().enumerate() {
        let same = eventually(|| {
            seen = member.entries(table);
            seen == wanted
        });
        let peers = member.ask("show peers");
        assert!(same, "{table} of {place}: {seen:#?} instead of {wanted:#?}\n{peers}\n{}", member.messages());
    }
}

/// Waits until all processes have the same `count` entries in a table.
fn all_agree(members: &[&Member], table: &str, count: usize) {
    let first = members[0];
    assert!(
        eventually(|| first.entries(table).len() == count),
        "{table}: {:#?} instead of {count}\n{}\n{}",
        first.entries(table),
        first.ask("show peers"),
        first.messages()
    );
    // Once all are equal, late updates change nothing.
    let same = eventually(|| {
        let wanted = first.entries(table);
        wanted.len() == count && members.iter().all(|member| member.entries(table) == wanted)
    });
    let told: Vec<_> = members.iter().map(|member| member.entries(table)).collect();
    let peers: String = members.iter().map(|member| member.ask("show peers")).collect();
    assert!(same, "{table}: {told:#?}\n{peers}");
}

/// Sets data in every table, with keys and numbers that depend on `by`.
fn change(member: &Member, by: usize) {
    let set = |command: String| {
        let answer = member.ask(&command);
        assert_eq!(answer.trim(), "", "{command}");
    };
    let data = [
        "server_id",
        "gpt0",
        "gpc0",
        "gpc0_rate",
        "conn_cnt",
        "conn_rate",
        "sess_cnt",
        "sess_rate",
        "http_req_cnt",
        "http_req_rate",
        "http_err_cnt",
        "http_err_rate",
        "bytes_in_cnt",
        "bytes_in_rate",
        "bytes_out_cnt",
        "bytes_out_rate",
        "gpc1",
        "gpc1_rate",
        "http_fail_cnt",
        "http_fail_rate",
    ];
    let told: Vec<String> =
        (1..).zip(data).map(|(number, data)| format!("data.{data} {}", number * 10 + by)).collect();
    set(format!("set table all key 10.0.0.{by} {}", told.join(" ")));
    // HAProxy 2.6 has no command for these.
    if matches!(member.program, Program::Weir(_)) {
        set(format!("set table arrays key k{by} data.gpt[2] {by}3 data.gpc[0] 7{by} data.gpc_rate[4] 9{by}"));
    }
    set(format!("set table six key 2001:db8::{by} data.gpc0 {by}"));
    set(format!("set table P/numbers key {by} data.gpc0 1{by}"));
}

fn ends_cleanly(member: &mut Member) {
    let Program::Weir(weir) = &mut member.program else { panic!("it is Weir") };
    assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
}

fn pid(member: &Member) -> String {
    let Program::Weir(weir) = &member.program else { panic!("it is Weir") };
    weir.pid().to_string()
}

#[test]
fn changes_by_weir_and_haproxy_reach_all_peers() {
    let group = Group::new(TABLES, OWN);
    let members = [group.weir(0, &NAMES), group.haproxy(1, &NAMES), group.weir(2, &NAMES)];
    let all: Vec<&Member> = members.iter().collect();
    for (by, member) in members.iter().enumerate() {
        change(member, by + 1);
        all_agree(&all, "arrays", if by == 2 { 2 } else { 1 });
        ["all", "six", "P/numbers"].iter().for_each(|table| all_agree(&all, table, by + 1));
    }
    // An entry that is changed in another process than it was created in, and changed back. (Data sent in a resync may be older
    // than concurrent changes; these are sent again.)
    for (member, value) in [(2, 50), (0, 77), (1, 88)] {
        let wanted = [&*format!("2001:db8::1 gpc0={value}"), "2001:db8::2 gpc0=2", "2001:db8::3 gpc0=3"];
        let agree = eventually(|| {
            members[member].ask(&format!("set table six key 2001:db8::1 data.gpc0 {value}"));
            all.iter().all(|one| one.entries("six") == wanted)
        });
        assert!(agree, "{value}: {:#?}", all.iter().map(|one| one.entries("six")).collect::<Vec<_>>());
    }
}

#[test]
fn restarted_peer_is_taught_the_missed_changes() {
    let group = Group::new("backend b\n  stick-table type string len 20 size 10k peers P store gpc0\n", "");
    let set = |member: &Member, key: &str, value: u32| {
        assert_eq!(member.ask(&format!("set table b key {key} data.gpc0 {value}")).trim(), "");
    };
    let haproxy = group.haproxy(1, &NAMES);
    let weir = group.weir(0, &NAMES);
    let third = group.weir(2, &NAMES);
    set(&weir, "first", 1);
    set(&haproxy, "second", 2);
    all_agree(&[&weir, &haproxy, &third], "b", 2);
    // The process is killed and not stopped; the others have its changes.
    drop(weir);
    set(&third, "third", 3);
    all_agree(&[&haproxy, &third], "b", 3);
    let weir = group.weir(0, &NAMES);
    all_agree(&[&weir, &haproxy, &third], "b", 3);
    // (In HAProxy, data sent in a resync may be older than concurrent changes.)
    set(&weir, "fourth", 4);
    all_agree(&[&weir, &haproxy, &third], "b", 4);
    drop(haproxy);
    set(&third, "fifth", 5);
    all_agree(&[&weir, &third], "b", 5);
    let haproxy = group.haproxy(1, &NAMES);
    let wanted =
        ["fifth gpc0=5", "first gpc0=1", "fourth gpc0=4", "second gpc0=2", "third gpc0=3"].map(String::from);
    all_have(&[&weir, &haproxy, &third], "b", &wanted);
}

#[test]
fn successor_is_taught_by_its_predecessor() {
    let group = Group::new(TABLES, OWN);
    // No other process can send it the entries.
    let mut old = group.weir(0, &NAMES);
    change(&old, 1);
    change(&old, 2);
    let before = SHOWN.map(|table| old.entries(table));
    for take_over in [false, true] {
        let (socket, pid) = (group.socket(0).display().to_string(), pid(&old));
        let arguments: &[&str] = if take_over { &["-x", &socket, "-sf", &pid] } else { &["-sf", &pid] };
        let new = group.weir_with(0, &NAMES, arguments);
        ends_cleanly(&mut old);
        for (table, wanted) in SHOWN.iter().zip(&before) {
            all_have(&[&new], table, wanted);
        }
        old = new;
    }
}

#[test]
fn new_worker_is_taught_by_the_previous_one() {
    let group = Group::new(TABLES, OWN);
    let text = group.configuration(0, &NAMES);
    let arguments = ["-W", "-L", NAMES[0]];
    let weir = Member {
        program: Program::Weir(Weir::start_with(
            &text,
            &[&["-db"][..], &arguments].concat(),
            &[group.ports[0]],
        )),
        socket: group.socket(0),
    };
    change(&weir, 1);
    let before = SHOWN.map(|table| weir.entries(table));
    let worker = |member: &Member| {
        let shown = member.ask("show info");
        shown.lines().find_map(|line| line.strip_prefix("Pid: ")).map(str::to_owned)
    };
    let first = worker(&weir);
    let Program::Weir(master) = &weir.program else { unreachable!() };
    master.signal("USR2");
    assert!(eventually(|| worker(&weir) != first), "{}", weir.messages());
    for (table, wanted) in SHOWN.iter().zip(&before) {
        all_have(&[&weir], table, wanted);
    }
}

#[test]
fn connections_of_peers_are_shown_and_counted() {
    let group = Group::new("backend b\n  stick-table type ip size 1k expire 1h peers P store gpc0\n", OWN);
    let members = [group.weir(0, &NAMES[..2]), group.weir(1, &NAMES[..2])];
    members[0].ask("set table b key 192.0.2.1 data.gpc0 5");
    all_agree(&[&members[1], &members[0]], "b", 1);
    // Both connect at once, and one of the two connections stays.
    for (place, member) in members.iter().enumerate() {
        let (own, other) = (NAMES[place], NAMES[1 - place]);
        let wanted = [
            "] id=P disabled=0 ".to_owned(),
            format!(": id={own}(local,inactive) addr=127.0.0.1:{} ", group.ports[place]),
            format!(
                ": id={other}(remote,active) addr=127.0.0.1:{} app_state=RUNNING ",
                group.ports[1 - place]
            ),
            "last_status=ESTA ".to_owned(),
            "id=P/numbers local_id=".to_owned(),
            "id=b ".to_owned(),
            "Dictionary cache not dumped (use \"show peers dict\")".to_owned(),
        ];
        let mut shown = String::new();
        let is_shown = eventually(|| {
            shown = member.ask("show peers P");
            wanted.iter().all(|wanted| shown.contains(wanted))
        });
        assert!(is_shown, "{wanted:#?}: {shown}");
        let counted = || member.ask("show info").contains("ActivePeers: 1\nConnectedPeers: 1\n");
        assert!(eventually(counted), "{}", member.ask("show info"));
        assert!(!member.ask("show peers dict P").contains("not dumped"));
        let lines = |command: &str| member.ask(command).lines().count();
        assert_eq!(
            (lines("show peers"), lines("show peers -")),
            (lines("show peers P"), lines("show peers - P"))
        );
        assert_eq!(member.ask("show peers Q").trim(), "No such peers");
    }
}

#[test]
fn disabled_or_foreign_section_shares_nothing() {
    let mut group = Group::new("backend b\n  stick-table type ip size 1k peers P store gpc0\n", "");
    let shares = group.weir(0, &NAMES[..2]);
    group.extra = "  disabled\n".to_owned();
    let web = free_port();
    let text = group.configuration(1, &NAMES[..2]) + &format!("frontend f\n  bind 127.0.0.1:{web}\n");
    let weir = |name: &str, text: &str| Member::weir(&["-L", name], text, group.socket(1), &[web]);
    let disabled = weir("B", &text);
    let ask = |member: &Member| member.ask("set table b key 192.0.2.1 data.gpc0 5");
    assert_eq!(ask(&disabled).trim(), "");
    assert_eq!(disabled.entries("b"), ["192.0.2.1 gpc0=5"]);
    assert!(disabled.ask("show info").contains("ConnectedPeers: 0\n"));
    assert_eq!(disabled.ask("show peers").trim(), "");
    drop(disabled);
    let text = text.replace("  disabled\n", "");
    let unknown = weir("X", &text);
    let told = "Removing incomplete section 'peers P' (no peer named 'X').";
    assert!(eventually(|| unknown.messages().contains(told)), "{}", unknown.messages());
    assert_eq!(ask(&unknown).trim(), "");
    assert_eq!(unknown.entries("b"), ["192.0.2.1 gpc0=5"]);
    assert_eq!(shares.entries("b"), Vec::<String>::new());
    drop(unknown);
    // The same with a correct configuration.
    let right = weir("B", &text);
    ask(&right);
    all_agree(&[&shares, &right], "b", 1);
}

#[test]
fn peers_receive_their_configured_key_shards() {
    let mut group = Group::new("backend b\n  stick-table type integer size 1k peers P store gpc0\n", "");
    group.extra = "  shards 2\n".to_owned();
    let [a, b, c] = group.ports;
    let text = group.with_peers(
        0,
        &format!("  peer A 127.0.0.1:{a}\n  peer B 127.0.0.1:{b} shard 1\n  peer C 127.0.0.1:{c} shard 2\n"),
    );
    let text = text.replace("global\n", "global\n  tune.peers.max-updates-at-once 7\n");
    let teacher = Member::weir(&["-L", "A"], &text, group.socket(0), &[a]);
    // The processes know no other peer, so that neither sends its entries to the other.
    let pupil = |place: usize| {
        let peers =
            format!("  peer A 127.0.0.1:{a}\n  peer {} 127.0.0.1:{}\n", NAMES[place], group.ports[place]);
        let text = group.with_peers(place, &peers);
        Member::weir(&["-L", NAMES[place]], &text, group.socket(place), &[group.ports[place]])
    };
    let pupils = [pupil(1), pupil(2)];
    for key in 0..200 {
        teacher.ask(&format!("set table b key {key} data.gpc0 1"));
    }
    let of = |member: &Member| member.entries("b");
    assert!(eventually(|| pupils.iter().map(|pupil| of(pupil).len()).sum::<usize>() == 200));
    let mut all = [of(&pupils[0]), of(&pupils[1])].concat();
    assert!(
        pupils.iter().all(|pupil| of(pupil).len() > 50),
        "{:?}",
        pupils.each_ref().map(|pupil| of(pupil).len())
    );
    all.sort();
    assert_eq!(all, of(&teacher));
}

#[test]
fn non_peers_are_refused_without_side_effects() {
    let group = Group::new("backend b\n  stick-table type ip size 1k peers P store gpc0\n", "");
    let members = [group.weir(0, &NAMES[..2]), group.weir(1, &NAMES[..2])];
    let says = |greeting: &str| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", group.ports[0])).expect("it listens");
        stream.set_read_timeout(Some(weir_tests::PATIENCE)).expect("there are limits");
        stream.write_all(greeting.as_bytes()).expect("it reads");
        let mut answer = String::new();
        // A reset also ends the connection.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert_eq!(says("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), "501\n");
    assert_eq!(says("HAProxyS 3.0\nA\nB 1 1\n"), "502\n");
    assert_eq!(says("HAProxyS 2.1\nB\nA 1 1\n"), "503\n");
    assert_eq!(says("HAProxyS 2.1\nA\nX 1 1\n"), "504\n");
    members[1].ask("set table b key 192.0.2.1 data.gpc0 5");
    all_agree(&[&members[0], &members[1]], "b", 1);
}

#[test]
fn peers_use_tls_if_configured() {
    let group = Group::new("backend b\n  stick-table type ip size 1k expire 1h peers P store gpc0\n", "");
    let authority = Authority::new();
    let pem = authority.issue(&["localhost"]).display().to_string();
    let logs = UdpSocket::bind("127.0.0.1:0").expect("a port");
    logs.set_read_timeout(Some(weir_tests::PATIENCE)).expect("there are limits");
    let log = logs.local_addr().expect("it is bound");
    let section = |own: usize| {
        let servers: String = (0..3)
            .map(|place| match place == own {
                true => format!("  server {}\n", NAMES[place]),
                false => format!("  server {} 127.0.0.1:{}\n", NAMES[place], group.ports[place]),
            })
            .collect();
        let port = group.ports[own];
        format!(
            "  log {log} local0\n  default-bind ssl crt {pem}\n  bind 127.0.0.1:{port}\n  default-server ssl verify none\n{servers}"
        )
    };
    let weir = |place: usize, arguments: &[&str]| {
        let arguments = [&["-L", NAMES[place]], arguments].concat();
        Member::weir(
            &arguments,
            &group.with_peers(place, &section(place)),
            group.socket(place),
            &[group.ports[place]],
        )
    };
    let haproxy = || {
        let text = group.with_peers(1, &section(1)).replacen("global\n", "global\n  localpeer B\n", 1);
        Member::haproxy(&text, group.socket(1), group.ports[1])
    };
    let (mut first, second, third) = (weir(0, &[]), haproxy(), weir(2, &[]));
    for (member, key) in [(&first, 1), (&second, 2), (&third, 3)] {
        member.ask(&format!("set table b key 192.0.2.{key} data.gpc0 {key}"));
    }
    all_agree(&[&first, &second, &third], "b", 3);
    // A peer that does not use TLS is reported to the `log` targets.
    let mut stranger = std::net::TcpStream::connect(("127.0.0.1", group.ports[0])).expect("it listens");
    stranger.write_all(b"HAProxyS 2.1\nA\nB 1 1\n").expect("it reads");
    let mut line = [0; 1024];
    let told = eventually(|| {
        let length = logs.recv(&mut line).expect("a line");
        String::from_utf8_lossy(&line[..length]).contains(" P/1: SSL handshake failure")
    });
    assert!(told, "{}", first.messages());
    drop((second, third));
    // The successor is reached over TLS too, and there is no other peer.
    let pid = pid(&first);
    let new = weir(0, &["-sf", &pid]);
    ends_cleanly(&mut first);
    all_agree(&[&new], "b", 3);
}

#[test]
fn successors_add_the_counts_of_their_predecessors() {
    let traffic = free_port();
    let tables = format!(
        "frontend f\n  mode http\n  bind 127.0.0.1:{traffic}\n  \
         stick-table type string size 1k expire 1h store gpc0,http_req_cnt,http_req_rate(1h) peers P\n  \
         http-request track-sc0 path\n  http-request sc-inc-gpc0(0)\n  http-request return status 200\n"
    );
    let group = Group::new(&tables, "");
    let (ended, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut old = group.weir(0, &NAMES[..1]);
    std::thread::scope(|scope| {
        let client = || {
            while !ended.load(Relaxed) {
                let response = weir_tests::client::get(traffic, "/k").expect("some process answers");
                assert_eq!(response.status, 200);
                requests.fetch_add(1, Relaxed);
            }
        };
        scope.spawn(client);
        scope.spawn(client);
        for take_over in [true, false, true] {
            let before = requests.load(Relaxed);
            assert!(eventually(|| requests.load(Relaxed) > before + 100));
            let (socket, pid) = (group.socket(0).display().to_string(), pid(&old));
            let arguments: &[&str] = if take_over { &["-x", &socket, "-sf", &pid] } else { &["-sf", &pid] };
            let new = group.weir_with(0, &NAMES[..1], arguments);
            ends_cleanly(&mut old);
            old = new;
        }
        ended.store(true, Relaxed);
    });
    let count = requests.into_inner();
    let wanted = format!("/k gpc0={count} http_req_cnt={count} http_req_rate(3600000)={count}");
    let all = || old.entries("f").contains(&wanted);
    assert!(eventually(all), "{wanted}: {:?}", old.entries("f"));
}
