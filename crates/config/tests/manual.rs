//! Lines from chapters 4.3, 4.4, 7 and 8 of the manual: each is accepted where the manual allows it, and refused elsewhere or as
//! unsupported.

mod common;

use base::keyword_support::Support;
use diag::Severity;
use scratch::Scratch;

/// The rule sets in the order of the columns.
const SETS: [&str; 7] = [
    "tcp-request connection",
    "tcp-request session",
    "tcp-request content",
    "tcp-response content",
    "http-request",
    "http-response",
    "http-after-response",
];

/// An action; the rule sets that allow it (manual, 4.3); the message if it is not supported.
#[rustfmt::skip]
const ACTIONS: &[(&str, &str, &str)] = &[
    ("accept if { src 192.0.2.0/24 }", "XXXX...", ""),
    ("add-acl(virt@seen) %[src]", "....XX.", ""),
    ("add-header x-seen \"by weir, %[date]\"", "....XXX", ""),
    ("add-headers-bin bin(0178017900) prefix x-", "....XXX", ""),
    ("allow if { always_true }", "....XXX", ""),
    ("attach-srv l/s", ".X.....", ""),
    ("auth realm Staff if { always_false }", "....X..", ""),
    ("cache-store small", ".....X.", ""),
    ("cache-use small no-early-hints", "....X..", ""),
    ("capture src id 0", "..X.XXX", ""),
    ("close if { always_false }", "...X...", ""),
    // The manual names two of the three sets; HAProxy accepts the action in all of them.
    ("del-acl(virt@seen) %[src]", "....XXX", ""),
    ("del-header ^x-debug -m reg", "....XXX", ""),
    ("del-headers-bin bin(0178) -m beg", "....XXX", ""),
    ("del-map(virt@routes) %[src]", "....XXX", ""),
    ("deny status 429 content-type text/plain string \"slow down\"", "....XX.", ""),
    ("disable-l7-retry unless { always_true }", "....X..", ""),
    ("do-log if { always_false }", "XXXXXXX", ""),
    ("do-resolve(txn.ip,names,ipv6) str(host.test)", "..X.X..", ""),
    ("early-hint Link \"</main.css>; rel=preload\"", "....X..", ""),
    ("expect-netscaler-cip layer4", "X......", ""),
    ("expect-proxy layer4 if { src 192.0.2.1 }", "X......", ""),
    ("normalize-uri path-strip-dotdot full", "....X..", ""),
    ("pause 20ms", "....XX.", ""),
    ("redirect prefix https://www.test code 308", "....X..", ""),
    ("redirect location https://www.test code 308", "....XX.", ""),
    ("reject if { src 198.51.100.0/24 }", "XXXXX..", ""),
    ("replace-header x-name ^(a+)b$ \\1", "....XXX", ""),
    ("replace-path ^/old/(.*) /new/\\1", "....X..", ""),
    ("replace-pathq ([^?]*)[?](.*) \\1?\\2&seen=1", "....X..", ""),
    ("replace-uri ^http://(.*) https://\\1", "....X..", ""),
    ("replace-value x-list b(.) c\\1", "....XXX", ""),
    ("return status 200 content-type text/plain lf-string \"hello %[src]\"", "....XX.", ""),
    ("sc-add-gpc(0,0) 2", "XXXXXXX", ""),
    ("sc-inc-gpc(0,0)", "XXXXXXX", ""),
    ("sc-inc-gpc0(0)", "XXXXXXX", ""),
    ("sc-inc-gpc1(0)", "XXXXXXX", ""),
    ("sc-set-gpt(0,0) 1", "XXXXXXX", ""),
    ("sc-set-gpt0(0) 1", "XXXXXXX", ""),
    ("send-spoe-group engine group", "..XXXX.", ""),
    ("set-bandwidth-limit slow", "..XXXX.", ""),
    ("set-bc-mark 7", "..X.X..", ""),
    ("set-bc-tos 0x10", "..X.X..", ""),
    ("set-dst dst,ipmask(24)", "XXX.X..", ""),
    ("set-dst-port int(8080)", "XXX.X..", ""),
    ("set-fc-mark 7", "XXXXXX.", ""),
    ("set-fc-tos 8", "XXXXXX.", ""),
    ("set-header x-from %[src]", "....XXX", ""),
    ("set-headers-bin bin(0178017900)", "....XXX", ""),
    ("set-log-level silent", "..XXXXX", ""),
    ("set-map(virt@routes) %[src] seen", "....XXX", ""),
    ("set-mark 7", "XXXXXX.", ""),
    ("set-method POST", "....X..", ""),
    ("set-nice -5", "..XXXX.", ""),
    ("set-path /static%[path]", "....X..", ""),
    ("set-pathq /static%[pathq]", "....X..", ""),
    ("set-priority-class int(-3)", "..X.X..", ""),
    ("set-priority-offset int(50)", "..X.X..", ""),
    ("set-query %[query,regsub(a,b)]", "....X..", ""),
    ("set-retries 2", "..X.X..", ""),
    ("set-src src,ipmask(24)", "XXX.X..", ""),
    ("set-src-port int(1024)", "XXX.X..", ""),
    ("set-status 503 reason \"not now\"", ".....XX", ""),
    ("set-timeout client 5s", "....XX.", ""),
    ("set-tos 0x08", "XXXXXX.", ""),
    ("set-uri http://www.test%[pathq]", "....X..", ""),
    ("set-var(sess.mine,ifnotexists) src", "XXXXXXX", ""),
    ("set-var-fmt(sess.mine) \"<%[src]>\"", "XXXXXXX", ""),
    ("silent-drop rst-ttl 3", "XXXXXX.", ""),
    ("strict-mode off", "....XXX", ""),
    ("switch-mode http if { always_true }", "..X....", ""),
    ("tarpit deny_status 429", "....X..", ""),
    ("track-sc0 src", "XXX.XX.", ""),
    ("track-sc1 src", "XXX.XX.", ""),
    ("track-sc2 src", "XXX.XX.", ""),
    ("unset-var(sess.mine)", "XXXXXXX", ""),
    // For TCP, services exist only in Lua.
    ("use-service prometheus-exporter", "....X..", ""),
    ("wait-for-body time 1s at-least 1k", "....XX.", ""),
    ("wait-for-handshake", "....X..", ""),
];

