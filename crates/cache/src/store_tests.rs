//! Tests the store against a model of RFC 9111 with random requests and responses, and tests its limits.

use proptest::prelude::*;

use super::*;
use crate::{Landed, Lead, Now};

const WALL: i64 = 1_700_000_000;

fn store(change: impl FnOnce(&mut CacheSettings)) -> Arc<Store> {
    let mut settings = CacheSettings::new("c", 1024);
    settings.max_object = 300_000;
    change(&mut settings);
    Store::new(settings)
}

fn get(host: &str, path: &str, fields: &[(&str, &str)]) -> Head {
    asking("GET", host, path, fields)
}

fn asking(method: &str, host: &str, path: &str, fields: &[(&str, &str)]) -> Head {
    let mut head = Head::new();
    head.start_request(method.as_bytes(), path.as_bytes());
    head.append(b"Host", host.as_bytes());
    for (name, value) in fields {
        head.append(name.as_bytes(), value.as_bytes());
    }
    head
}

fn response(fields: &[(&str, &str)]) -> Head {
    let mut head = Head::new();
    head.start_response(200, None);
    for (name, value) in fields {
        head.append(name.as_bytes(), value.as_bytes());
    }
    head
}

/// Stores a response as a proxy does after the request went to the server.
fn keep(store: &Arc<Store>, request: &Head, response: &Head, body: &[u8], ms: u64) -> bool {
    let Some(mut own) = store.request(request) else { return false };
    store.prepare(&mut own, request);
    let now = Now { ms, wall: WALL };
    let Some(mut filling) = store.begin(&own, response, None, now) else { return false };
    body.chunks(7).for_each(|piece| filling.push(piece, ms));
    filling.finish(ms);
    true
}

/// Checks the invariants while nothing is being filled, and no removed object is referenced.
fn check(store: &Store) {
    let taken = store.order().check();
    assert_eq!(taken + store.free(), store.settings.blocks);
}

fn body_of(store: &Store, request: &Head, ms: u64) -> Option<Vec<u8>> {
    let own = store.request(request)?;
    match store.find(&own, request, ms) {
        Lookup::Fresh(object) if own.may_use => Some(object.body.to_vec()),
        _ => None,
    }
}

#[test]
fn the_least_recently_used_are_evicted() {
    let store = store(|_| {});
    let fresh = response(&[("Cache-Control", "max-age=50")]);
    let body = vec![b'x'; 250_000];
    for (at, path) in ["/1", "/2", "/3", "/4"].into_iter().enumerate() {
        assert!(keep(&store, &get("h", path, &[]), &fresh, &body, at as u64 + 1));
    }
    // The first one has been used in the meantime.
    assert!(body_of(&store, &get("h", "/1", &[]), 10).is_some());
    assert!(keep(&store, &get("h", "/5", &[]), &fresh, &body, 11));
    let there = |path| body_of(&store, &get("h", path, &[]), 12).is_some();
    assert_eq!(["/1", "/2", "/3", "/4", "/5"].map(there), [true, false, true, true, true]);
    check(&store);
}

#[test]
fn oversized_and_truncated_responses_leave_nothing() {
    let store = store(|settings| settings.max_object = 10_000);
    let fresh = response(&[("Cache-Control", "max-age=50")]);
    let request = get("h", "/", &[]);
    keep(&store, &request, &fresh, &[b'x'; 20_000], 1);
    assert_eq!((store.objects().len(), store.free()), (0, 1024));
    let own = store.request(&request).unwrap();
    let begin = || store.begin(&own, &fresh, Some(5000), Now { ms: 1, wall: WALL });
    assert!(store.begin(&own, &fresh, Some(10_000), Now { ms: 1, wall: WALL }).is_none());
    let mut filling = begin().unwrap();
    filling.push(b"half", 1);
    assert!(store.free() < 1024);
    assert!(begin().is_none(), "another one is being filled");
    drop(filling);
    assert_eq!((store.objects().len(), store.free()), (0, 1024));
    assert!(begin().is_some());
}

