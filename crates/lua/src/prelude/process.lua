-- Functions independent of a request: tasks, queues, string building, proxies and servers, sockets, requests made by scripts.

local native, scheduling = ...

local setmetatable, type, error, tostring, pairs, ipairs = setmetatable, type, error, tostring, pairs, ipairs
local select, tonumber, rawget, running = select, tonumber, rawget, coroutine.running
local wait = scheduling.wait

local SLEEP, FINISH, CHANGE, SOCKET, ASK, COMMAND = 2, 7, scheduling.CHANGE, 9, 10, 11

local function class(name, members)
	native.classes[name] = members
	return { __index = members, __tostring = function() return "HAProxy class " .. name end }
end

core.sleep = function(seconds) wait(SLEEP, seconds * 1000) end
core.msleep = function(milliseconds) wait(SLEEP, milliseconds) end
core.yield = function() wait(scheduling.TURN) end
core.done = function(...) wait(FINISH, ...) end
core.set_nice = function() end
core.register_task = function(run, ...) native.register_task(run, ...) end
core.use_native_mailers_config = native.use_mailers

-- Signals wake waiting coroutines: each coroutine waits for a signal that others give.

local bells = setmetatable({}, { __mode = "k" })

local function bell_of(co)
	local bell = bells[co]
	if bell == nil then
		bell = { signal = native.signal(), seen = 0 }
		bells[co] = bell
	end
	return bell
end

core.wait = function(milliseconds)
	local bell = bell_of((running()))
	wait(CHANGE, bell.signal, bell.seen, milliseconds)
	bell.seen = bell.signal:count()
end

-- Concat

