
-- `lua.authorize`: authorization by services with HTTP.
--
-- backend  the service's backend; the frontend of the socket reads it from a header
-- method   the method of the authorization request, or `-` for the one of the client
-- url      its URL; with the client's method, the client's path is appended
-- sent     the client's headers to send, separated by commas, or `*` for all
-- copied   the headers of the response to add to the client's request, or `*` for all
-- left     a status that is stored in `txn.authorization` instead of being returned to the client, or `-`
-- body     whether to send the body, `yes` or `no`
--
-- A response with a status 2xx permits the request by setting `txn.authorization`; any other response is returned to the client.
-- Without a response, the variable stays unset.

local function chosen(list)
	if list == "*" then
		return function(name) return name ~= "content-type" and name:sub(1, 5) ~= "weir-" end
	end
	local names = names_of(list)
	return function(name) return names[name] end, names
end

-- The headers of the authorization request.
local function request_headers(txn, method, sent)
	local headers, is_sent = {}, chosen(sent)
	for name, values in pairs(txn.http:req_get_headers()) do
		name = name:lower()
		if not FRAMING[name] and (name == "authorization" or is_sent(name)) then
			headers[name] = values
		end
	end
	local host, uri = txn.sf:req_fhdr("host"), txn.sf:pathq()
	if method == "-" then
		headers["host"] = { host }
	else
		local scheme = txn.f:ssl_fc() and "https" or "http"
		headers["x-original-url"] = { scheme .. "://" .. host .. uri }
		headers["x-original-method"] = { txn.sf:method() }
		headers["x-auth-request-redirect"] = { uri }
		headers["x-forwarded-host"] = { host }
		headers["x-forwarded-uri"] = { uri }
		headers["x-forwarded-method"] = { txn.sf:method() }
		headers["x-forwarded-for"] = { txn.sf:src() }
	end
	return headers, uri
end

local function permit(txn, answer, copied)
	local is_copied, names = chosen(copied)
	-- Only the service may set these headers.
	for name in pairs(names or {}) do
		txn.http:req_del_header(name)
	end
	for name, values in pairs(answer.headers) do
		name = name:lower()
		if not FRAMING[name] and name ~= "content-type" and is_copied(name) then
			txn.http:req_del_header(name)
			for index = 0, #values do
				txn.http:req_add_header(name, values[index])
			end
		end
	end
end

local function deny(txn, answer)
	local reply = txn:reply({ status = answer.status, body = answer.body or "" })
	for name, values in pairs(answer.headers) do
		name = name:lower()
		if not FRAMING[name] then
			for index = 0, #values do
				reply:add_header(name, values[index])
			end
		end
	end
	txn:done(reply)
end

core.register_action("authorize", { "http-req" }, function(txn, backend, method, url, sent, copied, left, body)
	local headers, uri = request_headers(txn, method, sent)
	local own = method
	if method == "-" then
		own = txn.sf:method()
		url = url .. uri
	end
	headers["weir-backend"] = { backend }
	-- The response to HEAD has no body, but the script's client sends POST and would wait for one.
	headers["weir-method"] = { own == "HEAD" and "GET" or own }
	local content = body == "yes" and txn.sf:req_body() or ""
	local answer = core.httpclient():post({ url = url, headers = headers, body = content, dst = socket, timeout = TIMEOUT })
	answer.headers = answer.headers or {}
	if answer.status >= 200 and answer.status < 300 then
		permit(txn, answer, copied)
		txn:set_var("txn.authorization", "permitted")
	elseif tostring(answer.status) == left then
		txn:set_var("txn.authorization", left)
	elseif answer.status >= 300 then
		deny(txn, answer)
	end
end, 7)
