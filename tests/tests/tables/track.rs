//! Tracked stick table entries: when each counter changes, and access by rules, expressions and converters.

use weir_tests::client::Client;
use weir_tests::{Origin, Weir, eventually, free_port};

/// All counters, with periods longer than any test.
const ALL: &str = "gpc0,gpc0_rate(1h),gpc1,gpc1_rate(1h),gpt0,conn_cnt,conn_cur,conn_rate(1h),sess_cnt,sess_rate(1h),\
    http_req_cnt,http_req_rate(1h),http_err_cnt,http_err_rate(1h),http_fail_cnt,http_fail_rate(1h),\
    bytes_in_cnt,bytes_in_rate(1h),bytes_out_cnt,bytes_out_rate(1h),glitch_cnt,glitch_rate(1h)";

/// A program with a frontend `f`, a backend `b` and the tables `one` (addresses) and `two` (strings). Nothing has connected yet.
struct Scene {
    weir: Weir,
    port: u16,
    _origin: Origin,
}

impl Scene {
    fn start(mode: &str, global: &str, frontend: &str, backend: &str, more: &str) -> Scene {
        let port = free_port();
        // Answers with the status in the path.
        let origin = Origin::start(|head, _| {
            let status = head.split("status=").nth(1).and_then(|rest| rest.get(..3)).unwrap_or("200");
            format!("HTTP/1.1 {status} Status\r\nContent-Length: 2\r\n\r\nok").into_bytes()
        });
        let text = format!(
            "global\n nbthread 2\n stats socket runtime level admin\n {global}\n\
             defaults\n mode {mode}\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n timeout tarpit 1ms\n retries 0\n\
             frontend f\n bind 127.0.0.1:{port}\n {frontend}\n default_backend b\n\
             backend b\n {backend}\n server s 127.0.0.1:{}\n\
             backend one\n stick-table type ip size 100 expire 1h store {ALL}\n\
             backend two\n stick-table type string len 20 size 100 expire 1h store {ALL}\n{more}",
            origin.port()
        );
        let weir = Weir::start(&text, &[]);
        assert!(!weir.ask("show info").is_empty(), "{text}: {}", weir.messages());
        Scene { weir, port, _origin: origin }
    }

    /// Returns a key's non-zero data, except rates and bytes, once it is not tracked.
    fn counted(&self, table: &str, key: &str) -> String {
        self.shown(table, key, |line| line.contains(" use=0 "))
    }