#[test]
fn the_number_of_variants_is_limited() {
    let store = store(|settings| (settings.vary, settings.max_variants) = (true, 2));
    let varied = response(&[("Cache-Control", "max-age=50"), ("Vary", "origin")]);
    let from = |origin: &str| get("h", "/", &[("Origin", origin)]);
    assert!(keep(&store, &from("a"), &varied, b"a", 1));
    assert!(keep(&store, &from("b"), &varied, b"b", 1));
    assert!(!keep(&store, &from("c"), &varied, b"c", 1));
    assert!(keep(&store, &from("a"), &varied, b"A", 2));
    assert_eq!(body_of(&store, &from("a"), 3), Some(b"A".to_vec()));
    // Expired variants make room.
    assert!(keep(&store, &from("c"), &varied, b"c", 60_000));
    assert_eq!(body_of(&store, &from("c"), 60_001), Some(b"c".to_vec()));
}

#[test]
fn fillings_count_as_variants() {
    let store = store(|settings| (settings.vary, settings.max_variants) = (true, 2));
    let varied = response(&[("Cache-Control", "max-age=50"), ("Vary", "origin")]);
    let begin = |origin: &str| {
        let head = get("h", "/", &[("Origin", origin)]);
        let mut own = store.request(&head).unwrap();
        store.prepare(&mut own, &head);
        store.begin(&own, &varied, None, Now { ms: 1, wall: WALL })
    };
    let (first, mut second) = (begin("a").unwrap(), begin("b").unwrap());
    assert!(begin("c").is_none());
    drop(first);
    let third = begin("c").unwrap();
    second.finish(1);
    assert!(begin("d").is_none());
    drop(third);
    assert!(begin("d").is_some());
}

#[test]
fn fillings_purged_in_progress_are_not_stored() {
    let store = store(|settings| settings.tags = Some("cache-tag".into()));
    let fresh = response(&[("Cache-Control", "max-age=50")]);
    let head = get("h", "/x", &[]);
    let own = store.request(&head).unwrap();
    let begin = || store.begin(&own, &fresh, None, Now { ms: 1, wall: WALL }).expect("nothing is in the way");
    let by_key = |store: &Store| _ = store.purge(&Purge::Key(b"h/x"));
    let other = |store: &Store| _ = store.purge(&Purge::Prefix(b"h/y"));
    for (take_out, stays) in [
        (by_key as fn(&Store), false),
        (|store| _ = store.purge(&Purge::Prefix(b"h/")), false),
        (|store| _ = store.purge(&Purge::Tag(b"any")), false),
        (|store| _ = store.purge(&Purge::All), false),
        (other, true),
    ] {
        let mut old = begin();
        take_out(&store);
        if !stays {
            // Another one may begin, and the old one does not interfere.
            let mut new = begin();
            new.push(b"new", 1);
            old.finish(1);
            assert_eq!(body_of(&store, &head, 2), None);
            new.finish(1);
            assert_eq!(body_of(&store, &head, 2), Some(b"new".to_vec()));
            store.purge(&Purge::All);
        } else {
            old.finish(1);
            assert!(body_of(&store, &head, 2).is_some());
        }
    }
    store.remove(&own);
    let mut old = begin();
    store.remove(&own);
    old.finish(1);
    drop(old);
    assert_eq!(body_of(&store, &head, 2), None);
    check(&store);
}