local Concat = class("Concat", {
	add = function(self, text) self[#self + 1] = tostring(text) end,
	dump = function(self)
		local text = native.concat(self)
		for index = #self, 2, -1 do
			self[index] = nil
		end
		self[1] = text
		return text
	end,
})

core.concat = function() return setmetatable({}, Concat) end

-- Queue

local Queue = class("Queue", {
	size = function(self) return self.last - self.first + 1 end,
	push = function(self, item)
		if item == nil then
			return false
		end
		self.last = self.last + 1
		self[self.last] = item
		self.signal:notify()
		local waiting = self.waiting
		if waiting then
			self.waiting = nil
			for bell in pairs(waiting) do
				bell:notify()
			end
		end
		return true
	end,
	alarm = function(self)
		self.waiting = self.waiting or {}
		self.waiting[bell_of((running())).signal] = true
	end,
	pop = function(self)
		if self.first > self.last then
			return nil
		end
		local item = self[self.first]
		self[self.first] = nil
		self.first = self.first + 1
		return item
	end,
	pop_wait = function(self)
		while true do
			local seen = self.signal:count()
			local item = self:pop()
			if item ~= nil then
				return item
			end
			wait(CHANGE, self.signal, seen)
		end
	end,
})

core.queue = function()
	return setmetatable({ first = 1, last = 0, signal = native.signal() }, Queue)
end

-- Proxies and servers

local proxies

local function of_server(what)
	return function(self, value) return native.server(self.backend, self.name, what, value) end
end

local command = native.command

local function place(server) return server.backend .. "/" .. server.name end

local function server(backend, name)
	local proxy = proxies(true)[backend]
	return proxy and proxy.servers[name]
end

-- For a runtime socket command, scripts get nil if it succeeded, otherwise the error.
local Server = {
	get_name = function(self) return self.name end,
	get_puid = of_server("puid"),
	get_rid = of_server("rid"),
	is_draining = of_server("draining"),
	is_backup = of_server("backup"),
	is_dynamic = of_server("dynamic"),
	get_cur_sess = of_server("sessions"),
	get_pend_conn = of_server("pending"),
	get_maxconn = function(self) return native.server(self.backend, self.name, "maxconn") end,
	set_maxconn = of_server("maxconn"),
	get_weight = function(self) return native.server(self.backend, self.name, "weight") end,
	set_weight = of_server("weight"),
	get_addr = function(self) return native.server(self.backend, self.name, "addr") end,
	set_addr = function(self, address, port)
		if port == nil then
			return command("set", "server", place(self), "addr", address)
		end
		return command("set", "server", place(self), "addr", address, "port", tostring(port))
	end,
	set_drain = function(self) native.server(self.backend, self.name, "drain") end,
	set_maint = function(self) native.server(self.backend, self.name, "maint") end,
	set_ready = function(self) native.server(self.backend, self.name, "ready") end,
	get_stats = function(self) return native.statistics(true, self.backend, self.name) end,
	get_proxy = function(self) return proxies(true)[self.backend] end,
	shut_sess = function(self) return command("shutdown", "sessions", "server", place(self)) end,
	check_enable = function(self) return command("enable", "health", place(self)) end,
	check_disable = function(self) return command("disable", "health", place(self)) end,
	check_force_up = function(self) return command("set", "server", place(self), "health", "up") end,
	check_force_nolb = function(self) return command("set", "server", place(self), "health", "stopping") end,
	check_force_down = function(self) return command("set", "server", place(self), "health", "down") end,
	agent_enable = function(self) return command("enable", "agent", place(self)) end,
	agent_disable = function(self) return command("disable", "agent", place(self)) end,
	agent_force_up = function(self) return command("set", "server", place(self), "agent", "up") end,
	agent_force_down = function(self) return command("set", "server", place(self), "agent", "down") end,
	tracking = function(self)
		local pair = native.server(self.backend, self.name, "tracked")
		return pair and server(pair[1], pair[2])
	end,
	get_trackers = function(self)
		local all = {}
		for index, pair in pairs(native.server(self.backend, self.name, "trackers") or {}) do
			all[index] = server(pair[1], pair[2])
		end
		return all
	end,
}
local OfServer = class("Server", Server)

local Listener = class("Listener", {
	get_stats = function(self) return native.statistics(false, self.frontend, self.name, true) end,
})

-- Stick tables: large ones are walked through in several turns.

local StickTable = class("StickTable", {
	info = function(self) return native.table_info(self.name) end,
	lookup = function(self, key) return native.table_lookup(self.name, key) end,
	dump = function(self, filters)
		local found, from = {}, 0
		while from do
			from = native.table_walk(self.name, from, found, filters)
			if from then
				wait(scheduling.TURN)
			end
		end
		return found
	end,
})

local function of_proxy(what)
	return function(self) return native.proxy(self.of_backend, self.name, what) end
end

local ProxyMailers = class("ProxyMailers", {})

local Proxy = class("Proxy", {
	get_name = function(self) return self.name end,
	get_uuid = of_proxy("uuid"),
	get_cap = of_proxy("cap"),
	get_mode = of_proxy("mode"),
	get_stats = function(self) return native.statistics(self.of_backend, self.name) end,
	get_srv_act = of_proxy("act"),
	get_srv_bck = of_proxy("bck"),
	get_mailers = function(self)
		local mailers = native.proxy(self.of_backend, self.name, "mailers")
		return mailers and setmetatable(mailers, ProxyMailers)
	end,
	pause = function(self) return command("disable", "frontend", self.name) end,
	resume = function(self) return command("enable", "frontend", self.name) end,
	stop = function(self) return command("shutdown", "frontend", self.name) end,
	shut_bcksess = function(self)
		for _, own in pairs(self.servers) do
			if own:is_backup() then
				own:shut_sess()
			end
		end
	end,
})

-- Pattern lists: any name that is not a member of the class is a key.

local PORTION = 256

local Patref = {
	get_name = function(self) return native.pattern_name(rawget(self, "list")) end,
	is_map = function(self) return native.pattern_is_map(rawget(self, "list")) end,
	purge = function(self) return native.pattern_purge(rawget(self, "list")) end,
	prepare = function(self) return native.pattern_prepare(rawget(self, "list")) end,
	commit = function(self) return native.pattern_commit(rawget(self, "list")) end,
	giveup = function(self) return native.pattern_giveup(rawget(self, "list")) end,
	add = function(self, key, value) return native.pattern_add(rawget(self, "list"), key, value) end,
	add_bulk = function(self, all) return native.pattern_add_bulk(rawget(self, "list"), all) end,
	del = function(self, key) return native.pattern_del(rawget(self, "list"), key) end,
	set = function(self, key, value, force) return native.pattern_set(rawget(self, "list"), key, value, force) end,
}
local OfPatref = class("Patref", Patref)
OfPatref.__index = function(self, key)
	return Patref[key] or native.pattern_find(rawget(self, "list"), key)
end
OfPatref.__pairs = function(self)
	local list, from, at, lines = rawget(self, "list"), 0, 0, {}
	return function()
		at = at + 1
		if lines[at] == nil then
			lines, at = native.pattern_lines(list, from, PORTION), 1
			from = from + PORTION
		end
		local line = lines[at]
		if line then
			return line[1], line[2]
		end
	end
end

core.get_patref = function(name)
	local list = native.pattern_list(name)
	return setmetatable({ list = list }, OfPatref)
end

-- A table with elements that are created by name on demand, because they may be added and removed.
local function by_name(names, make)
	local made = {}
	local function get(_, name)
		local known = made[name]
		if known then
			return known
		end
		for _, own in pairs(names()) do
			if own == name then
				known = make(name)
				made[name] = known
				return known
			end
		end
	end
	return setmetatable({}, {
		__index = get,
		__pairs = function(all)
			local list, at = names(), 0
			return function()
				at = at + 1
				local name = list[at]
				if name ~= nil then
					return name, get(all, name)
				end
			end
		end,
	})
end

local function servers_of(backend)
	return by_name(
		function() return native.proxy(true, backend, "servers") end,
		function(name)
			local server = setmetatable({ name = name, backend = backend }, OfServer)
			server.puid = server:get_puid()
			return server
		end
	)
end

local function listeners_of(frontend)
	return by_name(
		function() return native.proxy(false, frontend, "listeners") end,
		function(name) return setmetatable({ name = name, frontend = frontend }, Listener) end
	)
end

local function all(of_backend)
	return by_name(
		function() return native.proxies(of_backend) end,
		function(name)
			local proxy = setmetatable({ name = name, of_backend = of_backend }, Proxy)
			proxy.uuid = proxy:get_uuid()
			proxy.servers = of_backend and servers_of(name) or {}
			proxy.listeners = proxy:get_cap() == "backend" and {} or listeners_of(name)
			if native.has_table(name) then
				proxy.stktable = setmetatable({ name = name }, StickTable)
			end
			return proxy
		end
	)
end

core.backends, core.frontends = all(true), all(false)

proxies = function(of_backend)
	return of_backend and core.backends or core.frontends
end

core.proxies = by_name(
	function()
		local names = native.proxies(true)
		for _, name in pairs(native.proxies(false)) do
			names[#names + 1] = name
		end
		return names
	end,
	function(name) return core.backends[name] or core.frontends[name] end
)

-- Sockets

local Socket = class("Socket", {
	connect = function(self, address, port)
		return wait(SOCKET, self.handle, "connect", tostring(address), tonumber(port), self.timeout)
	end,
	connect_ssl = function(self, address, port)
		return wait(SOCKET, self.handle, "connect_ssl", tostring(address), tonumber(port), self.timeout)
	end,
	send = function(self, data, first, last)
		if first or last then
			data = native.part(data, first or 1, last or -1)
		end
		return wait(SOCKET, self.handle, "send", data, nil, self.timeout)
	end,
	receive = function(self, pattern, prefix)
		local text, why = wait(SOCKET, self.handle, "receive", tostring(pattern or "*l"), nil, self.timeout)
		if text and prefix then
			text = prefix .. text
		end
		return text, why
	end,
	close = function(self) wait(SOCKET, self.handle, "close") end,
	getpeername = function(self) return wait(SOCKET, self.handle, "peer") end,
	getsockname = function(self) return wait(SOCKET, self.handle, "name") end,
	settimeout = function(self, seconds)
		self.timeout = seconds and seconds > 0 and seconds * 1000 or nil
		return 1
	end,
	setoption = function() return 1 end,
})

core.tcp = function()
	return setmetatable({ handle = native.socket() }, Socket)
end

-- Requests made by scripts

local function request(method)
	return function(self, asked)
		if type(asked) ~= "table" or asked.url == nil then
			error("a request is a table with a `url`", 2)
		end
		local headers = {}
		for name, values in pairs(asked.headers or {}) do
			if type(values) ~= "table" then
				values = { values }
			end
			for _, value in pairs(values) do
				headers[#headers + 1] = { name, tostring(value) }
			end
		end
		local status, reason, fields, body = wait(ASK, method, asked.url, headers, asked.body or "", asked.dst, asked.timeout)
		local response = { status = status, reason = reason, headers = {}, body = body }
		for _, field in pairs(fields or {}) do
			local name, values = field[1], response.headers[field[1]]
			if values == nil then
				response.headers[name] = { [0] = field[2] }
			else
				values[#values + 1] = field[2]
			end
		end
		return response
	end
end

local HTTPClient = class("HTTPClient", {
	get = request("GET"),
	head = request("HEAD"),
	put = request("PUT"),
	post = request("POST"),
	delete = request("DELETE"),
})

core.httpclient = function() return setmetatable({}, HTTPClient) end

-- Certificates

CertCache = {
	set = function(given)
		if type(given) ~= "table" or type(given.filename) ~= "string" then
			native.fail("CertCache.set takes a table with a `filename`")
		end
		local name, parts = given.filename, {}
		if given.crt or given.key then
			parts[1] = { name, (given.crt or "") .. "\n" .. (given.key or "") }
		end
		for _, end_ in pairs({ "issuer", "ocsp", "sctl" }) do
			if given[end_] then
				parts[#parts + 1] = { name .. "." .. end_, given[end_] }
			end
		end
		for _, part in ipairs(parts) do
			local why = wait(COMMAND, part[2], "set", "ssl", "cert", part[1])
			if why then
				wait(COMMAND, nil, "abort", "ssl", "cert", name)
				native.fail("CertCache.set: " .. why)
			end
		end
		local why = wait(COMMAND, nil, "commit", "ssl", "cert", name)
		if why then
			wait(COMMAND, nil, "abort", "ssl", "cert", name)
			native.fail("CertCache.set: " .. why)
		end
	end,
}

ACME = {
	challenge_ready = function(certificate, domain)
		local why, answer = command("acme", "challenge_ready", tostring(certificate), "domain", tostring(domain))
		if why then
			native.fail("ACME.challenge_ready: " .. why)
		end
		return tonumber(answer and answer:match("deploy: (%d+)") or 0)
	end,
}

return { server = server, Server = Server, Patref = Patref }
