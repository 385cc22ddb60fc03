//! Services and conversations of Lua scripts: applets that respond, sockets, HTTP requests, tasks and commands.

use crate::lua_scripts::{ask, body, script, start};
use weir_tests::client::Client;
use weir_tests::load::Load;
use weir_tests::reloading::reload;
use weir_tests::{Origin, Weir, eventually, free_port};

#[test]
fn services_answer_with_and_without_a_length_and_read_bodies() {
    let text = r#"
        core.register_service("echo", "http", function(applet)
            local body = applet:receive()
            applet:set_status(200, "Fine")
            applet:add_header("x-method", applet.method)
            applet:add_header("x-query", applet.qs)
            applet:add_header("x-length", applet.length)
            applet:add_header("content-length", #body)
            applet:start_response()
            applet:send(body)
        end)
        core.register_service("lines", "http", function(applet)
            applet:start_response()
            while true do
                local line = applet:getline()
                if line == "" then break end
                applet:send("<" .. line:gsub("\n", "") .. ">")
                core.msleep(1)
            end
        end)
        core.register_service("silent", "http", function(applet) end)
        core.register_service("late", "http", function(applet)
            applet:start_response()
            applet:send("some")
            error("late")
        end)
    "#;
    let rules = " http-request use-service lua.echo if { path /echo }\n http-request use-service lua.lines if { path /lines }\n \
                 http-request use-service lua.silent if { path /silent }\n http-request use-service lua.late if { path /late }\n \
                 http-response set-header x-rule yes\n";
    let (_weir, port) = start("services", text, "", rules);
    let content: String = (0..20_000).map(|number| format!("{number}\n")).collect();
    let mut client = Client::connect(port);
    for _ in 0..2 {
        client.send(format!(
            "POST /echo?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        ));
        let response = client.response().expect("an answer");
        assert_eq!((response.status, response.header("x-method")), (200, Some("POST")));
        assert_eq!((response.header("x-query"), response.header("x-rule")), (Some("a=b"), Some("yes")));
        assert!(response.text() == content);
    }
    client.send("POST /lines HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n4\r\nb\ncc\r\n0\r\n\r\n");
    let response = client.response().expect("an answer");
    assert_eq!(String::from_utf8_lossy(&body(&response)), "<a><bb><cc>");
    client.send("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        client.response().and_then(|response| response.header("x-length").map(str::to_owned)),
        Some("0".into())
    );
    assert_eq!(ask(port, "/silent").status, 500);
    let mut cut = Client::connect(port);
    cut.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    let all = String::from_utf8_lossy(&cut.read_to_end()).into_owned();
    assert!(all.contains("some") && !all.ends_with("0\r\n\r\n"), "{all}");
}

#[test]
fn services_talk_over_tcp_streams() {
    let text = r#"
        core.register_service("talk", "tcp", function(applet)
            applet:send("who?\n")
            local name = applet:getline()
            applet:send("hello " .. name)
            local rest = applet:receive(4)
            applet:send("[" .. rest .. "]")
            if applet:receive(10, 50) == nil then applet:send("quiet") end
            applet:set_var("txn.said", name)
        end)
    "#;
    let (path, port) = (script("talk", text), free_port());
    let text = format!(
        "global\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
         defaults\n mode tcp\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         frontend f\n bind 127.0.0.1:{port}\n tcp-request content use-service lua.talk\n",
        path.display()
    );
    let _weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    client.send("me\n");
    client.send("1234");
    assert_eq!(String::from_utf8_lossy(&client.read_to_end()), "who?\nhello me\n[1234]quiet");
}

#[test]
fn tasks_exchange_data_through_queues() {
    let text = r#"
        local queue, seen = core.queue(), 0
        core.register_task(function(start)
            seen = start
            while true do
                seen = seen + queue:pop_wait()
                core.register_task(function() seen = seen + 1000 end)
            end
        end, 100)
        core.register_action("push", { "http-req" }, function(txn) queue:push(1) end)
        core.register_fetches("seen", function(txn) return seen end)
    "#;
    let rules =
        " http-request lua.push if { path /push }\n http-request return status 200 hdr x %[lua.seen]\n";
    let (_weir, port) = start("task", text, "", rules);
    let seen = || ask(port, "/").header("x").map(str::to_owned);
    assert!(eventually(|| seen().as_deref() == Some("100")));
    ask(port, "/push");
    assert!(eventually(|| seen().as_deref() == Some("1101")), "{:?}", seen());
}

#[test]
fn scripts_use_sockets_and_http_requests() {
    let origin = Origin::start(|head, body| {
        let text = format!("{}|{}", head.lines().next().unwrap_or_default(), String::from_utf8_lossy(body));
        format!(
            "HTTP/1.1 200 OK\r\nX-Test: yes\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        )
        .into_bytes()
    });
    let text = r#"
        local port = ...
        core.register_action("http", { "http-req" }, function(txn)
            local response = core.httpclient():post{ url = "http://127.0.0.1:" .. port .. "/asked", body = "sent", headers = { ["X-A"] = { "1" } } }
            txn:set_var("txn.status", response.status)
            txn:set_var("txn.body", response.body .. response.headers["x-test"][0])
        end)
        core.register_action("socket", { "http-req" }, function(txn)
            local socket = core.tcp()
            socket:settimeout(2)
            assert(socket:connect("127.0.0.1", port))
            socket:send("GET /by-socket HTTP/1.0\r\n\r\n")
            txn:set_var("txn.status", socket:receive("*l"))
            local length
            repeat
                local line = socket:receive("*l")
                length = line:lower():match("^content%-length: (%d+)") or length
            until line == ""
            txn:set_var("txn.body", socket:receive(tonumber(length)))
            socket:settimeout(0.05)
            local nothing, why = socket:receive("*l")
            assert(nothing == nil and (why == "timeout" or why == "connection closed."))
            socket:close()
        end)
        core.register_action("refused", { "http-req" }, function(txn)
            local socket = core.tcp()
            local connected, why = socket:connect("127.0.0.1", 1)
            txn:set_var("txn.status", tostring(connected))
        end)
    "#;
    let (path, port) = (script("asking", text), free_port());
    let text = format!(
        "global\n tune.lua.bool-sample-conversion normal\n lua-load {} {}\n\
         defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         frontend f\n bind 127.0.0.1:{port}\n http-request lua.http if {{ path /http }}\n http-request lua.socket if {{ path /socket }}\n \
         http-request lua.refused if {{ path /refused }}\n http-request return status 200 hdr s %[var(txn.status)] hdr b %[var(txn.body)]\n",
        path.display(),
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    let asked = ask(port, "/http");
    assert_eq!((asked.header("s"), asked.header("b")), (Some("200"), Some("POST /asked HTTP/1.1|sentyes")));
    let asked = ask(port, "/socket");
    assert_eq!(
        (asked.header("s"), asked.header("b")),
        (Some("HTTP/1.1 200 OK"), Some("GET /by-socket HTTP/1.0|"))
    );
    assert_eq!(ask(port, "/refused").header("s"), Some("nil"));
}

#[test]
fn scripts_add_commands_to_the_runtime_socket() {
    let text = r#"
        core.register_cli({ "tell", "me" }, "tell me <words> : says them again", function(applet, ...)
            core.msleep(1)
            applet:send("told: " .. table.concat({ ... }, "+") .. "\n")
        end)
    "#;
    let (weir, _) = start("command", text, "", "");
    // The function gets the words of the command too.
    assert_eq!(weir.ask("tell me a b").trim(), "told: tell+me+a+b");
    let unknown = weir.ask("tell you");
    assert!(
        unknown.contains("but maybe one of the following") && unknown.contains("tell me <words>"),
        "{unknown}"
    );
    assert!(weir.ask("help").contains("  tell me <words> : says them again\n"));
    assert!(weir.ask("help tell").contains("tell me <words>") && !weir.ask("help show").contains("tell me"));
}

/// Starts a server that sends its first bytes back, and closes.
fn echo() -> Origin {
    Origin::raw(|mut stream| {
        use std::io::{Read, Write};
        let mut all = [0; 1024];
        let n = stream.read(&mut all).unwrap_or(0);
        let _ = stream.write_all(&all[..n]);
    })
}

#[test]
fn actions_change_tcp_data() {
    let text = r#"
        core.register_action("change", { "tcp-req" }, function(txn)
            local line = txn.req:getline()
            txn.req:set(txn.req:data():upper())
            txn.req:prepend("<" .. #line .. ">")
            txn.req:send("first ")
            core.msleep(1)
            txn.req:append("!")
        end)
        core.register_action("answer", { "tcp-res" }, function(txn)
            txn.res:insert("=", 1)
            txn.res:remove(-1)
            txn.res:send("[")
            txn.res:append("]")
        end)
    "#;
    let origin = echo();
    let (path, port) = (script("bytes", text), free_port());
    let configuration = format!(
        "global\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
         defaults\n mode tcp\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         listen l\n bind 127.0.0.1:{port}\n tcp-request inspect-delay 5s\n \
         tcp-request content lua.change if {{ req.len gt 5 }}\n tcp-response inspect-delay 5s\n \
         tcp-response content lua.answer if {{ res.len gt 0 }}\n server s 127.0.0.1:{}\n",
        path.display(),
        origin.port()
    );
    let _weir = Weir::start(&configuration, &[port]);
    let mut client = Client::connect(port);
    client.send("line\nrest");
    assert_eq!(String::from_utf8_lossy(&client.read_to_end()), "[f=irst <5>REST]");
}

#[test]
fn actions_may_talk_to_the_client_before_a_server() {
    let text = r#"
        core.register_action("talk", { "tcp-req" }, function(txn)
            txn.res:send("name?\n")
            local name = txn.req:getline()
            txn.res:send("hello " .. name)
            local count = txn.req:data(0, 2)
            txn.req:remove(0, 2)
            txn.res:send(count)
            local rest = txn.req:data(0, 100)
            txn.res:send("(" .. #rest .. ")")
            txn:set_var("req.port", PORT)
        end)
    "#;
    let origin = echo();
    let (path, port) = (script("talk", &text.replace("PORT", &origin.port().to_string())), free_port());
    let configuration = format!(
        "global\n tune.lua.bool-sample-conversion normal\n lua-load-per-thread {}\n\
         defaults\n mode tcp\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         listen l\n bind 127.0.0.1:{port}\n tcp-request inspect-delay 5s\n tcp-request content lua.talk\n \
         tcp-request content set-dst-port var(req.port)\n server s 127.0.0.1:0\n",
        path.display()
    );
    let _weir = Weir::start(&configuration, &[port]);
    let mut client = Client::connect(port);
    assert_eq!(client.read_bytes(6), b"name?\n");
    client.send("xy");
    client.send("z\n4");
    assert_eq!(client.read_bytes(10), b"hello xyz\n");
    client.send("2rest");
    assert_eq!(client.read_bytes(2), b"42");
    // Asks for more than will arrive: the end of the client's side ends it.
    client.shut();
    assert_eq!(String::from_utf8_lossy(&client.read_to_end()), "(4)rest");
}

#[test]
fn reloads_add_and_remove_scripts() {
    let (port, origin) = (free_port(), Origin::echo());
    let text = r#"
        local word = ...
        core.register_action("word", { "http-req" }, function(txn) txn.http:req_set_header("x-word", word) end)
        core.register_cli({ "show", "word" }, "show word", function(applet) applet:send(word) end)
    "#;
    let path = script("added", text);
    let configuration = |lua: &str, rule: &str| {
        format!(
            "global\n nbthread 2\n stats socket runtime level admin\n{lua}\
             defaults\n mode http\n timeout client 3s\n timeout connect 3s\n timeout server 3s\n\
             frontend f\n bind 127.0.0.1:{port}\n{rule} default_backend b\nbackend b\n server s 127.0.0.1:{}\n",
            origin.port()
        )
    };
    let with = |kind: &str, word: &str| {
        let lua = format!(" tune.lua.bool-sample-conversion normal\n {kind} {} {word}\n", path.display());
        configuration(&lua, " http-request lua.word\n")
    };
    let plain = configuration("", "");
    let weir = Weir::start(&plain, &[port]);
    let load = Load::start(port, true);
    for (kind, word) in [("lua-load", "one"), ("lua-load-per-thread", "two")] {
        let said = reload(&weir, &with(kind, word));
        assert!(said.ends_with("nothing else"), "{said}");
        assert!(ask(port, "/").text().contains(&format!("x-word: {word}")), "{}", weir.messages());
        assert_eq!(weir.ask("show word").trim(), word);
        load.go_on(10);
    }
    let said = reload(&weir, &plain);
    assert!(said.ends_with("nothing else"), "{said}");
    assert!(!ask(port, "/").text().contains("x-word"));
    assert!(!weir.ask("show word").contains("two"));
    assert_eq!(load.end(), Vec::<String>::new());
}
