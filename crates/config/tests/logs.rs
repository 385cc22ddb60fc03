//! Rings, log backends, log forwarders, profiles and steps are resolved into the plan; errors are explained.

mod common;

use common::{lines, load_quietly, places, plan};
use plan::Plan;
use plan::bind::{BindAddress, Transport};
use plan::log::{HostStrategy, LogFormat, LogProto, LogServer, LogTarget, Logger};
use plan::ring::{RingPeer, RingServer};
use sample::LogOrigin;
use state::server::ServerAddress;

fn loggers<'p>(plan: &'p Plan, frontend: &str) -> &'p [Logger] {
    &plan.frontend(frontend).expect("the frontend").loggers
}

fn ring_server<'p>(plan: &'p Plan, ring: &str) -> &'p RingServer {
    plan.ring_servers.iter().find(|server| &*server.ring.name == ring).expect("a server")
}

#[test]
fn a_ring_has_its_format_size_and_server() {
    let plan = plan(
        "global\n log ring@r len 2000 format rfc5424 local0\n\
         frontend f\n bind :80\n timeout client 1s\n log global\n log ring@buf0 local1\n\
         ring r\n description \"my ring\"\n format iso\n maxlen 1200\n size 32764\n timeout connect 5s\n timeout server 10s\n \
         server s 127.0.0.1:6514 log-proto octet-count\n",
    );
    let [first, second] = loggers(&plan, "f") else { panic!("two loggers") };
    let LogTarget::Ring(ring) = &first.target else { panic!("a ring") };
    assert_eq!((&*ring.description, ring.size(), ring.max_length), ("my ring", 32_764, 1200));
    assert_eq!((first.format, first.max_length), (LogFormat::Iso, 1200), "the ring's own count");
    assert!(matches!(&second.target, LogTarget::Ring(ring) if &*ring.name == "buf0"));
    let server = ring_server(&plan, "r");
    assert_eq!(server.proto, LogProto::OctetCount);
    assert_eq!(server.connect_timeout.map(|time| time.as_secs()), Some(5));
    assert_eq!(server.server_timeout.map(|time| time.as_secs()), Some(10));
    let names: Vec<&str> = plan.rings.iter().map(|ring| &*ring.name).collect();
    assert_eq!(names, ["buf0", "dpapi", "r"]);
    assert!(plan.backends.is_empty() && plan.frontends.len() == 1, "a ring is no backend");
}

