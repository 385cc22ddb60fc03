-- The classes that scripts see, implemented with the functions of the host.
--
-- An object that belongs to one call contains the number of this call in `[0]`; the host refuses it once that call has ended. The parts
-- of these objects, such as `txn.sf`, are shared by all calls, and apply to the running one: they contain 0.

local native, scheduling = ...

local setmetatable, type, error = setmetatable, type, error
local tostring, pairs, tonumber = tostring, pairs, tonumber
local wait = scheduling.wait

local END, INPUT = 3, 6

local function class(name, members)
	local meta = { __tostring = function() return "HAProxy class " .. name end }
	meta.__index = members
	-- The members, for checking the reference documentation.
	native.classes[name] = members
	return meta
end

local methods = native.methods

-- Creates a part of which each member is created on first use.
local function family(name, exists, make, as_text)
	local part, meta = { [0] = 0 }, class(name, {})
	meta.__index = function(_, key)
		if type(key) ~= "string" or not exists(key) then
			return nil
		end
		local method = make(key, as_text)
		part[key] = method
		return method
	end
	return setmetatable(part, meta)
end

-- HTTP

local edit = native.edit
local ADD, SET, REMOVE = 0, 1, 2

local header = methods.header_editor

local HTTP = {
	req_get_headers = function(self) return native.headers(self[0], false) end,
	res_get_headers = function(self) return native.headers(self[0], true) end,
	req_add_header = header(ADD, false),
	res_add_header = header(ADD, true),
	req_del_header = header(REMOVE, false),
	res_del_header = header(REMOVE, true),
	req_set_header = header(SET, false),
	res_set_header = header(SET, true),
	req_rep_header = function(self, name, regex, with) return edit(self[0], "replace", false, name, with, regex) end,
	res_rep_header = function(self, name, regex, with) return edit(self[0], "replace", true, name, with, regex) end,
	req_rep_value = function(self, name, regex, with) return edit(self[0], "replace_value", false, name, with, regex) end,
	res_rep_value = function(self, name, regex, with) return edit(self[0], "replace_value", true, name, with, regex) end,
	req_set_method = function(self, method) return edit(self[0], "method", false, method) end,
	req_set_path = function(self, path) return edit(self[0], "path", false, path) end,
	req_set_query = function(self, query) return edit(self[0], "query", false, query) end,
	req_set_uri = function(self, uri) return edit(self[0], "uri", false, uri) end,
	res_set_status = function(self, status, reason) return edit(self[0], "status", true, reason or "", nil, nil, status) end,
}

-- Responses created by actions

