//! Keywords set their fields in the plan.

mod common;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use balance::{Algorithm, HashFunction, HashKind, PreserveAffinity, UriPart};
use common::plan;
use plan::bind::{AccessLevel, BindAddress, Shards};
use plan::check::{CheckAction, CheckKind, CheckScript, CheckText, Send};
use plan::log::{LogAddress, LogFormat, LogTarget};
use plan::proxy::{ConnectionMode, CookieOperation, Proxy, RestrictNames, Reuse};
use plan::server::{Observe, OnError, SendProxy, ServerSettings, UseSource};
use plan::{Capability, Chroot, Global, Plan};
use state::Mode;
use state::server::ServerAddress;

type GlobalCase = (&'static str, fn(&Global) -> bool);
type ProxyCase = (&'static str, fn(&Proxy) -> bool);
type ServerCase = (&'static str, fn(&ServerSettings) -> bool);

fn seconds(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count))
}

#[test]
fn fullconn_defaults_to_a_tenth_of_the_frontends_maxconn() {
    let text = "defaults\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n mode http\n\
        frontend f\n bind :1\n maxconn 55\n use_backend a if TRUE\n use_backend b if TRUE\n use_backend a if FALSE\n default_backend b\n\
        frontend g\n bind :2\n use_backend %[path]\n default_backend a\n\
        listen l\n bind :3\n maxconn 1\n\
        backend a\nbackend b\nbackend c\nbackend d\n fullconn 7\n";
    let plan = plan(text);
    plan.settle_full_loads(1000, None);
    let full = |name: &str| plan.backend(name).unwrap().state.fullconn.load(Relaxed);
    assert_eq!(["a", "b", "c", "d", "l"].map(full), [106, 6, 1, 7, 1]);
}

#[test]
fn unchecked_servers_show_health_only_after_default_server() {
    for (lines, level) in [
        ("server s 10.0.0.1:1", 0),
        ("server s 10.0.0.1:1 check rise 4", 4),
        ("default-server inter 1s\n server s 10.0.0.1:1", 2),
        ("default-server rise 3\n server s 10.0.0.1:1 disabled", 0),
    ] {
        let plan = plan(&format!("backend b\n {lines}\n"));
        let server = plan.backend("b").unwrap().state.server("s").unwrap();
        assert_eq!(server.health.level.load(Relaxed), level, "{lines}");
    }
}

#[test]
fn minconn_alone_is_a_fixed_limit() {
    for (words, limits) in [
        ("minconn 5", (5, 0)),
        ("minconn 10 maxconn 5", (10, 0)),
        ("minconn 5 maxconn 5", (5, 0)),
        ("minconn 2 maxconn 5", (5, 2)),
        ("maxconn 5", (5, 0)),
    ] {
        let plan = plan(&format!("backend b\n server s 10.0.0.1:1 {words}\n"));
        let server = plan.backend("b").unwrap().state.server("s").unwrap();
        assert_eq!((server.maxconn.load(Relaxed), server.minconn), limits, "{words}");
    }
}

#[test]
fn global_keywords_set_the_process() {
    let cases: &[GlobalCase] = &[
        ("daemon", |g| g.daemon),
        ("maxconn 1000", |g| g.maxconn == Some(1000)),
        ("maxconn 0", |g| g.maxconn.is_none()),
        ("nbthread 4", |g| g.wishes.threads == Some(4) && g.workers() == 4),
        ("nbthread 4\n thread-groups 2", |g| g.placement.groups == [0..2, 2..4]),
        ("nbthread 3\n max-threads-per-group 2", |g| g.placement.groups == [0..2, 2..3]),
        ("nbthread 4\n thread-groups 2\n thread-group 1 1-3\n thread-group 2 2-4", |g| {
            g.placement.groups == [0..1, 1..4]
        }),
        ("nbthread 4\n thread-groups 2\n thread-group 2 2-4\n thread-group 1 1-3", |g| {
            g.placement.groups == [0..3, 3..4]
        }),
        ("nbthread 4\n thread-groups 2\n thread-group 1 1 busy-polling", |g| {
            g.placement.groups == [0..1, 1..4] && g.placement.busy_polling == [true, false, false, false]
        }),
        ("nbthread 2\n cpu-map auto:1/1-2 0 1", |g| g.placement.cpus == [Some([0].into()), Some([1].into())]),
        ("cpu-set reset drop-cpu 63\n cpu-policy group-by-2-ccx threads-per-core 1", |g| {
            g.wishes.reset && g.wishes.one_per_core && g.wishes.rules.len() == 1
        }),
        ("nbthread 4\n cpu-affinity per-group loose\n thread-hard-limit 9", |g| g.workers() == 4),
        ("user root", |g| g.uid == Some(0)),
        ("gid 7", |g| g.gid == Some(7)),
        ("chroot /var/empty", |g| g.chroot == Some(Chroot::Directory("/var/empty".into()))),
        ("chroot auto", |g| g.chroot == Some(Chroot::Auto)),
        ("setcap cap_net_raw,cap_sys_admin", |g| {
            g.capabilities == [Capability::NetRaw, Capability::SysAdmin]
        }),
        ("busy-polling\n no busy-polling", |g| !g.wishes.busy_polling),
        ("no strict-limits", |g| !g.strict_limits),
        ("hard-stop-after 30s", |g| g.hard_stop_after == seconds(30)),
        ("stats timeout 2m", |g| g.stats_timeout == Duration::from_secs(120)),
        ("stats maxconn 3", |g| g.stats_maxconn == 3),
        ("stats maxconn 3", |g| g.stats_history),
        ("stats history off", |g| !g.stats_history),
        ("description a proxy of mine", |g| g.description.as_deref() == Some("a proxy of mine")),
        ("tune.bufsize 32k", |g| g.tune.bufsize == 32_768),
        ("tune.maxaccept -1", |g| g.tune.maxaccept == -1),
        ("tune.idle-pool.shared off", |g| !g.tune.idle_pool_shared),
        ("spread-checks 5", |g| g.spread_checks == 5),
        ("log 127.0.0.1 local0 info", |g| {
            matches!(&g.loggers[0].target, LogTarget::Address(LogAddress::Udp(to)) if *to == ([127, 0, 0, 1], 514).into())
                && (g.loggers[0].facility, g.loggers[0].max_level) == (16, 6)
        }),
        ("log stdout len 200 format raw sample 1,2-3:5 daemon", |g| {
            let logger = &g.loggers[0];
            matches!(logger.target, LogTarget::Address(LogAddress::Descriptor(1)))
                && (logger.max_length, logger.format) == (200, LogFormat::Raw)
                && logger.sample.as_ref().is_some_and(|sample| {
                    [true, true, true, false, false, true].iter().all(|sent| sample.takes_next() == *sent)
                })
        }),
        ("log /dev/log local1\n no log", |g| g.loggers.is_empty()),
        ("unix-bind mode 660 prefix /run", |g| g.unix_bind.mode == Some(0o660)),
        ("h1-case-adjust content-length Content-Length", |g| &*g.h1_case_adjust[0].1 == "Content-Length"),
        ("stats socket /run/w.sock level admin mode 600 expose-fd listeners", |g| {
            let socket = &g.stats_sockets[0];
            socket.address == BindAddress::Unix("/run/w.sock".into())
                && (socket.level, socket.mode, socket.expose_fds) == (AccessLevel::Admin, Some(0o600), true)
        }),
        ("stats socket ipv4@127.0.0.1:9999 level user", |g| {
            g.stats_sockets[0].address == BindAddress::Ip(([127, 0, 0, 1], 9999).into())
        }),
    ];
    for (text, holds) in cases {
        assert!(holds(&plan(&format!("global\n {text}\n")).global), "{text}");
    }
}

#[test]
fn proxy_keywords_set_the_proxy() {
    let cases: &[ProxyCase] = &[
        ("mode http", |p| p.mode == Mode::Http && p.state.mode == Mode::Http),
        ("timeout client 3s", |p| p.timeouts.client == seconds(3)),
        ("timeout client 3s\n timeout client 0", |p| p.timeouts.client.is_none()),
        ("timeout http-keep-alive 1m", |p| p.timeouts.http_keep_alive == seconds(60)),
        ("maxconn 20", |p| p.state.maxconn.load(Relaxed) == 20),
        ("backlog 9", |p| p.backlog == 9),
        ("fullconn 9", |p| p.fullconn == 9),
        ("retries 1", |p| p.retries == 1),
        ("rate-limit sessions 7", |p| p.state.session_limit.load(Relaxed) == 7),
        ("disabled", |p| p.disabled),
        ("id 77", |p| p.state.id == 77),
        ("option httpclose", |p| p.options.connection == ConnectionMode::Close),
        ("option httpclose\n no option httpclose", |p| p.options.connection == ConnectionMode::KeepAlive),
        ("option httpclose\n no option http-server-close", |p| p.options.connection == ConnectionMode::Close),
        ("option http-server-close", |p| p.options.connection == ConnectionMode::ServerClose),
        ("option dontlognull\n option dontlog-normal", |p| p.options.dontlognull && p.options.dontlog_normal),
        ("no option abortonclose", |p| p.options.abortonclose == Some(false)),
        ("option tcpka", |p| p.options.clitcpka && p.options.srvtcpka),
        ("clitcpka-idle 10", |p| p.options.tcp_keepalive_client.idle == seconds(10)),
        ("option http-restrict-req-hdr-names delete", |p| {
            p.options.restrict_header_names == RestrictNames::Delete
        }),
        ("option redispatch", |p| p.redispatch == -1),
        ("option redispatch 2", |p| p.redispatch == 2),
        ("option redispatch\n no option redispatch", |p| p.redispatch == 0),
        ("option forwardfor except 127.0.0.0/8 if-none", |p| {
            p.forward_for
                .as_ref()
                .is_some_and(|f| f.if_none && f.except.is_some() && *f.header == *b"X-Forwarded-For")
        }),
        ("option forwardfor header X-Client", |p| {
            p.forward_for.as_ref().is_some_and(|f| *f.header == *b"X-Client")
        }),
        ("option originalto", |p| p.original_to.as_ref().is_some_and(|f| *f.header == *b"X-Original-To")),
        ("option forwarded", |p| {
            p.forwarded.as_ref().is_some_and(|f| f.proto && f.for_.is_some() && f.by.is_none())
        }),
        ("http-reuse always", |p| p.reuse == Reuse::Always),
        ("retry-on conn-failure 503 empty-response", |p| {
            p.retry_on.conn_failure && p.retry_on.empty_response && p.retry_on.statuses == [503]
        }),
        ("", |p| matches!(p.balance.algorithm, Algorithm::Random { draws: 2 })),
        ("balance roundrobin", |p| matches!(p.balance.algorithm, Algorithm::RoundRobin)),
        ("balance random(4)", |p| matches!(p.balance.algorithm, Algorithm::Random { draws: 4 })),
        ("mode http\n balance uri depth 2 whole", |p| {
            matches!(
                p.balance.algorithm,
                Algorithm::Uri(UriPart { depth: Some(2), whole: true, path_only: false, length: None })
            )
        }),
        ("mode http\n balance url_param id check_post", |p| {
            matches!(p.balance.algorithm, Algorithm::UrlParam { check_post: true, .. })
        }),
        ("mode http\n balance hdr(host) use_domain_only", |p| {
            matches!(p.balance.algorithm, Algorithm::Header { domain_only: true, .. })
        }),
        ("balance hash src", |p| matches!(p.balance.algorithm, Algorithm::Hash(_))),
        (
            "balance rdp-cookie",
            |p| matches!(&p.balance.algorithm, Algorithm::RdpCookie { name } if **name == *b"mstshash"),
        ),
        ("hash-type consistent djb2 avalanche", |p| {
            p.balance.hash.kind == HashKind::Consistent
                && p.balance.hash.function == HashFunction::Djb2
                && p.balance.hash.avalanche
        }),
        ("hash-balance-factor 150", |p| p.balance.balance_factor == 150),
        ("hash-preserve-affinity maxqueue", |p| p.balance.preserve_affinity == PreserveAffinity::MaxQueue),
        ("mode http", |p| matches!(p.balance.algorithm, Algorithm::Random { draws: 2 })),
        ("balance random(3)", |p| matches!(p.balance.algorithm, Algorithm::Random { draws: 3 })),
        ("balance power-of-two", |p| matches!(p.balance.algorithm, Algorithm::Random { draws: 2 })),
        (
            "balance peak-ewma",
            |p| matches!(p.balance.algorithm, Algorithm::PeakEwma { decay } if decay.as_secs() == 10),
        ),
        (
            "balance peak-ewma decay 500ms",
            |p| matches!(p.balance.algorithm, Algorithm::PeakEwma { decay } if decay.as_millis() == 500),
        ),
        ("cookie SRV insert indirect nocache maxidle 30m domain a domain b", |p| {
            p.cookie.as_ref().is_some_and(|c| {
                c.operation == CookieOperation::Insert
                    && c.indirect
                    && c.nocache
                    && c.max_idle == seconds(1800)
                    && c.domains.len() == 2
            })
        }),
        ("cookie SRV insert dynamic\n dynamic-cookie-key secret", |p| {
            p.state.cookie_key().is_some_and(|key| &**key == "secret")
        }),
        ("capture request header Host len 32\n declare capture request len 8", |p| {
            p.request_captures.len() == 2 && p.request_captures[1].header.is_none()
        }),
        ("capture cookie ID= len 9", |p| {
            p.cookie_capture.as_ref().is_some_and(|c| !c.prefix && *c.name == *b"ID")
        }),
        ("log global\n log 10.0.0.1:1514 local1", |p| p.loggers.len() == 2),
        ("log global\n no log\n log /dev/log local1", |p| p.loggers.len() == 1),
        ("log-tag mine", |p| *p.log_tag == *b"mine"),
        ("log-tag \"t\\xe9\"", |p| *p.log_tag == *b"t\xe9"),
        ("cookie \"k\\xe9\" insert attr \"a=\\xe8\"", |p| {
            p.cookie.as_ref().is_some_and(|c| *c.name == *b"k\xe9" && *c.attributes[0] == *b"a=\xe8")
        }),
        (
            "mode http\n balance url_param \"u\\xe9\"",
            |p| matches!(&p.balance.algorithm, Algorithm::UrlParam { name, .. } if **name == *b"u\xe9"),
        ),
        ("option tcplog", |p| p.log_format.is_some()),
        ("log-format \"%ci %ts\"", |p| p.log_format.is_some()),
        ("unique-id-format %ci:%cp\n unique-id-header X-Id", |p| {
            p.unique_id_format.is_some() && p.unique_id_header.as_deref() == Some(b"X-Id".as_slice())
        }),
        ("monitor-uri /alive", |p| p.monitor_uri.as_deref() == Some(b"/alive".as_slice())),
        ("source 10.0.0.9:1000-2000 usesrc clientip", |p| {
            p.source
                .as_ref()
                .is_some_and(|s| s.ports == Some((1000, 2000)) && s.transparent == UseSource::ClientIp)
        }),
        ("tcp-request inspect-delay 5s", |p| p.request_inspect_delay == seconds(5)),
        ("stats frame-ancestors self https://wall.example.com:8443", |p| {
            p.stats
                .as_ref()
                .is_some_and(|page| &*page.frame_ancestors == "'self' https://wall.example.com:8443")
        }),
        ("stats enable\n stats uri /s\n stats auth a:b:c\n stats refresh 5", |p| {
            p.stats.as_ref().is_some_and(|s| {
                *s.uri == *b"/s"
                    && s.users[0] == (b"a"[..].into(), b"b:c"[..].into())
                    && s.refresh == seconds(5)
            })
        }),
        ("", |p| p.stats.is_none() && p.default_backend == Some(p.index)),
        ("bind :80-82,127.0.0.1:90 name web", |p| p.binds.len() == 5 && &*p.binds[1].listener.name == "web"),
        ("bind \"*:${PORT}\" shards by-thread", |p| {
            p.binds[1].address == BindAddress::Ip(([0, 0, 0, 0], 8080).into())
                && p.binds[1].shards == Some(Shards::ByThread)
        }),
        ("bind fd@${PORT}", |p| p.binds[1].address == BindAddress::Inherited(8080)),
        ("bind /run/x.sock mode 600 accept-proxy", |p| {
            p.binds[1].mode == Some(0o600) && p.binds[1].accept_proxy
        }),
        ("bind abns@x", |p| matches!(&p.binds[1].address, BindAddress::Abstract { padded: true, .. })),
        ("bind :::443 v6only tfo", |p| p.binds[1].v6only == Some(true) && p.binds[1].tfo),
        ("bind :81\n bind :82", |p| &*p.binds[2].listener.name == "sock-3"),
    ];
    for (text, holds) in cases {
        let plan = plan(&format!("global\n log /dev/log local0\nlisten web\n bind :80\n {text}\n"));
        assert!(holds(&plan.proxies[0]), "{text}");
    }
}

#[test]
fn server_parameters_set_the_server() {
    let cases: &[ServerCase] = &[
        ("server s 10.0.0.1:80", |s| {
            **s.state.address.load() == ServerAddress::Ip(([10, 0, 0, 1], 80).into())
                && (s.state.id, s.state.initial_weight()) == (1, 1)
                && s.check.is_none()
                && s.state.port_offset().is_none()
        }),
        ("server s 10.0.0.1", |s| s.state.port_offset() == Some(0)),
        ("server s 10.0.0.1:+8", |s| s.state.port_offset() == Some(8)),
        ("server s /run/x.sock", |s| **s.state.address.load() == ServerAddress::Unix("/run/x.sock".into())),
        ("server s [::1]:80 weight 0", |s| s.state.initial_weight() == 0),
        ("server s 10.0.0.1:80 backup disabled id 9", |s| {
            s.state.backup && s.state.id == 9 && s.state.admin().in_maintenance()
        }),
        ("server s 10.0.0.1:80 maxconn 5 minconn 2 maxqueue 3", |s| {
            (s.state.maxconn.load(Relaxed), s.state.minconn, s.state.maxqueue) == (5, 2, 3)
        }),
        ("server s 10.0.0.1:80 cookie abc redir http://x", |s| {
            s.cookie.as_deref() == Some(b"abc".as_slice())
                && s.redirect.as_deref() == Some(b"http://x".as_slice())
        }),
        ("server s 10.0.0.1:80 send-proxy", |s| s.send_proxy == SendProxy::V1),
        ("server s 10.0.0.1:80 send-proxy-v2 proxy-v2-options crc32c,unique-id", |s| {
            s.send_proxy == SendProxy::V2 { unique_id: true, crc32c: true, authority: false, tls: None }
        }),
        ("server s 10.0.0.1:80 set-proxy-v2-tlv-fmt(0x20) %[src] send-proxy-v2", |s| {
            s.proxy_v2_tlvs[0].0 == 0x20
        }),
        (
            "default-server inter 5s rise 4 fall 5 weight 7\n server s 10.0.0.1:80 check fall 6 port 99 addr 10.0.0.2",
            |s| {
                s.state.initial_weight() == 7
                    && s.check.as_ref().is_some_and(|c| {
                        c.inter == Duration::from_secs(5)
                            && (c.rise, c.fall, s.state.health.port.load(Relaxed)) == (4, 6, 99)
                            && s.state.health.address.load().as_deref() == Some(&[10, 0, 0, 2].into())
                    })
            },
        ),
        ("default-server check\n server s 10.0.0.1:80 no-check", |s| s.check.is_none()),
        ("server s 10.0.0.1:80 observe layer7 on-error mark-down error-limit 3", |s| {
            (s.observe, s.on_error, s.error_limit) == (Observe::Layer7, OnError::MarkDown, 3)
        }),
        ("source 10.9.9.9\n server s 10.0.0.1:80", |s| {
            s.source.as_ref().is_some_and(|x| x.address == Some([10, 9, 9, 9].into()))
        }),
        ("server s 10.0.0.1:80 pool-max-conn 3 pool-purge-delay 9s max-reuse 5", |s| {
            (s.pool_max_conn, s.pool_purge_delay, s.max_reuse) == (3, Duration::from_secs(9), 5)
        }),
        ("server s 10.0.0.1:80 slowstart 10s on-marked-down shutdown-sessions", |s| {
            s.slow_start == seconds(10) && s.shutdown_sessions_when_down
        }),
        ("server s name.invalid:80 init-addr none", |s| {
            **s.state.address.load() == ServerAddress::Unresolved
        }),
        ("server s name.invalid:80 init-addr last,10.0.0.7", |s| {
            **s.state.address.load() == ServerAddress::Ip(([10, 0, 0, 7], 80).into())
        }),
    ];
    for (text, holds) in cases {
        let plan = plan(&format!("backend b\n mode http\n {text}\n"));
        assert!(holds(&plan.proxies[0].servers.fixed()[0]), "{text}");
    }
}

/// The check script of the only server.
fn script(plan: &Plan) -> &CheckScript {
    match &*plan.proxies[0].servers.fixed()[0].check.as_ref().expect("a check").kind {
        CheckKind::Script(script) => script,
        CheckKind::External { .. } => panic!("a script"),
    }
}

/// A script as one line: steps with their numbers.
fn told(script: &CheckScript) -> String {
    let steps = script.steps.iter().map(|step| {
        let what = match &step.action {
            CheckAction::Connect(connect) if connect.implied => "(connect)".to_owned(),
            CheckAction::Connect(_) => "connect".to_owned(),
            CheckAction::Send(Send::Bytes(bytes)) => format!("send:{}", bytes.escape_ascii()),
            CheckAction::Send(_) => "send-lf".to_owned(),
            CheckAction::Request(request) => {
                let uri = match &request.uri {
                    CheckText::Fixed(bytes) => bytes.escape_ascii().to_string(),
                    CheckText::Format(_) => "%".to_owned(),
                };
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                let names: Vec<String> = request.headers.iter().map(|(name, _)| text(name)).collect();
                format!("{} {uri} {}{names:?}", text(&request.method), text(&request.version))
            }
            CheckAction::Expect(expect) if expect.negate => "!expect".to_owned(),
            CheckAction::Expect(_) => "expect".to_owned(),
            CheckAction::SetVar(..) => "set".to_owned(),
            CheckAction::UnsetVar(_) => "unset".to_owned(),
        };
        let comment = step.comment.as_ref().map(|comment| format!("#{comment}")).unwrap_or_default();
        format!("{} {what}{comment}", step.number)
    });
    steps.collect::<Vec<_>>().join(" | ")
}

#[test]
fn checks_are_scripts_with_implied_steps() {
    #[rustfmt::skip]
    let cases = [
        ("", "0 (connect)"),
        ("option tcp-check", "0 (connect)"),
        ("tcp-check send x", "0 (connect)"),
        ("option httpchk", "0 (connect) | 1 OPTIONS / HTTP/1.0[] | 2 expect"),
        ("option httpchk /a", "0 (connect) | 1 OPTIONS /a HTTP/1.0[] | 2 expect"),
        ("option httpchk \"M\\xe7\" \"/\\xe9\"", "0 (connect) | 1 M\\xe7 /\\xe9 HTTP/1.0[] | 2 expect"),
        ("option httpchk GET /a HTTP/1.1 w\n http-check expect ! status 500-599", "0 (connect) | 1 GET /a HTTP/1.1[\"host\"] | 2 !expect"),
        ("option httpchk HEAD /a\n http-check send meth PUT hdr A b", "0 (connect) | 1 PUT /a HTTP/1.0[\"A\"] | 2 expect"),
        ("http-check send meth PUT uri /p hdr A b\n option httpchk GET /a", "0 (connect) | 1 GET /a HTTP/1.0[\"A\"] | 2 expect"),
        ("option httpchk\n http-check set-var(check.a) int(1)\n http-check connect\n http-check send uri-lf %[var(check.a)]", "2 set | 3 connect | 1 OPTIONS % HTTP/1.0[] | 2 expect"),
        ("option tcp-check\n tcp-check comment c\n tcp-check send a\n tcp-check send b\n tcp-check expect string x\n tcp-check expect string y comment own", "0 (connect) | 2 send:a#c | 3 send:b#c | 4 expect | 5 expect#own"),
        ("option tcp-check\n tcp-check comment c\n tcp-check connect\n tcp-check send a", "2 connect#c | 3 send:a"),
        ("option redis-check", "1 connect | 2 send:*1\\r\\n$4\\r\\nPING\\r\\n | 3 expect"),
        ("option smtpchk EHLO me", "1 connect | 2 expect | 3 expect | 4 send:EHLO me\\r\\n | 5 expect | 6 send:QUIT\\r\\n | 7 expect"),
        ("option pgsql-check user u", "1 connect | 2 send:\\x00\\x00\\x00\\x10\\x00\\x03\\x00\\x00user\\x00u\\x00\\x00 | 3 !expect | 4 expect"),
        ("option mysql-check", "1 connect | 2 expect"),
    ];
    for (lines, steps) in cases {
        let plan = plan(&format!("backend b\n {lines}\n server s 10.0.0.1:80 check\n"));
        assert_eq!(told(script(&plan)), steps, "{lines}");
    }
}

#[test]
fn checks_are_inherited_until_an_own_line_replaces_them() {
    let plan = plan(
        "defaults\n option httpchk GET /d\n http-check send hdr A b\nbackend a\n server s 10.0.0.1:80 check\n\
         backend b\n http-check send meth PUT\n server s 10.0.0.1:80 check\n\
         backend c\n option tcp-check\n server s 10.0.0.1:80 check\n\
         backend d\n server s 10.0.0.1:80 check\n",
    );
    let kind =
        |index: usize| plan.proxies[index].servers.fixed()[0].check.as_ref().expect("a check").kind.clone();
    let shown: Vec<String> = (0..4)
        .map(|index| match &*kind(index) {
            CheckKind::Script(script) => told(script),
            CheckKind::External { .. } => String::new(),
        })
        .collect();
    assert_eq!(shown[0], "0 (connect) | 1 GET /d HTTP/1.0[\"A\"] | 2 expect");
    assert_eq!(shown[1], "0 (connect) | 1 PUT / HTTP/1.0[] | 2 expect");
    assert_eq!(shown[2], "0 (connect)");
    assert_eq!(shown[3], shown[0]);
}

#[test]
fn inherited_scripts_without_expressions_are_shared() {
    let text = "defaults\n option httpchk GET /d\nbackend a\n server s 10.0.0.1:80 check\nbackend b\n server s 10.0.0.1:80 check\n";
    let plan = plan(text);
    let kinds: Vec<_> = plan
        .proxies
        .iter()
        .map(|proxy| proxy.servers.fixed()[0].check.as_ref().expect("a check").kind.clone())
        .collect();
    assert!(std::sync::Arc::ptr_eq(&kinds[0], &kinds[1]));
}

#[test]
fn templates_make_servers_by_number() {
    let plan = plan(
        "backend b\n server a 10.0.0.1\n server-template t 2-4 10.0.0.2:80 check\n server-template u 2 10.0.0.3\n",
    );
    let names: Vec<&str> = plan.proxies[0].servers.fixed().iter().map(|server| &*server.state.name).collect();
    assert_eq!(names, ["a", "t2", "t3", "t4", "u1", "u2"]);
    let ids: Vec<u32> = plan.proxies[0].servers.fixed().iter().map(|server| server.state.id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    assert_eq!(plan.proxies[0].state.servers.load().len(), 6);
}

fn ids(plan: &Plan) -> Vec<(&str, u32)> {
    plan.proxies.iter().map(|proxy| (&*proxy.state.name, proxy.state.id)).collect()
}

#[test]
fn proxy_ids_start_at_two_and_skip_those_taken() {
    assert_eq!(ids(&plan("listen a\nlisten b\n")), [("a", 2), ("b", 3)]);
    assert_eq!(ids(&plan("listen a\nlisten b\n id 1\nlisten c\n id 2\n")), [("a", 3), ("b", 1), ("c", 2)]);
}

#[test]
fn defaults_apply_to_following_or_referring_sections() {
    let text = "
defaults a
 mode http
 timeout client 1s
 log /dev/log local0
defaults b from a
 timeout client 2s
defaults
 timeout client 3s
frontend one from a
 bind :1
frontend two from b
 bind :2
 no log
frontend three
 bind :3
";
    let plan = plan(text);
    let of = |name: &str| plan.frontend(name).unwrap();
    let seen = |name: &str| (of(name).timeouts.client, of(name).mode, of(name).loggers.len());
    assert_eq!(seen("one"), (seconds(1), Mode::Http, 1));
    assert_eq!(seen("two"), (seconds(2), Mode::Http, 0));
    assert_eq!(seen("three"), (seconds(3), Mode::Tcp, 0));
}

#[test]
fn backends_are_found_whatever_the_order() {
    let plan = plan("frontend f\n bind :1\n default_backend b\nbackend b\nlisten l\n bind :2\n");
    assert_eq!(plan.proxies[0].default_backend, Some(1));
    assert_eq!(plan.proxies[2].default_backend, Some(2));
    assert_eq!((plan.backends.len(), plan.frontends.len()), (2, 2));
}

#[test]
fn environment_changes_follow_line_order() {
    let text = "global\n setenv P 81\n presetenv P 82\n.if streq(\"$P\",81)\nfrontend f\n bind \":${P}\"\n.else\nnonsense\n.endif\n";
    let plan = plan(text);
    assert_eq!(plan.proxies[0].binds[0].address, BindAddress::Ip(([0, 0, 0, 0], 81).into()));
    assert!(plan.environment.contains(&("P".to_owned(), "81".to_owned())));
}

/// A backend without a usable server at the start has lost none when its first server changes.
#[test]
fn backends_that_start_without_servers_report_no_loss() {
    let text = "backend b\n mode http\n timeout connect 1s\n timeout server 1s\n server s 127.0.0.1:1";
    for (more, is_lost) in [(" disabled", false), (" weight 0", false), ("", true)] {
        let plan = plan(&format!("{text}{more}\n"));
        let state = plan.backend("b").expect("it is in the text").state.clone();
        state.server("s").expect("it is in the text").set_weight(0);
        let report = state::transition::refresh_backend(&state, 1_000);
        assert_eq!(report.is_some(), is_lost, "{more}: {report:?}");
    }
}