#[test]
fn objects_use_memory_until_the_last_reference_is_dropped() {
    let store = store(|_| {});
    let fresh = response(&[("Cache-Control", "max-age=50")]);
    let body = vec![b'x'; 250_000];
    let kept = |path| {
        let head = get("h", path, &[]);
        keep(&store, &head, &fresh, &body, 1);
        match store.find(&store.request(&head).unwrap(), &head, 2) {
            Lookup::Fresh(object) => Some(object),
            _ => None,
        }
    };
    let held = ["/1", "/2", "/3", "/4"].map(|path| kept(path).expect(path));
    let free = store.free();
    assert_eq!(store.purge(&Purge::All), 4);
    assert_eq!(store.free(), free);
    assert!(kept("/5").is_none(), "there is no room for it");
    drop(held);
    assert_eq!(store.free(), 1024);
    assert!(kept("/5").is_some());
    check(&store);
}

#[test]
fn hints_remain_when_a_response_is_evicted() {
    let store = store(|settings| {
        (settings.hints, settings.hints_ratio) = (Hints::On, 1);
    });
    let linked = response(&[("Cache-Control", "max-age=500"), ("Link", "</a>; rel=preload")]);
    let body = vec![b'x'; 290_000];
    for at in 0..20 {
        assert!(keep(&store, &get("h", &format!("/{at}"), &[]), &linked, &body, at + 1));
        check(&store);
    }
    let hints = store.objects().iter().filter(|object| object.is_hints).count();
    assert_eq!((hints, store.objects().len()), (10, 13));
    let own = store.request(&get("h", "/16", &[])).unwrap();
    let found = store.find(&own, &get("h", "/16", &[]), 30);
    let Lookup::Hints(object) = found else { panic!("{found:?}") };
    assert_eq!(crate::hints(&object.head), [b"</a>; rel=preload".to_vec()]);
}

#[test]
fn stale_responses_are_used_within_their_limits() {
    let store = store(|settings| (settings.stale_while_revalidate, settings.stale_if_error) = (10, 20));
    let request = get("h", "/", &[]);
    assert!(keep(&store, &request, &response(&[("Cache-Control", "max-age=5")]), b"old", 0));
    let own = store.request(&request).unwrap();
    let at = |ms| match store.find(&own, &request, ms) {
        Lookup::Fresh(_) => "fresh",
        Lookup::Stale(object) if object.may_wait(ms) => "waits",
        Lookup::Stale(object) if object.may_help(ms) => "helps",
        _ => "gone",
    };
    assert_eq!(
        [4_999, 5_000, 14_999, 15_000, 24_999, 25_000].map(at),
        ["fresh", "waits", "waits", "helps", "helps", "gone"]
    );
}

#[test]
fn one_leads_and_the_others_follow() {
    use std::task::{Context, Poll, Waker};
    let store = store(|_| {});
    let request = store.request(&get("h", "/", &[])).unwrap();
    let other = store.request(&get("h", "/other", &[])).unwrap();
    let follow = || match store.board(&request, &get("h", "/", &[]), 0) {
        FlightTurn::Follows(follow) => follow,
        turn => panic!("{turn:?}"),
    };
    let mut context = Context::from_waker(Waker::noop());
    for (end, landed) in [
        (Lead::keep as fn(Lead), Landed::Kept),
        (drop, Landed::Abandoned),
        (|lead| lead.pass(0), Landed::Passed),
    ] {
        let FlightTurn::Leads(lead) = store.board(&request, &get("h", "/", &[]), 0) else {
            panic!("nobody leads")
        };
        assert!(matches!(store.board(&other, &get("h", "/other", &[]), 0), FlightTurn::Leads(_)));
        let (mut one, mut two) = (follow(), follow());
        assert_eq!(one.poll_landed(&mut context), Poll::Pending);
        assert_eq!(one.poll_landed(&mut context), Poll::Pending);
        assert_eq!(two.poll_landed(&mut context), Poll::Pending);
        end(lead);
        assert_eq!(one.poll_landed(&mut context), Poll::Ready(landed));
        assert_eq!(two.poll_landed(&mut context), Poll::Ready(landed));
    }
    // For a while, requests do not wait for a response that cannot be shared.
    assert!(matches!(store.board(&request, &get("h", "/", &[]), 1_999), FlightTurn::Alone));
    assert!(matches!(store.board(&request, &get("h", "/", &[]), 2_000), FlightTurn::Leads(_)));
}

