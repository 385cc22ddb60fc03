//! The sources of discovered servers, each against a stub of its interface.

use serde_json::{Value, json};
use weir_tests::client::get;
use weir_tests::reloading::TOP;
use weir_tests::sources::{
    BlockingSource, SourceDialect, StreamSource, consul_entry, container, endpoint_slice, key_event,
    key_range, nomad_entry, slice_list, watch_event,
};
use weir_tests::{Authority, Origin, Weir, eventually, free_port, scratch};

/// Starts the program with one source and one backend.
fn start(source: &str, line: &str) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "{TOP}discovery d\n  {source}\nfrontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n\
         backend b\n  balance roundrobin\n  servers from d {line}\n"
    );
    (Weir::start(&text, &[port]), port)
}

/// The servers of the backend, in order: the name and the administrative state.
fn servers(weir: &Weir) -> Vec<String> {
    let state = weir.ask("show servers state b");
    let rows = state.lines().skip(2).filter(|line| !line.is_empty());
    let shown = |row: &str| {
        let words: Vec<&str> = row.split(' ').collect();
        format!("{} {}", words[3], words[6])
    };
    let mut names: Vec<String> = rows.map(shown).collect();
    names.sort();
    names
}

fn await_servers(weir: &Weir, wanted: &[&str]) {
    let shown = || weir.ask("show discovery d");
    assert!(eventually(|| servers(weir) == wanted), "{:?}\n{}\n{}", servers(weir), shown(), weir.messages());
}

fn text(port: u16) -> Option<String> {
    get(port, "/").map(|response| response.text())
}

fn ready(name: &str) -> (&str, Value) {
    (name, json!({"ready": true, "serving": true, "terminating": false}))
}

#[test]
fn kubernetes_slices_are_listed_and_watched() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let first = endpoint_slice("web-a", 0, one.port(), &[ready("web-0")]);
    let source = StreamSource::start(SourceDialect::Kubernetes, slice_list(0, std::slice::from_ref(&first)));
    let directory = scratch("discovery");
    let token = directory.join("token");
    std::fs::write(&token, "secret\n").expect("the directory takes files");
    let place = format!("kubernetes http://127.0.0.1:{} token-file {}", source.port(), token.display());
    let (weir, port) = start(&place, "service shop/web port http");
    await_servers(&weir, &["web-0 0"]);
    assert_eq!(text(port).as_deref(), Some("one"));
    let heads = source.heads();
    assert!(heads[0].starts_with("GET /apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb HTTP/1.1\r\n"), "{}", heads[0]);
    assert!(heads.iter().all(|head| head.contains("\r\nAuthorization: Bearer secret\r\n")), "{heads:?}");
    // A second slice is added, then the first pod ends.
    let second = endpoint_slice("web-b", 1, two.port(), &[ready("web-1")]);
    source.publish(slice_list(1, &[first, second.clone()]), watch_event("ADDED", &second));
    await_servers(&weir, &["web-0 0", "web-1 0"]);
    let ending = ("web-0", json!({"ready": false, "serving": true, "terminating": true}));
    let first = endpoint_slice("web-a", 2, one.port(), &[ending]);
    source.publish(slice_list(2, &[first.clone(), second.clone()]), watch_event("MODIFIED", &first));
    // 8 is draining.
    await_servers(&weir, &["web-0 8", "web-1 0"]);
    assert!((0..4).all(|_| text(port).as_deref() == Some("two")));
    source.publish(
        slice_list(3, std::slice::from_ref(&second)),
        watch_event("DELETED", &endpoint_slice("web-a", 3, one.port(), &[])),
    );
    await_servers(&weir, &["web-1 0"]);
}

