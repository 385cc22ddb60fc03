-- Filters: instances created from a script's class by configuration lines, the filter of a stream, and the arguments of its
-- functions.

local native, scheduling, classes = ...

local setmetatable, type, ipairs, next, select = setmetatable, type, ipairs, next, select
local edit = native.edit

local function class(name, members)
	native.classes[name] = members
	return { __index = members, __tostring = function() return "HAProxy class " .. name end }
end

-- The last argument is the channel: it may be preceded by the filter itself.
local function channel_of(...)
	local channel = select(select("#", ...), ...)
	if type(channel) ~= "table" or channel[0] == nil then
		native.fail("a channel is missing")
	end
	return channel
end

function filter.register_data_filter(...)
	local channel = channel_of(...)
	return native.watch_data(channel[0], channel.is_response, true)
end

function filter.unregister_data_filter(...)
	local channel = channel_of(...)
	return native.watch_data(channel[0], channel.is_response, false)
end

function filter.wake_time(...)
	return native.wake_in((select(select("#", ...), ...)))
end

-- An action that returns `act.YIELD` sets the delay until it is called again.
function act.wake_time(...)
	return native.wake_action_in((select(select("#", ...), ...)))
end

-- Messages

local function header(kind)
	return function(self, name, value) return edit(self[0], kind, self.is_response, name, value) end
end

local function replace(kind)
	return function(self, name, regex, with) return edit(self[0], kind, self.is_response, name, with, regex) end
end

local function of_request(kind)
	return function(self, value) return edit(self[0], kind, false, value) end
end

local function fact(what)
	return function(self) return native.payload_fact(self[0], self.is_response, true, what) end
end

local HTTPMessage = class("HTTPMessage", {
	add_header = header("add"),
	set_header = header("set"),
	del_header = header("remove"),
	rep_header = replace("replace"),
	rep_value = replace("replace_value"),
	get_headers = function(self) return native.headers(self[0], self.is_response) end,
	get_stline = function(self) return native.start_line(self[0], self.is_response) end,
	set_method = of_request("method"),
	set_path = of_request("path"),
	set_query = of_request("query"),
	set_uri = of_request("uri"),
	set_status = function(self, status, reason) return edit(self[0], "status", true, reason or "", nil, nil, status) end,
	is_resp = function(self) return self.is_response end,
	is_full = fact("full"),
	may_recv = fact("open"),
	eom = fact("ended"),
	input = fact("input"),
	output = fact("output"),
	body = function(self, offset, length) return native.payload(self[0], self.is_response, true, offset, length, false) end,
	append = function(self, text) return native.payload_append(self[0], self.is_response, true, text) end,
	prepend = function(self, text) return native.payload_insert(self[0], self.is_response, true, text, 0) end,
	insert = function(self, text, offset) return native.payload_insert(self[0], self.is_response, true, text, offset) end,
	remove = function(self, offset, length) return native.payload_remove(self[0], self.is_response, true, offset, length) end,
	set = function(self, text, offset, length) return native.payload_set(self[0], self.is_response, true, text, offset, length) end,
	send = function(self, text) return native.payload_send(self[0], self.is_response, true, text) end,
	forward = function(self, length) return native.payload_forward(self[0], self.is_response, true, length) end,
	set_eom = function(self) return native.payload_end(self[0], self.is_response, true) end,
	unset_eom = function(self) return native.payload_end(self[0], self.is_response, false) end,
	set_body_len = function(self, length) return native.set_body_length(self[0], self.is_response, length) end,
})

local function message(call, of_response)
	local channel = classes.channel(call, of_response)
	return setmetatable({ [0] = call, is_response = of_response, channel = channel }, HTTPMessage)
end

-- The transaction as seen by filters, with both messages.
local Transaction = setmetatable({}, { __index = classes.Transaction })
Transaction.__tostring = classes.Transaction.__tostring
Transaction.__index = function(self, key)
	if key == "http_req" then
		return message(self[0], false)
	elseif key == "http_res" then
		return message(self[0], true)
	end
	return classes.Transaction.__index[key]
end

local NAMES = { "start_analyze", "end_analyze", "http_headers", "http_payload", "http_end", "tcp_payload" }

return {
	-- Creates a filter from a line: returns it and its flags, or nil and the error. The filter begins as a copy of its class,
	-- because `new` may use it as a metatable.
	declare = function(class, make, words)
		local copy = setmetatable({}, { __index = class })
		for name, value in next, class do
			copy[name] = value
		end
		local own = make(copy, words)
		if own == nil then
			return nil
		elseif type(own) ~= "table" then
			return nil, "the function that makes it returned a " .. type(own) .. ", and not a filter"
		elseif type(own.new) ~= "function" then
			return nil, "its class has no function `new`"
		end
		return own, own.flags or 0
	end,
	-- Creates the filter of a stream; returns it with a mask of its functions.
	begin = function(own)
		local made, has = own:new(), 0
		if type(made) ~= "table" then
			return nil
		end
		for bit, name in ipairs(NAMES) do
			if type(made[name]) == "function" then
				has = has | 1 << (bit - 1)
			end
		end
		return made, has
	end,
	call = function(call, own, name, is_of_message, of_response)
		local txn = setmetatable({ [0] = call }, Transaction)
		local about = is_of_message and message(call, of_response) or classes.channel(call, of_response)
		return own[name](own, txn, about)
	end,
}
