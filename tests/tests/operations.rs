//! Commands of the runtime socket that change what there is, or tell what it costs: backends,
//! certificates of tokens, counters that outlive a process, pools, profiles, anonymized output.

use weir_tests::client::{self, exchange_with};
use weir_tests::{Origin, Weir, eventually, free_port};

fn start(lines: &str, port: u16) -> Weir {
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 2\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n{lines}"
    );
    Weir::start(&text, &[port])
}

/// Asks, and wants the answer to hold something.
fn expect(weir: &Weir, command: &str, wanted: &str) {
    let said = weir.ask(command);
    assert!(said.contains(wanted), "{command}: {said}");
}

#[test]
fn backends_are_added_published_and_removed_while_clients_ask() {
    let (origin, port) = (Origin::text("added"), free_port());
    let weir = start(
        &format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  force-be-switch if {{ req.hdr(x-admin) 1 }}\n  \
             use_backend %[req.hdr(x-be)]\n  use_backend referred if {{ path /never }}\n\
             listen l\n  bind 127.0.0.1:{}\n\
             backend referred\nbackend asked\nbackend plain\n  http-request set-header x-n %[nbsrv(asked)]\n  server s 127.0.0.1:{} disabled\n\
             defaults nothing\n\
             defaults base\n  mode http\n  timeout server 20s\n  timeout connect 10s\n  http-request set-header x-from base if {{ path_beg / }}\n  retries 7\n\
             defaults derived from nothing\n  mode http\n",
            free_port(),
            origin.port()
        ),
        port,
    );
    let status = |backend: &str, more: &str| {
        exchange_with(port, "/", &format!("x-be: {backend}\r\n{more}")).map(|response| response.status)
    };
    assert_eq!(status("new", ""), Some(503));
    for (command, wanted) in [
        ("add backend", "Require backend name."),
        ("add backend new", "Usage: add backend <name> from <defproxy>."),
        ("add backend new from", "Usage: add backend <name> from <defproxy>."),
        (
            "add backend new from base mode",
            "Usage: add backend <name> from <defproxy> [mode <px_mode>] [guid <val>].",
        ),
        ("add backend new from base mode zz", "Unknown proxy mode."),
        ("add backend new from base mode log", "Dynamic backends are compatible with only TCP or HTTP mode."),
        ("add backend new from zz", "Cannot find default proxy 'zz'."),
        (
            "add backend new from nothing",
            "Mode is required as 'nothing' default proxy does not explicitly defines it.",
        ),
        ("add backend n/w from base", "Invalid character '/' in backend name."),
        ("add backend plain from base", "name is already used by other proxy 'backend plain'."),
        ("add backend f from base", "name is already used by other proxy 'frontend f'."),
        ("show defaults", "nothing\nbase\nderived\n"),
        ("add backend new from base guid g-1", "New backend registered."),
        ("add backend other from base guid g-1", "GUID insertion : duplicate entry with backend new."),
        ("add backend other from nothing mode tcp", "New backend registered."),
        ("add backend third from derived", "New backend registered."),
        ("show backend", "plain\nnew\nother\nthird\n"),
        ("show stat new 2 -1", "new,BACKEND,"),
        ("show stat new 2 -1", ",UP (UNPUB),"),
        ("del backend zz", "No such backend."),
        ("del backend f", "No such backend."),
        ("del backend l", "Cannot delete a listen section."),
        ("del backend referred", "due to other configuration elements pointing to it."),
        ("del backend asked", "due to other configuration elements pointing to it."),
        ("del backend plain", "Backend must be unpublished prior to its deletion."),
        ("unpublish backend plain; del backend plain", "Only a backend without server can be deleted."),
        ("wait 1ms be-removable", "Missing backend name."),
        ("wait 1ms be-removable plain", "Failed. Only a backend without server can be deleted."),
        ("wait 1ms be-removable zz", "Failed. No such backend."),
    ] {
        expect(&weir, command, wanted);
    }
    expect(&weir, &format!("add server new/s 127.0.0.1:{}", origin.port()), "New server registered.");
    assert_eq!(weir.ask("enable server new/s").trim(), "");
    assert_eq!((status("new", ""), status("new", "x-admin: 1\r\n")), (Some(503), Some(200)));
    expect(&weir, "publish backend new", "Backend published.");
    for _ in 0..20 {
        let answered = exchange_with(port, "/", "x-be: new\r\n").expect("a response");
        assert_eq!((answered.status, answered.text().as_str()), (200, "added"));
    }
    expect(&weir, "show servers state new", " s 127.0.0.1 2 ");
    expect(&weir, "del backend new", "Backend must be unpublished prior to its deletion.");
    expect(&weir, "unpublish backend new; disable server new/s; wait 10s srv-removable new/s", "Done.");
    expect(&weir, "del server new/s", "Server deleted.");
    expect(&weir, "wait 10s be-removable new", "Done.");
    expect(&weir, "del backend new", "Backend deleted.");
    expect(&weir, "del backend new", "No such backend.");
    assert!(!weir.ask("show stat").contains("new,BACKEND"));
    assert_eq!(status("new", "x-admin: 1\r\n"), Some(503));
    // A name is free again; the lists of patterns of both are shown.
    let lists = weir.ask("show acl").lines().count();
    expect(&weir, "add backend new from base guid g-1", "New backend registered.");
    assert_eq!(weir.ask("show acl").lines().count(), lists + 1);
    expect(&weir, "publish backend new", "Backend published.");
    assert_eq!(status("new", ""), Some(503), "it has no server yet");
    assert!(weir.messages().is_empty() || !weir.messages().contains("panicked"), "{}", weir.messages());
}

