//! Invalid `server` and `bind` lines.

/// The whole configuration, and the messages in one-line form.
pub(crate) const CASES: &[(&str, &[&str])] = &[
    ("defaults\n server a 1.1.1.1\n", &["[ALERT] [2] : 'server' not allowed in 'defaults' section."]),
    (
        "resolvers r\n nameserver n 127.0.0.1:53\nbackend b\n default-server init-addr last,libc\n \
         server-template s 2 _http._tcp.test resolvers r\n server t _http._tcp.test resolvers r init-addr last\n",
        &[],
    ),
    (
        "backend b\n server s _http._tcp.test\n server t no-such-host.invalid:80 init-addr none\n server u no-such-host.invalid:80 init-addr last\n",
        &[
            "[ALERT] [test.cfg:2] : 'server b/s' : no method found to resolve address '_http._tcp.test'.",
            "[ALERT] [test.cfg:4] : 'server b/u' : no method found to resolve address 'no-such-host.invalid'.",
        ],
    ),
    (
        "global\n nbthread 2\nfrontend f\n timeout client 1s\n bind :1 thread 3\n",
        &["[ALERT] [5] : 'thread' selects none of the 2 threads"],
    ),
    (
        "global\n nbthread 2\nfrontend f\n timeout client 1s\n bind :1 thread 1-2/1\n",
        &[
            "[ALERT] [5] : invalid thread group '1-2'; use one number before the slash: '2/1-4' means threads 1 to 4 of group 2",
        ],
    ),
    (
        "frontend f\n timeout client 1s\n bind :1 shards 1025\n",
        &[
            "[ALERT] [3] : 'bind :1' in section 'frontend': 'shards' expects a number between 1 and 1024 (got '1025').",
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
        "backend b\n server s 1.1.1.1:1 namespace not-there\n server t 1.1.1.1:1 namespace *\n",
        &[
            "[ALERT] [2] : 'server b/s' : Cannot open namespace 'not-there'.",
            "[ALERT] [3] : 'namespace *' is not supported yet",
        ],
    ),
    (
        "frontend f\n timeout client 1s\n bind :1 namespace not-there\n",
        &["[ALERT] [3] : 'bind :1' in section 'frontend': Cannot open namespace 'not-there'."],
    ),
    (
        "backend b\n server s 1.1.1.1:1 check inter 5 fastinter 6ms downinter 700\n",
        &[
            "[WARNING] [2] : 'inter 5' in server 's' is suspiciously small for a value in milliseconds. Please use an explicit unit ('5ms') if that was the intent.",
        ],
    ),
    (
        "backend b\n server s 1.1.1.1:1 tfo\n",
        &[
            "[WARNING] [2] : 'server b/s' : server has tfo activated, the backend should be configured with at least 'conn-failure', 'empty-response' and 'response-timeout' or we wouldn't be able to retry the connection on failure.",
        ],
    ),
    ("backend b\n retry-on conn-failure empty-response response-timeout\n server s 1.1.1.1:1 tfo\n", &[]),
    (
        "frontend f\n timeout client 1s\n bind :1 process 1\n",
        &[
            "[ALERT] [3] : 'bind :1' in section 'frontend': 'process 1' on 'bind' lines is not supported anymore, please use 'thread' instead.",
        ],
    ),
    (
        "backend b\n server x 1.1.1.1:1\n server y 1.1.1.1:1 track nope\n",
        &["[ALERT] [test.cfg:3] : 'server b/y' : unable to find required server 'nope' for tracking."],
    ),
    (
        "backend b\n server y 1.1.1.1:1 track c/x\n",
        &["[ALERT] [test.cfg:2] : 'server b/y' : unable to find required proxy 'c' for tracking."],
    ),
    (
        "backend b\n server x 1.1.1.1:1\n server y 1.1.1.1:1 track b/x\n",
        &[
            "[ALERT] [test.cfg:3] : 'server b/y' : unable to use b/x for tracking as it does not have any check nor agent enabled.",
        ],
    ),
    ("backend b\n server x 1.1.1.1:1 check\n server y 1.1.1.1:1 track z\n server z 1.1.1.1:1 track x\n", &[]),
    ("backend b\n server x 1.1.1.1:1 agent-check agent-port 1\n server y 1.1.1.1:1 track x\n", &[]),
    (
        "backend b\n server x 1.1.1.1:1 track x\n",
        &[
            "[ALERT] [test.cfg:2] : 'server b/x' : unable to track b/x as it belongs to a tracking chain looping back to b/x.",
        ],
    ),
    (
        "backend b\n server x 1.1.1.1:1 check track y\n server y 1.1.1.1:1 check\n",
        &["[ALERT] [test.cfg:2] : 'server b/x' : unable to enable checks and tracking at the same time!"],
    ),
    (
        "backend b\n server x name.invalid:80\n",
        &["[ALERT] [test.cfg:2] : 'server b/x' : could not resolve address 'name.invalid'."],
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
        "frontend f\n bind :443 ssl crt x\n",
        &[
            "[ALERT] [2] : 'bind :443' in section 'frontend' : unable to stat SSL certificate from file 'x' : No such file or directory.",
        ],
    ),
];
