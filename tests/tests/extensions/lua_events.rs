//! Events that scripts subscribe to (`core.event_sub`, `Server.event_sub`, `Patref.event_sub`), and e-mails that a script sends.

use crate::lua_scripts::script;
use weir_tests::client::get;
use weir_tests::{Origin, Weir, eventually, free_port, scratch};

/// Makes notes of these scripts available through a command.
const NOTES: &str = r#"
    local notes = {}
    local function note(...) notes[#notes + 1] = table.concat({ ... }, " ") end
    core.register_cli({ "notes" }, "notes : what was noted", function(applet)
        applet:send(table.concat(notes, "\n") .. "\n")
    end)
"#;

/// Starts a proxy with a script and these lines.
fn start(name: &str, text: &str, lines: &str) -> Weir {
    let (path, port) = (script(name, &format!("{NOTES}{text}")), free_port());
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
         defaults\n mode http\n timeout client 3s\n timeout connect 3s\n timeout server 3s\n\
         frontend f\n bind 127.0.0.1:{port}\n http-request return status 204\n{lines}",
        path.display()
    );
    Weir::start(&text, &[port])
}

fn notes(weir: &Weir) -> Vec<String> {
    weir.ask("notes").trim().lines().map(str::to_owned).collect()
}

#[test]
fn scripts_receive_server_events() {
    let text = r#"
        local function flags(admin)
            local all = {}
            for name in pairs(admin) do all[#all + 1] = name end
            table.sort(all)
            return table.concat(all, ",")
        end
        local of_one
        core.register_init(function()
            core.event_sub({ "SERVER" }, function(event, data, sub, when)
                local more = ""
                if data.state then more = data.state.old_state .. ">" .. data.state.new_state .. tostring(data.state.admin) end
                if data.admin then more = flags(data.admin.old_admin) .. ">" .. flags(data.admin.new_admin) end
                assert(when > 1600000000 and data.proxy_name == "b" and type(data.puid) == "number")
                note(event, data.name, more, tostring(data.reference and data.reference:get_name()))
            end)
            of_one = core.backends["b"].servers["t"]:event_sub({ "SERVER_UP", "SERVER_DOWN" }, function(event, data, sub)
                note("one", event, data.name)
                if event == "SERVER_UP" then sub:unsub() end
            end)
        end)
    "#;
    let weir = start(
        "servers",
        text,
        "backend b\n balance roundrobin\n server s 127.0.0.1:1\n server t 127.0.0.1:2\n",
    );
    for command in [
        "set server b/s state maint",
        "set server b/s state ready",
        "set server b/s state drain",
        "set server b/t health down",
        "set server b/t health up",
        "set server b/t health down",
        "add server b/new 127.0.0.1:3",
        "del server b/new",
    ] {
        weir.ask(command);
    }
    let mut expected = vec![
        "SERVER_ADMIN s >FMAINT,MAINT s",
        "SERVER_STATE s RUNNING>STOPPEDtrue s",
        "SERVER_DOWN s  s",
        "SERVER_ADMIN s FMAINT,MAINT> s",
        "SERVER_STATE s STOPPED>RUNNINGtrue s",
        "SERVER_UP s  s",
        "SERVER_ADMIN s >DRAIN,FDRAIN s",
        "SERVER_STATE t RUNNING>STOPPEDfalse t",
        "SERVER_DOWN t  t",
        "SERVER_STATE t STOPPED>RUNNINGfalse t",
        "SERVER_UP t  t",
        "SERVER_STATE t RUNNING>STOPPEDfalse t",
        "SERVER_DOWN t  t",
        "SERVER_ADD new  new",
        "SERVER_DEL new  nil",
        "one SERVER_DOWN t",
        "one SERVER_UP t",
    ];
    assert!(eventually(|| notes(&weir).len() >= expected.len()), "{:#?}", notes(&weir));
    let (mut all, mut of_one) = (notes(&weir), Vec::new());
    all.retain(|line| {
        let is_one = line.starts_with("one ");
        if is_one {
            of_one.push(line.clone());
        }
        !is_one
    });
    // Events are delivered in order; if a server is gone when its addition is reported, it has no object.
    all.iter_mut().for_each(|line| *line = line.replace("SERVER_ADD new  nil", "SERVER_ADD new  new"));
    all.extend(of_one);
    assert_eq!(all, std::mem::take(&mut expected));
}

#[test]
fn check_events_contain_the_result() {
    let text = r#"
        core.event_sub({ "SERVER_CHECK", "SERVER_STATE" }, function(event, data)
            local check = data.check or data.state.check
            note(event, check.result, check.reason.short, tostring(check.agent), check.health.cur, check.health.rise, check.health.fall)
        end)
    "#;
    let nobody = free_port();
    let lines = format!("backend b\n server s 127.0.0.1:{nobody} check inter 50ms fall 2 rise 1\n");
    let weir = start("checks", text, &lines);
    let expected = ["SERVER_CHECK FAILED L4CON false 0 1 2", "SERVER_STATE FAILED L4CON false 0 1 2"];
    assert!(eventually(|| notes(&weir).len() >= 2), "{:?}", notes(&weir));
    assert_eq!(notes(&weir), expected);
}

#[test]
fn failing_handlers_stay_subscribed_and_misuse_is_reported() {
    let text = r#"
        core.register_init(function()
            core.event_sub({ "SERVER_ADMIN" }, function(event, data, sub)
                core.msleep(1)
                note(event)
                error("not this one")
            end)
        end)
        local ok, why = pcall(core.event_sub, { "SERVER_GONE" }, print)
        note(tostring(ok), why)
        local ok, why = pcall(core.event_sub, { "SERVER_UP" })
        note(tostring(ok), why)
    "#;
    let weir = start("handlers", text, "backend b\n server s 127.0.0.1:1\n");
    weir.ask("set server b/s state maint");
    weir.ask("set server b/s state ready");
    assert!(eventually(|| notes(&weir).len() == 4), "{:?}", notes(&weir));
    let all = notes(&weir);
    assert!(all[0].starts_with("false ") && all[0].contains("unknown event `SERVER_GONE`"), "{all:?}");
    assert!(all[1].contains("takes the function"), "{all:?}");
    assert_eq!(all[2..], ["SERVER_ADMIN", "SERVER_ADMIN"]);
    assert!(weir.says("handlers.lua:12: not this one"), "{}", weir.messages());
}

#[test]
fn pattern_lists_change_atomically_and_emit_events() {
    let map = scratch("lua-events").file("names.map");
    std::fs::write(&map, "a 1\nb 2\n").expect("a map");
    let text = format!(
        r#"
        local list
        core.register_init(function()
            list = core.get_patref("{}")
            list:event_sub({{ "PAT_REF" }}, function(event, data) note(event, tostring(data)) end)
        end)
        core.register_cli({{ "change" }}, "change : changes it", function(applet)
            assert(list:is_map() and list:get_name():find("names.map") and list["a"] == "1" and list["none"] == nil)
            assert(list:add("c", "3") and list:set("a", "4") and list:set("new", "5", true))
            assert(list:del("b") and not list:del("b"))
            local ok, why = list:set("none", "1")
            assert(ok == nil and why)
            list:prepare()
            list:add_bulk({{ x = "1", y = "2" }})
            assert(list["x"] == "1" and list["a"] == nil)
            assert(list:commit() and list["y"] == "2")
            local count = 0
            for key, value in pairs(list) do count = count + tonumber(value) end
            list:prepare()
            list:add("z", "1")
            list:giveup()
            applet:send(count .. tostring(list["z"]) .. "\n")
            list:purge()
        end)
    "#,
        map.display()
    );
    let lines = format!(
        "backend b\n http-request set-header x %[path,map({})]\n server s 127.0.0.1:1\n",
        map.display()
    );
    let weir = start("patterns", &text, &lines);
    assert_eq!(weir.ask("change").trim(), "3nil");
    let expected = [
        "PAT_REF_ADD nil",
        "PAT_REF_SET nil",
        "PAT_REF_ADD nil",
        "PAT_REF_DEL nil",
        "PAT_REF_COMMIT nil",
        "PAT_REF_CLEAR nil",
    ];
    assert!(eventually(|| notes(&weir).len() >= expected.len()), "{:?}", notes(&weir));
    assert_eq!(notes(&weir), expected);
}

#[test]
fn scripts_see_tables_and_listeners_and_change_servers() {
    let origin = Origin::text("x");
    let port = free_port();
    let text = r#"
        core.register_cli({ "look" }, "look : at things", function(applet)
            local proxy = core.proxies["t"]
            local table, info = proxy.stktable, proxy.stktable:info()
            assert(info.type == "string" and info.data.gpc0 == -1 and info.data.http_req_rate == 10000 and info.used == 2)
            local one = table:lookup("/one")
            assert(one.gpc0 == 0 and one.http_req_cnt == 2 and one.use >= 0 and one.expire > 0, one.http_req_cnt)
            assert(table:lookup("/none") == nil)
            local all = table:dump()
            assert(all["/one"].http_req_cnt == 2 and all["/two"].http_req_cnt == 1)
            local some = table:dump({ { "http_req_cnt", "gt", 1 } })
            assert(some["/one"] and not some["/two"])
            local ok, why = pcall(table.dump, table, { { "gpc0", "is", 1 } })
            assert(not ok and why:find("unknown operator"), why)
            local stats = proxy.listeners["here"]:get_stats()
            assert(stats.pxname == "t" and stats.svname == "here")
            local server = core.backends["t"].servers["s"]
            assert(server:get_rid() == 0 and not server:is_dynamic() and server.puid == "1")
            assert(server:set_addr("127.0.0.9", 80) == nil and server:get_addr() == "127.0.0.9:80")
            assert(server:agent_force_up():find("agent checks are not enabled"))
            server:check_force_down()
            assert(proxy:get_srv_act() == 0)
            server:check_force_up()
            assert(proxy:get_srv_act() == 1)
            server:set_drain()
            server:set_maint()
            server:set_ready()
            local follower = core.backends["u"].servers["follows"]
            assert(follower:tracking():get_name() == "s" and server:get_trackers()[1]:get_name() == "follows")
            core.proxies["t"]:pause()
            applet:send("all is well\n")
        end)
        core.register_cli({ "wake" }, "wake : by a queue or by time", function(applet)
            local queue = core.queue()
            queue:alarm()
            core.register_task(function() core.msleep(5) queue:push(1) end)
            core.wait(5000)
            local first = queue:size()
            core.wait(5)
            applet:send("woken " .. first .. "\n")
        end)
    "#;
    let lines = format!(
        "listen t\n bind 127.0.0.1:{port} name here\n stick-table type string size 100 expire 1h store gpc0,http_req_cnt,http_req_rate(10s)\n \
         http-request track-sc0 path\n server s 127.0.0.1:{} check inter 1h\nbackend u\n server follows 127.0.0.1:1 track t/s\n",
        origin.port()
    );
    let weir = start("things", text, &lines);
    for path in ["/one", "/two", "/one"] {
        get(port, path).expect("an answer");
    }
    assert_eq!(weir.ask("look").trim(), "all is well", "{}", weir.messages());
    for change in [
        "Server t/s is DOWN, changed from Lua script.",
        "Server t/s enters drain state",
        "maintenance",
        "Server t/s is UP/READY (leaving forced",
    ] {
        assert!(weir.says(change), "{change}: {}", weir.messages());
    }
    assert_eq!(weir.ask("wake").trim(), "woken 1", "{}", weir.messages());
}

#[test]
fn after_a_reload_only_new_scripts_receive_events() {
    let (port, map) = (free_port(), scratch("lua-events").file("heard"));
    let path = scratch("lua-events").file("reload.lua");
    let write = |word: &str| {
        let text = format!(
            r#"
            local count = 0
            core.event_sub({{ "SERVER_ADMIN" }}, function(event, data)
                count = count + 1
                local file = io.open("{}", "a")
                file:write("{word}" .. count .. " ")
                file:close()
            end)
        "#,
            map.display()
        );
        std::fs::write(&path, text).expect("scripts can be written");
    };
    write("old");
    let configuration = |server: &str| {
        format!(
            "global\n nbthread 2\n stats socket runtime level admin\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
             defaults\n mode http\n timeout client 3s\n timeout connect 3s\n timeout server 3s\n\
             frontend f\n bind 127.0.0.1:{port}\n http-request return status 204\nbackend b\n server s 127.0.0.1:1\n{server}",
            path.display()
        )
    };
    let heard = || std::fs::read_to_string(&map).unwrap_or_default();
    let weir = Weir::start(&configuration(""), &[port]);
    weir.ask("set server b/s state maint");
    assert!(eventually(|| heard() == "old1 "), "{}", heard());
    write("new");
    let file = weir.directory().join("haproxy.cfg");
    std::fs::write(file, configuration(" server t 127.0.0.1:2\n")).expect("the file is the test's");
    let said = weir.ask("reload");
    weir.ask("set server b/s state ready");
    weir.ask("set server b/s state maint");
    assert!(eventually(|| heard() == "old1 new1 new2 "), "{said}{}{}", heard(), weir.messages());
}
