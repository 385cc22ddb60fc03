-- External authorization, for `externalAuth` filters and `auth-url` annotations. The parts of this folder are loaded as one script.

local socket = ...

local TIMEOUT = 10000

-- Headers of a connection, or of the length and coding of a body.
local FRAMING = {}
for name in ("connection content-encoding content-length expect host keep-alive proxy-connection te trailer"
	.. " transfer-encoding upgrade"):gmatch("%S+") do
	FRAMING[name] = true
end

-- The names in a list with commas, in small letters.
local function names_of(list)
	local names = {}
	for name in list:gmatch("[^,]+") do
		names[name:lower()] = true
	end
	return names
end

