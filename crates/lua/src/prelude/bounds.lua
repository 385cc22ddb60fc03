-- Replacements for library functions that the interpreter's hook cannot interrupt, so that a script ends when its time is up.
--
-- Lua's own functions are used as long as they are fast. `native.over()` checks the time; if it is up, the next instruction of the
-- caller abandons the call.

local native = ...

local over, is_native = native.over, native.is_native
local type, rawget, rawset, error, tostring, select = type, rawget, rawset, error, tostring, select
local set, getmetatable, collect, log = setmetatable, getmetatable, collectgarbage, core.log
local lua_pcall, lua_xpcall, error_text = pcall, xpcall, native.error_text
local MOST = math and math.maxinteger or 0x7fffffffffffffff

-- Number of table elements that one call moves or joins without interruption.
local SHORT = 10000

-- Errors of the host's methods are objects. Scripts see their texts.

local function text_of(why)
	return type(why) == "userdata" and error_text(why) or why
end

-- A handler converts the error, because a function that looked at the results would copy them.
pcall = function(run, ...)
	return lua_xpcall(run, error_text, ...)
end

local attempt = pcall

-- Message handlers: Lua runs them without the hook if it was the hook that raised the error.

xpcall = function(run, handler, ...)
	if type(handler) ~= "function" then
		return lua_xpcall(run, handler, ...)
	end
	local has_hook = not is_native(handler)
	return lua_xpcall(run, function(why)
		if has_hook and over() then
			return why
		end
		return handler(text_of(why))
	end, ...)
end

-- Finalizers: Lua runs them without the hook. Each object that has one is kept alive by a sentinel
-- when it is collected, and its finalizer then runs as a task.

local due, first, last = {}, 1, 0
local pending = { count = 0, is_queued = false }
local sentinels, has_any = set({}, { __mode = "k" }), false

local Sentinel = {
	__gc = function(own)
		last = last + 1
		due[last] = own
		pending.count = pending.count + 1
	end,
}

local function finalize()
	pending.is_queued = false
	while first <= last do
		local own = due[first]
		due[first] = nil
		first = first + 1
		pending.count = pending.count - 1
		local run = rawget(own[2], "__gc")
		if type(run) == "function" then
			local ok, why = attempt(run, own[1])
			if not ok then
				log(4, "Lua finalizer: " .. tostring(why))
			end
		end
	end
end

-- Runs pending finalizers in a task.
local function flush()
	if not pending.is_queued then
		pending.is_queued = lua_pcall(native.register_task, finalize)
	end
end

local function watch(object, meta, run)
	-- Lua itself must not see the finalizer.
	rawset(meta, "__gc", nil)
	local ok, why = lua_pcall(set, object, meta)
	rawset(meta, "__gc", run)
	if not ok then
		error(why, 3)
	end
	has_any = true
	local own = sentinels[object]
	if own then
		own[2] = meta
	else
		sentinels[object] = set({ object, meta }, Sentinel)
	end
	if pending.count > 0 then
		flush()
	end
	return object
end

local function bounded_setmetatable(object, meta)
	if type(object) ~= "table" then
		error("bad argument #1 to 'setmetatable' (table expected, got " .. type(object) .. ")", 2)
	end
	if type(meta) == "table" then
		local run = rawget(meta, "__gc")
		if run ~= nil then
			return watch(object, meta, run)
		end
	end
	if has_any and sentinels[object] then
		sentinels[object][2] = meta or {}
	end
	return set(object, meta)
end

local function collected(...)
	if pending.count > 0 then
		finalize()
	end
	over()
	return ...
end

if collect then
	collectgarbage = function(...) return collected(collect(...)) end
end

-- Patterns: their time can grow exponentially. The host matches long subjects.

