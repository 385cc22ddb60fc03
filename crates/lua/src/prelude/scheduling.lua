-- Coroutines: those that the proxy resumes, and those created by scripts inside them.
--
-- A yield to the proxy is a number with arguments (`wait.rs`); the interpreter's hook yields nothing. A script's yield to its own
-- resumer carries a mark to distinguish the two: a wait inside a script's coroutine is passed up to the proxy.

local native, bounds = ...

local over, is_over = native.over, native.is_over
local pending, flush, text_of = bounds.pending, bounds.flush, bounds.text_of
local create, resume, status, close = coroutine.create, coroutine.resume, coroutine.status, coroutine.close
local yield, isyieldable = coroutine.yield, coroutine.isyieldable
local error, type = error, type

local DONE, TURN = 0, 1
local MARK = {}
-- Coroutines that ended with an error other than that of the time limit.
local failed = setmetatable({}, { __mode = "k" })

-- Runs calls one after the other: a coroutine is reused when its function has returned.
local function loop(run, ...)
	if pending.count > 0 then
		flush()
	end
	return loop(yield(DONE, run(...)))
end

local function wait(...)
	if pending.count > 0 then
		flush()
	end
	return yield(...)
end

local function pass(co, ok, mark, ...)
	if not ok then
		if not is_over() then
			failed[co] = true
		end
		over()
		return false, text_of(mark)
	end
	if status(co) == "dead" then
		return true, mark, ...
	end
	if mark == MARK then
		return true, ...
	end
	if isyieldable() then
		return pass(co, resume(co, yield(mark, ...)))
	end
	if mark == nil then
		return pass(co, resume(co))
	end
	return false, "attempt to wait where nothing can be waited for"
end

-- Each coroutine counts its own instructions, so this function checks the time.
coroutine.resume = function(co, ...)
	over()
	return pass(co, resume(co, ...))
end

local function results(ok, ...)
	if not ok then
		error((...), 0)
	end
	return ...
end

coroutine.wrap = function(run)
	local co = create(run)
	return function(...)
		over()
		return results(pass(co, resume(co, ...)))
	end
end

-- At the top level no script could resume the coroutine, so this yields to other tasks.
coroutine.yield = function(...)
	return yield(MARK, ...)
end

local function closed(ok, ...)
	over()
	if ok then
		return ok
	end
	return ok, text_of(...)
end

-- An abandoned coroutine is not unwound: Lua would run the `__close` metamethods of its variables without the hook.
coroutine.close = function(co)
	if type(co) == "thread" and status(co) == "dead" and not failed[co] then
		return true
	end
	if type(co) == "thread" then
		failed[co] = nil
	end
	return closed(close(co))
end

return { loop = loop, wait = wait, TURN = TURN, CHANGE = 8 }