#[test]
fn purges_remove_exactly_the_matching_responses() {
    let store = store(|settings| settings.tags = Some("cache-tag".into()));
    let fill = || {
        for (host, path, tags) in
            [("a", "/x/1", "one, two"), ("a", "/x/2", "two"), ("b", "/x/1", "one two"), ("a", "/y", "")]
        {
            let fresh = response(&[("Cache-Control", "max-age=50"), ("Cache-Tag", tags)]);
            assert!(keep(&store, &get(host, path, &[]), &fresh, b"body", 1));
        }
    };
    for (purge, count) in [
        (Purge::Key(b"A/x/1"), 1),
        (Purge::Key(b"a/x"), 0),
        (Purge::Prefix(b"a/x"), 2),
        (Purge::Prefix(b"a"), 3),
        (Purge::Prefix(b"x"), 0),
        (Purge::Tag(b"one"), 2),
        (Purge::Tag(b"tw"), 0),
        (Purge::All, 4),
    ] {
        fill();
        assert_eq!(store.purge(&purge), count, "{purge:?}");
        assert_eq!(store.objects().len(), 4 - count, "{purge:?}");
        check(&store);
    }
}

/// A response to a request, as the model remembers it.
#[derive(Debug, Clone)]
struct Sent {
    request: Drawn,
    vary: usize,
    coding: usize,
    fresh_until: u64,
    body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
struct Drawn {
    method: usize,
    host: usize,
    path: usize,
    coding: usize,
    origin: usize,
    authorized: bool,
    wants: usize,
}

const METHODS: &[&str] = &["GET", "GET", "GET", "HEAD", "POST", "DELETE"];
const HOSTS: &[&str] = &["a", "b", "A", "a:80"];
const PATHS: &[&str] = &["/", "/x", "/x?y", "/X"];
const ACCEPTED: &[Option<&str>] = &[None, Some(""), Some("gzip"), Some("gzip, br"), Some("*;q=0, br")];
const ORIGINS: &[Option<&str>] = &[None, Some(""), Some("one"), Some("two")];
const WANTS: &[Option<&str>] = &[None, None, None, Some("no-cache"), Some("no-store")];
const VARIES: &[&str] = &["", "Accept-Encoding", "Origin", "accept-encoding, origin", "Cookie", "*"];
const CODINGS: &[&str] = &["", "gzip", "br"];
const CONTROLS: &[&str] = &["max-age=2", "max-age=10", "private", "no-store", "max-age=0", "s-maxage=5"];

impl Drawn {
    fn head(&self) -> Head {
        let mut fields = Vec::new();
        fields.extend(ACCEPTED[self.coding].map(|value| ("Accept-Encoding", value)));
        fields.extend(ORIGINS[self.origin].map(|value| ("Origin", value)));
        fields.extend(WANTS[self.wants].map(|value| ("Cache-Control", value)));
        if self.authorized {
            fields.push(("Authorization", "Basic x"));
        }
        asking(METHODS[self.method], HOSTS[self.host], PATHS[self.path], &fields)
    }