/// A file with an engine that has a group.
fn engine_file() -> Scratch {
    let text = "[engine]\nspoe-agent agent\n groups group\n use-backend agents\n timeout processing 1s\n\
                spoe-group group\n messages message\nspoe-message message\n args int(1)\n";
    Scratch::holding("manual.conf", text)
}

/// The alerts for a proxy with these lines, one line each.
fn alerts(lines: &str) -> Vec<String> {
    let engines = engine_file();
    let text = format!(
        "global\n log stderr local0\n expose-experimental-directives\n\
         cache small\n total-max-size 1\n\
         resolvers names\n nameserver one 192.0.2.53:53\n\
         listen l\n bind :8000\n mode http\n log global\n server s 192.0.2.80:80\n \
         stick-table type ip size 10 store http_req_rate(10s)\n declare capture request len 8\n declare capture response len 8\n \
         filter bwlim-out slow default-limit 1m default-period 1s\n filter cache small\n filter spoe engine engine config {engines}\n acl local src 127.0.0.0/8\n {lines}\n\
         backend other\n mode http\n server t 192.0.2.81:80\n\
         backend agents\n mode spop\n server a 192.0.2.82:80\n"
    );
    let loaded = common::load_quietly(&text);
    let alerts = loaded.diagnostics.iter().filter(|message| message.severity == Severity::Alert);
    let shown: Vec<String> = alerts.map(|message| message.message.clone()).collect();
    assert_eq!(loaded.plan.is_none(), !shown.is_empty(), "{lines}");
    shown
}

