-- The classes that scripts see, implemented with the functions of the host.
--
-- An object of a request contains the number of its call in `[0]`; the host refuses it once that call has
-- ended.

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

-- Fetches and converters: unknown ones are looked up by name, once.

local function family(name, exists, make)
	local known = {}
	local meta = class(name, known)
	setmetatable(known, { __index = function(_, key)
		if type(key) ~= "string" or not exists(key) then
			return nil
		end
		local method = make(key)
		known[key] = method
		return method
	end })
	return meta
end

local fetch, convert, direct, fail = native.fetch, native.convert, native.direct, native.fail

-- The key of functions without an argument.
local NONE = {}

-- Returns the host's function for `name` with an argument that is nil or a text, and keeps it in `known`: nil for other arguments, and
-- if the host has no more room.
local function function_with(known, create, name, argument, as_text)
	if argument ~= nil and type(argument) ~= "string" then
		return nil
	end
	local run, text = create(name, argument, as_text)
	if text ~= nil then
		fail(text)
	end
	known[argument == nil and NONE or argument] = run
	return run
end

-- The interpreter's hook makes each instruction expensive, so the methods have few of them, and no variable number of arguments: the
-- host's fetches have at most twelve, and its converters at most six.

local function fetcher(as_text)
	return function(name)
		local create, known = direct.fetcher, {}
		return function(self, a, b, c, d, e, f, g, h, i, j, k, l)
			local run = b == nil and a ~= false
				and (known[a or NONE] or function_with(known, create, name, a, as_text))
			if not run then
				return fetch(self[0], name, as_text, a, b, c, d, e, f, g, h, i, j, k, l)
			end
			local value, text = run(self[0])
			if text == nil then
				return value
			end
			fail(text)
		end
	end
end

local function converter(as_text)
	return function(name)
		local create, known = direct.text_converter, {}
		return function(self, value, a, b, c, d, e, f)
			local run = b == nil and a ~= false and type(value) == "string"
				and (known[a or NONE] or function_with(known, create, name, a, as_text))
			if not run then
				return convert(self[0], name, as_text, value, a, b, c, d, e, f)
			end
			local made, text = run(self[0], value)
			if text == nil then
				return made
			end
			fail(text)
		end
	end
end

local Fetches = family("Fetches", native.has_fetch, fetcher(false))
local StringFetches = family("Fetches", native.has_fetch, fetcher(true))
local Converters = family("Converters", native.has_convert, converter(false))
local StringConverters = family("Converters", native.has_convert, converter(true))

-- HTTP

local edit = native.edit
local ADD, SET, REMOVE = 0, 1, 2

local function header(kind, of_response)
	local run = direct.header_editor(kind, of_response)
	return function(self, name, value)
		local done, text = run(self[0], name, value)
		if text == nil then
			return done
		end
		fail(text)
	end
end

local HTTP = class("HTTP", {
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
})

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

local set_any_var, get_any_var, unset_var = native.set_var, native.get_var, native.unset_var
local log, set = native.log, native.set

-- The host's functions for variables by name: those that set a text, those that set any value, and those that read.
local text_setters, setters, getters = {}, {}, {}

local function function_of(known, create, name)
	local run = known[name]
	if run == nil and type(name) == "string" then
		run = create(name)
		known[name] = run
	end
	return run
end

local function set_var(self, name, value, ifexist)
	local run
	if ifexist then
		run = nil
	elseif type(value) == "string" then
		run = text_setters[name] or function_of(text_setters, direct.text_setter, name)
	else
		run = setters[name] or function_of(setters, direct.setter, name)
	end
	if not run then
		return set_any_var(self[0], name, value, ifexist)
	end
	local done, text = run(self[0], value)
	if text == nil then
		return done
	end
	fail(text)
end

local function get_var(self, name)
	local run = getters[name] or function_of(getters, direct.getter, name)
	if not run then
		return get_any_var(self[0], name)
	end
	local value, text = run(self[0])
	if text ~= nil then
		fail(text)
	end
	return value
end

local TXN = {
	set_var = set_var,
	get_var = get_var,
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
local RequestChannel = { __index = function(_, key)
	if key == "is_response" then return false end
	return Channel.__index[key]
end, __tostring = Channel.__tostring }
local ResponseChannel = { __index = function(_, key)
	if key == "is_response" then return true end
	return Channel.__index[key]
end, __tostring = Channel.__tostring }

-- The parts of a request object are created on first use.
local parts = {
	f = Fetches,
	sf = StringFetches,
	c = Converters,
	sc = StringConverters,
	http = HTTP,
	req = RequestChannel,
	res = ResponseChannel,
}

local function with_parts(name, members, parts)
	local meta = class(name, members)
	meta.__index = function(self, key)
		local member = members[key]
		if member ~= nil then
			return member
		end
		local part = parts[key]
		if part == nil then
			return nil
		end
		local made = setmetatable({ [0] = self[0] }, part)
		self[key] = made
		return made
	end
	return meta
end

local Transaction = with_parts("TXN", TXN, parts)

local function act(run, call, ...)
	-- The absent fields reserve room for the parts.
	return run(setmetatable({ [0] = call, f = nil, sf = nil, http = nil }, Transaction), ...)
end

local function channel(call, of_response)
	return setmetatable({ [0] = call }, of_response and ResponseChannel or RequestChannel)
end

return { act = act, with_parts = with_parts, parts = parts, channel = channel, Transaction = Transaction,
	set_var = set_var, get_var = get_var }
