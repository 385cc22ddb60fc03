-- Coroutines: those that the proxy resumes, and those that scripts make inside them.
--
-- What is yielded to the proxy is a number and what belongs to it (`wait.rs`); the interpreter's hook
-- yields nothing. What a script yields to its own resumer carries a mark, so that the two are told
-- apart: a wait inside a coroutine of the script's own goes up to the proxy.

local native = ...

local create, resume, status = coroutine.create, coroutine.resume, coroutine.status
local yield, isyieldable = coroutine.yield, coroutine.isyieldable
local error, type = error, type

local DONE, TURN = 0, 1
local MARK = {}

-- Runs one call after the other: a coroutine is used again when its function has returned.
local function loop(run, ...)
	return loop(yield(DONE, run(...)))
end

local function wait(...)
	return yield(...)
end

local function pass(co, ok, mark, ...)
	if not ok then
		return false, mark, ...
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

coroutine.resume = function(co, ...)
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
		return results(pass(co, resume(co, ...)))
	end
end

-- At the top there is no resumer of the script's own: others have their turn.
coroutine.yield = function(...)
	return yield(MARK, ...)
end

return { loop = loop, wait = wait, TURN = TURN, CHANGE = 8 }