    /// The same once `until` is true for the line.
    fn shown(&self, table: &str, key: &str, until: impl Fn(&str) -> bool) -> String {
        let mut found = String::new();
        eventually(|| {
            let all = self.weir.ask(&format!("show table {table}"));
            let line = all.lines().find(|line| {
                line.contains(&format!(" key={key} ")) || line.contains(&format!(": key={key} "))
            });
            found = line.unwrap_or_default().to_owned();
            until(&found)
        });
        let data = found.split(' ').skip(4);
        let wanted =
            |word: &&str| !word.ends_with("=0") && !word.contains("_rate(") && !word.starts_with("bytes_");
        data.filter(wanted).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the status of a response on a new connection, and its header `x`; 0 if there is no response.
fn ask(port: u16, path: &str) -> (u16, String) {
    ask_with(port, path, "")
}

fn ask_with(port: u16, path: &str, fields: &str) -> (u16, String) {
    let mut client = Client::connect(port);
    answer(client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")))
}

fn answer(client: &mut Client) -> (u16, String) {
    match client.response() {
        Some(answer) => (answer.status, answer.header("x").unwrap_or_default().to_owned()),
        None => (0, String::new()),
    }
}

#[test]
fn tracking_rule_position_decides_what_is_counted() {
    let track = "track-sc0 src table one";
    for (frontend, backend, expected) in [
        (format!("tcp-request connection {track}"), "", "conn_cnt=1 sess_cnt=1 http_req_cnt=2"),
        (format!("tcp-request session {track}"), "", "conn_cnt=1 sess_cnt=1 http_req_cnt=2"),
        (format!("tcp-request content {track}"), "", "conn_cnt=2 http_req_cnt=2"),
        (format!("http-request {track}"), "", "conn_cnt=2 http_req_cnt=2"),
        (format!("http-response {track}"), "", "conn_cnt=2 http_req_cnt=2"),
        (String::new(), "tcp-request content track-sc0 src table one", "conn_cnt=2 http_req_cnt=2"),
        (String::new(), "http-request track-sc0 src table one", "conn_cnt=2 http_req_cnt=2"),
    ] {
        let scene = Scene::start("http", "", &frontend, backend, "");
        let mut client = Client::connect(scene.port);
        for _ in 0..2 {
            assert_eq!(answer(client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")).0, 200);
        }
        drop(client);
        assert_eq!(scene.counted("one", "127.0.0.1"), expected, "{frontend} {backend}");
    }
}

#[test]
fn requests_cannot_reuse_the_connections_counter() {
    let scene = Scene::start(
        "http",
        "",
        "tcp-request connection track-sc0 src table one\n http-request track-sc0 path table two\n \
         http-request track-sc1 path table two\n http-request track-sc1 method table two",
        "",
        "",
    );
    assert_eq!(ask(scene.port, "/a").0, 200);
    assert_eq!(scene.counted("one", "127.0.0.1"), "conn_cnt=1 sess_cnt=1 http_req_cnt=1");
    assert_eq!(scene.counted("two", "/a"), "conn_cnt=1 http_req_cnt=1");
    assert_eq!(scene.weir.ask("show table two").lines().filter(|line| line.starts_with("0x")).count(), 1);
}

#[test]
fn conn_cur_counts_while_the_connection_is_tracked() {
    let scene = Scene::start(
        "tcp",
        "",
        "tcp-request connection track-sc0 src table one\n tcp-request content track-sc1 src table one",
        "",
        "",
    );
    let mut client = Client::connect(scene.port);
    assert_eq!(answer(client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")).0, 200);
    let during = scene.shown("one", "127.0.0.1", |line| line.contains(" use=2 "));
    assert_eq!(during, "conn_cnt=2 conn_cur=2 sess_cnt=1");
    assert!(scene.weir.ask("clear table one key 127.0.0.1").contains("in use"), "it is tracked");
    drop(client);
    assert_eq!(scene.counted("one", "127.0.0.1"), "conn_cnt=2 sess_cnt=1");
}

#[test]
fn client_errors_and_server_failures_are_distinguished() {
    let scene = Scene::start(
        "http",
        "",
        "http-request track-sc0 path table two\n http-request deny if { path /deny }\n http-request tarpit if { path /tarpit }\n \
         http-request auth if { path /auth }\n http-request return status 404 if { path /return }\n \
         http-request reject if { path /reject }\n use_backend down if { path /down }\n use_backend silent if { path /empty }",
        "",
        &format!(
            "backend down\n server d 127.0.0.1:{}\nbackend silent\n server e 127.0.0.1:{}\n",
            free_port(),
            {
                // Closes without a response.
                let origin = Box::leak(Box::new(Origin::raw(drop)));
                origin.port()
            }
        ),
    );
    for (path, status, expected) in [
        ("/a?status=404", 404, "http_err_cnt=1"),
        ("/b?status=500", 500, "http_fail_cnt=1"),
        ("/c?status=501", 501, ""),
        ("/deny", 403, "http_err_cnt=1"),
        ("/tarpit", 500, "http_err_cnt=1"),
        ("/auth", 401, "http_err_cnt=1"),
        ("/return", 404, ""),
        ("/reject", 0, ""),
        ("/down", 503, ""),
        ("/empty", 502, "http_fail_cnt=1"),
    ] {
        assert_eq!(ask(scene.port, path).0, status, "{path}");
        let key = path.split('?').next().unwrap_or_default();
        let expected = format!("conn_cnt=1 http_req_cnt=1 {expected}");
        assert_eq!(scene.counted("two", key), expected.trim_end(), "{path}");
    }
}

#[test]
fn counted_statuses_are_configurable() {
    let scene = Scene::start(
        "http",
        "http-err-codes 404 +500\n http-fail-codes -500 +501 +410-411",
        "http-request track-sc0 path table two",
        "",
        "",
    );
    for (path, expected) in [
        ("/a?status=404", "http_err_cnt=1"),
        ("/b?status=410", "http_fail_cnt=1"),
        ("/c?status=500", "http_err_cnt=1"),
        ("/d?status=501", "http_fail_cnt=1"),
        ("/e?status=403", ""),
    ] {
        ask(scene.port, path);
        assert_eq!(
            scene.counted("two", &path[..2]),
            format!("conn_cnt=1 http_req_cnt=1 {expected}").trim_end()
        );
    }
}

#[test]
fn non_http_client_is_counted() {
    let scene = Scene::start("http", "", "tcp-request connection track-sc0 src table one", "", "");
    let mut client = Client::connect(scene.port);
    assert_eq!(answer(client.send("GET / HTTP/1.1\r\nno header\r\n\r\n")).0, 400);
    drop(client);
    assert_eq!(
        scene.counted("one", "127.0.0.1"),
        "conn_cnt=1 sess_cnt=1 http_req_cnt=1 http_err_cnt=1 glitch_cnt=1"
    );
}

#[test]
fn refused_clients_are_counted_too() {
    for (set, later) in [("connection", ""), ("session", ""), ("content", "")] {
        let scene = Scene::start(
            "http",
            "",
            &format!(
                "tcp-request {set} track-sc0 src table one\n tcp-request {set} reject if {{ sc0_conn_cnt gt 1 }}"
            ),
            "",
            later,
        );
        let served: Vec<u16> = (0..3).map(|_| ask(scene.port, "/").0).collect();
        assert_eq!(served, [200, 0, 0], "{set}");
        let counted = scene.counted("one", "127.0.0.1");
        let sessions = if set == "content" { "" } else { " sess_cnt=1" };
        assert_eq!(counted, format!("conn_cnt=3{sessions} http_req_cnt=1"), "{set}");
    }
}

#[test]
fn counters_and_tags_are_changed_by_actions_and_expressions() {
    let scene = Scene::start(
        "http",
        "",
        "http-request track-sc0 src table one\n http-request sc-inc-gpc0(0) if { path /a }\n http-request sc-inc-gpc1(0)\n \
         http-request sc-set-gpt0(0) 7 if { path /b }\n http-response sc-set-gpt0(0) int(9) if { var(txn.c) -m found }\n \
         http-request set-var(txn.c) int(1) if { path /c }\n \
         http-after-response set-header x %[sc0_get_gpc0],%[sc0_inc_gpc0],%[sc0_gpc0_rate],%[sc0_clr_gpc1],%[sc0_get_gpt0],\
         %[src_inc_gpc1(one)],%[src,table_inc_gpc0(one)],[%[sc1_get_gpc0]],%[str(y),table_inc_gpc0(two)],%[src,in_table(one)],%[src,in_table(two)]",
        "",
        "",
    );
    let answers: Vec<String> = ["/a", "/b", "/c"].map(|path| ask(scene.port, path).1).into();
    assert_eq!(answers, ["1,2,2,1,0,1,3,[],1,1,0", "3,4,4,2,7,1,5,[],2,1,0", "5,6,6,2,9,1,7,[],3,1,0"]);
    assert!(scene.weir.ask("show table one").contains(" gpt0=9 gpc0=7 gpc0_rate(3600000)=7 "));
}

#[test]
fn first_array_elements_replace_single_counters() {
    let scene = Scene::start(
        "http",
        "",
        "http-request track-sc0 src table many\n http-request sc-inc-gpc(1,0)\n http-request sc-add-gpc(2,0) 5\n \
         http-request sc-add-gpc(2,0) int(2)\n http-request sc-set-gpt(1,0) 4\n http-request sc-inc-gpc0(0)\n http-request sc-set-gpt0(0) 3\n \
         http-request return status 200 hdr x %[sc_get_gpc(1,0)],%[sc_get_gpc(2,0)],%[sc_gpc_rate(2,0)],%[sc_get_gpt(1,0)],\
         %[sc0_get_gpc0],%[sc0_get_gpt0],%[sc_inc_gpc(1,0)],%[sc_clr_gpc(1,0)],[%[sc_get_gpc(3,0)]],%[src_get_gpc(2,many)],%[src,table_gpt(1,many)]",
        "",
        "backend many\n stick-table type ip size 10 store gpc(3),gpc_rate(3,1h),gpt(2)\n",
    );
    assert_eq!(ask(scene.port, "/").1, "1,7,7,4,1,3,2,2,[],7,4");
    let shown = scene.weir.ask("show table many");
    assert!(
        shown.contains(
            " gpt0=3 gpt1=4 gpc0=1 gpc1=0 gpc2=7 gpc0_rate(3600000)=1 gpc1_rate(3600000)=2 gpc2_rate(3600000)=7"
        ),
        "{shown}"
    );
}

#[test]
fn maximum_number_of_counters_can_be_tracked() {
    let scene = Scene::start(
        "http",
        "tune.stick-counters 5",
        "http-request track-sc4 path table two\n http-request track-sc3 hdr(none) table two\n \
         http-request return status 200 hdr x %[sc_tracked(4)],%[sc_key(4)],%[sc_conn_cur(4)],%[sc_trackers(4)],%[sc_tracked(3)],[%[sc_key(3)]]",
        "",
        "",
    );
    assert_eq!(ask(scene.port, "/k").1, "1,/k,1,1,0,[]");
}

#[test]
fn keys_are_converted_to_the_table_type() {
    let scene = Scene::start(
        "http",
        "",
        "http-request track-sc0 req.hdr(k) table text\n http-request track-sc1 req.hdr(k) table bytes\n http-request track-sc2 req.hdr(k) table numbers\n \
         http-request return status 200 hdr x [%[sc0_key]],[%[sc1_key,hex]],[%[sc2_key]]",
        "",
        "backend text\n stick-table type string len 5 size 10\nbackend bytes\n stick-table type binary len 5 size 10\n\
         backend numbers\n stick-table type integer size 10\n",
    );
    for (field, expected) in [
        ("", "[],[],[]"),
        ("k: \r\n", "[],[0000000000],[]"),
        ("k: abcdefgh\r\n", "[abcde],[6162636465],[0]"),
        ("k: 12x\r\n", "[12x],[3132780000],[12]"),
        ("k: -1\r\n", "[-1],[2D31000000],[4294967295]"),
    ] {
        assert_eq!(ask_with(scene.port, "/", field).1, expected, "{field}");
    }
}

#[test]
fn bytes_are_counted_in_both_directions() {
    let scene = Scene::start(
        "http",
        "",
        "http-request track-sc0 path table moved\n http-request return status 200 content-type text/plain string ok if { path /own }",
        "",
        "backend moved\n stick-table type string size 10 store bytes_in_cnt,bytes_in_rate(1h),bytes_out_cnt,bytes_out_rate(1h) brates-factor 1000\n",
    );
    let mut client = Client::connect(scene.port);
    let request = format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n{}", "x".repeat(5000));
    assert_eq!(answer(client.send(&request)).0, 200);
    ask(scene.port, "/own");
    let line = |key: &str| {
        let all = scene.weir.ask("show table moved");
        all.lines().find(|line| line.contains(&format!("key={key} "))).unwrap_or_default().to_owned()
    };
    assert!(eventually(|| line("/up").contains(" use=0 ") && line("/own").contains(" use=0 ")));
    let up = line("/up");
    assert!(up.contains(&format!(" bytes_in_cnt={} bytes_in_rate(3600000)=6000 ", request.len())), "{up}");
    assert!(up.contains(" bytes_out_cnt=44 bytes_out_rate(3600000)=1000"), "{up}");
    // A generated response does not count as bytes from a server.
    assert!(line("/own").contains(" bytes_out_cnt=0 "), "{}", line("/own"));
}