#[test]
fn stream_log_servers_have_a_ring_shared_by_inheriting_proxies() {
    let plan = plan(
        "defaults\n timeout client 1s\n log tcp@127.0.0.1:6514 len 4096 format rfc5424 local0\n\
         frontend a\n bind :81\nfrontend b\n bind :82\n",
    );
    let rings: Vec<_> = ["a", "b"]
        .iter()
        .map(|name| match &loggers(&plan, name)[0].target {
            LogTarget::Ring(ring) => ring.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(std::sync::Arc::ptr_eq(&rings[0], &rings[1]));
    assert_eq!(loggers(&plan, "a")[0].format, LogFormat::Rfc5424);
    let [server] = &plan.ring_servers[..] else { panic!("one server") };
    let RingPeer::Address(ServerAddress::Ip(address)) = &server.peer else { panic!("an address") };
    assert_eq!(address.to_string(), "127.0.0.1:6514");
}

#[test]
fn a_log_backend_sends_datagrams_or_has_a_ring_a_server() {
    let plan = plan(
        "backend b\n mode log\n balance log-hash 'field(-2,\\\"),lower'\n server u udp@127.0.0.1:514\n \
         server t 127.0.0.1:514 log-bufsize 2m log-proto octet-count\n\
         backend s\n mode log\n balance sticky\n server u udp@127.0.0.1:514\n\
         backend d\n mode log\n server u udp@127.0.0.1:514\n\
         frontend f\n bind :80\n timeout client 1s\n log backend@b format rfc5424 local0\n",
    );
    let at = plan.backends["b"];
    assert!(matches!(loggers(&plan, "f")[0].target, LogTarget::Backend(index) if index == at));
    let servers = &plan.proxies[at].servers;
    assert!(matches!(servers.fixed()[0].log, Some(LogServer::Datagram)));
    let Some(LogServer::Ring(ring)) = &servers.fixed()[1].log else { panic!("a ring") };
    assert_eq!((ring.size(), ring_server(&plan, "b/t").proto), (2 << 20, LogProto::OctetCount));
    let algorithm = |name: &str| &plan.backend(name).expect("the backend").balance.algorithm;
    assert!(matches!(algorithm("b"), balance::Algorithm::LogHash(_)));
    assert!(matches!(algorithm("s"), balance::Algorithm::Sticky));
    assert!(matches!(algorithm("d"), balance::Algorithm::RoundRobin));
}

#[test]
fn log_forwarders_listen_but_are_not_frontends() {
    let plan = plan(
        "log-forward w\n dgram-bind 127.0.0.1:1514,127.0.0.1:1516-1517 interface lo\n bind 127.0.0.1:1514\n maxconn 20\n \
         timeout client 10s\n option host append\n option dont-parse-log\n option assume-rfc6587-ntf\n \
         log 127.0.0.1:514 local0\n log 127.0.0.1:515 format raw local0\n\
         log-forward x\n bind 127.0.0.1:1515\n log stderr local0\n",
    );
    assert!(plan.frontends.is_empty());
    let proxy = |name: &str| plan.proxies.iter().find(|proxy| &*proxy.state.name == name).expect("it");
    let first = proxy("w");
    let forward = first.log_forward.as_ref().expect("a forwarder");
    let ports: Vec<u16> = forward
        .datagrams
        .iter()
        .map(|one| match one.address {
            BindAddress::Udp(address) => address.port(),
            ref other => panic!("{other}"),
        })
        .collect();
    assert!(forward.datagrams.iter().all(|one| one.address.transport() == Transport::Datagram));
    assert_eq!(ports, [1514, 1516, 1517]);
    assert_eq!(first.binds.len(), 1);
    assert_eq!((forward.host, forward.unparsed, forward.only_lines), (HostStrategy::Append, true, true));
    let formats: Vec<LogFormat> = first.loggers.iter().map(|logger| logger.format).collect();
    assert_eq!(formats, [LogFormat::AsReceived, LogFormat::Raw]);
    let limit = |name: &str| proxy(name).state.maxconn.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((limit("w"), limit("x")), (20, 10));
}

#[test]
fn steps_and_profiles_are_found() {
    let plan = plan(
        "frontend f\n bind :80\n timeout client 1s\n log-format \"%ci\"\n log-steps accept,close\n \
         log stdout profile p local0\nfrontend g\n bind :81\n timeout client 1s\n\
         log-profile p\n log-tag mine\n on close format \"%ci %[src]\" sd x\n on any drop\n",
    );
    let steps = plan.frontend("f").expect("f").log_steps;
    let all = [LogOrigin::Accept, LogOrigin::Request, LogOrigin::Close, LogOrigin::HttpRequest];
    assert_eq!(all.map(|origin| steps.holds(origin)), [true, false, true, false]);
    assert!(plan.frontend("g").expect("g").log_steps.holds(LogOrigin::Close));
    let profile = loggers(&plan, "f")[0].profile.as_ref().expect("a profile");
    assert_eq!((profile.tag.as_deref(), profile.steps.len()), (Some(&b"mine"[..]), 2));
    assert!(profile.at(LogOrigin::Accept).expect("any").drop);
}

#[test]
fn sending_a_host_name_selects_a_format_with_that_field() {
    let of = |global: &str| {
        let text = format!("global\n{global} log stdout local0\n");
        plan(&text).global.loggers[0].format
    };
    assert_eq!(of(""), LogFormat::Local);
    assert_eq!(of(" log-send-hostname\n"), LogFormat::Rfc3164);
}

#[test]
fn log_errors_are_explained() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "global\n log ring@rimg local0\nring ring\n",
            "2:11 there is no ring `rimg` (did you mean `ring`?)",
            "[ALERT] [2] : 'log' : unknown ring named 'rimg'.",
        ),
        (
            "global\n log backend@bk local0\nbackend bk\n",
            "2:14 backend `bk` cannot receive log messages: it is in mode tcp",
            "[ALERT] [2] : 'log' : backend 'bk' is not in 'log' mode.",
        ),
        (
            "global\n log backend@bj local0\nbackend bk\n mode log\n",
            "2:14 there is no backend `bj` (did you mean `bk`?)",
            "[ALERT] [2] : 'log' : unable to find backend 'bj'.",
        ),
        (
            "global\n log stdout profile prof local0\nlog-profile proof\n",
            "2:21 there is no log-profile section `prof` (did you mean `proof`?)",
            "[ALERT] [2] : 'log' : no such log-profile 'prof'.",
        ),
        (
            "frontend f\n bind :80\n http-request do-log profile prof\n mode http\nlog-profile proof\n",
            "3:30 there is no log-profile section `prof` (did you mean `proof`?)",
            "[ALERT] [3] : error detected in frontend 'f' while parsing 'http-request do-log' rule : 'do-log' : no such log-profile 'prof'..",
        ),
        (
            "log-profile p\n on closed drop\n",
            "2:5 unknown step `closed` for `on` (did you mean `close`?)",
            "[ALERT] [2] : 'on' : unknown logging step 'closed'.",
        ),
        (
            "log-profile p\n on close frmat x\n",
            "2:11 unexpected argument `frmat` for `on` (did you mean `format`?)",
            "[ALERT] [2] : 'on' expects 'drop', 'format' or 'sd' (got 'frmat').",
        ),
        (
            "log-profile p\n on close drop\n on close drop\n",
            "3:5 step `close` is already defined in this profile",
            "[ALERT] [3] : 'on' : step 'close' already defined in log-profile 'p'.",
        ),
        (
            "frontend f\n bind :80\n log-steps accept,closed\n",
            "3:12 unknown step `closed` for `log-steps` (did you mean `close`?)",
            "[ALERT] [3] : 'log-steps' : unknown step 'closed'.",
        ),
        (
            "frontend f\n bind :80\n mode log\n",
            "1:10 frontend `f` cannot use `mode log`: it is only for backends",
            "[ALERT] 'mode log' is not supported in frontend 'f': only in backends.",
        ),
        (
            "backend b\n server s udp@127.0.0.1:1\n",
            "2:11 `udp@127.0.0.1:1` is a datagram address, which only log servers support",
            "[ALERT] [2] : unusable address 'udp@127.0.0.1:1': datagram servers need 'mode log'.",
        ),
        (
            "backend b\n mode log\n http-request deny\n",
            "3:2 `http-request` is ignored: backend `b` is in `mode log`",
            "[WARNING] [3] : Cannot use 'http-request' with 'mode log' in backend 'b'. It will be ignored.",
        ),
        (
            "backend b\n mode log\n balance leastconn\n",
            "3:10 `balance leastconn` cannot be used in `mode log`",
            "[ALERT] [3] : 'balance leastconn' is not usable in log mode.",
        ),
        (
            "ring r\n size 100\n maxlen 100\n",
            "1:6 ring `r` holds 96 bytes, too few for a message of 100",
            "[DIAG] [1] : ring 'r' event max length '100' exceeds size, forced to size '96'.",
        ),
        (
            "ring r\nring r\n",
            "2:6 there are two ring sections named `r`",
            "[ALERT] [2] : sink named 'r' already exists.",
        ),
        (
            "log-forward f\n mode http\n bind :1\n",
            "2:2 `mode` is not allowed in `log-forward` sections (allowed in: defaults, frontend, listen, backend)",
            "[ALERT] [2] : unknown keyword 'mode' in 'log-forward' section",
        ),
        (
            "log-forward f\n dgram-bind tcp@127.0.0.1:1\n",
            "2:13 `dgram-bind` needs a datagram socket",
            "[ALERT] [2] : 'dgram-bind' : invalid address 'tcp@127.0.0.1:1': not a datagram address.",
        ),
        (
            "log-forward f\n log stdout local0\n",
            "1:13 log-forward `f` has no address to listen on",
            "[WARNING] log-forward 'f' has no 'bind' nor 'dgram-bind' directive.",
        ),
    ];
    for (text, place, haproxy) in cases {
        let loaded = load_quietly(text);
        assert_eq!(places(&loaded), [*place], "{text}");
        assert_eq!(lines(&loaded), [*haproxy], "{text}");
    }
}

#[test]
fn invalid_default_lines_are_reported_once() {
    let loaded = load_quietly(
        "defaults\n log ring@nope local0\n timeout client 1s\nfrontend a\n bind :1\nfrontend b\n bind :2\n",
    );
    assert_eq!(lines(&loaded), ["[ALERT] [2] : 'log' : unknown ring named 'nope'."]);
}
