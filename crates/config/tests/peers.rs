//! `peers` sections: their results, and their errors in HAProxy's wording.

mod common;

use common::{lines, load_quietly};
use plan::bind::BindAddress;

const TABLE: &str = "backend b\n stick-table type ip size 1k expire 1m peers P store gpc0\n";

/// The section and the lines after it, following `localpeer A`; the messages in one-line form.
const WRONG: &[(&str, &[&str])] = &[
    ("peers P\n peer A 127.0.0.1:1\n peer B 127.0.0.1:2\n", &[]),
    (
        "peers P\n peer X 127.0.0.1:1\n peer B 127.0.0.1:2\n",
        &["[WARNING] Removing incomplete section 'peers P' (no peer named 'A')."],
    ),
    ("peers Q\n peer A 127.0.0.1:1\n", &["[ALERT] Proxy 'b': unable to find sync peers 'P'."]),
    ("peers P\n", &["[ALERT] Proxy 'b': unable to find local peer 'A' in peers section 'P'."]),
    ("peers P Q\n peer A 127.0.0.1:1\n", &["[ALERT] [3] : 'peers' cannot handle unexpected argument 'Q'."]),
    (
        "peers P\n peer A 127.0.0.1:1\npeers P\n peer A 127.0.0.1:1\n",
        &[
            "[ALERT] [5] : peers section 'P' has the same name as another peers section declared at test.cfg:3.",
        ],
    ),
    (
        "peers P\n peer A 127.0.0.1:1\n peer B\n",
        &["[WARNING] [5] : 'peer B' : ignoring invalid peer definition (missing address:port)"],
    ),
    (
        "peers P\n peer A 127.0.0.1:1\n peer B 127.0.0.1\n",
        &["[ALERT] [5] : 'peer B' : missing port specification in '127.0.0.1'"],
    ),
    (
        "peers P\n bind 127.0.0.1:1\n peer A 127.0.0.1:1\n",
        &["[ALERT] [5] : mixing \"peer\" and \"bind\" line is forbidden"],
    ),
    ("peers P\n bind 127.0.0.1:1\n server A\n server B 127.0.0.1:2\n", &[]),
    (
        "peers P\n bind 127.0.0.1:1\n server A 127.0.0.1:3\n",
        &[
            "[ALERT] [5] : 'server A/A' : unknown keyword '127.0.0.1:3'. Hint: no address was expected for this server.",
        ],
    ),
    ("peers P\n server A\n server B 127.0.0.1:2\n", &[]),
    (
        "peers P\n bind 127.0.0.1:1\n bind 127.0.0.1:3\n server A\n",
        &[
            "[ALERT] [5] : One listener per \"peers\" section is authorized but another is already configured.",
        ],
    ),
    (
        "peers P\n bind 127.0.0.1:1-2\n server A\n",
        &[
            "[ALERT] [4] : Only one listener per \"peers\" section is authorized. Multiple listening addresses or port range are not supported.",
        ],
    ),
    (
        "peers P\n bind 127.0.0.1:1\n server A\n server B 127.0.0.1:2 check send-proxy\n",
        &[
            "[WARNING] [6] : 'server B' : init_addr, resolvers, check and agent are ignored for peers.",
            "[WARNING] [6] : 'send-proxy*' server option is unsupported there, ignoring it",
        ],
    ),
    (
        "peers P\n shards 3\n peer A 127.0.0.1:1 shard 1\n peer B 127.0.0.1:2 shard 2\n peer C 127.0.0.1:3 shard 9\n",
        &[
            "[WARNING] Peers section 'P': shard ignored for 'A' local peer",
            "[WARNING] Peers section 'P': shard ignored for 'C' local peer because 9 shard value is greater than the section number of shards",
        ],
    ),
    (
        "peers P\n shards 0\n peer A 127.0.0.1:1\n",
        &["[ALERT] [4] : 'shards' : expects a strictly positive integer argument"],
    ),
    (
        "peers P\n shards x\n peer A 127.0.0.1:1\n",
        &["[ALERT] [4] : 'shards' : expects an integer argument, found 'x'"],
    ),
    ("peers P\n shards\n peer A 127.0.0.1:1\n", &["[ALERT] [4] : 'shards' : missing value"]),
    ("peers P\n disabled\n peer A 127.0.0.1:1\n", &[]),
    ("peers P\n peer A 127.0.0.1:1\n table\n", &["[ALERT] [5] : table: missing size."]),
    (
        "peers P\n peer A 127.0.0.1:1\n table t type ip size 1k peers P\n",
        &["[ALERT] [5] : table: unknown argument 'peers'."],
    ),
    (
        "peers P\n peer A 127.0.0.1:1\n table t type ip siz 1k\n",
        &["[ALERT] [5] : table: unknown argument 'siz'."],
    ),
    (
        "peers P\n peer A 127.0.0.1:1\n table t type ip size 1k\n table t type ip size 1k\n",
        &["[ALERT] [6] : stick-table name 't' conflicts with table declared in peers 'P'."],
    ),
    (
        "peers P\n peer A 127.0.0.1:1\n mode http\n",
        &["[ALERT] [5] : unknown keyword 'mode' in 'peers' section"],
    ),
];

