-- Queries a service whether a request may pass: `http-request lua.sign-in <url>`. It sets `txn.signed` to `yes`
-- if the service answers 2xx, to `no` if it answers 401 or 403, and to `unknown` otherwise. The service returns
-- the user's name in `x-user`, which is forwarded to the server in that header.

core.register_action("sign-in", { "http-req" }, function(txn, url)
	local headers = { ["x-uri"] = { txn.sf:url() } }
	for _, name in ipairs({ "authorization", "cookie" }) do
		local value = txn.sf:req_hdr(name)
		if value ~= "" then
			headers[name] = { value }
		end
	end
	local answer = core.httpclient():get{ url = url, headers = headers, timeout = 2000 }
	local signed = "unknown"
	if answer.status >= 200 and answer.status < 300 then
		signed = "yes"
		local user = answer.headers and answer.headers["x-user"]
		if user then
			txn.http:req_set_header("x-user", user[0])
		end
	elseif answer.status == 401 or answer.status == 403 then
		signed = "no"
	end
	txn:set_var("txn.signed", signed)
end, 1)
