//! Lua filters (`core.register_filter`): access to messages and streams and changes to them, and isolation of filters that fail,
//! wait or never end.

use std::time::{Duration, Instant};

use crate::lua_scripts::script;
use weir_tests::chunks::unchunked;
use weir_tests::client::{Client, Response, exchange, get};
use weir_tests::{Origin, Weir, check, eventually, free_port, scratch};

/// Starts a proxy with a script, in a `listen` section with these lines and this server.
fn start(mode: &str, name: &str, text: &str, lines: &str, server: u16) -> (Weir, u16) {
    let (path, port) = (script(name, text), free_port());
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
         defaults\n mode {mode}\n timeout client 3s\n timeout connect 3s\n timeout server 3s\n\
         listen l\n bind 127.0.0.1:{port}\n{lines} server s 127.0.0.1:{server}\n",
        path.display()
    );
    (Weir::start(&text, &[port]), port)
}

fn body(response: &Response) -> String {
    let bytes = match response.header("transfer-encoding") {
        Some(_) => unchunked(&response.body).0,
        None => response.body.clone(),
    };
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a class of HTTP filters with these functions.
fn class(functions: &str) -> String {
    format!(
        "local Own = {{ id = 'own', flags = filter.FLT_CFG_FL_HTX }}\nOwn.__index = Own\n\
         function Own:new() return setmetatable({{ log = {{}} }}, Own) end\n{functions}\n\
         core.register_filter('own', Own, function(own, args) own.args = args return own end)\n"
    )
}

#[test]
fn filters_are_called_for_each_step_of_a_message() {
    let text = class(
        r#"
        local seen = {}
        local function note(...) seen[#seen + 1] = table.concat({ ... }, " ") end
        function Own:start_analyze(txn, chn)
            note("start", tostring(chn:is_resp()), txn.sf:path())
            filter.register_data_filter(self, chn)
        end
        function Own:http_headers(txn, msg)
            local line = msg:get_stline()
            note("headers", line.method or line.code, line.uri or line.reason, tostring(msg:get_headers()["host"] ~= nil))
            return filter.CONTINUE
        end
        function Own:http_payload(txn, msg)
            note("payload", tostring(msg:is_resp()), msg:body(-20000), tostring(msg.channel:is_resp()))
        end
        function Own:http_end(txn, msg) note("end", tostring(msg:is_resp()), tostring(msg:eom())) end
        function Own:end_analyze(txn, chn) note("over", tostring(chn:is_resp())) end
        core.register_cli({ "seen" }, "seen : what was seen", function(applet)
            applet:send(table.concat(seen, "\n") .. "\n")
        end)
    "#,
    );
    let origin = Origin::text("answer");
    let (weir, port) = start("http", "told", &text, " filter lua.own\n", origin.port());
    let request = "POST /path HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    let response = exchange(port, request).expect("an answer");
    assert_eq!((response.status, response.text()), (200, "answer".to_owned()));
    assert_eq!(response.header("content-length"), Some("6"));
    let expected = [
        "start false /path",
        "headers POST /path true",
        "payload false body false",
        "end false true",
        "start true /path",
        "headers 200 OK false",
        "payload true answer true",
        "end true true",
        "over false",
        "over true",
    ];
    assert!(eventually(|| weir.ask("seen").contains("over true")));
    assert_eq!(weir.ask("seen").trim().lines().collect::<Vec<_>>(), expected);
}

/// `new` may use the filter that it is called on as the metatable of the filter for a stream. Each line has a copy of the class.
#[test]
fn filters_of_streams_inherit_from_the_filter_of_their_line() {
    let text = r#"
        local Base = { value = function(self) return self.word .. (self.extra or "") end }
        local Own = setmetatable({ flags = filter.FLT_CFG_FL_HTX }, { __index = Base })
        Own.__index = function(_, key) return Own[key] end
        function Own:new() return setmetatable({ word = self.word }, self) end
        function Own:http_headers(txn, msg) msg:add_header("x-word", self:value()) end
        core.register_filter("own", Own, function(own, words)
            own.word = words[1]
            return own
        end)
    "#;
    let origin = Origin::text("answer");
    let lines = " filter lua.own one\n filter lua.own two\n";
    let (_weir, port) = start("http", "inherited", text, lines, origin.port());
    let response = get(port, "/").expect("an answer");
    let words = response.head.lines().filter_map(|line| line.strip_prefix("x-word: "));
    assert_eq!((response.status, words.collect::<Vec<_>>()), (200, vec!["one", "two"]));
}

#[test]
fn filters_may_change_bodies_and_their_length() {
    let text = class(
        r#"
        function Own:start_analyze(txn, chn) filter.register_data_filter(chn) end
        function Own:http_headers(txn, msg)
            msg:set_header("x-filtered", "yes")
            msg:del_header("x-gone")
            if msg:is_resp() then msg:set_body_len("chunked") else msg:set_body_len(8) end
        end
        function Own:http_payload(txn, msg)
            if msg:is_resp() then
                msg:set(msg:body():upper())
                msg:prepend("<")
                msg:append(">")
            else
                assert(msg:input() == 4 and not msg:is_full())
                msg:insert("ab", 2)
                msg:remove(0, 1)
                assert(msg:body(0, 2) == "wa" and msg:body(-2) == "er")
                msg:send("1:")
                msg:forward(1)
                msg:append("!")
            end
        end
    "#,
    );
    let origin = Origin::start(|head, body| {
        let (head, text) = (head.to_ascii_lowercase(), String::from_utf8_lossy(body));
        let shown =
            format!("{} {} {text}", head.contains("x-filtered: yes"), head.contains("content-length: 8"));
        format!("HTTP/1.1 200 OK\r\nX-Gone: 1\r\nContent-Length: {}\r\n\r\n{shown}", shown.len()).into_bytes()
    });
    let (_weir, port) = start("http", "changes", &text, " filter lua.own\n", origin.port());
    let mut client = Client::connect(port);
    // Several requests on one connection: no state of one remains for the next.
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nqwer");
        let response = client.response().expect("an answer");
        assert_eq!(body(&response), "<TRUE TRUE 1:WABER!>");
        assert_eq!((response.header("x-gone"), response.header("x-filtered")), (None, Some("yes")));
        assert_eq!(response.header("content-length"), None);
    }
}

#[test]
fn filters_are_chained_before_compression() {
    let text = class(
        r#"
        function Own:http_headers(txn, msg)
            filter.register_data_filter(self, msg.channel)
            if msg:is_resp() then msg:set_body_len("chunked") end
        end
        function Own:http_payload(txn, msg)
            if msg:is_resp() then msg:set(msg:body() .. #msg:body()) end
        end
    "#,
    );
    let origin = Origin::text("abc");
    let lines = " filter lua.own\n filter lua.own\n filter compression\n compression algo gzip\n";
    let (_weir, port) = start("http", "chain", &text, lines, origin.port());
    assert_eq!(body(&get(port, "/").expect("an answer")), "abc34");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let response = exchange(port, request).expect("an answer");
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    let (packed, _) = unchunked(&response.body);
    assert_eq!(&packed[..2], [0x1f, 0x8b]);
}

#[test]
fn filters_may_hold_back_the_whole_payload() {
    let text = class(
        r#"
        function Own:http_headers(txn, msg)
            if not msg:is_resp() then filter.register_data_filter(self, msg.channel) end
        end
        function Own:http_payload(txn, msg)
            local all = msg:body()
            if #all < 6 then return 0 end
            self.all = all
        end
        function Own:http_end(txn, msg)
            if msg:is_resp() or self.waited then return filter.CONTINUE end
            self.waited = true
            filter.wake_time(50)
            return filter.WAIT
        end
    "#,
    );
    let origin = Origin::start(|_, body| {
        let text = String::from_utf8_lossy(body).into_owned();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
    });
    let (_weir, port) = start("http", "held", &text, " filter lua.own\n", origin.port());
    let mut client = Client::connect(port);
    let since = Instant::now();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.send("3\r\ndef\r\n0\r\n\r\n");
    let response = client.response().expect("an answer");
    assert_eq!((response.status, response.text()), (200, "abcdef".to_owned()));
    // Minus the rounding of the deadline clock.
    assert!(since.elapsed() >= Duration::from_millis(45), "the end was waited for");
}

#[test]
fn filters_may_wait_at_heads_and_append_at_the_end() {
    let text = class(
        r#"
        function Own:http_headers(txn, msg)
            if not self.waited then
                self.waited = 0
                filter.wake_time(20)
                return filter.WAIT
            end
            if msg:is_resp() then
                filter.register_data_filter(self, msg.channel)
                msg:set_body_len(17)
            end
        end
        function Own:http_end(txn, msg)
            self.waited = self.waited + 1
            if self.waited == 3 then return msg:set_eom() end
            msg:unset_eom()
            msg:append("more " .. self.waited .. ";")
            filter.wake_time(5)
        end
    "#,
    );
    let origin = Origin::text("yes");
    let (_weir, port) = start("http", "waits", &text, " filter lua.own\n", origin.port());
    let since = Instant::now();
    let response = get(port, "/").expect("an answer");
    assert_eq!((response.status, response.text()), (200, "yesmore 1;more 2;".to_owned()));
    // Minus the rounding of the deadline clock.
    assert!(since.elapsed() >= Duration::from_millis(15), "it waited");
    let response = exchange(port, "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("a head");
    assert_eq!(response.header("content-length"), Some("17"));
}

#[test]
fn filter_errors_end_the_stream_and_name_file_and_line() {
    let text = class(
        r#"
        function Own:http_headers(txn, msg)
            local path = txn.sf:path()
            if path == "/error" then error("it broke") end
            if path == "/endless" then while true do end end
            if path == "/said" then return filter.ERROR end
            if path == "/sleep" then core.msleep(1) end
            if path == "/foreign" then msg.channel:append("x") end
            if path == "/longer" and msg:is_resp() then filter.register_data_filter(self, msg.channel) end
        end
        function Own:http_payload(txn, msg) msg:append("more") end
    "#,
    );
    let origin = Origin::text("answer");
    let (weir, port) = start("http", "wrong", &text, " filter lua.own\n", origin.port());
    for path in ["/error", "/endless", "/said", "/sleep", "/foreign"] {
        assert_eq!(get(port, path).expect("an answer").status, 400, "{path}");
    }
    let said = weir.messages();
    for part in [
        "wrong.lua:7: it broke",
        "execution timeout at",
        "Lua filter 'own': yield not allowed",
        "wrong.lua:11: ",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // A body that is longer than announced is never delivered as complete.
    let mut client = Client::connect(port);
    client.send("GET /longer HTTP/1.1\r\nHost: a\r\n\r\n");
    let all = String::from_utf8_lossy(&client.read_to_end()).into_owned();
    assert!(!all.contains("answermore"), "{all}");
    assert_eq!(get(port, "/").expect("others go on").text(), "answer");
}

#[test]
fn filters_may_change_tcp_streams() {
    let text = r#"
        local Own = {}
        Own.__index = Own
        function Own:new() return setmetatable({}, Own) end
        function Own:start_analyze(txn, chn) filter.register_data_filter(self, chn) end
        function Own:tcp_payload(txn, chn)
            if chn:is_resp() then
                chn:set(chn:data():upper())
            else
                local line = chn:line()
                if line:sub(-1) ~= "\n" then return 0 end
                chn:insert(#line .. ":", 0)
            end
        end
        core.register_filter("own", Own, function(own) return own end)
    "#;
    let origin = Origin::raw(|mut stream| {
        use std::io::{Read, Write};
        let mut all = [0; 1024];
        while let Ok(n) = stream.read(&mut all)
            && n > 0
        {
            let _ = stream.write_all(&all[..n]);
        }
    });
    let (_weir, port) = start("tcp", "bytes", text, " filter lua.own\n", origin.port());
    let mut client = Client::connect(port);
    client.send("he").send("llo\n").shut();
    assert_eq!(String::from_utf8_lossy(&client.read_to_end()), "6:HELLO\n");
}

#[test]
fn filter_line_must_match_a_filter_of_its_mode() {
    let text = r#"
        local Own = { flags = filter.FLT_CFG_FL_HTX }
        function Own:new() return {} end
        core.register_filter("own", Own, function(own, args)
            assert(args[1] ~= "bad", "bad words")
            if args[1] == "none" then return nil end
            return own
        end)
        core.register_filter("raw", { new = function() end }, function(own) return own end)
        core.register_filter("bare", {}, function(own) return own end)
    "#;
    let path = script("lines", text);
    let read = |line: &str| {
        let text = format!(
            "global\n tune.lua.bool-sample-conversion normal\n lua-load {}\ndefaults\n mode http\n timeout client 1s\n\
             timeout connect 1s\n timeout server 1s\nlisten l\n bind 127.0.0.1:{}\n filter {line}\n http-request deny\n",
            path.display(),
            free_port()
        );
        let directory = scratch("lua-filters");
        let file = directory.join("lines.cfg");
        std::fs::write(&file, text).expect("a file");
        let verdict = check(&file, &directory);
        (verdict.accepted(), verdict.messages)
    };
    for (line, said) in [
        ("lua.own", None),
        ("lua.own none", None),
        ("lua.owm", Some("unknown keyword 'lua.owm'")),
        ("lua.own bad", Some("lines.lua:5: bad words")),
        ("lua.raw", Some("FLT_CFG_FL_HTX")),
        ("lua.bare", Some("no function `new`")),
    ] {
        let (is_good, messages) = read(line);
        assert_eq!(is_good, said.is_none(), "{line}: {messages}");
        assert!(said.is_none_or(|said| messages.contains(said)), "{line}: {messages}");
    }
}

#[test]
fn large_bodies_pass_per_worker_filters_in_any_protocol() {
    let text = class(
        r#"
        function Own:start_analyze(txn, chn)
            self.seen = { [true] = 0, [false] = 0 }
            filter.register_data_filter(self, chn)
        end
        function Own:http_payload(txn, msg)
            local body = msg:body()
            self.seen[msg:is_resp()] = self.seen[msg:is_resp()] + #body
            -- What is passed on in two pieces comes back the second time.
            if #body > 1000 and not self.halved then
                self.halved = true
                return 1000
            end
            self.halved = false
        end
        function Own:end_analyze(txn, chn)
            if chn:is_resp() then core.Alert("seen " .. self.seen[false] .. " " .. self.seen[true]) end
        end
    "#,
    );
    let origin = Origin::start(|_, body| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    });
    let (path, port, inner) = (script("large", &text), free_port(), free_port());
    let configuration = format!(
        "global\n nbthread 2\n tune.lua.bool-sample-conversion normal\n lua-load-per-thread {}\n\
         defaults\n mode http\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         listen l\n bind 127.0.0.1:{port}\n filter lua.own\n server s 127.0.0.1:{inner} proto h2\n\
         listen i\n bind 127.0.0.1:{inner} proto h2\n filter lua.own\n server s 127.0.0.1:{}\n",
        path.display(),
        origin.port()
    );
    let weir = Weir::start(&configuration, &[port, inner]);
    let large: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
    let mut client = Client::connect(port);
    for _ in 0..2 {
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", large.len()));
        client.send(&large);
        let response = client.response().expect("an answer");
        assert!(response.status == 200 && response.body == large);
    }
    // Each byte was seen; returned bytes were seen twice.
    let told = || weir.messages().lines().filter(|line| line.contains("seen ")).count();
    assert!(eventually(|| told() == 4), "{}", weir.messages());
}