#[test]
fn invalid_peers_sections_have_haproxys_messages() {
    for (section, wanted) in WRONG {
        let loaded = load_quietly(&format!("global\n localpeer A\n{section}{TABLE}"));
        assert_eq!(lines(&loaded), *wanted, "{section}");
        let is_wrong = wanted.iter().any(|line| line.starts_with("[ALERT]"));
        assert_eq!(loaded.plan.is_none(), is_wrong, "{section}");
    }
}

#[test]
fn sections_share_their_tables_and_those_that_refer_to_them() {
    let text = "global\n localpeer A\n tune.peers.max-updates-at-once 7\n\
                peers P\n shards 2\n default-bind v4v6\n bind 127.0.0.1:7 name x\n server B 127.0.0.1:2 shard 2\n server A\n\
                \x20table t type string len 20 size 1k store gpc0\n\
                backend b\n stick-table type ip size 1k peers P store gpc0\n\
                backend c\n stick-table type ip size 1k\n\
                backend t\n stick-table type ip size 1k peers P write-to c\n\
                peers Q\n disabled\n peer A 127.0.0.1:8\n table u type ip size 1k\n";
    let loaded = load_quietly(text);
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    assert_eq!(plan.global.tune.peers_updates, 7);
    let all: Vec<_> = plan.proxies.iter().filter_map(|proxy| Some((proxy, proxy.peers.as_ref()?))).collect();
    let [(proxy, peers), (off, none)] = &all[..] else { panic!("{all:?}") };
    assert!(proxy.is_hidden() && !proxy.disabled && off.disabled && none.tables.is_empty());
    let names: Vec<&str> = peers.tables.iter().map(|shared| &*shared.name).collect();
    assert_eq!(names, ["b", "t", "/t"]);
    let names: Vec<&str> = peers.tables.iter().map(|shared| shared.table.name()).collect();
    assert_eq!(names, ["b", "t", "P/t"]);
    let told: Vec<(&str, u32)> = peers.peers.iter().map(|peer| (&*peer.name, peer.shard)).collect();
    assert_eq!((told, peers.local, peers.shards), (vec![("B", 2), ("A", 0)], 1, 2));
    let address =
        |at: usize| peers.peers[at].server.as_ref().map(|server| server.state.address.load().clone());
    assert!(address(0).is_some() && address(1).is_some());
    let [bind] = &proxy.binds[..] else { panic!("{:?}", proxy.binds) };
    assert_eq!(bind.address, BindAddress::Ip(([127, 0, 0, 1], 7).into()));
    assert_eq!((bind.v6only, &bind.workers[..]), (Some(false), &[peers.worker][..]));
    // A table that is not shared has no additional cost.
    let shared: Vec<(&str, bool)> =
        plan.tables.iter().map(|table| (table.name(), table.settings.peers.is_some())).collect();
    assert_eq!(shared, [("b", true), ("c", false), ("t", true), ("P/t", true), ("Q/u", false)]);
}

#[test]
fn templates_need_a_name_a_port_and_resolvers() {
    let cases: [(&str, &str); 6] = [
        (
            "server-template s 2 192.0.2.1:1 resolvers R",
            "`server-template s` needs a host name, not `192.0.2.1:1`",
        ),
        ("server-template s 2 fleet.test resolvers R", "`fleet.test` requires a port"),
        ("server-template s 2 fleet.test:1", "`server-template s` needs `resolvers <section>` here"),
        ("server-template s 2 quic4@fleet.test:1 resolvers R", "peers cannot be reached over QUIC"),
        (
            "server-template s 2 _p._tcp.fleet.test shard 1 resolvers R",
            "`shard` cannot be used with `server-template s`",
        ),
        ("server-template s 0 _p._tcp.fleet.test resolvers R", "invalid number or range of servers `0`"),
    ];
    for (line, wanted) in cases {
        let text = format!(
            "global\n localpeer A\nresolvers R\n nameserver n 192.0.2.9:53\n\
             peers P\n shards 2\n bind 127.0.0.1:7\n server A\n {line}\n"
        );
        let loaded = load_quietly(&text);
        let messages: Vec<&str> = loaded.diagnostics.iter().map(|message| &*message.message).collect();
        assert!(messages.contains(&wanted), "{line}: {messages:?}");
        assert!(loaded.plan.is_none());
    }
}

#[test]
fn peers_of_a_template_are_members_without_a_fixed_name() {
    let text = "global\n localpeer A\nresolvers R\n nameserver n 192.0.2.9:53\n\
                peers P\n bind 127.0.0.1:7\n server A\n server-template s 2-4 _p._tcp.fleet.test resolvers R\n\
                \x20table t type string size 1k expire 1m store gpc0 aggregate\n";
    let loaded = load_quietly(text);
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let peers = plan.proxies.iter().find_map(|proxy| proxy.peers.as_ref()).expect("a section");
    let all: Vec<(&str, bool)> = peers.peers.iter().map(|peer| (&*peer.name, peer.is_from_dns)).collect();
    assert_eq!(all, [("A", false), ("s2", true), ("s3", true), ("s4", true)]);
    assert!(peers.peers[1..].iter().all(|peer| peer.member_name().is_none()));
    let members = peers.tables[0].table.aggregate().map(|aggregate| aggregate.members.clone());
    assert_eq!(members.expect("an aggregate"), ["s2", "s3", "s4"].map(Box::from).into());
    let server = &peers.peers[1].server.as_ref().expect("a server").state;
    server.set_fqdn(Some("LB-1.fleet.test"));
    assert_eq!(peers.peers[1].member_name().as_deref(), Some("lb-1"));
}