#[test]
fn kubernetes_watches_continue_after_bookmarks_cuts_and_expiry() {
    let origin = Origin::text("one");
    let slice = |version: usize, pods: &[&str]| {
        let pods: Vec<_> = pods.iter().map(|pod| ready(pod)).collect();
        endpoint_slice("web-a", version, origin.port(), &pods)
    };
    let first = slice(0, &["web-0"]);
    let source = StreamSource::start(SourceDialect::Kubernetes, slice_list(0, std::slice::from_ref(&first)));
    let (weir, _port) = start(&format!("kubernetes http://127.0.0.1:{}", source.port()), "service shop/web");
    await_servers(&weir, &["web-0 0"]);
    let watches = |version: usize| {
        let heads = source.heads();
        heads
            .iter()
            .filter(|head| head.contains("watch=1") && head.contains(&format!("resourceVersion={version} ")))
            .count()
    };
    assert!(eventually(|| watches(0) > 0));
    // A bookmark only moves the version.
    let bookmark = json!({"kind": "EndpointSlice", "metadata": {"resourceVersion": "1"}});
    source.publish(slice_list(1, std::slice::from_ref(&first)), watch_event("BOOKMARK", &bookmark));
    assert!(eventually(|| weir.ask("show discovery").contains("d shop/web current")));
    // The connection breaks within an event. Everything is listed again, and the change is not missed.
    let second = slice(2, &["web-0", "web-1"]);
    source.cut();
    source.publish(slice_list(2, std::slice::from_ref(&second)), watch_event("MODIFIED", &second));
    await_servers(&weir, &["web-0 0", "web-1 0"]);
    // The version is too old: 410 Gone.
    let third = slice(3, &["web-1"]);
    source.publish(slice_list(3, std::slice::from_ref(&third)), watch_event("MODIFIED", &third));
    await_servers(&weir, &["web-1 0"]);
    source.expire();
    let fourth = slice(4, &["web-2"]);
    source.publish(slice_list(4, std::slice::from_ref(&fourth)), watch_event("MODIFIED", &fourth));
    await_servers(&weir, &["web-2 0"]);
    // The server reports the expiry within the stream.
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired"});
    let lists = || source.heads().iter().filter(|head| !head.contains("watch=1")).count();
    let before = lists();
    let fifth = slice(5, &["web-3"]);
    source.publish(slice_list(5, std::slice::from_ref(&fifth)), watch_event("ERROR", &gone));
    await_servers(&weir, &["web-3 0"]);
    assert!(lists() > before);
    // An outage empties nothing.
    source.fail(Some(503));
    assert!(eventually(|| weir.ask("show discovery d").contains("error: it answers with status 503")));
    assert_eq!(servers(&weir), ["web-3 0"]);
    let sixth = slice(6, &["web-4"]);
    source.publish(slice_list(6, std::slice::from_ref(&sixth)), watch_event("MODIFIED", &sixth));
    source.fail(None);
    await_servers(&weir, &["web-4 0"]);
}

#[test]
fn a_source_that_refuses_watches_is_reported_once_and_asked_less_and_less() {
    let origin = Origin::text("one");
    let list = |version: usize, pod: &str| {
        slice_list(version, &[endpoint_slice("web-a", version, origin.port(), &[ready(pod)])])
    };
    let source = StreamSource::start(SourceDialect::Kubernetes, list(0, "web-0"));
    source.fail_watches(Some(403));
    let (weir, _port) = start(&format!("kubernetes http://127.0.0.1:{}", source.port()), "service shop/web");
    await_servers(&weir, &["web-0 0"]);
    let lists = || source.heads().iter().filter(|head| !head.contains("watch=1")).count();
    assert!(eventually(|| lists() >= 3));
    // The lists are used.
    source.publish(list(1, "web-1"), "");
    await_servers(&weir, &["web-1 0"]);
    let state = weir.ask("show discovery");
    assert!(state.contains("\nd shop/web failed "), "{state}");
    let reports = |text: &str| weir.messages().matches(text).count();
    assert_eq!(
        reports("it answers with status 403 (the token does not permit it)"),
        1,
        "{}",
        weir.messages()
    );
    assert_eq!(reports("the source answers again"), 0, "{}", weir.messages());
    source.fail_watches(None);
    assert!(weir.says("discovery d (shop/web): the source answers again, with 1 instances."));
    assert!(weir.ask("show discovery").contains("\nd shop/web current "));
}

#[test]
fn malformed_events_are_reported_and_the_list_is_read_again() {
    let origin = Origin::text("one");
    let first = endpoint_slice("web-a", 0, origin.port(), &[ready("web-0")]);
    let source = StreamSource::start(SourceDialect::Kubernetes, slice_list(0, std::slice::from_ref(&first)));
    let (weir, _port) = start(&format!("kubernetes http://127.0.0.1:{}", source.port()), "service shop/web");
    await_servers(&weir, &["web-0 0"]);
    for (number, (line, error)) in [
        ("{\"type\": \"ADDED\"".to_owned(), "line 1, column 16: EOF while parsing an object"),
        (
            watch_event("ADDED", &json!({"metadata": {"name": "x"}, "endpoints": [{"addresses": ["a.b"]}]})),
            "slice `x`, endpoint 1: `a.b` is not an IP address",
        ),
        (watch_event("RENAMED", &first), "unknown type of event `RENAMED`"),
    ]
    .into_iter()
    .enumerate()
    {
        source.publish(slice_list(source.version() + 1, std::slice::from_ref(&first)), line);
        assert!(weir.says(format!(": {error}; the last list (1 instances) is kept.")), "{}", weir.messages());
        assert_eq!(servers(&weir), ["web-0 0"]);
        assert!(eventually(|| weir.ask("show discovery").contains("d shop/web current")));
        // A failure before this report would belong to the same one.
        let ends = || weir.messages().matches("the source answers again").count();
        assert!(eventually(|| ends() == number + 1), "{}", weir.messages());
    }
}

