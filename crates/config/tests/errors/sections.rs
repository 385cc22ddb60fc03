//! Invalid lines in userlists and resolvers, and unknown or unsupported sections.

/// The whole configuration, and the messages in one-line form.
pub(crate) const CASES: &[(&str, &[&str])] = &[
    (
        "userlist u\n group g users a\n user a insecure-password b\nfrontend f\n mode http\n bind :1\n acl x http_auth_group(u) g\n acl y http_auth_group(u) gg\n",
        &["[ALERT] [8] : error detected while parsing ACL 'y' : acl http_auth_group(): invalid group 'gg'."],
    ),
    (
        "userlist u\n group g\nfrontend f\n mode http\n bind :1\n http-request deny if { http_auth_group(u) }\n",
        &[
            "[ALERT] [6] : error detected while parsing an 'http-request deny' condition : acl http_auth_group(): no groups specified.",
        ],
    ),
    ("glbal\n", &["[ALERT] [1] : unknown keyword 'glbal' out of section; did you mean 'global' maybe ?"]),
    (
        "resolvers r\n nameserver a\n",
        &["[ALERT] [2] : 'nameserver' expects <name> and <addr>[:<port>] as argument."],
    ),
    (
        "resolvers r\n nameserver a 127.0.0.1:53\n nameserver a [::1]:53\n nameserver b quic4@1.1.1.1:53\n nameserver c 1.1.1.1:53 ssl\n nameserver d/ 1.1.1.1\n",
        &[
            "[ALERT] [3] : server 'a' already exists in this resolvers section.",
            "[ALERT] [4] : 'nameserver … quic4@1.1.1.1:53' is not supported yet",
            "[ALERT] [5] : 'ssl' requires a name server over TCP; 'tcp@1.1.1.1:53'",
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
            "[ALERT] backend 'b', server 's': unable to find required resolvers 'dsn'",
        ],
    ),
    (
        "crt-store\n load generate-dummy on bits 1000 crt a\n load bits 2048 crt b\n load generate-dummy on crt c key d\n load generate-dummy on keytype DSA crt e\n load generate-dummy on crt f acme x\n load generate-dummy off crt /nonexistent/g\n",
        &[
            "[ALERT] [2] : RSA keys of 1000 bits are not supported; use 2048, 3072 or 4096 bits, or 'keytype ECDSA' for shorter and faster keys",
            "[ALERT] [3] : keyword 'keytype', 'bits' and 'curves' require 'generate-dummy' set to 'on'",
            "[ALERT] [4] : a generated certificate has no files; remove either this parameter or 'generate-dummy on'",
            "[ALERT] [5] : 'load' expects one of 'RSA', 'ECDSA' (got 'DSA').",
            "[ALERT] [6] : a certificate is either generated or ordered by ACME; remove either 'acme', 'domains' and 'ips', or 'generate-dummy on'",
            "[ALERT] [7] : cannot read '/nonexistent/g': No such file or directory",
        ],
    ),
    (
        "defaults\n mode haterm\n timeout client 1s\n timeout server 1s\n timeout connect 1s\nfrontend f\n default_backend b\n use_backend b if TRUE\nlisten l\n server s 127.0.0.1:3\nbackend b\n server t 127.0.0.1:3\nbackend c\n mode haterm\nbackend d\n mode health\n",
        &[
            "[ALERT] [14] : mode haterm is only applicable on proxies with frontend capability.",
            "[ALERT] [16] : 'mode health' doesn't exist anymore. Please use 'http-request return status 200' instead.",
            "[WARNING] [7] : 'default_backend' has no effect in 'mode haterm'; a frontend in this mode answers all requests itself",
            "[WARNING] [8] : 'use_backend' has no effect in 'mode haterm'; a frontend in this mode answers all requests itself",
            "[WARNING] [10] : 'server' has no effect in 'mode haterm'; a frontend in this mode answers all requests itself",
        ],
    ),
    (
        "dynamic-update\n update id-pattern x\nprogram p\n command x\n",
        &[
            "[ALERT] [1] : section 'dynamic-update' is not supported yet",
            "[ALERT] [3] : section 'program' is not supported yet",
        ],
    ),
    (
        "userlist u\n user a password $7$CU..../....abcdefg$gNcilGZ0Hwk41rVUGnljkdEB\n",
        &[
            "[ALERT] [2] : this password hash format is not supported yet; use a hash from 'mkpasswd -m sha-512' or 'mkpasswd -m yescrypt'",
        ],
    ),
    (
        "userlist u\n user a password secret\n user b password *\n",
        &[
            "[WARNING] [2] : user 'a' can never log in: unknown password hash format; crypt(3) does not support this format; use 'insecure-password' for a plain password",
        ],
    ),
    (
        "userlist u\n user a insecure-password b groups g\n",
        &["[ALERT] [2] : userlist: no such group 'g' specified in user 'a'"],
    ),
];
