//! The engine in virtual time: which queries are sent when, and how resolutions end.

use std::net::{IpAddr, Ipv4Addr};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SRV};
use hickory_proto::rr::{RData, Record, RecordType};
use plan::resolvers::{Hold, NameServer, NameServerAddress};
use state::resolvers::ResolversSection;

use super::*;

/// An engine with name servers and a clock that the test controls.
struct Bench {
    engine: ResolverEngine,
    now: u64,
    out: Vec<EngineOutput>,
    section: Arc<ResolversSection>,
}

const BOTH: Families = Families { v4: true, v6: true };

fn numbers() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
    static NEXT: AtomicU16 = AtomicU16::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl Bench {
    fn new(nameservers: usize, families: Families, hold: Hold) -> Self {
        let names = (1..=nameservers).map(|number| format!("ns{number}").into());
        let section = ResolversSection::new("dns", names);
        let place = NameServer {
            address: NameServerAddress::Ip((Ipv4Addr::LOCALHOST, 53).into()),
            stream: false,
            secure: None,
        };
        let settings = Resolvers {
            state: section.clone(),
            nameservers: vec![place; nameservers],
            payload_size: 512,
            retries: 3,
            every: Duration::from_secs(1),
            retry: Duration::from_millis(100),
            hold,
        };
        let engine = ResolverEngine::new(Arc::new(settings), families, numbers);
        Self { engine, now: 1_000_000, out: Vec::new(), section }
    }

    fn follow(&mut self, name: &str, kind: QueryKind) -> usize {
        self.engine.follow(NameKey::new(name, kind), self.now, &mut self.out).unwrap()
    }

    /// Returns the queries sent since the last call: name server, id, type, and whether over a stream.
    fn questions(&mut self) -> Vec<(usize, u16, RecordType, bool)> {
        let sent = self.out.extract_if(.., |output| matches!(output, EngineOutput::Send { .. }));
        sent.filter_map(|output| match output {
            EngineOutput::Send { nameserver, id, bytes, stream } => {
                Some((nameserver, id, Message::from_vec(&bytes).unwrap().queries[0].query_type, stream))
            }
            EngineOutput::Ended { .. } => None,
        })
        .collect()
    }

    /// Returns the resolutions that ended since the last call.
    fn ended(&mut self) -> Vec<(usize, Option<usize>)> {
        let ended = self.out.extract_if(.., |output| matches!(output, EngineOutput::Ended { .. }));
        ended
            .filter_map(|output| match output {
                EngineOutput::Ended { resolution, by } => Some((resolution, by)),
                EngineOutput::Send { .. } => None,
            })
            .collect()
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.engine.tick(self.now, &mut self.out);
    }

    fn answer(&mut self, nameserver: usize, bytes: &[u8]) {
        self.engine.receive(nameserver, bytes, false, self.now, &mut self.out);
    }

    fn status(&self, resolution: usize) -> ResolutionStatus {
        self.engine.get(resolution).unwrap().status
    }

    fn counted(&self, nameserver: usize, name: &str) -> u64 {
        let named = self.section.nameservers[nameserver].counters.named();
        named.iter().find(|(own, _)| *own == name).unwrap().1
    }

    fn addresses(&self, resolution: usize) -> Vec<String> {
        let known = self.engine.get(resolution).unwrap().records.iter();
        known
            .map(|kept| match &kept.data {
                Data::Address(address) => address.to_string(),
                Data::Service(service) => format!("{}:{}", service.target, service.port),
            })
            .collect()
    }
}

fn response(id: u16, name: &str, asked: RecordType, code: ResponseCode, records: &[RData]) -> Vec<u8> {
    let name = message::parse_name(name).unwrap();
    let mut message = Message::new(id, MessageType::Response, OpCode::Query);
    message.metadata.response_code = code;
    message.add_query(Query::query(name.clone(), asked));
    for data in records {
        message.add_answer(Record::from_rdata(name.clone(), 60, data.clone()));
    }
    message.to_vec().unwrap()
}

