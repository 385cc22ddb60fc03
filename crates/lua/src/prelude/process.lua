-- What is no part of a request: tasks, queues, texts put together, proxies and servers, sockets,
-- requests of the script's own.

local native, scheduling = ...

local setmetatable, type, error, tostring, pairs, next = setmetatable, type, error, tostring, pairs, next
local select, tonumber, rawget = select, tonumber, rawget
local wait = scheduling.wait

local SLEEP, FINISH, CHANGE, SOCKET, ASK = 2, 7, 8, 9, 10

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
		return true
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

local Server = class("Server", {
	get_name = function(self) return self.name end,
	get_puid = of_server("puid"),
	is_draining = of_server("draining"),
	is_backup = of_server("backup"),
	get_cur_sess = of_server("sessions"),
	get_pend_conn = of_server("pending"),
	get_maxconn = function(self) return native.server(self.backend, self.name, "maxconn") end,
	set_maxconn = of_server("maxconn"),
	get_weight = function(self) return native.server(self.backend, self.name, "weight") end,
	set_weight = of_server("weight"),
	get_addr = function(self) return native.server(self.backend, self.name, "addr") end,
	set_drain = function(self) native.server(self.backend, self.name, "drain") end,
	set_maint = function(self) native.server(self.backend, self.name, "maint") end,
	set_ready = function(self) native.server(self.backend, self.name, "ready") end,
	get_stats = function(self) return native.statistics(true, self.backend, self.name) end,
	get_proxy = function(self) return proxies(true)[self.backend] end,
})

local function of_proxy(what)
	return function(self) return native.proxy(self.of_backend, self.name, what) end
end

local Proxy = class("Proxy", {
	get_name = function(self) return self.name end,
	get_uuid = of_proxy("uuid"),
	get_cap = of_proxy("cap"),
	get_mode = of_proxy("mode"),
	get_stats = function(self) return native.statistics(self.of_backend, self.name) end,
	get_srv_act = of_proxy("act"),
	get_srv_bck = of_proxy("bck"),
})

-- A table that is made by names when it is asked for: they may come and go.
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
		function(name) return setmetatable({ name = name, backend = backend }, Server) end
	)
end

local function all(of_backend)
	return by_name(
		function() return native.proxies(of_backend) end,
		function(name)
			local proxy = setmetatable({ name = name, of_backend = of_backend }, Proxy)
			proxy.uuid = proxy:get_uuid()
			proxy.servers = of_backend and servers_of(name) or {}
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

-- Requests of the script's own

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
