//! `peers` sections that take their members from DNS (`server-template`).

use weir_tests::client::get;
use weir_tests::{NameServer, Scratch, Weir, Zone, ask, eventually, free_port, scratch};

const SERVICE: &str = "_peers._tcp.fleet.test";

/// Members n0, n1, … that find each other by the SRV records of [`SERVICE`]. Each section has room for four.
struct DnsFleet {
    directory: Scratch,
    names: NameServer,
    peers: Vec<u16>,
    clients: Vec<u16>,
}

impl DnsFleet {
    fn new(members: usize) -> DnsFleet {
        let ports = || (0..members).map(|_| free_port()).collect();
        DnsFleet {
            directory: scratch("dns-members"),
            names: NameServer::start(&[(SERVICE, Zone::NoName)]),
            peers: ports(),
            clients: ports(),
        }
    }

    /// Sets the members that DNS provides.
    fn provide(&self, members: &[usize]) {
        let hosts = ["n0.fleet.test", "n1.fleet.test", "N2.fleet.test", "n3.fleet.test"];
        let record = |member: &usize| (0, self.peers[*member], hosts[*member], Some("127.0.0.1"));
        self.names.say(SERVICE, Zone::Services(members.iter().map(record).collect()));
    }

    fn start(&self, place: usize) -> Weir {
        let text = format!(
            "global\n  stats socket {} level admin\n  dns-accept-family ipv4,ipv6\n  localpeer n{place}\n\
             resolvers dns\n  nameserver ns 127.0.0.1:{}\n  timeout resolve 20ms\n  hold obsolete 0\n\
             defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
             peers P\n  bind 127.0.0.1:{}\n  server n{place}\n  \
             server-template slot 1-4 {SERVICE} resolvers dns\n  \
             table limits type string size 1k expire 1h store http_req_cnt aggregate every 5ms\n\
             frontend f\n  bind 127.0.0.1:{}\n  http-request track-sc0 path table P/limits\n  \
             http-request return status 200 content-type text/plain lf-string %[sc0_http_req_cnt]\n",
            self.socket(place).display(),
            self.names.port(),
            self.peers[place],
            self.clients[place],
        );
        Weir::start_with(&text, &["-db"], &[self.peers[place], self.clients[place]])
    }

    fn socket(&self, place: usize) -> std::path::PathBuf {
        self.directory.join(format!("s{place}"))
    }

    /// Returns the names of the other members that a member shows, and whether it has a session with each.
    fn members(&self, place: usize) -> Vec<(String, bool)> {
        let shown = ask(&self.socket(place), "show peers");
        let lines = shown.lines().filter(|line| line.contains("(remote,"));
        let mut members: Vec<(String, bool)> = lines
            .map(|line| {
                let name = line.split("id=").nth(1).and_then(|rest| rest.split('(').next());
                (name.unwrap_or_default().to_owned(), line.contains("last_status=ESTA"))
            })
            .collect();
        members.sort();
        members
    }

    fn wait_for_members(&self, place: usize, wanted: &[&str]) {
        let wanted: Vec<(String, bool)> = wanted.iter().map(|name| ((*name).to_owned(), true)).collect();
        let mut found = Vec::new();
        let equal = eventually(|| {
            found = self.members(place);
            found == wanted
        });
        assert!(equal, "n{place} has {found:?}: {}", ask(&self.socket(place), "show peers"));
    }

    /// Sends a request to a member, and returns the count of all members that it shows.
    fn count(&self, place: usize) -> u64 {
        let response = get(self.clients[place], "/k").expect("it answers");
        response.text().parse().expect("a number")
    }

    /// Waits until a member shows a count for the entry, without sending a request.
    fn wait_for_count(&self, place: usize, wanted: u64) {
        let mut shown = String::new();
        let wanted = format!("http_req_cnt={wanted}");
        let equal = eventually(|| {
            shown = ask(&self.socket(place), "show table P/limits");
            shown.split_ascii_whitespace().any(|word| word == wanted)
        });
        assert!(equal, "n{place} does not show {wanted}: {shown}");
    }
}