/// Signed with the key of the certificate below.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ0ZXN0In0.RZ0sYoZDp_dienwXxWgVLjmsWd5EmXbdW6Xg4yaURx22N6jWy5-YC4o7lvoPs5meZr7ijD5vJkUWNjQvT6yTQA";
const CERTIFICATE: &str = include_str!("../../crates/sample/src/keys/testdata/two_names.pem");
const OTHER: &str = include_str!("../../crates/sample/src/keys/testdata/other.pem");

#[test]
fn certificates_of_tokens_are_made_changed_and_taken_away() {
    let port = free_port();
    let directory = weir_tests::scratch("certificates");
    let file = directory.join("fixed.pem");
    std::fs::write(&file, CERTIFICATE).expect("a file");
    let fixed = file.display();
    let weir = start(
        &format!(
            "crt-store shop\n  load crt {fixed} alias till jwt on\n  load crt {fixed} alias idle\n\
             frontend f\n  bind 127.0.0.1:{port}\n  http-request set-var(txn.c) req.hdr(x-cert)\n  \
             http-request return status 200 hdr x-named %[req.hdr(x-token),jwt_verify_cert(ES256,txn.c)] \
             hdr x-fixed %[req.hdr(x-token),jwt_verify_cert(ES256,{fixed})]\n"
        ),
        port,
    );
    let verified = |name: &str| {
        let response =
            exchange_with(port, "/", &format!("x-token: {TOKEN}\r\nx-cert: {name}\r\n")).expect("a response");
        [response.header("x-named"), response.header("x-fixed")].map(|value| value.unwrap_or("").to_owned())
    };
    let set = |name: &str, pem: &str| weir.ask(&format!("set ssl cert {name} <<\n{pem}\n"));
    assert_eq!(verified("new"), ["-5", "1"]);
    assert_eq!(verified("@shop/till"), ["1", "1"]);
    assert_eq!(verified("@shop/idle"), ["-7", "1"]);
    let listed = weir.ask("show ssl cert");
    assert_eq!(listed.trim(), format!("# filename\n{fixed}\n@shop/idle\n@shop/till"));
    assert_eq!(weir.ask("show ssl jwt").trim(), format!("# filename\n{fixed}\n@shop/till"));
    for (command, wanted) in [
        ("new ssl cert", "'new ssl cert' expects a filename"),
        ("new ssl cert new", "New empty certificate store 'new'!"),
        ("new ssl cert new", "Certificate 'new' already exists!"),
        ("show ssl cert new", "Filename: new\nOption: ocsp-update off\nOption: jwt off\nStatus: Empty"),
        ("set ssl cert new", "'set ssl cert' expects a filename and a certificate as a payload"),
        ("commit ssl cert new", "No ongoing transaction! !\nCan't commit new!"),
        ("abort ssl cert new", "No ongoing transaction!"),
        ("add ssl jwt zz", "Can't display the certificate: Not found or the certificate is a bundle!"),
        ("del ssl cert zz", "Can't remove the certificate: certificate 'zz' doesn't exist!"),
        ("del ssl cert @shop/till", "certificate '@shop/till' in use for JWT validation, can't be deleted!"),
        ("del ssl cert @shop/idle", "Certificate '@shop/idle' deleted!"),
    ] {
        expect(&weir, command, wanted);
    }
    assert!(set("zz", CERTIFICATE).contains(
        "Can't replace a certificate which is not referenced by the configuration!\nCan't update zz!"
    ));
    assert!(set("new", "nonsense").contains("Can't load the payload\nCan't update new!"));
    assert!(set("new", CERTIFICATE).contains("Transaction created for certificate new!"));
    assert!(set("new", CERTIFICATE).contains("Transaction updated for certificate new!"));
    assert!(
        set("@shop/till", OTHER)
            .contains("The ongoing transaction is about 'new' but you are trying to set '@shop/till'")
    );
    expect(&weir, "show ssl cert", "# transaction\n*new\n# filename\n");
    expect(
        &weir,
        "show ssl cert *new",
        "Filename: *new\nOption: ocsp-update off\nOption: jwt off\nStatus: Uncommitted\nSerial: 3F5F32C8",
    );
    assert_eq!(verified("new"), ["-7", "1"], "not committed, not for tokens");
    expect(&weir, "commit ssl cert new", "Committing new\nSuccess!");
    assert_eq!(weir.ask("add ssl jwt new").trim(), "");
    expect(&weir, "show ssl cert new", "Status: Used for JWT verification\n");
    assert_eq!(verified("new"), ["1", "1"]);
    // Another certificate in the same place verifies no more, wherever it was named.
    assert!(set(&fixed.to_string(), OTHER).contains("Transaction created"));
    expect(&weir, &format!("abort ssl cert {fixed}"), "Transaction aborted for certificate");
    assert_eq!(verified("new"), ["1", "1"]);
    assert!(set(&fixed.to_string(), OTHER).contains("Transaction created"));
    expect(&weir, &format!("commit ssl cert {fixed}"), "Success!");
    assert_eq!(verified("new"), ["1", "0"]);
    assert!(weir.ask(&format!("dump ssl cert {fixed}")).contains("-----BEGIN CERTIFICATE-----\n"));
    assert_eq!(weir.ask(&format!("del ssl jwt {fixed}")).trim(), "");
    assert_eq!(verified("new"), ["1", "-7"]);
    assert_eq!(weir.ask("del ssl jwt new").trim(), "");
    expect(&weir, "del ssl cert new", "Certificate 'new' deleted!");
    assert_eq!(verified("new")[0], "-5");
}

