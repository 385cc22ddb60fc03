//! Invalid lines in `defaults`, `frontend`, `backend` and `listen`, except for servers, listeners and filters.

/// The whole configuration, and the messages in one-line form.
pub(crate) const CASES: &[(&str, &[&str])] = &[
    (
        "frontend f\n bind :80\n mode http\n timeout client 1s\n http-request set-header a\n http-request deny if nope\n http-request set-header a \"%[foo] b\"\n http-request deny foo\n http-response redirect location / if nope\n http-request deny deny_status abc\n",
        &[
            "[ALERT] [5] : error detected in frontend 'f' while parsing 'http-request set-header' rule : expects exactly 2 arguments.",
            "[ALERT] [6] : error detected while parsing an 'http-request deny' condition : no such ACL : 'nope'.",
            "[ALERT] [7] : error detected in frontend 'f' while parsing 'http-request set-header' rule : failed to parse sample expression <foo] b> : unknown fetch method 'foo'.",
            "[ALERT] [8]: 'http-request deny' expects either 'if' or 'unless' followed by a condition but found 'foo'.",
            "[ALERT] [9] : error detected in frontend 'f' while parsing 'http-response redirect' rule : error in condition: no such ACL : 'nope'.",
            "[ALERT] [10] : error detected in frontend 'f' while parsing 'http-request deny' rule : Unexpected status code '0'.",
        ],
    ),
    (
        "listen l\n bind :80\n mode tcp\n tcp-request content accept if nope\n tcp-request content track-sc0 foo\n tcp-request content accept foo\n use-server s if nope\n stick on foo\n acl a foo\n server s 127.0.0.1:1\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n",
        &[
            "[ALERT] [4] : 'tcp-request content accept' : error detected in proxy 'l' while parsing 'if' condition : no such ACL : 'nope'",
            "[ALERT] [5] : 'tcp-request content track-sc0' : unknown fetch method 'foo'",
            "[ALERT] [6] : 'tcp-request content accept' only accepts 'if' or 'unless', in proxy 'l' (got 'foo')",
            "[ALERT] [7] : error detected while parsing switching rule : no such ACL : 'nope'.",
            "[ALERT] [8] : 'stick': unknown fetch method 'foo'",
            "[ALERT] [9] : error detected while parsing ACL 'a' : unknown fetch method 'foo' in ACL expression 'foo'.",
        ],
    ),
    (
        "mailers m\n mailer a 127.0.0.1:25\nbackend b\n email-alert mailers m\n timeout server 1s\n timeout connect 1s\n",
        &[
            "[WARNING] 'email-alert' will be ignored for backend 'b' (the presence any of 'email-alert from', 'email-alert level' 'email-alert mailers', 'email-alert myhostname', or 'email-alert to' requires each of 'email-alert from', 'email-alert mailers' and 'email-alert to' to be present).",
            "[WARNING] Removing incomplete section 'mailers m'.",
        ],
    ),
    (
        "backend b\n server s nosuch.invalid:80 init-addr libc,127.0.0.1\n timeout server 1s\n timeout connect 1s\n",
        &[
            "[NOTICE] [test.cfg:2] : 'server b/s' : could not resolve address 'nosuch.invalid', falling back to configured address.",
        ],
    ),
    (
        "backend b\n balanse x\n",
        &["[ALERT] [2] : unknown keyword 'balanse' in 'backend' section; did you mean 'balance' maybe ?"],
    ),
    (
        "frontend f\n mode http\n bind :80\n stats auth a:b\n stats http-request deny if FALSE\n",
        &["[ALERT] proxy 'f': stats 'auth'/'realm' and 'http-request' can't be used at the same time."],
    ),
    (
        "frontend f\n mode http\n bind :80\n stats realm r\n stats http-request auth\n",
        &["[ALERT] proxy 'f': stats 'auth'/'realm' and 'http-request' can't be used at the same time."],
    ),
    ("backend b\n option foo\n", &["[ALERT] [2] : unknown option 'foo'."]),
    (
        "backend b\n option httpchck\n",
        &["[ALERT] [2] : unknown option 'httpchck'; did you mean 'httpchk' maybe ?"],
    ),
    (
        "backend b\n bind :80\n",
        &["[WARNING] [2] : 'bind' ignored because backend 'b' has no frontend capability."],
    ),
    (
        "defaults\n clitimeout 3\n",
        &[
            "[ALERT] [2] : the 'clitimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout client'.",
        ],
    ),
    (
        "defaults\n timeout client\n",
        &["[ALERT] [2] : 'timeout client' expects an integer value (in milliseconds)"],
    ),
    (
        "defaults\n timeout client 3x\n",
        &["[ALERT] [2] : unexpected character 'x' in argument to <timeout client>."],
    ),
    (
        "defaults\n timeout client 99999999999\n",
        &[
            "[ALERT] [2] : timer overflow in argument <99999999999> to <timeout client> (maximum value is 2147483647 ms or ~24.8 days).",
        ],
    ),
    (
        "defaults\n timeout client 1us\n",
        &[
            "[ALERT] [2] : timer underflow in argument <1us> to <timeout client> (minimum non-null value is 1 ms).",
        ],
    ),
    (
        "defaults\n timeout client 1s[\n",
        &["[WARNING] [2] : '[' after a time is ignored; read as '1s', the units are us, ms, s, m, h and d"],
    ),
    ("defaults\n mode foo\n", &["[ALERT] [2] : unknown proxy mode 'foo'."]),
    (
        "frontend f\n mode htttp\n bind :80\n timeout client 1s\n http-request return status 200\n option forwardfor\n",
        &["[ALERT] [2] : unknown proxy mode 'htttp'."],
    ),
    (
        "frontend f\n bind :80\n mode http\n timeout client 1s\n tcp-request content capture src id 0\n http-request capture path id 1\n http-request capture path len 0\n declare capture request len 4\n http-response capture status id 0\nbackend b\n mode http\n http-request capture path id 7\n",
        &[
            "[ALERT] [7] : error detected in frontend 'f' while parsing 'http-request capture' rule : a capture's length must be > 0.",
            "[ALERT] Proxy 'f': unable to find capture id '1' referenced by http-request capture rule.",
            "[ALERT] Proxy 'f': unable to find capture id '0' referenced by http-response capture rule.",
        ],
    ),
    (
        "frontend f\n bind :80\n mode http\n timeout client 1s\n tcp-request connection unset-var(req.a)\n tcp-request session set-var(txn.a) src\n tcp-request session set-var(sess.a) src\n",
        &[
            "[DIAG] [5] : 'req.a' cannot be set in 'tcp-request connection' rules; no request has been received yet; use a variable with scope sess or proc",
            "[DIAG] [6] : 'txn.a' cannot be set in 'tcp-request session' rules; no request has been received yet; use a variable with scope sess or proc",
        ],
    ),
    ("defaults\n maxconn\n", &["[ALERT] [2] : 'maxconn' expects an integer argument."]),
    (
        "backend b\n mode http\n http-response redirect prefix /x\n http-request redirect prefix /x\n",
        &[
            "[ALERT] [3] : error detected in backend 'b' while parsing 'http-response redirect' rule : response only supports redirect type 'location'..",
        ],
    ),
    (
        "backend b\n balance foo\n",
        &[
            "[ALERT] [2] : balance only supports 'roundrobin', 'static-rr', 'leastconn', 'source', 'uri', 'url_param', 'hash', 'hdr(name)', 'rdp-cookie(name)', 'log-hash' and 'log-sticky' options.",
        ],
    ),
    ("backend b\n balance random(2\n", &["[ALERT] [2] : balance random : missing closing parenthesis."]),
    ("backend b\n balance rdp-cookie()\n", &["[ALERT] [2] : balance rdp-cookie : missing cookie name."]),
    (
        "backend b\n mode http\n balance hash path foo\n",
        &["[ALERT] [3] : balance hash takes no other argument (got 'foo')."],
    ),
    (
        "backend b\n mode http\n persist rdp-cookie\nbackend c\n persist rdp-cookies\n",
        &[
            "[ALERT] [5] : unknown persist method.",
            "[WARNING] 'persist rdp-cookie' will be ignored for backend 'b' (needs 'mode tcp').",
        ],
    ),
    (
        "backend b\n balance uri\n external-check path /bin\n",
        &[
            "[WARNING] Layer 7 hash not possible for backend 'b' (needs 'mode http'). Falling back to round robin.",
            "[WARNING] 'external-check path' will be ignored for backend 'b' (requires 'option external-check').",
        ],
    ),
    (
        "global\n external-check\n insecure-fork-wanted\nbackend b\n option external-check\n external-check command true\n server s 1.1.1.1:1 check\n",
        &[
            "[ALERT] Proxy 'b': 'external-check command' does not have a leading '/' and 'external-check path' is not set.",
        ],
    ),
    (
        "backend b\n timeout tarpit 10\n",
        &[
            "[WARNING] [2] : 'timeout tarpit 10' in backend 'b' is suspiciously small for a value in milliseconds. Please use an explicit unit ('10ms') if that was the intent.",
        ],
    ),
    ("backend b\n timeout tarpit 10ms\n timeout check 100\n timeout queue 0\n", &[]),
    (
        "backend b\n timeout server 7s\n timeout connect 1s\n timeout server 7s\n",
        &["[WARNING] [4] : overwriting 'timeout server' which was already specified"],
    ),
    ("defaults\n timeout server 7s\n timeout server 8s\n", &[]),
    (
        "backend b\n mode tcp\n option checkcache\n option originalto\n stats enable\n stats uri /\n",
        &[
            "[WARNING] 'stats' statement ignored for backend 'b' as it requires HTTP mode.",
            "[WARNING] 'option checkcache' ignored for backend 'b' as it requires HTTP mode.",
            "[WARNING] 'option originalto' ignored for backend 'b' as it requires HTTP mode.",
        ],
    ),
    (
        "listen l\n bind :1\n option http-drop-request-trailers\n",
        &["[WARNING] 'option http-drop-request-trailers' ignored for proxy 'l' as it requires HTTP mode."],
    ),
    (
        "defaults\n option dontlognull now\n",
        &["[ALERT] [2] : 'option dontlognull' cannot handle unexpected argument 'now'."],
    ),
    (
        "defaults\n no option abortonclose x\n",
        &["[ALERT] [2] : 'option abortonclose' cannot handle unexpected argument 'x'."],
    ),
    (
        "defaults\n no option forwardfor\n",
        &["[ALERT] [2] : negation/default is not supported for option 'forwardfor'."],
    ),
    (
        "backend b\n no option httpchk\n",
        &["[ALERT] [2] : negation/default is not supported for option 'httpchk'."],
    ),
    (
        "backend b\n no cookie C\n",
        &["[ALERT] [2] : negation/default currently supported only for options and log; got 'no cookie'."],
    ),
    (
        "backend b\n maxconn 5\n",
        &[
            "[WARNING] [2] : 'maxconn' ignored because backend 'b' has no frontend capability. Maybe you want 'fullconn' instead ?",
        ],
    ),
    (
        "frontend f\n timeout client 1s\n bind :1\n server-state-file-name x\n",
        &["[WARNING] [4] : 'server-state-file-name' ignored because frontend 'f' has no backend capability."],
    ),
    ("defaults\n server-state-file-name x\n", &[]),
    (
        "backend b\n http-send-name-header\n",
        &["[ALERT] [2] : 'http-send-name-header' expects a header name as argument."],
    ),
    (
        "backend b\n http-send-name-header Transfer-Encoding\n",
        &[
            "[ALERT] [2] : 'Transfer-Encoding' cannot be used as header name for 'http-send-name-header' directive.",
        ],
    ),
    (
        "backend b\n http-send-name-header host\n",
        &["[ALERT] [2] : 'host' cannot be used as header name for 'http-send-name-header' directive."],
    ),
    (
        "backend b\n http-send-name-header content-length\n",
        &[
            "[ALERT] [2] : 'content-length' cannot be used as header name for 'http-send-name-header' directive.",
        ],
    ),
    (
        "backend b\n http-send-name-header connection\n",
        &["[ALERT] [2] : 'connection' cannot be used as header name for 'http-send-name-header' directive."],
    ),
    ("backend b/c\n", &["[ALERT] [1] : character '/' is not permitted in 'backend' name 'b/c'."]),
    ("backend\n", &["[ALERT] [1] : 'backend' expects an <id> argument"]),
    (
        "backend b\nbackend b\n",
        &[
            "[ALERT] [2]: backend 'b' has the same name as backend 'b' declared at test.cfg:1. Please rename one or the other.",
        ],
    ),
    (
        "listen b\n id 5\nlisten c\n id 5\n",
        &["[ALERT] [4]: proxy c reuses same custom id as proxy b (declared at test.cfg:1)."],
    ),
    (
        "frontend f\n bind :80\n default_backend c\n",
        &["[ALERT] Proxy 'f': unable to find required default_backend: 'c'."],
    ),
    (
        "frontend f\n bind :80\n use_backend c\n",
        &["[ALERT] Proxy 'f': unable to find required use_backend: 'c'."],
    ),
    (
        "frontend f\n",
        &[
            "[WARNING] frontend 'f' has no 'bind' directive. Please declare it as a backend if this was intended.",
        ],
    ),
    (
        "frontend f\n bind :80\n option httplog\n log /dev/log local0\n",
        &[
            "[WARNING] [3] : 'option httplog' not usable with frontend 'f' (needs 'mode http'). Falling back to 'option tcplog'.",
        ],
    ),
    (
        "frontend f\n bind :80\n option tcplog\n",
        &["[WARNING] log format ignored for frontend 'f' since it has no log address."],
    ),
    (
        "backend b\n http-request deny\n",
        &["[WARNING] 'http-request' rules ignored for backend 'b' as they require HTTP mode."],
    ),
    (
        "frontend f from nope\n bind :80\n timeout client 1s\n",
        &["[ALERT] [1] : defaults section 'nope' not found for frontend 'f'."],
    ),
    (
        "backend b\n no server a 1.1.1.1\n",
        &["[ALERT] [2] : negation/default currently supported only for options and log; got 'no server'."],
    ),
    (
        "backend b\n cookie c rewrite insert\n",
        &["[ALERT] [2] : cookie 'rewrite', 'insert' and 'prefix' are mutually exclusive."],
    ),
    (
        "frontend f\n bind :80\n mode http\n redirect prefix /\n http-request deny\n tcp-request content accept\n",
        &[
            "[WARNING] [5] : a 'http-request' rule placed after a 'redirect' rule will still be processed before.",
            "[WARNING] [6] : a 'tcp-request' rule placed after an 'http-request' rule will still be processed before.",
        ],
    ),
];