local function bound_strings(string)
	local find, match, gmatch, gsub = string.find, string.match, string.gmatch, string.gsub
	local rep, sub = string.rep, string.sub

	-- The maximum length of a subject that is fast to match, by pattern.
	local longest, count = {}, 0

	local function weigh(pattern)
		local limit = native.text_limit(pattern)
		if #pattern <= 200 then
			if count == 1000 then
				longest, count = {}, 0
			end
			longest[pattern] = limit
			count = count + 1
		end
		return limit
	end

	local function is_short(text, pattern)
		return type(text) ~= "string" or type(pattern) ~= "string"
			or #text <= (longest[pattern] or weigh(pattern))
	end

	local function as_text(value)
		return type(value) == "number" and tostring(value) or value
	end

	string.find = function(text, pattern, first, plain)
		text, pattern = as_text(text), as_text(pattern)
		if is_short(text, pattern) then
			return find(text, pattern, first, plain)
		end
		return native.text_find(text, pattern, first, plain and true or false)
	end

	string.match = function(text, pattern, first)
		text, pattern = as_text(text), as_text(pattern)
		if is_short(text, pattern) then
			return match(text, pattern, first)
		end
		return native.text_match(text, pattern, first)
	end

	-- Returns the start and end of the next match, and its captures.
	local function step(state, from, to, ...)
		if from then
			state.at, state.last = to, to
			return ...
		end
		state.at = nil
	end

	string.gmatch = function(text, pattern, first)
		text, pattern = as_text(text), as_text(pattern)
		if is_short(text, pattern) then
			return gmatch(text, pattern, first)
		end
		local state = { at = native.text_start(text, first) }
		return function()
			if state.at then
				return step(state, native.text_next(text, pattern, state.at, state.last, false))
			end
		end
	end

	-- Returns the replacement of a match.
	local function replaced(is_table, by, whole, key, ...)
		local value
		if is_table then
			value = by[key]
		else
			value = by(key, ...)
		end
		if not value then
			return whole
		elseif type(value) == "string" or type(value) == "number" then
			return value
		end
		error("invalid replacement value (a " .. type(value) .. ")", 4)
	end

	local function replace_all(text, pattern, by, most)
		local pieces, done, at, last = {}, 0, 1, nil
		local is_table, is_anchored, copied = type(by) == "table", sub(pattern, 1, 1) == "^", 1
		local function take(from, to, ...)
			if not from then
				return false
			end
			pieces[#pieces + 1] = sub(text, copied, from - 1)
			pieces[#pieces + 1] = replaced(is_table, by, sub(text, from, to - 1), ...)
			done, at, last, copied = done + 1, to, to, to
			return not is_anchored
		end
		while done < most do
			if not take(native.text_next(text, pattern, at, last, true)) then
				break
			end
		end
		pieces[#pieces + 1] = sub(text, copied)
		return native.concat(pieces), done
	end

	string.gsub = function(text, pattern, by, most)
		text, pattern = as_text(text), as_text(pattern)
		local kind = type(by)
		if is_short(text, pattern) or not (kind == "string" or kind == "number" or kind == "table" or kind == "function")
			or most ~= nil and type(most) ~= "number" then
			return gsub(text, pattern, by, most)
		end
		most = most or #text + 1
		if kind == "string" or kind == "number" then
			return native.text_replace(text, pattern, tostring(by), most)
		end
		return replace_all(text, pattern, by, most)
	end

	string.rep = function(text, times, between)
		if text == "" and (between == nil or between == "") and type(times) == "number" and times > 1 then
			times = 1
		end
		if type(text) == "string" and type(times) == "number" and #text * times > 1e6 then
			over()
		end
		return rep(text, times, between)
	end
end

-- Functions that take time proportional to a text: a thousand instructions may call one of them hundreds of times before the hook
-- runs.

-- Maximum length of a text with negligible processing time.
local LONG = 100000

local function timed(text, ...)
	if type(text) == "string" and #text > LONG then
		over()
	end
	return text, ...
end

-- Bounds functions that read a long text, and those that return one.
local function bound_texts(library, reading, returning)
	for name in reading:gmatch("%w+") do
		local run = library[name]
		if run then
			library[name] = function(text, ...)
				if type(text) == "string" and #text > LONG then
					over()
				end
				return run(text, ...)
			end
		end
	end
	for name in returning:gmatch("%w+") do
		local run = library[name]
		if run then
			library[name] = function(...) return timed(run(...)) end
		end
	end
end

local function bound_dates(os)
	local date = os.date
	os.date = function(format, ...)
		if type(format) == "string" and #format > LONG then
			error("bad argument #1 to 'date' (format too long)", 2)
		end
		return timed(date(format, ...))
	end
end

-- Files: some have no end.

local function bound_files(io)
	local methods = getmetatable(io.stdout).__index
	local read, write = methods.read, methods.write

	-- Reads at most `most` bytes.
	local function read_portions(file, most)
		local parts = {}
		while most > 0 do
			local part, why, code = read(file, most < LONG and most or LONG)
			if why then
				return nil, why, code
			end
			if not part then
				break
			end
			parts[#parts + 1] = part
			most = most - #part
			over()
		end
		return native.concat(parts), #parts
	end

	methods.read = function(file, ...)
		local what = ...
		if select("#", ...) ~= 1 or io.type(file) ~= "file" then
			return timed(read(file, ...))
		elseif what == "a" or what == "*a" then
			local text, why, code = read_portions(file, MOST)
			if text then
				return text
			end
			return nil, why, code
		elseif type(what) == "number" and what > LONG then
			local text, count, code = read_portions(file, what)
			if text and count > 0 then
				return text
			elseif text then
				return nil
			end
			return nil, count, code
		end
		return timed(read(file, ...))
	end

	methods.write = function(file, ...)
		timed(...)
		return write(file, ...)
	end
end

-- Tables: a metamethod may return any length, and a script may pass any range.

local function bound_tables(table)
	local concat, insert, move, remove, sort = table.concat, table.insert, table.move, table.remove, table.sort
	local integer = math and math.type or function(value) return type(value) == "number" and value % 1 == 0 and "integer" end

	local unpack = table.unpack
	if unpack then
		table.unpack = function(list, first, last)
			local most = last or type(list) == "table" and #list
			if type(most) == "number" and most > SHORT then
				over()
			end
			return unpack(list, first, last or most or nil)
		end
	end

	local function is_long(first, last)
		return integer(first) == "integer" and integer(last) == "integer" and last > first
			and (last - first < 0 or last - first >= SHORT)
	end

	table.move = function(from, first, last, at, to)
		if not is_long(first, last) or integer(at) ~= "integer" then
			return move(from, first, last, at, to)
		end
		if first <= 0 and last >= MOST + first then
			error("bad argument #3 to 'move' (too many elements to move)", 2)
		elseif at > MOST - (last - first) then
			error("bad argument #4 to 'move' (destination wrap around)", 2)
		end
		local target = to or from
		if at > last or at <= first or to ~= nil and to ~= from then
			for index = 0, last - first do
				target[at + index] = from[first + index]
			end
		else
			for index = last - first, 0, -1 do
				target[at + index] = from[first + index]
			end
		end
		return target
	end

	table.insert = function(list, ...)
		local at, value = ...
		if type(list) == "table" and select("#", ...) == 2 then
			local last = #list
			if is_long(at, last) and at >= 1 then
				for index = last, at, -1 do
					list[index + 1] = list[index]
				end
				list[at] = value
				return
			end
		end
		return insert(list, ...)
	end

	table.remove = function(list, ...)
		local at = ...
		if type(list) == "table" and at ~= nil then
			local last = #list
			if is_long(at, last) and at >= 1 then
				local value = list[at]
				for index = at, last - 1 do
					list[index] = list[index + 1]
				end
				list[last] = nil
				return value
			end
		end
		return remove(list, ...)
	end

	table.concat = function(list, between, first, last)
		if type(list) ~= "table" then
			return concat(list, between, first, last)
		end
		local from, to = first or 1, last or #list
		if not is_long(from, to) then
			return concat(list, between, first, last)
		end
		local parts = {}
		for start = from, to, SHORT do
			over()
			local left = to - start
			local stop = left >= 0 and left < SHORT and to or start + SHORT - 1
			parts[#parts + 1] = concat(list, between, start, stop)
		end
		return concat(parts, between)
	end

	table.sort = function(list, before)
		if type(list) ~= "table" or #list < SHORT or before ~= nil and type(before) ~= "function" then
			return sort(list, before)
		end
		-- The hook counts the instructions of the comparison.
		return sort(list, before and function(a, b) return before(a, b) end or function(a, b) return a < b end)
	end
end

-- Replaces Lua's own functions by the bounded ones, for scripts.
local function install()
	setmetatable = bounded_setmetatable
	if string then
		bound_texts(_G, "tonumber load", "")
		bound_texts(string, "packsize unpack", "format lower upper reverse rep")
		bound_strings(string)
	end
	if string and utf8 then
		bound_texts(utf8, "len offset codepoint", "")
	end
	if os then
		bound_dates(os)
	end
	if io then
		bound_files(io)
	end
	if table then
		bound_tables(table)
	end
end

return { install = install, pending = pending, flush = flush, text_of = text_of }
