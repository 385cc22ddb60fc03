//! Backends added, published and removed at run time.

use crate::running::{expect, start};
use weir_tests::client::exchange_with;
use weir_tests::{Origin, free_port};

#[test]
fn backends_are_added_published_and_removed_under_load() {
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
    // The name is free again; pattern lists of both are shown.
    let lists = weir.ask("show acl").lines().count();
    expect(&weir, "add backend new from base guid g-1", "New backend registered.");
    assert_eq!(weir.ask("show acl").lines().count(), lists + 1);
    expect(&weir, "publish backend new", "Backend published.");
    assert_eq!(status("new", ""), Some(503), "it has no server yet");
    assert!(weir.messages().is_empty() || !weir.messages().contains("panicked"), "{}", weir.messages());
}
