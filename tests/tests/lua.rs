//! Scripts in Lua: what they see and change of requests, what they answer, and that one that fails,
//! waits or never ends harms nobody else.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use weir_tests::chunks::unchunked;
use weir_tests::client::{Client, Response, exchange_with, get};
use weir_tests::{Origin, Scratch, Weir, eventually, free_port, program, scratch};

/// Writes a script.
fn script(name: &str, text: &str) -> Scratch {
    let path = scratch("lua").file(&format!("{name}.lua"));
    std::fs::write(&path, text).expect("scripts can be written");
    path
}

/// Starts a proxy with a script, and rules of its frontend.
fn start(name: &str, text: &str, global: &str, rules: &str) -> (Weir, u16) {
    start_loading("lua-load", name, text, global, rules)
}

fn start_loading(how: &str, name: &str, text: &str, global: &str, rules: &str) -> (Weir, u16) {
    let (path, port) = (script(name, text), free_port());
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n tune.lua.bool-sample-conversion normal\n{global} {how} {}\n\
         defaults\n mode http\n timeout client 10s\n timeout connect 5s\n timeout server 10s\n\
         frontend f\n bind 127.0.0.1:{port}\n{rules} http-request return status 204\n",
        path.display()
    );
    (Weir::start(&text, &[port]), port)
}

fn ask(port: u16, path: &str) -> Response {
    get(port, path).unwrap_or_else(|| panic!("no answer to {path}"))
}

fn body(response: &Response) -> Vec<u8> {
    match response.header("transfer-encoding") {
        Some(_) => unchunked(&response.body).0,
        None => response.body.clone(),
    }
}

#[test]
fn what_scripts_give_is_matched_as_text_where_nothing_else_is_said() {
    let text = r#"
        core.register_fetches("number", function(txn) return 5 end)
        core.register_fetches("word", function(txn) return txn.sf:path() end)
        core.register_converters("twice", function(text) return text .. text end)
    "#;
    let rules = " acl is_five lua.number 5
 http-request return status 201 if { path /five } is_five { lua.number -m int gt 4 }
 http-request return status 202 if { lua.word /word /words }
 http-request return status 203 if { path,lua.twice /a/a }
 http-request return status 205 if { lua.number 6 }
";
    let (_weir, port) = start("matched", text, "", rules);
    for (path, status) in [("/five", 201), ("/word", 202), ("/words", 202), ("/a", 203), ("/b", 204)] {
        assert_eq!(ask(port, path).status, status, "{path}");
    }
}

#[test]
fn scripts_that_print_do_not_wait_for_a_reader() {
    let text = r#"
        core.register_action("show", { "http-req" }, function(txn) print("one", 2, nil, 1.5, ("x"):rep(1000)) end)
    "#;
    let (path, port) = (script("printing", text), free_port());
    let mut command = Command::new("sh");
    command.args(["-c", "mkfifo pipe && exec 3<>pipe && exec \"$0\" \"$@\" >&3"]).arg(program());
    let text = format!(
        "global\n nbthread 1\n lua-load {}\ndefaults\n mode http\n timeout client 10s\n timeout connect 5s\n \
         timeout server 10s\nfrontend f\n bind 127.0.0.1:{port}\n http-request lua.show\n http-request return status 204\n",
        path.display()
    );
    let weir = Weir::start_by(command, &text, &["-db"], &[port]);
    // More than a pipe holds.
    for _ in 0..200 {
        assert_eq!(ask(port, "/").status, 204);
    }
    let pipe = std::fs::File::open(weir.directory().join("pipe")).expect("the pipe");
    let line = BufReader::new(pipe).lines().next().and_then(Result::ok).unwrap_or_default();
    assert_eq!(line, format!("one\t2\tnil\t1.5\t{}", "x".repeat(1000)));
}

