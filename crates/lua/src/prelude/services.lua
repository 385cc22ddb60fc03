-- Services: functions that answer requests, or handle a connection, instead of a server.

local native, scheduling, classes = ...

local setmetatable, type, error, tostring = setmetatable, type, error, tostring
local wait = scheduling.wait

local START, FLUSH, INPUT = 4, 5, 6

local members = {
	get_priv = function(self) return native.get_priv(self[0]) end,
	set_priv = function(self, value) native.set_priv(self[0], value) end,
	set_var = native.methods.set_var,
	get_var = native.methods.get_var,
	unset_var = function(self, name) return native.unset_var(self[0], name) end,
}

local function send(self, text)
	if native.send(self[0], tostring(text)) then
		wait(FLUSH)
	end
	return true
end

-- Reads up to `most` bytes (everything if negative), until there are as many or the input ends.
local function receive(self, most)
	local call, pieces, got = self[0], {}, 0
	while most < 0 or got < most do
		local piece = native.take(call, most < 0 and -1 or most - got, false)
		if piece == "" then
			break
		elseif piece then
			pieces[#pieces + 1] = piece
			got = got + #piece
		else
			wait(INPUT)
		end
	end
	return native.concat(pieces)
end

local function getline(self)
	while true do
		local line = native.take(self[0], -1, true)
		if line then
			return line
		end
		wait(INPUT)
	end
end

-- HTTP

local http = {
	set_status = function(self, status, reason)
		self.response.status = status
		self.response.reason = reason
	end,
	add_header = function(self, name, value)
		local headers = self.response.headers
		headers[#headers + 1] = { name, tostring(value) }
	end,
	start_response = function(self)
		if self.response.started then
			error("the response was started before", 2)
		end
		self.response.started = true
		local response = self.response
		native.respond(self[0], response.status, response.reason, response.headers)
		wait(START)
	end,
	send = function(self, text)
		if not self.response.started then
			error("the response is not started: call `start_response` first", 2)
		end
		return send(self, text)
	end,
	receive = function(self, size) return receive(self, size or -1) end,
	getline = getline,
}

-- TCP

local tcp = {
	send = send,
	getline = getline,
	receive = function(self, size, timeout)
		if timeout == nil then
			return receive(self, size or -1)
		end
		local piece = native.take(self[0], size or -1, false)
		if piece == nil then
			wait(INPUT, timeout)
			piece = native.take(self[0], size or -1, false)
		end
		return piece
	end,
	try_receive = function(self) return native.take(self[0], -1, false) end,
}

for name, member in pairs(members) do
	http[name] = member
	tcp[name] = member
end

local AppletHTTP = classes.with_parts("AppletHTTP", http)

-- Facts about the request are read on first use.
local facts = { method = true, path = true, qs = true, version = true, length = true, headers = true }
local http_members = AppletHTTP.__index
AppletHTTP.__index = function(self, key)
	local member = http_members[key]
	if member == nil and facts[key] then
		member = native.request(self[0], key)
		self[key] = member
	end
	return member
end

local AppletTCP = classes.with_parts("AppletTCP", tcp)

return {
	serve_http = function(run, call)
		run(setmetatable({ [0] = call, response = { status = 200, headers = {} } }, AppletHTTP))
	end,
	serve_tcp = function(run, call)
		run(setmetatable({ [0] = call }, AppletTCP))
	end,
	serve_command = function(run, call, ...)
		run(setmetatable({ [0] = call }, AppletTCP), ...)
	end,
}