#[test]
fn members_that_dns_provides_are_added_and_replaced_at_run_time() {
    let fleet = DnsFleet::new(4);
    fleet.provide(&[0, 1]);
    let _processes: Vec<Weir> = (0..4).map(|place| fleet.start(place)).collect();
    fleet.wait_for_members(0, &["n1"]);
    fleet.wait_for_members(1, &["n0"]);
    assert_eq!(fleet.count(0), 1);
    fleet.wait_for_count(1, 1);
    assert_eq!(fleet.count(1), 2);
    // A third member appears, with its counts.
    assert_eq!(fleet.count(2), 1);
    fleet.provide(&[0, 1, 2]);
    fleet.wait_for_members(0, &["n1", "n2"]);
    fleet.wait_for_members(2, &["n0", "n1"]);
    (0..3).for_each(|place| fleet.wait_for_count(place, 3));
    // Four records fill all places, one of which is that of the process itself.
    fleet.provide(&[0, 1, 2, 3]);
    fleet.wait_for_members(0, &["n1", "n2", "n3"]);
    assert_eq!(fleet.count(3), 4);
    (0..3).for_each(|place| fleet.wait_for_count(place, 4));
}

#[test]
fn a_member_that_dns_no_longer_provides_counts_until_its_place_is_reused() {
    let fleet = DnsFleet::new(4);
    fleet.provide(&[0, 1, 2]);
    let _processes: Vec<Weir> = (0..4).map(|place| fleet.start(place)).collect();
    fleet.wait_for_members(0, &["n1", "n2"]);
    fleet.count(1);
    fleet.count(1);
    fleet.count(2);
    fleet.wait_for_count(0, 3);
    // With its record gone, n1 keeps its session and its counts.
    fleet.provide(&[0, 2]);
    let (questions, _) = fleet.names.questions();
    // Each of the four processes has got several answers.
    assert!(eventually(|| fleet.names.questions().0 > questions + 100));
    fleet.wait_for_members(0, &["n1", "n2"]);
    fleet.wait_for_count(0, 3);
    fleet.count(1);
    fleet.wait_for_count(0, 4);
    // The place of n1 is the first free one, so n3 replaces it.
    fleet.provide(&[0, 2, 3]);
    fleet.wait_for_members(0, &["n2", "n3"]);
    fleet.wait_for_count(0, 1);
    // When n1 is back, its process sends all of its counts again, although it had sent them before.
    fleet.provide(&[0, 2, 1]);
    fleet.wait_for_members(0, &["n1", "n2"]);
    fleet.wait_for_count(0, 4);
}

#[test]
fn members_with_address_records_are_named_after_their_addresses() {
    let names = NameServer::start(&[("fleet.test", Zone::Addresses(vec!["127.0.0.1", "127.0.0.2"]))]);
    let directory = scratch("dns-addresses");
    let port = free_port();
    let start = |number: usize| {
        let socket = directory.join(format!("s{number}"));
        let text = format!(
            "global\n  stats socket {} level admin\n  localpeer 127.0.0.{number}\n\
             resolvers dns\n  nameserver ns 127.0.0.1:{}\n  timeout resolve 20ms\n\
             peers P\n  bind 127.0.0.{number}:{port}\n  server 127.0.0.{number}\n  \
             server-template slot 2 fleet.test:{port} resolvers dns resolve-prefer ipv4\n  \
             table t type ip size 1k expire 1h store gpc0\n",
            socket.display(),
            names.port(),
        );
        (Weir::start_with(&text, &["-db"], &[]), socket)
    };
    let (_first, first) = start(1);
    let (_second, second) = start(2);
    for (socket, other) in [(&first, "id=127.0.0.2(remote,active)"), (&second, "id=127.0.0.1(remote,active)")]
    {
        let mut shown = String::new();
        let connected = eventually(|| {
            shown = ask(socket, "show peers");
            shown.lines().any(|line| line.contains(other) && line.contains("last_status=ESTA"))
        });
        assert!(connected, "{shown}");
    }
    ask(&first, "set table P/t key 192.0.2.7 data.gpc0 5");
    let mut shown = String::new();
    let is_shared = eventually(|| {
        shown = ask(&second, "show table P/t");
        shown.contains("key=192.0.2.7") && shown.contains("gpc0=5")
    });
    assert!(is_shared, "{shown}");
}
