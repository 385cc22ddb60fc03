//! Lua scripts: access to requests and changes to them, responses, and isolation of scripts that fail, wait or never end.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::lua_scripts::{ask, script, start, start_loading};
use weir_tests::client::{Client, exchange_with};
use weir_tests::{Origin, Weir, free_port, program, scratch};

#[test]
fn script_values_are_matched_as_strings_by_default() {
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
fn printing_scripts_do_not_block() {
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
fn scripts_and_children_see_the_configured_environment() {
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
fn maps_of_init_functions_belong_to_the_process() {
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
fn actions_change_the_forwarded_request() {
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
fn script_fetches_and_converters_work_in_expressions() {
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
fn action_result_decides_how_the_request_continues() {
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
fn errors_name_file_and_line_and_the_request_continues() {
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
fn endless_script_is_stopped_and_blocks_nobody() {
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
        // Other requests are served in the meantime, on either worker.
        for _ in 0..8 {
            assert_eq!(ask(port, "/").status, 204);
        }
        assert_eq!(stuck.response().map(|response| response.status), Some(204), "{path}");
    }
    let said = weir.messages();
    assert!(said.contains("execution timeout") && said.contains("endless.lua:2"), "{said}");
}

#[test]
fn script_memory_is_bounded() {
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
fn sleeping_action_does_not_block_others() {
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
fn lua_load_per_thread_gives_each_worker_its_state() {
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
fn maps_regexes_and_proxy_names_are_available() {
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
fn kept_objects_do_not_reach_ended_requests() {
    let text = r#"
        local kept
        core.register_action("keep", { "http-req" }, function(txn)
            if kept then
                local ok, why = pcall(function() return kept:get_priv() end)
                txn:set_var("txn.why", kept.sf:path() .. " " .. tostring(ok) .. " " .. why)
            end
            kept = txn
        end)
        core.register_task(function()
            while not kept do core.msleep(10) end
            core.Alert("path of a task: [" .. kept.sf:path() .. "]")
        end)
    "#;
    let rules = " http-request lua.keep\n http-request return status 200 hdr x %[var(txn.why)]\n";
    let (weir, port) = start("keep", text, "", rules);
    ask(port, "/first");
    let again = ask(port, "/second");
    let said = again.header("x").unwrap_or_default();
    assert!(said.starts_with("/second false") && said.contains("has ended"), "{said}");
    assert!(weir.says("path of a task: []"), "{}", weir.messages());
}

#[test]
fn scripts_see_errors_of_methods_as_texts_with_their_place() {
    let text = r#"
        core.register_action("errors", { "http-req" }, function(txn)
            local shown = {}
            local function show(ok, why) shown[#shown + 1] = tostring(ok) .. " " .. why:gsub("^.*/", "") end
            local function wrong() return txn.sf:req_hdr({}) end
            show(pcall(wrong))
            show(xpcall(wrong, function(why) return why .. "!" end))
            show(coroutine.resume(coroutine.create(wrong)))
            show(pcall(coroutine.wrap(wrong)))
            show(pcall(function() txn.http:req_set_header("x") end))
            show(pcall(function() txn:set_var({}, 1) end))
            show(pcall(function() return txn.sc:lower("x", {}) end))
            show(pcall(txn.f.path))
            txn:set_var("txn.errors", table.concat(shown, "|"))
            wrong()
        end)
    "#;
    let rules = " http-request lua.errors\n http-request return status 200 hdr x %[var(txn.errors)]\n";
    let (weir, port) = start("errors", text, "", rules);
    let response = ask(port, "/");
    let shown: Vec<_> = response.header("x").unwrap_or_default().split('|').collect();
    let wrong = "errors.lua:5: argument 1 of `req_hdr` is a table, not a string or number";
    let wanted = [
        &format!("false {wrong}"),
        &format!("false {wrong}!"),
        &format!("false {wrong}"),
        &format!("false {wrong}"),
        "false errors.lua:10: missing value",
        "false errors.lua:11: expected string, not table (expected string or number)",
        "false errors.lua:12: argument 1 of `lower` is a table, not a string or number",
        "false errors.lua:13: there is no object before the method's name: call methods with `:`",
    ];
    assert_eq!(shown, wanted);
    let logged = weir.messages();
    assert!(logged.contains(wrong), "{logged}");
}

#[test]
fn action_may_ask_to_be_called_again() {
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
