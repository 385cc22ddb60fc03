-- Errors of the host's functions are texts with the script's position, like Lua's own: the host returns a mark and the message, and
-- this file raises the error.

local native = ...

local error, pairs, type = error, pairs, type
local FAILED, place = native.failed, native.place

local function fail(text)
	error(place() .. text, 0)
end

local function check(first, ...)
	if first == FAILED and first ~= nil then
		fail((...))
	end
	return first, ...
end

local function guard(functions)
	for name, run in pairs(functions) do
		if type(run) == "function" then
			functions[name] = function(...)
				return check(run(...))
			end
		end
	end
end

guard(native)
native.fail = fail
guard(core)
guard(Map)
guard(Regex)

local function refuse(library, name)
	if library then
		library[name] = function()
			error("`" .. name .. "` starts a program, which takes `insecure-fork-wanted`", 2)
		end
	end
end

-- Programs see the environment as changed by `setenv` and so on.
local function run_with_exports(library, name)
	local run = library and library[name]
	if run and native.exports ~= "" then
		library[name] = function(command, ...)
			return run(command and native.exports .. command, ...)
		end
	end
end

if os then
	os.getenv = native.getenv
end
if native.may_fork then
	run_with_exports(os, "execute")
	run_with_exports(io, "popen")
else
	refuse(os, "execute")
	refuse(io, "popen")
end
