-- Events: functions called on events of servers and pattern lists.
--
-- A subscription has a task that takes events from a queue of the host and calls the function for one event after the other. Each
-- call is a separate task, so that an error in one only ends that one.

local native, scheduling, process = ...

local setmetatable, type, rawget = setmetatable, type, rawget
local wait, CHANGE = scheduling.wait, scheduling.CHANGE

local function class(name, members)
	native.classes[name] = members
	return { __index = members, __tostring = function() return "HAProxy class " .. name end }
end

local EventSub = class("EventSub", {
	unsub = function(self) self.inbox:close() end,
})

-- Adds the server of an event, if it still exists.
local function complete(event, data)
	if data and data.proxy_name and event ~= "SERVER_DEL" then
		local server = process.server(data.proxy_name, data.name)
		if server and server:get_rid() == data.rid then
			data.reference = server
		end
	end
	return data
end

local function attend(inbox, run)
	local sub = setmetatable({ inbox = inbox }, EventSub)
	native.register_task(function()
		local signal = inbox:signal()
		while not inbox:is_closed() do
			local seen = signal:count()
			local event, data, when = inbox:take()
			if event then
				local over = native.signal()
				native.run_task(over, run, event, complete(event, data), sub, when)
				wait(CHANGE, over, 0)
			else
				wait(CHANGE, signal, seen)
			end
		end
	end)
	return sub
end

local function check(types, run)
	if type(types) ~= "table" or #types == 0 then
		native.fail("event_sub takes a list of the names of events")
	elseif type(run) ~= "function" then
		native.fail("event_sub takes the function that is called then")
	end
end

local function subscribe(kinds_of, types, run, backend, server)
	check(types, run)
	local kinds, inbox = kinds_of(types), native.inbox()
	native.subscribe(inbox, kinds, backend, server)
	return attend(inbox, run)
end

core.event_sub = function(types, run) return subscribe(native.kinds, types, run) end

process.Server.event_sub = function(self, types, run)
	return subscribe(native.server_kinds, types, run, self.backend, self.name)
end

process.Patref.event_sub = function(self, types, run)
	check(types, run)
	local kinds, inbox = native.pattern_kinds(types), native.inbox()
	native.pattern_watch(rawget(self, "list"), kinds, inbox)
	return attend(inbox, run)
end