    fn is_same_resource(&self, other: &Drawn) -> bool {
        HOSTS[self.host].eq_ignore_ascii_case(HOSTS[other.host]) && PATHS[self.path] == PATHS[other.path]
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (
        0..METHODS.len(),
        0..HOSTS.len(),
        0..PATHS.len(),
        0..ACCEPTED.len(),
        0..ORIGINS.len(),
        prop::bool::weighted(0.1),
        0..WANTS.len(),
    )
        .prop_map(|(method, host, path, coding, origin, authorized, wants)| Drawn {
            method,
            host,
            path,
            coding,
            origin,
            authorized,
            wants,
        })
}

/// Whether a client with this request may get a response with that coding, implemented independently of the store.
fn accepts(drawn: &Drawn, coding: usize) -> bool {
    match (ACCEPTED[drawn.coding], CODINGS[coding]) {
        (None, _) => true,
        (Some("*;q=0, br"), coding) => coding == "br",
        (Some(_), "") => true,
        (Some(said), coding) => said.contains(coding),
    }
}

/// Whether RFC 9111 allows answering the request with the response to the other.
fn may_answer(request: &Drawn, sent: &Sent, now: u64) -> bool {
    let varies_on = |name: &str| VARIES[sent.vary].to_ascii_lowercase().contains(name);
    request.is_same_resource(&sent.request)
        && matches!(METHODS[request.method], "GET" | "HEAD")
        && METHODS[sent.request.method] == "GET"
        && !request.authorized
        && !sent.request.authorized
        && WANTS[request.wants].is_none()
        && WANTS[sent.request.wants] != Some("no-store")
        && now < sent.fresh_until
        && !matches!(VARIES[sent.vary], "Cookie" | "*")
        && (!varies_on("origin") || ORIGINS[request.origin] == ORIGINS[sent.request.origin])
        && (!varies_on("accept-encoding")
            || accepts(request, sent.coding) && accepts(&sent.request, sent.coding))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_request_gets_a_response_for_another(
        steps in prop::collection::vec(
            (drawn(), 0..VARIES.len(), 0..CODINGS.len(), 0..CONTROLS.len(), 0u64..3000), 1..60),
    ) {
        let store = store(|settings| (settings.blocks, settings.vary) = (24, true));
        let mut all: Vec<Sent> = Vec::new();
        let mut now = 1000;
        for (number, (request, vary, coding, control, passed)) in steps.into_iter().enumerate() {
            now += passed;
            let head = request.head();
            if let Some(body) = body_of(&store, &head, now) {
                let sent = all.iter().find(|sent| sent.body == body).expect("something that was sent");
                prop_assert!(may_answer(&request, sent, now), "{request:?} got {sent:?} at {now}");
                continue;
            }
            // Otherwise the request goes to the server.
            let mut fields = vec![("Cache-Control", CONTROLS[control])];
            fields.extend((!VARIES[vary].is_empty()).then_some(("Vary", VARIES[vary])));
            fields.extend((!CODINGS[coding].is_empty()).then_some(("Content-Encoding", CODINGS[coding])));
            if CacheRequest::is_unsafe(head.method_id()) {
                store.remove(&store.request(&head).unwrap());
                // Earlier responses must not be used again.
                let is_other = |sent: &Sent| !sent.request.is_same_resource(&request);
                all.retain(is_other);
                continue;
            }
            let body = format!("{number}").into_bytes();
            keep(&store, &head, &response(&fields), &body, now);
            let lifetime = match CONTROLS[control] {
                "max-age=2" => 2000,
                "max-age=10" => 10_000,
                "s-maxage=5" => 5000,
                _ => 0,
            };
            all.push(Sent { request, vary, coding, fresh_until: now + lifetime, body });
            check(&store);
        }
    }

    #[test]
    fn cacheable_responses_are_found_again(request in drawn(), coding in 0..CODINGS.len()) {
        let store = store(|settings| settings.vary = true);
        let request = Drawn { method: 0, authorized: false, wants: 0, ..request };
        let coding = if accepts(&request, coding) { coding } else { 2 };
        prop_assume!(accepts(&request, coding));
        let head = request.head();
        let mut fields = vec![("Cache-Control", "max-age=5"), ("Vary", "accept-encoding, origin")];
        fields.extend((!CODINGS[coding].is_empty()).then_some(("Content-Encoding", CODINGS[coding])));
        prop_assert!(keep(&store, &head, &response(&fields), b"body", 1));
        prop_assert_eq!(body_of(&store, &head, 2), Some(b"body".to_vec()));
    }
}