#[test]
fn counters_are_dumped_by_identifier_and_preloaded() {
    let (origin, port, other) = (Origin::text("counted"), free_port(), free_port());
    let lines = format!(
        "frontend f\n  guid g-f\n  option socket-stats\n  bind 127.0.0.1:{port} guid-prefix g-l\n  default_backend b\n\
         frontend h\n  bind 127.0.0.1:{other}\nbackend b\n  guid g-b\n  server s 127.0.0.1:{} guid g-s\n",
        origin.port()
    );
    let weir = start(&lines, port);
    for _ in 0..3 {
        assert_eq!(client::get(port, "/").map(|response| response.status), Some(200));
    }
    let total = |weir: &Weir, letter: &str| {
        let all = weir.ask("show stat typed");
        let line =
            all.lines().find(|line| line.starts_with(letter) && line.contains(".stot.")).map(str::to_owned);
        line.and_then(|line| line.rsplit(':').next()?.trim().parse::<u64>().ok())
    };
    // A connection may be counted after its client is answered.
    assert!(eventually(|| total(&weir, "S.") == Some(3)));
    let dumped = weir.ask("dump stats-file");
    assert!(dumped.starts_with("#fe guid,stot,bin,bout,dreq,"), "{dumped}");
    // Whoever waited for the port was counted too.
    let sessions = total(&weir, "F.").unwrap_or(0);
    let own = [format!("\ng-f,{sessions},"), format!("\ng-l-0,{sessions},")];
    let others = ["\n#be guid,stot,", "\ng-s,3,", "\ng-b,3,"].map(str::to_owned);
    for line in own.iter().chain(&others) {
        assert!(dumped.contains(line), "{line:?}: {dumped}");
    }
    drop(weir);
    let file = weir_tests::scratch("counters").file("stats");
    std::fs::write(&file, format!("// left by another\nbad,\n{dumped}#zz guid,stot,\ng-b,99,\n"))
        .expect("a file");
    let weir = start(
        &format!("global\n  stats-file {}\n{}", file.display(), lines.replace("guid g-b", "guid g-c")),
        port,
    );
    for letter in ["F.", "L."] {
        let now = || total(&weir, letter) == Some(sessions + 1);
        assert!(eventually(now), "{letter}: the port was waited for again");
    }
    assert_eq!(total(&weir, "S."), Some(3));
    assert_eq!(total(&weir, "B."), Some(0), "it has another identifier now");
    drop(weir);
    let weir = start(&format!("global\n  stats-file /nowhere/stats\n{lines}"), port);
    assert!(weir.says("Can't load stats-file '/nowhere/stats'"), "{}", weir.messages());
}

