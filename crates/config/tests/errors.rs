//! Wrong configurations are explained: in HAProxy's words for tools, at the right byte for people.

mod common;

use common::{lines, load, load_quietly, places};

/// The whole configuration, and the messages in one-line form.
const HAPROXY: &[(&str, &[&str])] = &[
    ("global\n balanse x\n", &["[ALERT] [2] : unknown keyword 'balanse' in 'global' section"]),
    (
        "backend b\n balanse x\n",
        &["[ALERT] [2] : unknown keyword 'balanse' in 'backend' section; did you mean 'balance' maybe ?"],
    ),
    (
        "userlist u\n group g users a\n user a insecure-password b\nfrontend f\n mode http\n bind :1\n acl x http_auth_group(u) g\n acl y http_auth_group(u) gg\n",
        &["[ALERT] [8] : acl http_auth_group(): invalid group 'gg'."],
    ),
    (
        "userlist u\n group g\nfrontend f\n mode http\n bind :1\n http-request deny if { http_auth_group(u) }\n",
        &["[ALERT] [6] : acl http_auth_group(): no groups specified."],
    ),
    ("glbal\n", &["[ALERT] [1] : unknown keyword 'glbal' out of section; did you mean 'global' maybe ?"]),
    ("backend b\n option foo\n", &["[ALERT] [2] : unknown option 'foo'."]),
    (
        "backend b\n option httpchck\n",
        &["[ALERT] [2] : unknown option 'httpchck'; did you mean 'httpchk' maybe ?"],
    ),
    (
        "backend b\n bind :80\n",
        &["[WARNING] [2] : 'bind' ignored because backend 'b' has no frontend capability."],
    ),
    ("defaults\n server a 1.1.1.1\n", &["[ALERT] [2] : 'server' not allowed in 'defaults' section."]),
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
    ("defaults\n timeout client 1s[\n", &["[WARNING] [2] : '[' behind a time is ignored"]),
    ("defaults\n mode foo\n", &["[ALERT] [2] : unknown proxy mode 'foo'."]),
    (
        "resolvers r\n nameserver a\n",
        &["[ALERT] [2] : 'nameserver' expects <name> and <addr>[:<port>] as argument."],
    ),
    (
        "resolvers r\n nameserver a 127.0.0.1:53\n nameserver a [::1]:53\n nameserver b quic4@1.1.1.1:53\n nameserver c 1.1.1.1:53 ssl\n nameserver d/ 1.1.1.1\n",
        &[
            "[ALERT] [3] : server 'a' already exists in this resolvers section.",
            "[ALERT] [4] : 'nameserver … quic4@1.1.1.1:53' is not supported yet",
            "[ALERT] [5] : 'ssl' needs a name server that is asked over connections; 'tcp@1.1.1.1:53'",
            "[ALERT] [6] : character '/' is not permitted in server name 'd/'.",
        ],
    ),
    (
        "resolvers r\n nameserver a 127.0.0.1:53\n hold foo 3\n hold nx 3z\n timeout retry 0\n timeout query 3\n accepted_payload_size 9\nresolvers r\n",
        &[
            "[ALERT] [6] : 'timeout' does not know 'query'.",
            "[ALERT] [3] : 'hold' expects one of 'nx', 'other', 'refused', 'timeout', 'valid', 'obsolete' (got 'foo').",
            "[ALERT] [4] : unexpected character 'z' in argument to <hold>.",
            "[ALERT] [5] : 'timeout retry' : unexpected value 0, at least 1ms is needed.",
            "[ALERT] [7] : 'accepted_payload_size' expects a number between 12 and 65535 (got '9').",
            "[ALERT] [8] : resolvers 'r' has same name as another resolvers (declared at test.cfg:1).",
        ],
    ),
    (
        "resolvers dns\n nameserver a 127.0.0.1:53\nbackend b\n server s 1.1.1.1:80 resolvers dsn\n server t 1.1.1.1 resolve-opts dup\n server u 1.1.1.1 resolve-net 10/8\n server v 1.1.1.1 resolve-prefer v4\n",
        &[
            "[ALERT] [5] : 'server b/t' : 'resolve-opts' : unknown resolve-opts option 'dup', supported methods are 'allow-dup-ip', 'ignore-weight', and 'prevent-dup-ip'.",
            "[ALERT] [6] : 'server b/u' : 'resolve-net' invalid network '10/8'.",
            "[ALERT] [7] : 'server b/v' : 'resolve-prefer' expects one of 'ipv4', 'ipv6' (got 'v4').",
            "[ALERT] [4] : 'server b/s' : unable to find required resolvers 'dsn'",
        ],
    ),
    (
        "frontend f\n bind :80\n mode http\n timeout client 1s\n tcp-request content capture src id 0\n http-request capture path id 1\n http-request capture path len 0\n declare capture request len 4\n http-response capture status id 0\nbackend b\n mode http\n http-request capture path id 7\n",
        &[
            "[ALERT] [7] : a capture's length must be > 0",
            "[ALERT] Proxy 'f': unable to find capture id '1' referenced by http-request capture rule.",
            "[ALERT] Proxy 'f': unable to find capture id '0' referenced by http-response capture rule.",
        ],
    ),
    (
        "global\n set-var proc.a int(1)\n set-var txn.a int(1)\n set-var-fmt sess.a x\n",
        &[
            "[ALERT] [3] : 'set-var': cannot set variable 'txn.a', only scope 'proc' is permitted in the global section.",
            "[ALERT] [4] : 'set-var-fmt': cannot set variable 'sess.a', only scope 'proc' is permitted in the global section.",
        ],
    ),
    (
        "frontend f\n bind :80\n mode http\n timeout client 1s\n tcp-request connection unset-var(req.a)\n tcp-request session set-var(txn.a) src\n tcp-request session set-var(sess.a) src\n",
        &[
            "[WARNING] [5] : 'req.a' is not set by 'tcp-request connection' rules; there is no request yet; variables of the scopes sess and proc can be set there",
            "[WARNING] [6] : 'txn.a' is not set by 'tcp-request session' rules; there is no request yet; variables of the scopes sess and proc can be set there",
        ],
    ),
    (
        "backend b\n server s _http._tcp.test\n server t no-such-host.invalid:80 init-addr none\n server u no-such-host.invalid:80 init-addr last\n",
        &[
            "[ALERT] [2] : 'server b/s' : no method found to resolve address '_http._tcp.test'.",
            "[ALERT] [4] : 'server b/u' : no method found to resolve address 'no-such-host.invalid'.",
        ],
    ),
    (
        "frontend f\n bind :80\n timeout client 1s\n mode http\n filter trce\n filter spoe engine x\n filter trace quite\n filter bwlim-in a default-limit 1k\n filter bwlim-out b limit 1k key src table t\n filter bwlim-out c default-limit 1k default-period 1s\n filter bwlim-in c default-limit 0\n filter bwlim-in c default-limit 1 default-period 1\n filter-sequence request trace,bwlim-out\n http-request set-bandwidth-limit d\n",
        &[
            "[ALERT] [5] : 'filter' : unknown keyword 'trce'; did you mean 'trace' maybe ?.",
            "[ALERT] [6] : 'filter' : 'spoe' : missing config file",
            "[ALERT] [7] : 'filter trace' : unknown argument 'quite'.",
            "[ALERT] [8] : 'filter bwlim-in' : <default-limit> and <default-period> must be set for per-stream bandwidth limitations.",
            "[ALERT] [11] : 'filter' : '0' expects a value greater than 0.",
            "[ALERT] [12] : 'filter' : bwlim filter 'c' already exists in this proxy.",
            "[ALERT] [13] : 'filter-sequence' : unable to find filter 'trace' in the proxy.",
            "[ALERT] Proxy f : unable to find table 't' referenced by bwlim filter 'b'",
            "[ALERT] [14] : there is no bandwidth filter 'd' here; 'filter bwlim-in' and 'filter bwlim-out' declare them, in the same proxy",
        ],
    ),
    (
        "global\n dns-accept-family ipv5\n",
        &[
            "[ALERT] [2] : 'dns-accept-family' expects a comma-delimited list of 'ipv4', 'ipv6' and 'auto' (got 'ipv5').",
        ],
    ),
    (
        "global\n cpu-map auto:1/1-4 0\n",
        &["[ALERT] [2] : 'auto:' needs as many CPUs as threads: 4 threads and 1 CPUs are named"],
    ),
    (
        "global\n cpu-map x 0\n",
        &["[ALERT] [2] : 'x' is none of 'all', 'odd', 'even', a number and a range like '1-4'"],
    ),
    (
        "global\n cpu-map 1 z\n",
        &["[ALERT] [2] : 'z' is no set of CPUs; a number or a range like '0-3'; CPUs are counted from 0"],
    ),
    (
        "global\n cpu-map 1 0-1023 1024\n cpu-map 1 18446744073709551615\n cpu-set drop-cpu 1024\n cpu-set drop-core 5000\n",
        &[
            "[ALERT] [2] : cpu-map : supports CPU numbers from 0 to 1023.",
            "[ALERT] [3] : cpu-map : supports CPU numbers from 0 to 1023.",
            "[ALERT] [4] : 'cpu-set drop-cpu': supports CPU numbers from 0 to 1023.",
        ],
    ),
    (
        "global\n cpu-map 65 0\n cpu-map 1/65 0\n cpu-map 64/60-70 0\n cpu-map 1-/64- 0, 1\n",
        &[
            "[ALERT] [2] : cpu-map : '65' is not a valid number/range. It supports numbers from 1 to 64.",
            "[ALERT] [3] : cpu-map : '65' is not a valid number/range. It supports numbers from 1 to 64.",
            "[ALERT] [4] : cpu-map : '60-70' is not a valid number/range. It supports numbers from 1 to 64.",
        ],
    ),
    (
        "global\n thread-group 1 1-66\n",
        &["[ALERT] [2] : 'thread-group 1' has 66 threads, and a group at most 64"],
    ),
    (
        "global\n cpu-set only-nodes 0\n",
        &[
            "[ALERT] [2] : 'cpu-set' does not know 'only-nodes'; did you mean 'only-node' maybe ?; one of: drop-cpu, only-cpu, drop-node, only-node, drop-cluster, only-cluster, drop-core, only-core, drop-thread, only-thread, reset",
        ],
    ),
    (
        "global\n nbthread 2\n thread-groups 3\n",
        &["[ALERT] 3 thread groups need at least as many threads, and there are 2"],
    ),
    (
        "global\n nbthread 2\nfrontend f\n timeout client 1s\n bind :1 thread 3\n",
        &["[ALERT] [5] : none of the threads that 'thread' names exists: there are 2"],
    ),
    (
        "global\n nbthread 2\nfrontend f\n timeout client 1s\n bind :1 thread 1-2/1\n",
        &[
            "[ALERT] [5] : '1-2' is no thread group; one number before the slash: '2/1-4' are threads 1 to 4 of the second group",
        ],
    ),
    (
        "frontend f\n timeout client 1s\n bind :1 shards 1025\n",
        &[
            "[ALERT] [3] : 'bind :1' in section 'frontend': 'shards' expects a number between 1 and 1024 (got '1025').",
        ],
    ),
    ("defaults\n maxconn\n", &["[ALERT] [2] : 'maxconn' expects an integer argument."]),
    (
        "backend b\n mode http\n http-response redirect prefix /x\n http-request redirect prefix /x\n",
        &["[ALERT] [3] : response only supports redirect type 'location'."],
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
    ("backend b\n server a\n", &["[ALERT] [2] : 'server' expects <name> and <addr>[:<port>] as arguments."]),
    ("backend b\n server a 1.1.1.1 fooo\n", &["[ALERT] [2] : 'server b/a' : unknown keyword 'fooo'"]),
    (
        "backend b\n server a 1.1.1.1 wieght 3\n",
        &["[ALERT] [2] : 'server b/a' : unknown keyword 'wieght'; did you mean 'weight' maybe ?"],
    ),
    (
        "backend b\n server a 1.1.1.1 weight 300\n",
        &["[ALERT] [2] : 'server b/a' : weight of server is not within 0 and 256 (300)."],
    ),
    (
        "backend b\n server x/y 1.1.1.1\n",
        &["[ALERT] [2] : character '/' is not permitted in server name 'x/y'."],
    ),
    (
        "backend b\n server x 1.1.1.1:x\n",
        &["[ALERT] [2] : 'server' : invalid port number 'x' in '1.1.1.1:x'"],
    ),
    (
        "backend b\n server s 1.1.1.1:1 check fastinter 0\n",
        &["[ALERT] [2] : 'server b/s' : invalid value 0 for argument 'fastinter' of server s."],
    ),
    (
        "frontend f\n timeout client 1s\n bind :1 mss 0\n",
        &[
            "[ALERT] [3] : 'bind :1' in section 'frontend': 'mss' : expects an MSS with an absolute value between 1 and 65535",
        ],
    ),
    (
        "global\n external-check\n insecure-fork-wanted\nbackend b\n option external-check\n external-check command true\n server s 1.1.1.1:1 check\n",
        &[
            "[ALERT] Proxy 'b': 'external-check command' does not have a leading '/' and 'external-check path' is not set.",
        ],
    ),
    (
        "backend b\n server s 1.1.1.1:1 namespace not-there\n server t 1.1.1.1:1 namespace *\n",
        &[
            "[ALERT] [2] : 'server b/s' : Cannot open namespace 'not-there'.",
            "[ALERT] [3] : 'namespace *' is not supported yet",
        ],
    ),
    (
        "global\n localpeer\n localpeer a b\n",
        &[
            "[ALERT] [2] : 'localpeer' expects a name as argument.",
            "[ALERT] [3] : 'localpeer' cannot handle unexpected argument 'b'.",
        ],
    ),
    (
        "frontend f\n timeout client 1s\n bind :1 namespace not-there\n",
        &["[ALERT] [3] : 'bind :1' in section 'frontend': Cannot open namespace 'not-there'."],
    ),
    (
        "backend b\n timeout tarpit 10\n",
        &[
            "[WARNING] [2] : 'timeout tarpit 10' in backend 'b' is suspiciously small for a value in milliseconds. Please use an explicit unit ('10ms') if that was the intent.",
        ],
    ),
    ("backend b\n timeout tarpit 10ms\n timeout check 100\n timeout queue 0\n", &[]),
    (
        "backend b\n server s 1.1.1.1:1 check inter 5 fastinter 6ms downinter 700\n",
        &[
            "[WARNING] [2] : 'inter 5' in server 's' is suspiciously small for a value in milliseconds. Please use an explicit unit ('5ms') if that was the intent.",
        ],
    ),
    (
        "backend b\n timeout server 7s\n timeout connect 1s\n timeout server 7s\n",
        &["[WARNING] [4] : overwriting 'timeout server' which was already specified"],
    ),
    ("defaults\n timeout server 7s\n timeout server 8s\n", &[]),
    (
        "global\n maxconn 5\n maxconn 6\n uid 0\n user root\n",
        &[
            "[WARNING] [3] : 'maxconn' already specified. Continuing.",
            "[WARNING] [5] : user/uid already specified. Continuing.",
        ],
    ),
    ("global\n crt-base /a\nglobal\n crt-base /b\n", &["[ALERT] [4] : 'crt-base' already specified."]),
    (
        "backend b\n mode tcp\n option checkcache\n option originalto\n stats enable\n stats uri /\n",
        &[
            "[WARNING] 'stats' statement ignored for backend 'b' as it requires HTTP mode.",
            "[WARNING] 'option checkcache' ignored for backend 'b' as it requires HTTP mode.",
            "[WARNING] 'option originalto' ignored for backend 'b' as it requires HTTP mode.",
        ],
    ),
    (
        "backend b\n server s 1.1.1.1:1 tfo\n",
        &[
            "[WARNING] [2] : 'server b/s' : server has tfo activated, the backend should be configured with at least 'conn-failure', 'empty-response' and 'response-timeout' or we wouldn't be able to retry the connection on failure.",
        ],
    ),
    ("backend b\n retry-on conn-failure empty-response response-timeout\n server s 1.1.1.1:1 tfo\n", &[]),
    ("listen l\n bind :1\n option http-drop-request-trailers\n", &[]),
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
        "global\n nbproc 2\n",
        &[
            "[ALERT] [2] : the 'nbproc' directive is not supported anymore since HAProxy 2.5. There is one process; `nbthread` says how many threads it has.",
        ],
    ),
    (
        "frontend f\n timeout client 1s\n bind :1 process 1\n",
        &[
            "[ALERT] [3] : 'bind :1' in section 'frontend': 'process 1' on 'bind' lines is not supported anymore, please use 'thread' instead.",
        ],
    ),
    (
        "backend b\n server x 1.1.1.1:1\n server y 1.1.1.1:1 track nope\n",
        &["[ALERT] [3] : 'server b/y' : unable to find required server 'nope' for tracking."],
    ),
    (
        "backend b\n server y 1.1.1.1:1 track c/x\n",
        &["[ALERT] [2] : 'server b/y' : unable to find required proxy 'c' for tracking."],
    ),
    (
        "backend b\n server x 1.1.1.1:1\n server y 1.1.1.1:1 track b/x\n",
        &[
            "[ALERT] [3] : 'server b/y' : unable to use b/x for tracking as it does not have any check nor agent enabled.",
        ],
    ),
    ("backend b\n server x 1.1.1.1:1 check\n server y 1.1.1.1:1 track z\n server z 1.1.1.1:1 track x\n", &[]),
    ("backend b\n server x 1.1.1.1:1 agent-check agent-port 1\n server y 1.1.1.1:1 track x\n", &[]),
    (
        "backend b\n server x 1.1.1.1:1 track x\n",
        &[
            "[ALERT] [2] : 'server b/x' : unable to track b/x as it belongs to a tracking chain looping back to b/x.",
        ],
    ),
    (
        "backend b\n server x 1.1.1.1:1 check track y\n server y 1.1.1.1:1 check\n",
        &["[ALERT] [2] : 'server b/x' : unable to enable checks and tracking at the same time!"],
    ),
    (
        "backend b\n server x name.invalid:80\n",
        &["[ALERT] [2] : 'server b/x' : could not resolve address 'name.invalid'."],
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
        "listen l\n bind :8 id 4\n bind :9 id 4\n",
        &[
            "[ALERT] [3] : 'bind :9' in section 'listen': 'id' : custom id 4 already used at test.cfg:2 ('bind :8')",
        ],
    ),
    (
        "frontend f\n bind :80 fooo\n",
        &["[ALERT] [2] : 'bind :80' in section 'frontend': unknown keyword 'fooo'"],
    ),
    (
        "frontend f\n bind\n",
        &["[ALERT] [2] : 'bind' expects {<path>|[addr1]:port1[-end1]}{,[addr]:port[-end]}... as arguments."],
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
        "dynamic-update\n update id-pattern x\nhaterm h\n bind :80\n",
        &[
            "[ALERT] [1] : section 'dynamic-update' is not supported yet",
            "[ALERT] [3] : section 'haterm' is not supported yet",
        ],
    ),
    ("cache c\n max-age 5\n", &["[ALERT] Size not specified for cache 'c'"]),
    (
        "cache c\n total-max-size 1\n max-object-size 524289\n",
        &["[ALERT] \"max-object-size\" is limited to an half of \"total-max-size\" => 524288"],
    ),
    (
        "cache c\n total-max-size 1\n early-hints only\n process-range on\n max-age 5\n",
        &["[WARNING] [4] : 'process-range' has no effect with 'early-hints only'; no response is kept then"],
    ),
    (
        "cache c\n total-max-size 1\n disk /d\n",
        &["[ALERT] [3] : 'size' and the size of the directory come next, such as 'size 10g'"],
    ),
    (
        "cache c\n total-max-size 1\n disk /d size 4k\n",
        &["[ALERT] [3] : a directory of 4096 bytes is too small: at least 1m"],
    ),
    (
        "cache c\n total-max-size 1\n disk /d size 1m\ncache e\n total-max-size 1\n disk /d size 2m\n",
        &[
            "[ALERT] [6] : two caches cannot have the directory '/d'; each has a directory of its own; the first has it here at [test.cfg:3]",
        ],
    ),
    (
        "cache c\n total-max-size 1\n disk /d size 1m\n early-hints only\n revalidation on\n",
        &[
            "[WARNING] [3] : 'disk' has no effect with 'early-hints only'; no response is kept then",
            "[WARNING] [5] : 'revalidation' has no effect with 'early-hints only'; no response is kept then",
        ],
    ),
    (
        "cache c\n total-max-size 1\ncache c\n total-max-size 1\n",
        &["[ALERT] [3] : Duplicate cache name 'c'."],
    ),
    (
        "cache c\n total-max-size 1\nlisten l\n bind :80\n mode http\n http-request cache-use d\n",
        &["[ALERT] config: Proxy 'l': unable to find the cache 'd' referenced by the filter 'cache'."],
    ),
    (
        "cache c\n total-max-size 1\nlisten l\n bind :80\n mode http\n filter trace\n http-request cache-use c\n",
        &["[ALERT] config: proxy 'l': require an explicit filter declaration to use the cache 'c'."],
    ),
    (
        "cache c\n total-max-size 1\nlisten l\n bind :80\n mode http\n compression algo gzip\n filter compression\n filter cache c\n",
        &["[ALERT] config: proxy 'l': unable to enable the compression filter before the cache 'c'."],
    ),
    (
        "cache c\n total-max-size 1\nlisten l\n bind :80\n mode http\n compression algo gzip\n filter cache c\n filter comp-res\n filter-sequence response comp-res,cache\n",
        &["[ALERT] config: proxy 'l': unable to enable the compression filter before the cache 'c'."],
    ),
    (
        "listen l\n bind :80\n mode http\n compression algo gzip\n filter trace\n filter compression\n filter-sequence request comp-req,tarce\n filter-sequence response trace,compres\n",
        &[
            "[ALERT] [7] : 'filter-sequence' : unable to find filter 'tarce' in the proxy.",
            "[ALERT] [8] : 'filter-sequence' : unable to find filter 'compres' in the proxy.",
        ],
    ),
    (
        "listen l\n bind :80\n mode http\n filter cache d\n",
        &["[ALERT] config: proxy 'l': unable to find the cache 'd' referenced by the filter 'cache'."],
    ),
    (
        "frontend f\n bind :443 ssl crt x\n",
        &[
            "[ALERT] [2] : 'bind :443' in section 'frontend' : unable to stat SSL certificate from file 'x' : No such file or directory.",
        ],
    ),
    (
        "global\n ssl-engine X\n",
        &[
            "[WARNING] [2] : 'ssl-engine' has no effect: engines are gone from OpenSSL: providers took their place ('ssl-provider')",
        ],
    ),
    (
        "backend b\n no server a 1.1.1.1\n",
        &["[ALERT] [2] : negation/default currently supported only for options and log; got 'no server'."],
    ),
    ("global\n daemon x\n", &["[ALERT] [2] : 'daemon' cannot handle unexpected argument 'x'."]),
    ("global\n log 127.0.0.1 local9\n", &["[ALERT] [2] : unknown log facility 'local9'"]),
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
    (
        "userlist u\n user a insecure-password b groups g\n",
        &["[ALERT] [2] : userlist: no such group 'g' specified in user 'a'"],
    ),
];