#[test]
fn actions_are_accepted_where_the_manual_allows_them() {
    let mut wrong = Vec::new();
    for (action, columns, needs) in ACTIONS {
        for (set, column) in SETS.iter().zip(columns.chars()) {
            let line = format!("{set} {action}");
            let alerts = alerts(&line);
            let as_told = match (column, needs) {
                ('X', &"") => alerts.is_empty(),
                ('X', needs) => {
                    alerts.iter().any(|said| said.contains("not supported yet") && said.contains(needs))
                }
                _ => !alerts.is_empty(),
            };
            if !as_told {
                wrong.push(format!("{line} ({column}): {alerts:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Lines from chapters 7 and 8, and the message for those refused.
#[rustfmt::skip]
const LINES: &[(&str, &str)] = &[
    // 7.1: ACLs, flags, operators, match methods.
    ("acl staff src 192.0.2.0/24 2001:db8::/32", ""),
    ("acl many hdr_cnt(cookie) gt 4", ""),
    ("acl middle url_param(n) -m int 10:20 ge 30", ""),
    ("acl named req.hdr(host) -i -m dom www.test static.test", ""),
    ("acl odd path -m sub -i -- -f", ""),
    ("acl short path -m len 0:3", ""),
    ("acl bytes req.body -m bin 00ff 0a0d", ""),
    ("acl there req.cook(sid) -m found", ""),
    ("acl numbered path_beg -u 12345 /a /b", ""),
    ("acl from_no_file path -M -f virt@paths", ""),
    ("acl ranged dst_port 8000:8999", ""),
    ("acl word1 path_dir img css js", ""),
    ("acl hexes req.payload(0,2) -m reg ^..$", ""),
    ("acl wrong path -m nothing x", "nothing"),
    ("acl wrong src -m sub 10.", ""),
    ("acl wrong path -f /nowhere/at/all.lst", "/nowhere/at/all.lst"),
    ("acl wrong src 300.0.0.0/8", "300.0.0.0/8"),
    ("acl counted sc0_conn_cur gt 3", ""),
    ("acl agent ssl_c_verify 0", ""),
    // 7.2: conditions.
    ("http-request deny if local { path_beg /a } or !local { path_end .b }", ""),
    ("http-request deny unless { src -n 192.0.2.1 } || METH_GET", ""),
    ("http-request deny if ! { path /a } !local", ""),
    ("http-request deny if { path /a", "closing brace"),
    ("http-request deny if nobody", "nobody"),
    ("use_backend other if { path_beg /other/ } { method POST }", ""),
    ("use_backend %[req.hdr(x-to),lower]", ""),
    // 7.3: fetches and converters.
    ("http-request set-header x-key %[req.hdr(host),lower,field(1,:),concat(-,sess.tail,.),md5]", "unknown converter"),
    ("http-request set-header x-key %[req.hdr(host),lower,field(1,:),concat(-,sess.tail,.),digest(md5),hex]", ""),
    ("http-request set-var(txn.route) path,word(1,/),map_str(virt@routes,main)", ""),
    ("http-request set-var(txn.mask) src,ipmask(24,64)", ""),
    ("http-request set-var(txn.sum) int(7),mul(6),sub(txn.less),mod(10)", ""),
    ("http-request set-var(txn.json) req.body,json_query('$.user.name')", ""),
    ("http-request set-var(txn.sub) \"path,regsub('^/a(.)','/b\\\\\\1',i)\"", ""),
    ("http-request set-var(txn.claim) http_auth_bearer,jwt_payload_query('$.iss')", ""),
    ("http-request set-var(txn.fits) req.hdr(x-ip),strcmp(txn.mask)", ""),
    ("http-request set-var(txn.when) date(-60,s),http_date(0,s)", ""),
    ("http-request set-var(txn.zone) date,utime(%Y-%m-%d)", ""),
    ("http-request set-var(txn.yes) bool(true),iif(yes,no)", ""),
    ("http-request set-var(txn.part) req.body,bytes(4,2),be2dec(:,1)", ""),
    ("http-request set-var(txn.lang) req.fhdr(accept-language),language(de;en,en)", ""),
    ("http-request set-var(txn.secret) req.hdr(x-s),hmac(sha256,c2VjcmV0),hex", ""),
    ("http-request set-var(txn.free) connslots(other)", ""),
    ("http-request set-var(txn.up) nbsrv(other),div(2)", ""),
    ("http-request set-var(txn.srv) srv_is_up(other/t)", ""),
    ("http-request set-var(txn.gone) nbsrv(absent)", "absent"),
    ("http-request set-var(txn.rate) src_http_req_rate(l)", ""),
    ("http-request set-var(txn.sni) ssl_fc_sni", ""),
    ("http-request set-var(txn.dev) 51d.all(DeviceType)", "51d.all"),
    ("http-request set-var(txn.text) str(),concat(<,txn.sum,>)", ""),
    ("http-request set-var(txn.bad) path,lower()x", "unexpected `x`"),
    ("http-request set-var(txn.bad) pth", "pth"),
    ("http-response set-var(txn.age) res.hdr(age),add(1)", ""),
    ("http-response set-var(txn.req) path", "request"),
    ("http-request set-header x-b %[req.body_param(a,i),url_dec(1)]", ""),
    ("http-request set-header x-c %[capture.req.hdr(0)]", ""),
    ("http-after-response set-header x-d %[capture.res.hdr(0)]%[txn.sess_term_state]", ""),
    ("tcp-request content set-var(txn.len) req.len,add(0)", ""),
    ("tcp-request content reject if { req.payload(0,3) -m bin 000102 }", ""),
    ("tcp-request inspect-delay 2s", ""),
    // 8: logs.
    ("log-format \"%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r\"", ""),
    ("log-format %{+json}o%(client)ci%(port:sint)cp%(ua:str)[capture.req.hdr(0)]", ""),
    ("log-format %{+cbor,+bin}o%(a)[src]", ""),
    ("log-format \"%{+X}o %ID %{-X}pid %[src,when(error)]\"", ""),
    ("log-format-sd [one@1\\ a=\"%ci\"]", ""),
    ("error-log-format \"%ci %[fc_err_str]\"", ""),
    ("unique-id-format %{+X}o\\ %ci:%cp_%fi:%fp_%Ts_%rt:%pid", ""),
    ("unique-id-header x-unique", ""),
    ("option httplog", ""),
    ("option httplog clf", ""),
    ("option tcplog", ""),
    ("option logasap", ""),
    ("option dontlognull", ""),
    ("option log-separate-errors", ""),
    ("capture request header user-agent len 64", ""),
    ("capture response header location len 64", ""),
    ("capture cookie sid= len 32", ""),
    ("log-steps accept,request,close", ""),
    ("log-format \"%foo\"", "foo"),
    ("log-format \"%[src\"", "missing `]`"),
    ("log 192.0.2.3:514 len 4096 format rfc5424 sample 1-2,4:5 local0 notice warning", ""),
    ("log absent-ring@one local0", "absent-ring@one"),
    // Arguments that HAProxy 3.5 refuses.
    ("http-request pause 0", "`pause` with a time of 0"),
    ("http-request set-timeout server 0", "`set-timeout server` with a time of 0"),
    ("http-request deny if { dst_port 5:1 }", "it ends before it begins"),
    ("http-request deny if { srv_conn(l/s) gt 1 } { srv_is_up(t) }", "there is no server `t` in `l`"),
    ("http-request deny if { srv_conn(other/s) gt 1 }", "there is no server `s` in `other`"),
    ("http-request set-var(txn.a) query(with_qm)", ""),
    ("http-request set-var(txn.a) query(x)", "unknown option `x`"),
    ("http-request set-var(txn.a) capture.req.hdr(-1)", "numbered from 0"),
    ("http-request set-var(txn.a) req.payload_lv(0,0)", "at least one byte"),
    ("http-request set-var(txn.a) bin()", "the byte string is empty"),
    ("http-request set-var(txn.a) fc_pp_tlv(alpn)", ""),
    ("balance hash path lower", "unexpected argument `lower`"),
    ("http-request set-header a \"\"", "an empty argument"),
    ("backend b\n mode http\n tcp-request session accept", "not allowed here"),
    ("backend b\n mode http\n tcp-request content capture src id 0", "requires a frontend"),
    ("backend b\n mode http\n http-request deny if { fe_conn gt 1 }", "`b` is not one"),
    ("frontend b\n mode http\n http-request deny if { nbsrv lt 1 }", "`b` is not one"),
];

#[test]
fn expressions_and_formats_are_accepted_or_explained() {
    let mut wrong = Vec::new();
    for (line, why) in LINES {
        let alerts = alerts(line);
        let as_told =
            if why.is_empty() { alerts.is_empty() } else { alerts.iter().any(|said| said.contains(why)) };
        if !as_told {
            wrong.push(format!("{line} ({why}): {alerts:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unused_experimental_permission_is_reported() {
    let warnings = |line: &str| {
        let text = format!(
            "global\n log stderr local0\n expose-experimental-directives\n\
             frontend f\n mode http\n bind :8000\n timeout client 1s\n log global\n {line}\n"
        );
        let loaded = common::load_quietly(&text);
        assert!(loaded.plan.is_some());
        let of = |message: &&diag::Diagnostic| message.message.contains("expose-experimental-directives");
        loaded.diagnostics.iter().filter(of).count()
    };
    assert_eq!([warnings(""), warnings("http-request normalize-uri path-merge-slashes")], [1, 0]);
}

#[test]
fn parameters_without_effect_cause_warnings() {
    let none = |support| matches!(support, Support::None(_));
    let bind =
        config::tables::bind::rows().filter(|row| none(row.support)).map(|row| ("bind :8000", row.name));
    let servers = config::tables::server::rows().filter(|row| none(row.support));
    for (line, name) in bind.chain(servers.map(|row| ("server s 192.0.2.1:80", row.name))) {
        let warned = ["", " 10s", " 10", " connection"].iter().any(|argument| {
            let text = format!("listen l\n mode tcp\n {line} {name}{argument}\n");
            let loaded = common::load_quietly(&text);
            let says = |message: &&diag::Diagnostic| {
                message.message.contains(name) && message.message.contains("has no effect")
            };
            loaded.diagnostics.iter().any(|message| says(&message))
        });
        assert!(warned, "{line} {name}");
    }
}

#[test]
fn keywords_and_actions_without_effect_cause_warnings() {
    let cases = [
        ("global\n nogetaddrinfo\n", "`nogetaddrinfo` has no effect"),
        ("listen l\n mode http\n http-request set-nice 5\n", "`set-nice` has no effect"),
    ];
    for (text, expected) in cases {
        let loaded = common::load_quietly(text);
        let warned = loaded.diagnostics.iter().filter(|message| message.message.contains(expected)).count();
        assert_eq!(warned, 1, "{text}");
    }
}

#[test]
fn removed_keywords_are_refused_with_their_replacement() {
    for line in ["dispatch 192.0.2.1:80", "transparent", "option transparent"] {
        let loaded = common::load_quietly(&format!("listen l\n mode tcp\n {line}\n"));
        let refused = |message: &&diag::Diagnostic| {
            let text = message.haproxy.as_deref().unwrap_or_default();
            text.contains("HAProxy 3.5") && text.contains("Use a 'server' line")
        };
        assert_eq!(loaded.diagnostics.iter().filter(refused).count(), 1, "{line}");
        assert!(loaded.plan.is_none(), "{line}");
    }
}