fn addresses(id: u16, asked: RecordType, addresses: &[&str]) -> Vec<u8> {
    let of = |text: &&str| match text.parse().unwrap() {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    let records: Vec<RData> = addresses.iter().map(of).collect();
    response(id, "a.b", asked, ResponseCode::NoError, &records)
}

fn error(id: u16, asked: RecordType, code: ResponseCode) -> Vec<u8> {
    response(id, "a.b", asked, code, &[])
}

use RecordType::{A as V4, AAAA as V6};

#[test]
fn first_valid_answer_of_any_server_counts() {
    let mut bench = Bench::new(2, BOTH, Hold::default());
    let name = bench.follow("A.b", QueryKind::Address(Family::V4));
    let asked = bench.questions();
    let id = asked[0].1;
    assert_eq!(asked, [(0, id, V4, false), (1, id, V4, false)]);
    bench.answer(0, &error(id, V4, ResponseCode::NXDomain));
    assert_eq!(bench.ended(), []);
    bench.answer(1, &addresses(id, V4, &["192.0.2.1"]));
    assert_eq!(bench.ended(), [(name, Some(1))]);
    assert_eq!(
        (bench.status(name), bench.addresses(name)),
        (ResolutionStatus::Valid, vec!["192.0.2.1".to_owned()])
    );
    bench.answer(0, &addresses(id, V4, &["192.0.2.9"]));
    assert_eq!((bench.counted(0, "outdated"), bench.counted(0, "nx"), bench.counted(1, "valid")), (1, 1, 1));
    // The name is resolved again after `timeout resolve`.
    bench.pass(999);
    assert_eq!(bench.questions(), []);
    bench.pass(1);
    assert_eq!(bench.questions().len(), 2);
}

#[test]
fn query_ids_are_unique() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    bench.engine.random = || 0;
    let kind = || QueryKind::Address(Family::V4);
    let (first, second) = (bench.follow("a.b", kind()), bench.follow("c.d", kind()));
    let ids: Vec<u16> = bench.questions().iter().map(|question| question.1).collect();
    assert_eq!(ids, [0, 1]);
    bench.answer(0, &addresses(0, V4, &["192.0.2.1"]));
    assert_eq!(
        (bench.status(first), bench.addresses(first)),
        (ResolutionStatus::Valid, vec!["192.0.2.1".to_owned()])
    );
    assert_eq!(bench.addresses(second), Vec::<String>::new());
}

#[test]
fn errors_from_all_try_the_other_family_then_retry() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    let name = bench.follow("a.b", QueryKind::Address(Family::V6));
    let mut seen = Vec::new();
    // The last error ends the resolution immediately.
    for _ in 0..3 {
        for _ in 0..2 {
            let [(_, id, asked, _)] = bench.questions()[..] else { panic!("one question at a time") };
            seen.push(asked);
            bench.answer(0, &error(id, asked, ResponseCode::NXDomain));
        }
        if bench.ended().is_empty() {
            assert_eq!(bench.questions(), []);
            bench.pass(100);
        }
    }
    assert_eq!(seen, [V6, V4, V6, V4, V6, V4]);
    assert_eq!(bench.status(name), ResolutionStatus::NoName);
    assert_eq!((bench.counted(0, "nx"), bench.counted(0, "timeout")), (6, 0));
}

#[test]
fn silence_is_retried_and_ends_as_a_timeout() {
    let mut bench = Bench::new(2, BOTH, Hold::default());
    let name = bench.follow("a.b", QueryKind::Address(Family::V4));
    for _ in 0..3 {
        let asked = bench.questions();
        assert_eq!(asked.iter().map(|question| question.2).collect::<Vec<_>>(), [V4, V4]);
        assert_eq!(bench.ended(), []);
        bench.pass(100);
    }
    assert_eq!((bench.ended(), bench.status(name)), (vec![(name, None)], ResolutionStatus::Timeout));
    assert_eq!((bench.counted(0, "timeout"), bench.counted(1, "sent")), (3, 3));
}

#[test]
fn error_and_silence_try_the_other_family() {
    let mut bench = Bench::new(2, BOTH, Hold::default());
    bench.follow("a.b", QueryKind::Address(Family::V4));
    let id = bench.questions()[0].1;
    bench.answer(0, &error(id, V4, ResponseCode::NXDomain));
    assert_eq!(bench.questions(), []);
    bench.pass(100);
    assert_eq!(bench.questions()[0].2, V6);
}

#[test]
fn families_that_are_not_accepted_are_not_queried() {
    for (families, asked) in [(Families { v4: true, v6: false }, V4), (Families { v4: false, v6: true }, V6)]
    {
        let mut bench = Bench::new(1, families, Hold::default());
        bench.follow("a.b", QueryKind::Address(Family::V6));
        let [(_, id, first, _)] = bench.questions()[..] else { panic!("one question") };
        assert_eq!(first, asked);
        bench.answer(0, &error(id, asked, ResponseCode::Refused));
        assert_eq!(bench.questions(), []);
        bench.pass(100);
        assert_eq!(bench.questions()[0].2, asked);
    }
}

#[test]
fn truncated_answers_are_fetched_over_tcp() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    let name = bench.follow("a.b", QueryKind::Address(Family::V4));
    let id = bench.questions()[0].1;
    let mut cut = addresses(id, V4, &["192.0.2.1"]);
    cut[2] |= 2;
    bench.answer(0, &cut);
    assert_eq!(bench.questions(), [(0, id, V4, true)]);
    assert_eq!((bench.counted(0, "truncated"), bench.ended()), (1, vec![]));
    bench.engine.receive(0, &addresses(id, V4, &["192.0.2.1"]), true, bench.now, &mut bench.out);
    assert_eq!(bench.ended(), [(name, Some(0))]);
}

