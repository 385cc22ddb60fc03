//! Endless scripts are stopped with an error that names file and line, while other requests continue.

use std::time::{Duration, Instant};

use weir_tests::client::{Client, get};
use weir_tests::{Scratch, Weir, eventually, free_port, scratch};

/// Starts a proxy with one worker that runs the action `lua.try` with the path of each request except `/`.
fn start(name: &str, text: &str, global: &str) -> (Weir, u16, Scratch) {
    let (path, port) = (scratch("lua-limits").file(&format!("{name}.lua")), free_port());
    std::fs::write(&path, text).expect("scripts can be written");
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n tune.lua.log.stderr on\n {global}\n lua-load {}\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n http-request lua.try unless {{ path / }}\n \
         http-request return status 200 hdr x-got \"%[var(txn.got)]\"\n",
        path.display()
    );
    (Weir::start(&text, &[port]), port, path)
}

/// Returns a script whose action runs the function of `cases` that the path names.
fn trying(cases: &str) -> String {
    format!(
        "local cases = {{}}\n{cases}\ncore.register_action('try', {{ 'http-req' }}, function(txn)\n \
         local got = cases[txn.sf:path():sub(2)](txn)\n txn:set_var('txn.got', got or '')\nend)\n"
    )
}

const LIMITS: &str =
    "tune.lua.session-timeout 300ms\n tune.lua.burst-timeout 200ms\n tune.lua.task-timeout 300ms";

/// Runs each case; all must end with an error of that file, while other requests are answered.
fn all_are_ended(name: &str, cases: &str) {
    let (weir, port, _path) = start(name, &trying(cases), LIMITS);
    let names = cases.lines().filter_map(|line| line.trim().strip_prefix("cases.")?.split_once(' '));
    for (case, _) in names {
        let logged = || weir.messages().matches("execution timeout at").count();
        let (before, began) = (logged(), Instant::now());
        let mut stuck = Client::connect(port);
        stuck.send(format!("GET /{case} HTTP/1.1\r\nHost: a\r\n\r\n"));
        for _ in 0..3 {
            assert_eq!(get(port, "/").expect("an answer").status, 200, "beside {case}");
        }
        assert_eq!(stuck.response().expect("an answer").status, 200, "{case}");
        assert!(eventually(|| logged() > before), "{case}: {}", weir.messages());
        assert!(began.elapsed() < Duration::from_secs(10), "{case}: {:?}", began.elapsed());
    }
    let messages = weir.messages();
    let mut timeouts = messages.lines().filter(|line| line.contains("execution timeout at"));
    let place = format!("{name}.lua:");
    assert!(timeouts.all(|line| line.contains(&place)), "{messages}");
}

#[test]
fn endless_tasks_yield_and_end_at_their_timeout() {
    let text = trying("") + "core.register_task(function() while true do end end)\n";
    let (weir, port, _path) = start("tasks", &text, "");
    assert_eq!(get(port, "/").expect("an answer").status, 200, "without a limit");
    drop(weir);
    let (weir, port, _path) = start("tasks", &text, LIMITS);
    assert_eq!(get(port, "/").expect("an answer").status, 200);
    assert!(eventually(|| weir.says("Lua task: execution timeout at")), "{}", weir.messages());
}

#[test]
fn looping_error_handlers_are_stopped() {
    all_are_ended(
        "handlers",
        "local function loop() while true do end end
        cases.killed = function() xpcall(loop, loop) end
        cases.failed = function() xpcall(error, loop, 'x') end
        cases.again = function() while true do xpcall(loop, function() while true do pcall(loop) end end) end end
        local thrown = setmetatable({}, { __tostring = function() while true do pcall(loop) end end })
        cases.thrown = function() error(thrown) end
        cases.thrown_again = function() error(thrown) end
        cases.after = function() coroutine.wrap(error)(thrown) end
        cases.inner = function() xpcall(function() xpcall(loop, loop) end, loop) end",
    );
}

#[test]
fn coroutines_that_catch_the_abort_are_stopped() {
    all_are_ended(
        "coroutines",
        "local function loop() while true do end end
        cases.deep = function()
            local function more() while true do coroutine.resume(coroutine.create(more)) end end
            more()
        end
        cases.wrapped = function()
            local function more() while true do pcall(coroutine.wrap(more)) pcall(coroutine.wrap(loop)) end end
            more()
        end
        cases.many = function()
            local function more(depth)
                for _ = 1, 100 do if depth > 0 then coroutine.wrap(more)(depth - 1) end end
            end
            more(9)
        end",
    );
}