local Reply = class("Reply", {
	set_status = function(self, status, reason)
		self.status = status
		self.reason = reason
	end,
	add_header = function(self, name, value)
		local values = self.headers[name]
		if values == nil then
			values = {}
			self.headers[name] = values
		end
		values[#values + 1] = value
	end,
	del_header = function(self, name) self.headers[name] = nil end,
	set_body = function(self, body) self.body = body end,
})

local function reply(_, given)
	given = given or {}
	local made = setmetatable({ status = given.status or 200, reason = given.reason, headers = {} }, Reply)
	made.body = given.body or ""
	for name, values in pairs(given.headers or {}) do
		if type(values) == "table" then
			for _, value in pairs(values) do
				made:add_header(name, value)
			end
		else
			made:add_header(name, values)
		end
	end
	return made
end

-- TXN

local unset_var, log, set = native.unset_var, native.log, native.set

local TXN = {
	set_var = methods.set_var,
	get_var = methods.get_var,
	unset_var = function(self, name) return unset_var(self[0], name) end,
	get_priv = function(self) return native.get_priv(self[0]) end,
	set_priv = function(self, value) return native.set_priv(self[0], value) end,
	log = function(self, level, text) return log(self[0], level, text) end,
	deflog = function(self, text) return log(self[0], 6, text) end,
	Debug = function(self, text) return log(self[0], 7, text) end,
	Info = function(self, text) return log(self[0], 6, text) end,
	Warning = function(self, text) return log(self[0], 4, text) end,
	Alert = function(self, text) return log(self[0], 1, text) end,
	reply = reply,
	done = function(self, answer)
		native.done(self[0], answer)
		wait(END)
	end,
	set_loglevel = function(self, level) return set(self[0], "loglevel", level) end,
	set_fc_mark = function(self, mark) return set(self[0], "mark", mark) end,
	set_mark = function(self, mark) return set(self[0], "mark", mark) end,
	set_fc_tos = function(self, tos) return set(self[0], "tos", tos) end,
	set_tos = function(self, tos) return set(self[0], "tos", tos) end,
	set_priority_class = function(self, class) return set(self[0], "class", class) end,
	set_priority_offset = function(self, offset) return set(self[0], "offset", offset) end,
}

-- Channels: the content of a stream for rules, and for TCP filters

local function fact(what)
	return function(self) return native.channel_fact(self[0], self.is_response, what) end
end

-- Actions wait for requested data that has not arrived yet.
local function await(self, offset, length, is_line)
	while native.channel_lacks(self[0], self.is_response, offset, length, is_line) do
		wait(INPUT)
	end
end

local Channel = class("Channel", {
	data = function(self, offset, length)
		if length ~= nil then
			await(self, offset, length, false)
		end
		return native.channel(self[0], self.is_response, offset, length, false)
	end,
	dup = function(self)
		await(self, nil, nil, false)
		return native.channel(self[0], self.is_response, nil, nil, false)
	end,
	line = function(self, offset, length)
		if length ~= nil then
			await(self, offset, length, true)
		end
		return native.channel(self[0], self.is_response, offset, length, true)
	end,
	get = function(self)
		await(self, nil, nil, false)
		local all = native.channel(self[0], self.is_response, nil, nil, false)
		native.payload_remove(self[0], self.is_response, false)
		return all
	end,
	getline = function(self)
		await(self, nil, nil, true)
		local line = native.channel(self[0], self.is_response, nil, nil, true)
		native.payload_remove(self[0], self.is_response, false, 0, line and #line or 0)
		return line
	end,
	input = fact("input"),
	get_in_len = fact("input"),
	output = fact("output"),
	get_out_len = fact("output"),
	is_full = fact("full"),
	may_recv = fact("open"),
	is_resp = function(self) return self.is_response end,
	append = function(self, text) return native.payload_append(self[0], self.is_response, false, text) end,
	prepend = function(self, text) return native.payload_insert(self[0], self.is_response, false, text, 0) end,
	insert = function(self, text, offset) return native.payload_insert(self[0], self.is_response, false, text, offset) end,
	remove = function(self, offset, length) return native.payload_remove(self[0], self.is_response, false, offset, length) end,
	set = function(self, text, offset, length) return native.payload_set(self[0], self.is_response, false, text, offset, length) end,
	send = function(self, text) return native.payload_send(self[0], self.is_response, false, text) end,
	forward = function(self, length) return native.payload_forward(self[0], self.is_response, false, length) end,
})

local function channel_part(of_response)
	return setmetatable({ [0] = 0, is_response = of_response }, Channel)
end

local http = setmetatable({ [0] = 0 }, class("HTTP", HTTP))
for name, method in pairs(HTTP) do
	http[name] = method
end

local parts = {
	f = family("Fetches", native.has_fetch, methods.fetch, false),
	sf = family("Fetches", native.has_fetch, methods.fetch, true),
	c = family("Converters", native.has_convert, methods.converter, false),
	sc = family("Converters", native.has_convert, methods.converter, true),
	http = http,
	req = channel_part(false),
	res = channel_part(true),
}

-- Creates a class of which each object has the parts.
local function with_parts(name, members)
	local meta, all = class(name, members), {}
	for key, member in pairs(members) do
		all[key] = member
	end
	for key, part in pairs(parts) do
		all[key] = part
	end
	meta.__index = all
	return meta
end

local Transaction = with_parts("TXN", TXN)

local function act(run, call, ...)
	return run(setmetatable({ [0] = call }, Transaction), ...)
end

local function channel(call, of_response)
	return setmetatable({ [0] = call, is_response = of_response }, Channel)
end

return { act = act, with_parts = with_parts, channel = channel, Transaction = Transaction }
