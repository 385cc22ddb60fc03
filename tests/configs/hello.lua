-- The script loaded by lua-and-spoe.cfg.
core.register_action("hello", { "http-req" }, function(txn)
    txn.http:req_set_header("x-hello", "from a script")
end)