#[test]
fn what_workers_keep_and_do_is_told() {
    let (origin, port) = (Origin::text("hello"), free_port());
    let weir = start(
        &format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        port,
    );
    expect(&weir, "show profiling status", "Per-task CPU profiling              : off");
    expect(&weir, "set profiling tasks zz", "Expects a combination of either 'on'");
    expect(&weir, "set profiling zz", "Expects either 'tasks' or 'memory'.");
    expect(&weir, "set profiling memory on", "Memory profiling not compiled in.");
    assert_eq!(weir.ask("set profiling tasks on").trim(), "");
    let mut held = client::Client::connect(port);
    held.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(held.response().map(|response| response.status), Some(200));
    let told = weir.ask("show profiling");
    let line = told.lines().find(|line| line.starts_with("  exchange ")).unwrap_or_default();
    let calls = line.split_whitespace().nth(1).and_then(|calls| calls.parse::<u64>().ok());
    assert!(calls.is_some_and(|calls| calls > 0), "{told}");
    assert_eq!(weir.ask("set profiling tasks off").trim(), "");
    expect(&weir, "show profiling status", ": off");
    let pools = weir.ask("show pools");
    assert!(
        pools
            .starts_with("Dumping pools usage. Use SIGQUIT to flush them.\n  - Pool buffer (16384 bytes) : "),
        "{pools}"
    );
    assert!(pools.contains("  - Pool connection ("), "{pools}");
    let exchange = pools.lines().find(|line| line.contains("Pool exchange (")).unwrap_or_default();
    // Whoever waited for the port may have had another thread.
    assert!(exchange.contains(" : 1 allocated (") || exchange.contains(" : 2 allocated ("), "{pools}");
    assert!(weir.ask("show pools match exch").contains("Total: 1 pools, "));
    expect(&weir, "show pools zz", "Expects either 'byname', 'bysize', 'byusage'");
    let kept = || {
        let pools = weir.ask("show pools match buffer");
        pools.lines().any(|line| line.contains("Pool buffer (") && !line.contains("(~0 by thread caches)"))
    };
    assert!(kept(), "{}", weir.ask("show pools"));
    weir.signal("QUIT");
    assert!(eventually(|| !kept()), "{}", weir.ask("show pools"));
}

#[test]
fn anonymized_output_hides_names_and_keeps_what_belongs_together() {
    let (origin, port) = (Origin::text("hello"), free_port());
    let weir = start(
        &format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  default_backend be\nbackend be\n  server srv 127.0.0.1:{}\n  server far 192.0.2.7:80\n",
            origin.port()
        ),
        port,
    );
    let on = |command: &str| weir.ask(&format!("set anon on 1234; {command}"));
    assert!(on("show servers state").contains(" ef0d7f 1 67b14b 127.0.0.1 "), "{}", on("show servers state"));
    assert!(on("show servers conn").contains("\nef0d7f/67b14b "));
    assert!(on("show servers state").contains(" IPV4("));
    assert!(on("debug dev hash foo").contains("e311e9"));
    assert!(on("show anon").contains("Anonymized mode enabled\nKey : 1234"));
    assert!(weir.ask("show servers state").contains(" be 1 srv "), "of one connection alone");
    expect(&weir, "show anon", "Anonymized mode disabled");
    expect(&weir, "set anon on 0", "Value out of range (1 to 4294967295 expected).");
    assert_eq!(weir.ask("set anon global-key 1234").trim(), "");
    expect(&weir, "set anon on; show anon", "Key : 1234");
    expect(&weir, "set anon on; set anon off; show anon", "disabled");
}

