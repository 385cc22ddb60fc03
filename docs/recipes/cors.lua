-- Allows pages of other sites to use this one (CORS): `lua.cors` in `http-request` and `http-response` rules.
-- Its argument in `http-request` is a list of allowed origins, separated by commas.

core.register_action("cors", { "http-req" }, function(txn, allowed)
	local origin = txn.sf:req_hdr("origin")
	if origin == "" then
		return
	end
	for _, one in ipairs(core.tokenize(allowed, ",", true)) do
		if one == origin then
			txn:set_priv(origin)
			if txn.sf:method() == "OPTIONS" and txn.sf:req_hdr("access-control-request-method") ~= "" then
				local reply = txn:reply{ status = 204 }
				reply:add_header("access-control-allow-origin", origin)
				reply:add_header("access-control-allow-methods", "GET, POST, PUT, DELETE")
				reply:add_header("access-control-max-age", "600")
				reply:add_header("vary", "origin")
				txn:done(reply)
			end
			return
		end
	end
end, 1)

core.register_action("cors", { "http-res" }, function(txn)
	local origin = txn:get_priv()
	if origin then
		txn.http:res_set_header("access-control-allow-origin", origin)
		txn.http:res_add_header("vary", "origin")
	end
end)