#[test]
fn scripts_and_their_programs_see_the_environment_that_the_configuration_made() {
    let text = r#"
        local at_load = os.getenv("WEIR_WORDS")
        core.register_service("shown", "http", function(applet)
            local program = io.popen('printf %s "$WEIR_WORDS|$HOME"')
            local words = at_load .. "|" .. os.getenv("WEIR_WORDS") .. "|" .. program:read("a")
            words = words .. "|" .. tostring(os.getenv("HOME"))
            program:close()
            applet:set_status(200)
            applet:add_header("content-length", #words)
            applet:start_response()
            applet:send(words)
        end)
    "#;
    let global = " insecure-fork-wanted\n setenv WEIR_WORDS \"it's two\"\n setenv 1WEIR x\n unsetenv HOME\n";
    let (_weir, port) = start("environment", text, global, " http-request use-service lua.shown\n");
    assert_eq!(ask(port, "/").text(), "it's two|it's two|it's two||nil");
}

#[test]
fn a_map_of_an_init_function_is_one_of_the_process() {
    let file = scratch("lua").file("words.map");
    std::fs::write(&file, "/a one\n").expect("maps can be written");
    let text = r#"
        core.register_init(function()
            words = Map.new("FILE", Map._str)
            core.set_map("FILE", "/b", "two")
        end)
        core.register_fetches("word", function(txn) return words:lookup(txn.sf:path()) end)
    "#;
    let text = text.replace("FILE", &file.display().to_string());
    let rules = " http-request set-map(FILE) /c three if { path /set }\n http-request return status 200 content-type text/plain lf-string %[lua.word]\n";
    let (weir, port) = start("init", &text, "", &rules.replace("FILE", &file.display().to_string()));
    assert_eq!([ask(port, "/a").text(), ask(port, "/b").text()], ["one", "two"]);
    ask(port, "/set");
    assert_eq!(ask(port, "/c").text(), "three");
    let shown = weir.ask(&format!("show map {}", file.display()));
    assert!(["/a one", "/b two", "/c three"].iter().all(|line| shown.contains(line)), "{shown}");
}

#[test]
fn an_action_changes_the_request_that_the_server_gets() {
    let origin = Origin::start(|head, _| {
        let shown: Vec<&str> = head.lines().filter(|line| !line.starts_with("host")).collect();
        let text = shown.join("|");
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
    });
    let text = r#"
        core.register_action("change", { "http-req" }, function(txn, word)
            local headers = txn.http:req_get_headers()
            txn.http:req_set_header("x-seen", headers["x-given"][0] .. headers["x-given"][1] .. word)
            txn.http:req_add_header("x-more", "1")
            txn.http:req_del_header("x-given")
            txn.http:req_rep_header("x-old", "o(.)d", "n\\1w")
            txn.http:req_set_method("PUT")
            txn.http:req_set_path("/new")
            txn.http:req_set_query("q=" .. txn.sf:path() .. txn.c:lower("X"))
            txn:set_var("txn.made", 42)
        end, 1)
        core.register_action("answer", { "http-res" }, function(txn)
            txn.http:res_set_header("x-var", tostring(txn:get_var("txn.made")))
            txn.http:res_set_status(201, "Made")
        end)
    "#;
    let (path, port) = (script("change", text), free_port());
    let text = format!(
        "global\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
         defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         listen l\n bind 127.0.0.1:{port}\n http-request lua.change word\n http-response lua.answer\n server s 127.0.0.1:{}\n",
        path.display(),
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    let fields = "X-Given: a\r\nX-Given: b\r\nX-Old: old\r\n";
    let response = exchange_with(port, "/before", fields).expect("an answer");
    let seen = response.text().to_ascii_lowercase();
    assert_eq!(response.status, 201);
    assert_eq!(response.header("x-var"), Some("42"));
    for expected in ["put /new?q=/newx http/1.1", "x-seen: abword", "x-more: 1", "x-old: nlw"] {
        assert!(seen.contains(expected), "{expected} in {seen}");
    }
    assert!(!seen.contains("x-given"), "{seen}");
}

#[test]
fn fetches_and_converters_of_scripts_stand_in_expressions() {
    let text = r#"
        core.register_fetches("twice", function(txn, text) return text .. text .. txn.sf:method() end)
        core.register_fetches("number", function(txn) return 7 end)
        core.register_fetches("bool", function(txn) return txn.f:always_true() == true end)
        core.register_fetches("wrong", function(txn) error("no value") end)
        core.register_converters("upper", function(text, tail) return text:upper() .. (tail or "") end)
    "#;
    let rules = " http-request return status 200 hdr a %[lua.twice(ab)] hdr b %[lua.number,add(1)] hdr c %[lua.bool] hdr d x%[lua.wrong] hdr e %[str(low),lua.upper(!)] if { path /all }\n";
    let (_weir, port) = start("fetch", text, "", rules);
    let response = ask(port, "/all");
    let shown: Vec<_> = ["a", "b", "c", "d", "e"].iter().map(|name| response.header(name)).collect();
    assert_eq!(shown, [Some("ababGET"), Some("8"), Some("1"), Some("x"), Some("LOW!")]);
}

#[test]
fn what_an_action_returns_decides_how_the_request_goes_on() {
    let text = r#"
        core.register_action("give", { "http-req" }, function(txn) return tonumber(txn.sf:path():sub(2)) end)
        core.register_action("done", { "http-req" }, function(txn)
            local reply = txn:reply{ status = 202, reason = "Taken" }
            reply:add_header("x-a", "1")
            reply:add_header("x-a", "2")
            reply:set_body("mine")
            txn:done(reply)
            error("not reached")
        end)
    "#;
    let rules = " http-request lua.done if { path /done }\n http-request lua.give\n";
    let (_weir, port) = start("verdicts", text, "", rules);
    for (number, status) in [(0, 204), (1, 503), (3, 500), (5, 403), (6, 503), (7, 400)] {
        assert_eq!(ask(port, &format!("/{number}")).status, status, "{number}");
    }
    let done = ask(port, "/done");
    assert_eq!((done.status, done.text()), (202, "mine".to_owned()));
    assert_eq!(done.header("content-length"), Some("4"));
}

#[test]
fn errors_name_file_and_line_and_the_request_goes_on() {
    let global = " tune.lua.openlibs string,table\n lua-prepend-path /nowhere/?.lua path\n tune.lua.forced-yield 5000\n \
                  tune.lua.log.loggers on\n tune.lua.log.stderr on\n tune.lua.service-timeout 1s\n tune.lua.task-timeout 1s\n";
    let text =
        "\ncore.register_action('bad', { 'http-req' }, function(txn)\n local none\n none.field = 1\nend)\n";
    let (weir, port) = start("bad", text, global, " http-request lua.bad\n");
    assert_eq!(ask(port, "/").status, 204);
    let said = weir.messages();
    assert!(said.contains("Lua function 'bad'") && said.contains("bad.lua:4: "), "{said}");
}

#[test]
fn a_script_without_end_is_ended_and_holds_nobody_up() {
    let text = r#"
        core.register_action("loop", { "http-req" }, function(txn) while true do end end)
        core.register_action("caught", { "http-req" }, function(txn)
            while true do pcall(function() while true do end end) end
        end)
        core.register_action("inside", { "http-req" }, function(txn)
            while true do
                pcall(string.gsub, "x", "x", function() while true do pcall(function() while true do end end) end end)
            end
        end)
        core.register_action("nested", { "http-req" }, function(txn)
            local co = coroutine.wrap(function() while true do end end)
            co()
        end)
        core.register_fetches("loop", function(txn) while true do pcall(function() while true do end end) end end)
    "#;
    let rules = " http-request lua.loop if { path /loop }\n http-request lua.caught if { path /caught }\n \
                 http-request lua.inside if { path /inside }\n http-request lua.nested if { path /nested }\n \
                 http-request set-header x %[lua.loop] if { path /fetch }\n";
    let global = " tune.lua.session-timeout 300ms\n tune.lua.burst-timeout 200ms\n";
    let (weir, port) = start("endless", text, global, rules);
    for path in ["/loop", "/caught", "/inside", "/nested", "/fetch"] {
        let mut stuck = Client::connect(port);
        stuck.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        // Others are served meanwhile, on either worker.
        for _ in 0..8 {
            assert_eq!(ask(port, "/").status, 204);
        }
        assert_eq!(stuck.response().map(|response| response.status), Some(204), "{path}");
    }
    let said = weir.messages();
    assert!(said.contains("execution timeout") && said.contains("endless.lua:2"), "{said}");
}

#[test]
fn memory_of_scripts_is_bounded() {
    let text = r#"
        core.register_action("eat", { "http-req" }, function(txn)
            local all = {}
            for i = 1, 1e9 do all[i] = string.rep("x", 100000) .. i end
        end)
    "#;
    let (weir, port) =
        start("memory", text, " tune.lua.maxmem 8\n", " http-request lua.eat if { path /eat }\n");
    assert_eq!(ask(port, "/eat").status, 204);
    assert_eq!(ask(port, "/").status, 204);
    let said = weir.messages();
    assert!(said.contains("not enough memory"), "{said}");
}

#[test]
fn an_action_sleeps_and_others_go_on() {
    let text = r#"
        core.register_action("sleep", { "http-req" }, function(txn)
            local before = core.now()
            core.msleep(300)
            local co = coroutine.wrap(function() core.msleep(100) coroutine.yield(5) return 6 end)
            txn:set_var("txn.co", co() + co())
        end)
    "#;
    let rules = " http-request lua.sleep if { path /sleep }\n http-request return status 200 hdr x %[var(txn.co)] if { path /sleep }\n";
    let (_weir, port) = start("sleep", text, "", rules);
    let (mut sleeper, began) = (Client::connect(port), Instant::now());
    sleeper.send("GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(ask(port, "/").status, 204);
    let response = sleeper.response().expect("an answer");
    assert_eq!(response.header("x"), Some("11"));
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
}

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
fn a_service_speaks_over_a_stream() {
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
fn each_worker_has_its_own_state_where_that_is_said() {
    let text = r#"
        local count = 0
        core.register_fetches("count", function(txn) count = count + 1 return core.thread * 1000 + count end)
    "#;
    let rules = " http-request return status 200 hdr x %[lua.count]\n";
    let (_weir, port) = start_loading("lua-load-per-thread", "each", text, "", rules);
    let mut client = Client::connect(port);
    let mut number = || {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response().expect("an answer");
        response.header("x").and_then(|text| text.parse::<u32>().ok()).expect("a number")
    };
    let (first, second) = (number(), number());
    assert!(first / 1000 == 1 || first / 1000 == 2, "{first}");
    assert_eq!(second, first + 1);
}

#[test]
fn a_task_runs_beside_requests_and_hands_things_over_in_a_queue() {
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
fn scripts_ask_others_over_sockets_and_by_http() {
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
fn maps_regular_expressions_and_the_proxys_names_are_at_hand() {
    let map = scratch("lua").file("names.map");
    std::fs::write(&map, "a one\nb two\n").expect("a map");
    let text = r#"
        local map = Map.new(..., Map._str)
        local ok, regex = Regex.new("^(.)-(..)$", true)
        assert(ok and not Regex.new("(", true))
        core.register_init(function()
            local names = {}
            for name, proxy in pairs(core.proxies) do names[#names + 1] = name .. proxy:get_mode() end
            assert(#names == 1 and names[1] == "fhttp", table.concat(names, ","))
        end)
        core.register_fetches("map", function(txn) return map:slookup("b") .. tostring(map:lookup("c")) end)
        core.register_fetches("regex", function(txn)
            local found, groups = regex:match("a-bc")
            return tostring(found) .. groups[1] .. groups[2] .. groups[3] .. tostring(regex:exec("abc"))
        end)
        core.register_fetches("text", function(txn)
            local concat = core.concat()
            for _, word in ipairs(core.tokenize("a,b;,c", ",;", true)) do concat:add(word .. "+") end
            local inside = core.match_addr(core.parse_addr("127.0.0.1"), core.parse_addr("127.0.0.0/8"))
            return concat:dump() .. tostring(inside) .. core.http_date("Sun, 06 Nov 1994 08:49:37 GMT")
        end)
    "#;
    let (path, port) = (script("objects", text), free_port());
    let text = format!(
        "global\n tune.lua.bool-sample-conversion normal\n lua-load {} {}\n\
         defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         frontend f\n bind 127.0.0.1:{port}\n http-request return status 200 hdr a %[lua.map] hdr b %[lua.regex] hdr c %[lua.text]\n",
        path.display(),
        map.display()
    );
    let _weir = Weir::start(&text, &[port]);
    let response = ask(port, "/");
    assert_eq!(response.header("a"), Some("twonil"));
    assert_eq!(response.header("b"), Some("truea-bcabcfalse"));
    assert_eq!(response.header("c"), Some("a+b+c+true784111777"));
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
    // The function gets the words of its path too.
    assert_eq!(weir.ask("tell me a b").trim(), "told: tell+me+a+b");
    let unknown = weir.ask("tell you");
    assert!(
        unknown.contains("but maybe one of the following") && unknown.contains("tell me <words>"),
        "{unknown}"
    );
    assert!(weir.ask("help").contains("  tell me <words> : says them again\n"));
    assert!(weir.ask("help tell").contains("tell me <words>") && !weir.ask("help show").contains("tell me"));
}

#[test]
fn an_object_of_a_request_is_refused_in_another() {
    let text = r#"
        local kept
        core.register_action("keep", { "http-req" }, function(txn)
            if kept then
                local ok, why = pcall(function() return kept.sf:path() end)
                txn:set_var("txn.why", tostring(ok) .. why)
            end
            kept = txn
        end)
    "#;
    let rules = " http-request lua.keep\n http-request return status 200 hdr x %[var(txn.why)]\n";
    let (_weir, port) = start("keep", text, "", rules);
    ask(port, "/");
    let again = ask(port, "/");
    let said = again.header("x").unwrap_or_default();
    assert!(said.starts_with("false") && said.contains("is over"), "{said}");
}

#[test]
fn an_action_asks_to_be_called_again() {
    let text = r#"
        core.register_action("again", { "http-req" }, function(txn)
            local count = (txn:get_priv() or 0) + 1
            txn:set_priv(count)
            txn:set_var("txn.count", count)
            if count < 3 then
                act:wake_time(5)
                return act.YIELD
            end
        end)
    "#;
    let rules = " http-request lua.again\n http-request return status 200 hdr x %[var(txn.count)]\n";
    let (_weir, port) = start("again", text, "", rules);
    assert_eq!(ask(port, "/").header("x"), Some("3"));
}

/// A server that sends back what it reads first, and closes.
fn echo() -> Origin {
    Origin::raw(|mut stream| {
        use std::io::{Read, Write};
        let mut all = [0; 1024];
        let n = stream.read(&mut all).unwrap_or(0);
        let _ = stream.write_all(&all[..n]);
    })
}

#[test]
fn actions_change_the_bytes_of_a_stream() {
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
fn an_action_talks_with_a_client_before_its_stream_has_a_server() {
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
    // More than will come: the end of the client's side tells.
    client.shut();
    assert_eq!(String::from_utf8_lossy(&client.read_to_end()), "(4)rest");
}
