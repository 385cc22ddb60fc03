-- What lua-and-spoe.cfg loads.
core.register_action("hello", { "http-req" }, function(txn)
    txn.http:req_set_header("x-hello", "from a script")
end)