#[test]
fn consul_services_are_followed_by_index() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let list = |entries: &[Value]| Value::from(entries).to_string();
    let first = consul_entry("web-1", one.port(), "v2", "passing");
    let source = BlockingSource::start(
        "X-Consul-Index",
        list(&[first.clone(), consul_entry("old", two.port(), "v1", "passing")]),
    );
    let directory = scratch("discovery");
    let token = directory.join("token");
    std::fs::write(&token, "secret").expect("the directory takes files");
    let place = format!("consul http://127.0.0.1:{} token-file {}", source.port(), token.display());
    let (weir, port) = start(&place, "service web tag v2 zone z1");
    await_servers(&weir, &["web-1 0"]);
    assert_eq!((text(port).as_deref(), &*weir.stat("b,web-1", "weight")), (Some("one"), "10"));
    source.publish(list(&[first, consul_entry("web-2", two.port(), "v2", "warning")]), 7);
    await_servers(&weir, &["web-1 0", "web-2 0"]);
    assert_eq!(weir.stat("b,web-2", "weight"), "1");
    // 1 is maintenance.
    source.publish(
        list(&[
            consul_entry("web-1", one.port(), "v2", "critical"),
            consul_entry("web-2", two.port(), "v2", "passing"),
        ]),
        9,
    );
    await_servers(&weir, &["web-1 1", "web-2 0"]);
    assert_eq!(text(port).as_deref(), Some("two"));
    // After a restart, the index is lower.
    source.publish(list(&[consul_entry("web-2", two.port(), "v2", "passing")]), 2);
    await_servers(&weir, &["web-2 0"]);
    let heads = source.heads();
    assert!(heads[0].starts_with("GET /v1/health/service/web?index=0&wait=0s HTTP/1.1\r\n"), "{}", heads[0]);
    assert!(heads[1].starts_with("GET /v1/health/service/web?index=1&wait=60s HTTP/1.1\r\n"), "{}", heads[1]);
    assert!(heads.iter().all(|head| head.contains("\r\nX-Consul-Token: secret\r\n")), "{heads:?}");
    assert!(eventually(|| source.heads().iter().filter(|head| head.contains("index=0&")).count() > 1));
}

#[test]
fn nomad_services_are_followed_by_index() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let list = |entries: &[Value]| Value::from(entries).to_string();
    let source = BlockingSource::start("X-Nomad-Index", list(&[nomad_entry("6bb1", one.port(), "v2")]));
    let (weir, port) =
        start(&format!("nomad http://127.0.0.1:{}", source.port()), "service web namespace shop tag v2");
    await_servers(&weir, &["6bb1 0"]);
    assert_eq!(text(port).as_deref(), Some("one"));
    source.publish(list(&[nomad_entry("7cc2", two.port(), "v2"), nomad_entry("8dd3", two.port(), "v1")]), 7);
    await_servers(&weir, &["7cc2 0"]);
    assert_eq!(text(port).as_deref(), Some("two"));
    let heads = source.heads();
    assert!(
        heads[0].starts_with("GET /v1/service/web?namespace=shop&index=0&wait=0s HTTP/1.1\r\n"),
        "{}",
        heads[0]
    );
}

