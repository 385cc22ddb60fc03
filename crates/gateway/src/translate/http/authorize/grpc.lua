
-- `lua.authorize_grpc`: authorization by services with Envoy's gRPC protocol.
--
-- backend  the service's backend; the frontend of the socket reads it from a header
-- sent     the client's headers to send, separated by commas, or `*` for all
-- body     whether to send the body, `yes` or `no`
--
-- Permits the request by setting `txn.authorization`. If the service denies it, the client gets the service's response. If the service
-- does not respond, the variable stays unset.

local URL = "http://authorize/envoy.service.auth.v3.Authorization/Check"

-- The wire format of Protocol Buffers. A field is its number and type, followed by its value.

local function varint(number)
	local bytes = {}
	while number < 0 or number > 127 do
		bytes[#bytes + 1] = string.char(number & 127 | 128)
		number = number >> 7
	end
	bytes[#bytes + 1] = string.char(number)
	return table.concat(bytes)
end

local function number(field, value)
	return varint(field << 3) .. varint(value)
end

local function text(field, value)
	return varint(field << 3 | 2) .. varint(#value) .. value
end

-- The fields of a message as pairs of a number and a value, in their order.
local function fields(message)
	local list, at = {}, 1
	local function read()
		local value, shift = 0, 0
		repeat
			local byte = message:byte(at)
			value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
			assert(shift <= 70, "a number is too long")
		until byte < 128
		return value
	end
	while at <= #message do
		local tag = read()
		local kind, value = tag & 7, nil
		if kind == 0 then
			value = read()
		else
			local length = kind == 2 and read() or kind == 1 and 8 or kind == 5 and 4 or error("a field has an unknown type")
			assert(length >= 0 and at + length - 1 <= #message, "a field is too long")
			value, at = message:sub(at, at + length - 1), at + length
		end
		list[#list + 1] = { tag >> 3, value }
	end
	return list
end

-- The last value of a field.
local function last(message, field)
	local found
	for _, pair in ipairs(fields(message or "")) do
		if pair[1] == field then
			found = pair[2]
		end
	end
	return found
end

-- The headers in a field of type `HeaderValueOption`: name, value, and whether the value is added to others.
local function headers_of(message, field)
	local list = {}
	for _, pair in ipairs(fields(message or "")) do
		if pair[1] == field then
			local header = last(pair[2], 1)
			local name = last(header, 1) or ""
			local value = last(header, 2) or last(header, 3) or ""
			if name:find("^[%w!#$%%&'*+.^_`|~-]+$") and not value:find("[\0\r\n]") then
				local is_added = last(last(pair[2], 2), 1) == 1
				list[#list + 1] = { name:lower(), value, is_added }
			end
		end
	end
	return list
end

local function check_request(txn, sent, with_body)
	local names = names_of(sent)
	local f, scheme = txn.sf, txn.f:ssl_fc() and "https" or "http"
	local host, uri, method = f:req_fhdr("host"), f:pathq(), f:method()
	local http = { text(2, method), text(4, uri), text(5, host), text(6, scheme), text(10, "HTTP/" .. f:req_ver()) }
	local function header(name, value)
		http[#http + 1] = text(3, text(1, name) .. text(2, value))
	end
	header(":method", method)
	header(":path", uri)
	header(":authority", host)
	header(":scheme", scheme)
	for name, values in pairs(txn.http:req_get_headers()) do
		name = name:lower()
		if sent == "*" and not FRAMING[name] or names[name] then
			header(name, table.concat(values, ",", 0))
		end
	end
	if with_body then
		local body = f:req_body()
		http[#http + 1] = number(9, #body)
		http[#http + 1] = text(utf8.len(body) and 11 or 12, body)
	end
	local function peer(address, port)
		return text(1, text(1, text(2, address) .. number(3, tonumber(port) or 0)))
	end
	local now = core.now()
	local time = number(1, now.sec) .. number(2, now.usec * 1000)
	local request = text(1, time) .. text(2, table.concat(http))
	local source, destination = peer(f:src(), f:src_port()), peer(f:dst(), f:dst_port())
	return text(1, text(1, source) .. text(2, destination) .. text(4, request))
end

local function permit_by_message(txn, response)
	local is_set = {}
	for _, header in ipairs(headers_of(response, 2)) do
		local name, value, is_added = table.unpack(header)
		if not FRAMING[name] then
			if not is_added and not is_set[name] then
				txn.http:req_del_header(name)
			end
			is_set[name] = true
			txn.http:req_add_header(name, value)
		end
	end
	for _, pair in ipairs(fields(response or "")) do
		if pair[1] == 5 and not FRAMING[pair[2]:lower()] then
			txn.http:req_del_header(pair[2])
		end
	end
	txn:set_var("txn.authorization", "permitted")
end

local function deny_by_message(txn, response)
	local status = last(last(response, 1), 1) or 0
	local reply = txn:reply({ status = status >= 200 and status < 600 and status or 403, body = last(response, 3) or "" })
	for _, header in ipairs(headers_of(response, 2)) do
		if not FRAMING[header[1]] then
			reply:add_header(header[1], header[2])
		end
	end
	txn:done(reply)
end

core.register_action("authorize_grpc", { "http-req" }, function(txn, backend, sent, body)
	local message = check_request(txn, sent, body == "yes")
	local headers = {
		["content-type"] = { "application/grpc" },
		["te"] = { "trailers" },
		["weir-backend"] = { backend },
		["weir-method"] = { "POST" },
	}
	local answer = core.httpclient():post({
		url = URL,
		headers = headers,
		body = "\0" .. string.pack(">s4", message),
		dst = socket,
		timeout = TIMEOUT,
	})
	-- A failed call has no message.
	local frame = answer.status == 200 and answer.body or ""
	if #frame < 5 or frame:byte() ~= 0 then
		return
	end
	local response = string.unpack(">s4", frame, 2)
	if (last(last(response, 1), 1) or 0) == 0 then
		permit_by_message(txn, last(response, 3))
	else
		deny_by_message(txn, last(response, 2))
	end
end, 3)