#[test]
fn oversized_answers_are_errors() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    bench.follow("a.b", QueryKind::Address(Family::V4));
    let id = bench.questions()[0].1;
    let many: Vec<String> = (1..60).map(|last| format!("192.0.2.{last}")).collect();
    let bytes = addresses(id, V4, &many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(bytes.len() > 512);
    bench.answer(0, &bytes);
    assert_eq!((bench.counted(0, "too_big"), bench.counted(0, "valid")), (1, 0));
    assert_eq!(bench.questions()[0].2, V6);
}

#[test]
fn missing_records_are_kept_for_hold_obsolete() {
    for (obsolete, kept) in [(0, 1), (1500, 2)] {
        let hold = Hold { obsolete: Duration::from_millis(obsolete), ..Hold::default() };
        let mut bench = Bench::new(1, BOTH, hold);
        let name = bench.follow("a.b", QueryKind::Address(Family::V4));
        let id = bench.questions()[0].1;
        bench.answer(0, &addresses(id, V4, &["192.0.2.1", "192.0.2.2"]));
        for expected in [kept, 1] {
            bench.pass(1000);
            let id = bench.questions()[0].1;
            bench.answer(0, &addresses(id, V4, &["192.0.2.2"]));
            assert_eq!(bench.addresses(name).len(), expected);
        }
        assert_eq!(bench.addresses(name), ["192.0.2.2"]);
    }
}

#[test]
fn the_last_valid_answer_outweighs_errors_for_its_hold_time() {
    let hold = Hold { nx: Duration::from_millis(1500), ..Hold::default() };
    let mut bench = Bench::new(1, Families { v4: true, v6: false }, hold);
    let name = bench.follow("a.b", QueryKind::Address(Family::V4));
    let held = |bench: &Bench| bench.engine.is_held(bench.engine.get(name).unwrap(), bench.now);
    let id = bench.questions()[0].1;
    bench.answer(0, &addresses(id, V4, &["192.0.2.1"]));
    bench.pass(1000);
    for last in [false, false, true] {
        let id = bench.questions()[0].1;
        bench.answer(0, &error(id, V4, ResponseCode::NXDomain));
        if !last {
            bench.pass(100);
        }
    }
    assert_eq!((bench.status(name), held(&bench)), (ResolutionStatus::NoName, true));
    bench.now += 299;
    assert!(held(&bench));
    bench.now += 1;
    assert!(!held(&bench));
    assert_eq!(bench.addresses(name), ["192.0.2.1"]);
}

#[test]
fn names_never_answered_are_held_from_the_time_they_are_followed() {
    let hold = Hold { timeout: Duration::from_millis(1500), ..Hold::default() };
    let mut bench = Bench::new(1, Families { v4: true, v6: false }, hold);
    let began = bench.now;
    let name = bench.follow("a.b", QueryKind::Address(Family::V4));
    bench.pass(100);
    bench.pass(100);
    bench.pass(100);
    assert_eq!(bench.status(name), ResolutionStatus::Timeout);
    for (after, is_held) in [(1499, true), (1500, false)] {
        assert_eq!(bench.engine.is_held(bench.engine.get(name).unwrap(), began + after), is_held);
    }
}

#[test]
fn lookups_use_fresh_answers_and_stale_ones_are_dropped() {
    let mut bench = Bench::new(1, BOTH, Hold { valid: Duration::from_secs(10), ..Hold::default() });
    let once = |bench: &mut Bench| {
        bench
            .engine
            .once(NameKey::new("a.b", QueryKind::Address(Family::V4)), bench.now, &mut bench.out)
            .unwrap()
    };
    let (name, fresh) = once(&mut bench);
    assert!(!fresh);
    let id = bench.questions()[0].1;
    assert_eq!(once(&mut bench), (name, false));
    assert_eq!(bench.questions(), [], "it is being asked already");
    bench.answer(0, &addresses(id, V4, &["192.0.2.1"]));
    assert_eq!(bench.ended(), [(name, Some(0))]);
    bench.pass(9_999);
    assert_eq!((once(&mut bench), bench.questions()), ((name, true), vec![]));
    bench.pass(1);
    assert!(bench.engine.get(name).is_none(), "nobody follows it");
    assert!(!once(&mut bench).1);
    assert_eq!(bench.questions().len(), 1);
}