#[test]
fn messages_use_the_words_of_haproxy() {
    for (text, expected) in HAPROXY {
        assert_eq!(lines(&load_quietly(text)), *expected, "{text}");
    }
}

#[test]
fn messages_point_at_the_words_they_are_about() {
    let cases: &[(&str, &[&str])] = &[
        (
            "backend b\n   balanse x\n",
            &["2:4 unknown keyword `balanse` in `backend` section (did you mean `balance`?)"],
        ),
        (
            "backend b\n timeout client 3s\n",
            &[
                "2:2 `timeout client` is ignored: backend `b` has no frontend's side (allowed in: defaults, frontend, listen, log-forward)",
            ],
        ),
        (
            "backend b\n timeout server 3sx\n timeout server 3.5s\n",
            &[
                "2:19 `x` behind a time is ignored",
                "3:18 `timeout server`: unexpected character '.' in `3.5s` (a whole number and one of: us, ms, s, m, h, d)",
                "3:2 `timeout server` was said before: this line counts",
            ],
        ),
        (
            "backend b\n balance uri dpeth 3\n",
            &["2:14 `balance uri` does not know `dpeth` (did you mean `depth`?)"],
        ),
        (
            "backend b\n server s \"10.0.0.1:8x\"\n",
            &["2:21 `server`: invalid port number `8x` in `10.0.0.1:8x`"],
        ),
        ("backend b\n retries 5 6\n", &["2:12 `retries` has no use for `6` (usage: retries <value>)"]),
        (
            "listen l\n bind :80\n mode http\n compression algo gzip\n filter trace\n filter comp-res\n filter-sequence response comp-re,tarce\n",
            &[
                "7:27 no filter `comp-re` is declared here (did you mean `comp-res`?)",
                "7:35 no filter `tarce` is declared here (did you mean `trace`?)",
            ],
        ),
        (
            "backend b\n timeout servr 3s\n",
            &["2:10 unknown timeout `servr` in `backend` section (did you mean `server`?)"],
        ),
        ("frontend f\n bind :80,:8x\n", &["2:12 `bind`: invalid port number `8x` in `:8x`"]),
        // What was meant as a section takes its lines along, and a line that was meant as a `bind`
        // is not missed too.
        (
            "defaults\n timeout client 5s\nfronted f\n bind :80\n use_backend x\nfrontend g\n bnid :80\n",
            &[
                "3:1 unknown keyword `fronted` in `defaults` section (did you mean `frontend`?)",
                "7:2 unknown keyword `bnid` in `frontend` section (did you mean `bind`?)",
            ],
        ),
        (
            "frontend f\n bind :80\n http-request set-hdr a b\n http-request deny fi TRUE\n",
            &[
                "3:15 unknown action `set-hdr` in `http-request` (did you mean `set-header`?)",
                "4:20 `fi` says nothing about an answer (did you mean `if`?)",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(places(&load_quietly(text)), *expected, "{text}");
    }
}

#[test]
fn missing_timeouts_are_named() {
    let loaded = load("listen l\n bind :80\n server s 1.1.1.1:1\n timeout client 3s\n");
    assert_eq!(
        places(&loaded),
        ["1:8 missing timeouts for proxy `l` (without `timeout connect`, `timeout server`)"]
    );
    assert!(
        lines(&loaded)[0]
            .starts_with("[WARNING] missing timeouts for proxy 'l'. | While not properly invalid")
    );
    assert!(loaded.plan.is_some());
}

#[test]
fn the_terminal_form_shows_the_line() {
    let loaded = load("\n\nbackend api\n    balanse roundrobin\n");
    let shown: Vec<String> = loaded
        .diagnostics
        .iter()
        .map(|diagnostic| diag::render::terminal(diagnostic, &loaded.sources, diag::render::Colour::Never))
        .collect();
    let expected = "\
error: unknown keyword `balanse` in `backend` section
 --> test.cfg:4:5
  |
4 |     balanse roundrobin
  |     ^^^^^^^ did you mean `balance`?
";
    assert_eq!(shown, [expected]);
}

#[test]
fn every_error_is_reported_not_only_the_first() {
    let loaded = load("frontend f\n bind :x\n timeout client y\n foo\nbackend b\n bar\n server\n");
    assert_eq!(loaded.diagnostics.error_count(), 5);
    assert!(loaded.plan.is_none());
}