#[test]
fn recursion_that_catches_errors_is_stopped() {
    // Hundreds of thousands of calls, each of which catches the error of the next and calls again.
    all_are_ended(
        "recursion",
        "local function loop() while true do end end
        cases.pcall = function() local function f() pcall(f) f() end f() end
        cases.xpcall = function() local function f() xpcall(f, print) f() end f() end
        cases.coroutine = function() local function f() pcall(coroutine.wrap(f)) f() end f() end
        local meta = {}
        local function object() return setmetatable({}, meta) end
        local function again(a, b) pcall(meta.run, a, b) return meta.run(a, b) end
        local function set(name, run) meta = { [name] = again, run = run } return object(), object() end
        cases.index = function() local a = set('__index', function(a) return a.x end) return a.x end
        cases.call = function() local a = set('__call', function(a) return a() end) return a() end
        cases.concat = function() local a, b = set('__concat', function(a, b) return a .. b end) return a .. b end
        cases.less = function() local a, b = set('__lt', function(a, b) return a < b end) return a < b end
        cases.equal = function() local a, b = set('__eq', function(a, b) return a == b end) return a == b end
        cases.length = function() local a = set('__len', function(a) return #a end) return #a end
        cases.pairs = function() local a = set('__pairs', function(a) return pairs(a) end) return pairs(a) end
        cases.closed = function()
            local function f() local held <close> = setmetatable({}, { __close = function() pcall(f) f() end }) end
            f()
        end
        cases.sort = function()
            local depth = 0
            local function f()
                depth = depth + 1
                if depth > 100000 then table.sort({ 4, 3, 2, 1 }, function() while true do pcall(loop) end end) end
                pcall(f)
                f()
            end
            f()
        end
        cases.gsub = function() local function f() return (('aa'):gsub('a', function() pcall(f) return f() end)) end f() end",
    );
}

#[test]
fn close_handlers_and_finalizers_are_stopped() {
    all_are_ended(
        "closed",
        "local function loop() while true do end end
        local looping = { __close = loop, __gc = loop }
        local co
        local function open() local held <close> = setmetatable({}, looping) loop() end
        cases.left = function() local held <close> = setmetatable({}, looping) end
        cases.failed = function() pcall(open) end
        cases.coroutine = function() co = coroutine.create(open) while true do coroutine.resume(co) end end
        cases.suspended = function()
            local co = coroutine.create(function() local held <close> = setmetatable({}, looping) coroutine.yield() end)
            coroutine.resume(co)
            coroutine.close(co)
        end
        cases.collected = function() setmetatable({}, looping) collectgarbage() end
        cases.dropped = function()
            setmetatable({}, { __gc = loop })
            local all
            for i = 1, 1e6 do all = { i } end
            core.yield()
            error('execution timeout at closed.lua: not reached')
        end",
    );
}

#[test]
fn endless_library_functions_are_stopped() {
    all_are_ended(
        "library",
        "local long, many = ('a'):rep(40), ('a-'):rep(30) .. 'b'
        cases.find = function() return long:find(many) end
        cases.match = function() return long:match(('(a-)'):rep(20) .. 'b') end
        cases.gmatch = function() for _ in long:gmatch(many) do end end
        cases.gsub = function() return (long:gsub(many, 'c')) end
        cases.gsub_table = function() return (long:gsub(many, {})) end
        cases.gsub_function = function() return (long:gsub(many, print)) end
        cases.caught = function() while true do pcall(string.find, long, many) end end
        local big = ('x'):rep(20000000)
        cases.utf8 = function() while true do utf8.len(big) end end
        cases.reverse = function() while true do big:reverse() big:upper() end end
        cases.format = function() while true do ('%s%s'):format(big, big) end end
        cases.tonumber = function() local number = ('1'):rep(20000000) while true do tonumber(number, 10) end end
        cases.unpack = function() while true do pcall(table.unpack, {}, 1, 900000) end end
        cases.read = function() return io.open('/dev/zero'):read('a') end
        cases.read_more = function() local file = io.open('/dev/zero') while true do file:read(50000000) end end
        cases.rep = function() while true do string.rep('', math.maxinteger) end end
        cases.move = function() table.move({}, 1, math.maxinteger - 1, 2) end
        local function long_one() return setmetatable({}, { __len = function() return 1 << 50 end }) end
        cases.insert = function() table.insert(long_one(), 1, 1) end
        cases.remove = function() table.remove(long_one(), 1) end
        local texts = { __index = function() return '' end, __len = function() return 1 << 50 end }
        cases.concat = function() table.concat(setmetatable({}, texts)) end
        local same = { __index = tostring, __newindex = rawequal, __len = function() return (1 << 31) - 2 end }
        cases.sort = function() table.sort(setmetatable({}, same), rawequal) end",
    );
}

#[test]
fn bounded_library_functions_behave_as_in_lua() {
    let cases = r#"
        local function same(...)
            local parts = {}
            for _, value in ipairs({ ... }) do parts[#parts + 1] = tostring(value) end
            return table.concat(parts, "|")
        end
        local text = ("key=value; "):rep(200)
        cases.find = function() return same(text:find("(%w+)=()(%w+); $")) end
        cases.plain = function() return same(text:find("value; key", 500, true)) end
        cases.match = function() return same(text:match("^(.-)=(.-);")) end
        cases.gmatch = function()
            local count = 0
            for name, value in text:gmatch("(%w+)=(%w+)") do count = count + #name + #value end
            return count .. ""
        end
        cases.gsub = function() return same(#text:gsub("(%w+)=(%w+)", "%2<%1>"), select(2, text:gsub("%w*", ""))) end
        cases.called = function()
            local result, count = text:gsub("(%w+)=(%w+)", function(name, value)
                core.yield()
                return value == "value" and name:upper()
            end, 150)
            return same(#result, count, result:sub(1, 10))
        end
        cases.looked = function() return same(text:gsub("^(%w*)(%w+)=", { ke = "K:" })):sub(1, 12) end
        cases.thrown = function()
            local _, thrown = pcall(string.gsub, text, "%w*=", function() error({ code = 7 }) end)
            return same(thrown.code)
        end
        cases.malformed = function() return select(2, pcall(string.find, text, "(.-)(")):match("[^:]+$") end
        cases.read = function()
            local file = io.open("/etc/passwd")
            local all, size = file:read("a"), file:seek()
            file:seek("set")
            local again, none, empty = file:read(1000000), file:read(1000000), file:read("a")
            file:close()
            local ok, why = pcall(file.read, file, "a")
            return same(all == again, #all == size, tostring(none), empty == "", ok, why:match("closed file"))
        end
        cases.unpacked = function() return same(table.unpack({ 1, 2, nil, 4 }, 2, 4), select('#', table.unpack({ 1, 2 }))) end
        cases.moved = function()
            local list = {}
            for i = 1, 30000 do list[i] = i end
            table.insert(list, 1, 0)
            local removed = table.remove(list, 2)
            table.move(list, 1, 30000, 2)
            return same(removed, #list, list[1], list[2], list[30001], #table.concat(list, ","))
        end
        cases.sorted = function()
            local list = {}
            for i = 1, 20000 do list[i] = (i * 7919) % 20011 end
            table.sort(list)
            local up = list[1] <= list[2] and list[19999] <= list[20000]
            table.sort(list, function(a, b) return a > b end)
            return same(up, list[1] >= list[2])
        end
        cases.handled = function()
            local ok, why = xpcall(error, function(why) return "handled " .. why end, "x", 0)
            return same(ok, why)
        end
        cases.closed = function()
            local log = {}
            local co = coroutine.create(function()
                local held <close> = setmetatable({}, { __close = function() log[1] = "closed" end })
                coroutine.yield()
            end)
            coroutine.resume(co)
            return same(coroutine.close(co), log[1], coroutine.status(co))
        end
        cases.finalized = function()
            local log = {}
            local meta = { __gc = function(own) log[#log + 1] = own.name end }
            setmetatable({ name = "one" }, meta)
            local kept = setmetatable({ name = "kept" }, meta)
            setmetatable({ name = "two" }, meta)
            collectgarbage()
            collectgarbage()
            return same(log[1], log[2], #log, getmetatable(kept) == meta, meta.__gc ~= nil)
        end
    "#;
    let (weir, port, _path) = start("same", &trying(cases), "");
    let wanted = [
        ("find", "2190|2200|key|2194|value"),
        ("plain", "500|509"),
        ("match", "key|value"),
        ("gmatch", "1600"),
        ("gsub", "2400|601"),
        ("called", "1300|150|KEY; KEY; "),
        ("looked", "K:value; key"),
        ("thrown", "7"),
        ("malformed", " unfinished capture"),
        ("read", "true|true|nil|true|false|closed file"),
        ("unpacked", "2|2"),
        ("moved", "1|30001|0|0|30000|168895"),
        ("sorted", "true|true"),
        ("handled", "false|handled x"),
        ("closed", "true|closed|dead"),
        ("finalized", "two|one|2|true|true"),
    ];
    for (case, wanted) in wanted {
        let response = get(port, &format!("/{case}")).expect("an answer");
        assert_eq!(response.header("x-got"), Some(wanted.trim()), "{case}: {}", weir.messages());
    }
}