#[test]
fn sooner_has_no_effect_on_fresh_answers() {
    let mut bench = Bench::new(1, BOTH, Hold { valid: Duration::from_millis(300), ..Hold::default() });
    let name = bench.follow("a.b", QueryKind::Address(Family::V4));
    let id = bench.questions()[0].1;
    bench.answer(0, &addresses(id, V4, &["192.0.2.1"]));
    bench.pass(299);
    bench.engine.sooner(name, bench.now, &mut bench.out);
    assert_eq!(bench.questions(), []);
    bench.pass(1);
    bench.engine.sooner(name, bench.now, &mut bench.out);
    bench.engine.sooner(name, bench.now, &mut bench.out);
    assert_eq!(bench.questions().len(), 1, "once is enough");
}

#[test]
fn names_without_followers_are_not_refreshed() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    let name = bench.follow("a.b", QueryKind::Address(Family::V4));
    let id = bench.questions()[0].1;
    bench.answer(0, &addresses(id, V4, &["192.0.2.1"]));
    bench.engine.leave(name, bench.now);
    bench.pass(60_000);
    assert_eq!(bench.questions(), []);
    assert!(bench.engine.get(name).is_none());
}

#[test]
fn stopping_process_does_not_refresh() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    bench.follow("a.b", QueryKind::Address(Family::V4));
    let id = bench.questions()[0].1;
    bench.answer(0, &addresses(id, V4, &["192.0.2.1"]));
    bench.engine.refresh = false;
    bench.pass(5_000);
    assert_eq!(bench.questions(), []);
    bench.engine.refresh = true;
    bench.pass(1_000);
    assert_eq!(bench.questions().len(), 1);
}

#[test]
fn srv_records_are_distinguished_by_host_and_port() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    let name = bench.follow("_http._tcp.b", QueryKind::Service);
    let srv =
        |port, weight, host: &str| RData::SRV(SRV::new(0, weight, port, message::parse_name(host).unwrap()));
    let say = |bench: &mut Bench, records: &[RData]| {
        let [(_, id, asked, _)] = bench.questions()[..] else { panic!("one question") };
        let bytes = response(id, "_http._tcp.b", asked, ResponseCode::NoError, records);
        bench.answer(0, &bytes);
        bench.addresses(name)
    };
    let both = [srv(80, 1, "x.b"), srv(81, 1, "x.b")];
    assert_eq!(say(&mut bench, &both), ["x.b:80", "x.b:81"]);
    bench.pass(1000);
    assert_eq!(say(&mut bench, &[srv(81, 9, "X.b")]), ["X.b:81"]);
}

#[test]
fn hostile_answers_are_counted_and_change_nothing() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    let name = bench.follow("a.b", QueryKind::Address(Family::V4));
    let id = bench.questions()[0].1;
    for bytes in [&b""[..], b"x", &[0xff; 3]] {
        bench.answer(0, bytes);
    }
    bench.answer(0, &addresses(id.wrapping_add(1), V4, &["192.0.2.66"]));
    assert_eq!((bench.counted(0, "invalid"), bench.counted(0, "outdated")), (2, 2));
    // An answer to another question with a valid id is treated as an error of this name server.
    bench.answer(0, &response(id, "evil.b", V4, ResponseCode::NoError, &[RData::A(A(Ipv4Addr::LOCALHOST))]));
    assert_eq!((bench.counted(0, "invalid"), bench.status(name)), (3, ResolutionStatus::Unknown));
    assert!(bench.addresses(name).is_empty());
}

#[test]
fn unsent_queries_are_not_waited_for() {
    let mut bench = Bench::new(2, BOTH, Hold::default());
    bench.follow("a.b", QueryKind::Address(Family::V4));
    let id = bench.questions()[0].1;
    bench.engine.not_sent(0, id);
    bench.answer(1, &error(id, V4, ResponseCode::Refused));
    assert_eq!(bench.questions()[0].2, V6);
    assert_eq!(bench.counted(0, "snd_error"), 1);
}

#[test]
fn new_names_are_refused_at_the_query_limit() {
    let mut bench = Bench::new(1, BOTH, Hold::default());
    let once = |bench: &mut Bench, name: &str| {
        let key = NameKey::new(name, QueryKind::Address(Family::V4));
        bench.engine.once(key, bench.now, &mut bench.out)
    };
    for number in 0..MOST_QUESTIONS {
        assert!(once(&mut bench, &format!("n{number}.test")).is_some());
    }
    assert_eq!(once(&mut bench, "one-more.test"), None);
    assert!(once(&mut bench, "n7.test").is_some(), "who asks for the same waits with the others");
    bench.questions();
    // A server's name, which is resolved periodically, is queried later.
    let server = bench.follow("server.test", QueryKind::Address(Family::V4));
    assert_eq!((bench.questions(), bench.ended()), (Vec::new(), vec![(server, None)]));
    assert_eq!(bench.status(server), ResolutionStatus::Other);
    for _ in 0..10 {
        bench.pass(1000);
    }
    assert!(!bench.questions().is_empty() && once(&mut bench, "one-more.test").is_some());
}