#[test]
fn streams_of_tcp_are_in_the_statistics_while_they_last() {
    let (origin, port) = (Origin::echo(), free_port());
    let weir = Weir::start(
        &format!(
            "global\n  stats socket runtime level admin\ndefaults\n  mode tcp\n  timeout client 20s\n  timeout connect 10s\n  \
             timeout server 20s\nfrontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[port],
    );
    let mut client = client::Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.response().is_some());
    let shown = weir.statistics();
    for row in ["b,s", "b,BACKEND"] {
        assert!(shown.value(row, "lastsess").parse::<u32>().is_ok(), "{row}: {shown:?}");
    }
    // The port was tried once before.
    assert!(shown.number("f,FRONTEND", "sess_other") > 0, "{shown:?}");
    assert_eq!(shown.value("f,FRONTEND", "req_tot"), "0", "{shown:?}");
}

#[test]
fn a_running_process_tells_the_state_of_its_servers_when_asked_by_a_signal() {
    let port = free_port();
    let weir = start(
        &format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:1\n  \
             server t 127.0.0.1:1 backup\nbackend c\n  server s 127.0.0.1:1 disabled\n"
        ),
        port,
    );
    weir.signal("HUP");
    for line in [
        "SIGHUP received, dumping servers states.\n",
        "SIGHUP: Server b/s is UP. Conn: 0 act, 0 pend, 0 tot.\n",
        "SIGHUP: Proxy b has 1 active servers and 1 backup servers available. Conn: act(FE+BE): 0+0, 0 pend (0 unass), tot(FE+BE): 0+0.\n",
        "SIGHUP: Proxy c has no server available ! Conn: ",
    ] {
        assert!(weir.says(line), "{line}: {}", weir.messages());
    }
    let told = "SIGHUP: Proxy f has no servers. Conn: act(FE+BE): ";
    assert!(weir.says(told), "{}", weir.messages());
}

#[test]
fn a_thread_that_one_task_holds_up_is_told_of_with_the_culprit() {
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  nbthread 1\n  warn-blocked-traffic-after 10ms\n\
         defaults\n  mode http\n  timeout client 20s\nfrontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200\n"
    );
    let weir = Weir::start(&text, &[port]);
    expect(&weir, "show info", "BlockedTrafficWarnings: 0\n");
    expect(&weir, "debug dev loop 2500", "restricted to expert mode");
    for wrong in ["loop", "loop x", "loop -1", "delay 60001", "delay 1 2"] {
        expect(&weir, &format!("expert-mode on; debug dev {wrong}"), "A number of milliseconds is expected");
    }
    // Longer than an idle process is left alone.
    weir.ask("expert-mode on; debug dev loop 2500");
    let said = weir.messages();
    assert!(said.contains("thread 1 has been held up for "), "{said}");
    assert!(said.contains(" milliseconds by a command of the runtime socket"), "{said}");
    let told = weir.ask("show info");
    assert!(
        told.contains("BlockedTrafficWarnings: ") && !told.contains("BlockedTrafficWarnings: 0"),
        "{told}"
    );
}

#[test]
fn what_was_sent_in_the_last_second_is_told() {
    let port = free_port();
    let text = "x".repeat(10_000);
    let weir = start(
        &format!(
            "frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200 content-type text/plain string {text}\n"
        ),
        port,
    );
    let told = |name: &str| -> u64 {
        let info = weir.ask("show info");
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.parse().ok()).expect("a number")
    };
    // Whoever asks late finds part of it, or nothing.
    assert!(eventually(|| {
        let answer = client::get(port, "/").expect("an answer");
        assert_eq!(answer.body.len(), text.len());
        told("BytesOutRate") > 5_000
    }));
    assert!(told("BootTime_ms") < 600_000);
}