#[test]
fn etcd_keys_are_read_and_watched() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let (first, second) = (
        format!("127.0.0.1:{}", one.port()),
        json!({"Op": 0, "Addr": format!("127.0.0.1:{}", two.port())}).to_string(),
    );
    let source =
        StreamSource::start(SourceDialect::Etcd, key_range(0, &[("/web/a", &first), ("/web/bad", "?")]));
    let (weir, port) = start(&format!("etcd http://127.0.0.1:{}", source.port()), "prefix /web/");
    await_servers(&weir, &["a 0"]);
    assert_eq!(text(port).as_deref(), Some("one"));
    assert!(weir.says("key `/web/bad`: `?` is not an IP address or host name with a port; it is ignored."));
    source.publish(
        key_range(1, &[("/web/a", &first), ("/web/b", &second)]),
        key_event(1, "/web/b", Some(&second)),
    );
    await_servers(&weir, &["a 0", "b 0"]);
    source.publish(key_range(2, &[("/web/b", &second)]), key_event(2, "/web/a", None));
    await_servers(&weir, &["b 0"]);
    assert_eq!(text(port).as_deref(), Some("two"));
    // A change is not missed while the stream is cut.
    source.cut();
    let draining = json!({"address": "127.0.0.1", "port": two.port(), "draining": true}).to_string();
    source.publish(key_range(3, &[("/web/b", &draining)]), key_event(3, "/web/b", Some(&draining)));
    await_servers(&weir, &["b 8"]);
    // A key that becomes invalid keeps its last value, also when all keys are read again.
    let (range, event) = (key_range(4, &[("/web/b", "?")]), key_event(4, "/web/b", Some("?")));
    source.publish(range, event);
    assert!(weir.says("key `/web/b`: `?` is not an IP address or host name with a port; it is ignored."));
    let ranges = || source.heads().iter().filter(|head| head.contains("/v3/kv/range")).count();
    let before = ranges();
    source.cut();
    assert!(eventually(|| ranges() > before && weir.ask("show discovery").contains("d /web/ current")));
    await_servers(&weir, &["b 8"]);
    let heads = source.heads();
    assert!(
        heads[0].starts_with("POST /v3/kv/range HTTP/1.1\r\n")
            && heads[1].starts_with("POST /v3/watch HTTP/1.1\r\n"),
        "{heads:?}"
    );
}

#[test]
fn containers_are_listed_again_when_one_changes() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let list = |containers: &[Value]| Value::from(containers).to_string();
    let directory = scratch("docker");
    let socket = directory.join("docker.sock");
    let first = container("web-1", one.port(), "web");
    let other = container("db-1", two.port(), "db");
    let source =
        StreamSource::start_unix(SourceDialect::Containers, &socket, list(&[first.clone(), other.clone()]));
    let (weir, port) = start(&format!("docker unix@{}", socket.display()), "label service=web");
    await_servers(&weir, &["web-1 0"]);
    assert_eq!(text(port).as_deref(), Some("one"));
    let second = container("web-2", two.port(), "web");
    source.publish(
        list(&[first, other.clone(), second.clone()]),
        json!({"Type": "container", "Action": "start"}).to_string(),
    );
    await_servers(&weir, &["web-1 0", "web-2 0"]);
    source.publish(list(&[second, other]), json!({"Type": "container", "Action": "die"}).to_string());
    await_servers(&weir, &["web-2 0"]);
    assert_eq!(text(port).as_deref(), Some("two"));
    let heads = source.heads();
    assert!(
        heads[0].starts_with("GET /events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D HTTP/1.1\r\n"),
        "{}",
        heads[0]
    );
    assert!(heads[1].starts_with("GET /containers/json HTTP/1.1\r\n"), "{}", heads[1]);
}

#[test]
fn tls_sources_are_verified_and_get_a_client_certificate() {
    let origin = Origin::text("one");
    let (authority, other) = (Authority::new(), Authority::new());
    let certificate = authority.issue(&["localhost"]);
    let list = Value::from(vec![consul_entry("web-1", origin.port(), "v2", "passing")]).to_string();
    let source = BlockingSource::start("X-Consul-Index", list);
    // A second frontend terminates TLS in front of the source.
    let tls = |trusted: &Authority| {
        let (port, own) = (free_port(), free_port());
        let (file, ca) = (certificate.display(), trusted.own().display().to_string());
        let text = format!(
            "{TOP}discovery d\n  consul https://localhost:{own} ca-file {ca} crt {file}\n\
             frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  servers from d service web\n\
             listen t\n  bind 127.0.0.1:{own} ssl crt {file} ca-file {} verify required\n  server s 127.0.0.1:{}\n",
            authority.own().display(),
            source.port()
        );
        Weir::start(&text, &[port, own])
    };
    await_servers(&tls(&authority), &["web-1 0"]);
    let weir = tls(&other);
    assert!(weir.says("TLS failed"), "{}", weir.messages());
    assert_eq!(servers(&weir), Vec::<String>::new());
}
