//! Expressions over a request, by family: each text with its expected value.

mod common;

use common::World;
use sample::{Place, Test};

fn check(world: &World, cases: &[(&str, &str)]) {
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|(text, expected)| {
            let found = world.eval(text);
            (found != *expected).then(|| format!("{text}\n   gives {found}\n  wanted {expected}"))
        })
        .collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
#[rustfmt::skip]
fn constants_and_the_connection() {
    check(&World::new(), &[
        ("str(a b)", "str:a b"), ("int(-7)", "sint:-7"), ("bool(true)", "bool:1"), ("bin(414243)", "bin:ABC"),
        ("ipv4(1.2.3.4)", "ipv4:1.2.3.4"), ("ipv6(::1)", "ipv6:::1"), ("meth(GET)", "meth:GET"), ("always_false", "bool:0"),
        ("src", "ipv4:192.0.2.7"), ("src_port", "sint:4711"), ("dst", "ipv4:203.0.113.1"), ("dst_port", "sint:80"),
        ("fc_src", "ipv4:10.9.9.9"), ("fc_src_port", "sint:5000"), ("fc_rcvd_proxy", "bool:1"),
        ("fc_pp_unique_id", "str:uid-1"), ("fc_pp_authority", "str:sni.example"), ("fc_pp_tlv(0x05)", "str:uid-1"),
        ("fc_pp_tlv(AUTHORITY)", "str:sni.example"), ("fc_pp_tlv(0xee)", "none"), ("fc_pp_tlv(foo)", "error: `fc_pp_tlv`: the type must be a number from 0x00 to 0xff or a standard type name"),
        ("ssl_fc", "bool:0"), ("ssl_fc_sni", "none"), ("fe_name", "str:fe"), ("fe_id", "sint:2"), ("so_id", "sint:1"), ("so_name", "none"),
        ("be_name", "error: `be_name` cannot be used here: it needs the selected backend"),
        ("nbsrv(be)", "sint:2"), ("srv_is_up(be/s1)", "bool:1"), ("srv_conn(be/s2)", "sint:0"), ("srv_conn_free(be/s2)", "sint:10"),
        ("nbsrv(nope)", "error: `nbsrv` argument 1: there is no backend `nope`"), ("fe_conn(fe)", "sint:0"),
        ("rand(1)", "sint:0"), ("uuid,length", "sint:36"), ("uuid(7),bytes(14,1)", "bin:7"), ("thread", "sint:0"), ("nbproc", "sint:1"),
        ("wait_end", "bool:1"), ("unique-id", "str:id-77"), ("txn.id32", "sint:31"), ("srcc", "error: unknown fetch method `srcc`"),
        ("src,", "ipv4:192.0.2.7"),
        ("src)", "error: unexpected `)` after the expression `src`"), ("src(1)", "error: `src` takes no argument"),
        ("str", "error: `str` needs argument 1: a string"), ("str()", "str:"), ("int(x)", "error: `int` argument 1: `x` is not a valid integer"), ("str(a),bytes(x)", "error: `bytes`: the offset must be at least 0, or a variable name"), ("str(a),bytes(0,0)", "error: `bytes`: the length must be at least 1, or a variable name"),
        ("str(a", "error: missing closing parenthesis after the arguments of `str`"),
        ("src,lowerr", "error: unknown converter `lowerr`"),
        ("res.hdr(x)", "error: `res.hdr` cannot be used here: it needs the response's contents"),
    ]);
}

#[test]
#[rustfmt::skip]
fn the_request_line_and_its_parts() {
    check(&World::new(), &[
        ("method", "meth:GET"), ("path", "str:/static/img/logo.png"), ("pathq", "str:/static/img/logo.png?a=1&b=two&A=3&empty="),
        ("query", "str:a=1&b=two&A=3&empty="), ("query(with_qm)", "str:?a=1&b=two&A=3&empty="), ("url", "str:/static/img/logo.png?a=1&b=two&A=3&empty="),
        ("base", "str:www.Example.com:8080/static/img/logo.png"), ("url_param(b)", "str:two"), ("urlp(a)", "str:1"), ("urlp(a,,i)", "str:1"),
        ("urlp(c)", "none"), ("urlp(empty)", "str:"), ("urlp_val(a)", "sint:1"), ("req.ver", "str:1.1"), ("req.proto_http", "bool:1"),
        ("http_first_req", "bool:1"), ("http_auth(users)", "bool:1"), ("http_auth_user", "str:joe"), ("http_auth_pass", "str:secret"),
        ("http_auth_type", "str:Basic"), ("capture.req.uri", "str:/static/img/logo.png?a=1&b=two&A=3&empty="),
        ("capture.req.method", "str:GET"), ("capture.req.ver", "str:HTTP/1.1"), ("capture.req.hdr(0)", "str:agent {x|y}"), ("capture.req.hdr(1)", "none"),
        ("req.body", "bin:name=x&v=two"), ("req.body_len", "sint:12"), ("req.body_size", "sint:12"), ("req.body_param(v)", "bin:two"), ("req.len", "sint:12"),
        ("req.payload(0,4)", "none"),
    ]);
}

#[test]
fn raw_bytes_are_read_only_outside_http() {
    let mut world = World::new();
    let fetches =
        ["payload(0,1)", "payload_lv(0,1)", "req.payload(0,1)", "req.payload(5,0)", "distcc_param(DIST)"];
    world.request_bytes = b"DIST00000001".to_vec();
    for fetch in fetches {
        assert_eq!(world.eval(fetch), "none", "{fetch}");
    }
    world.transaction.is_http = false;
    world.place = Place::TcpRequestContent;
    check(
        &world,
        &[("payload(0,1)", "bin:D"), ("req.payload(5,0)", "bin:0000001"), ("distcc_param(DIST)", "sint:1")],
    );
}

#[test]
fn versions_are_known_for_long_request_lines() {
    let mut world = World::new();
    world.transaction.request_line = world.transaction.keep(b"GET /truncat");
    check(&world, &[("capture.req.ver", "str:HTTP/1.1"), ("capture.req.uri", "str:/truncat")]);
}

#[test]
fn a_question_mark_without_a_query_is_omitted() {
    let mut world = World::new();
    for (target, with_mark) in [("/a?", "str:"), ("/a?b", "str:?b"), ("/a", "none"), ("nolead?b", "str:?b")] {
        world.transaction.request.set_target(target.as_bytes());
        assert_eq!(world.eval("query(with_qm)"), with_mark, "{target}");
    }
}

#[test]
fn values_that_are_not_stored_are_not_returned() {
    let world = World::new();
    check(
        &world,
        &[
            ("str(a),set-var(txn.v,ifempty)", "none"),
            ("var(txn.v)", "none"),
            ("str(a),set-var(txn.v,ifnotexists)", "str:a"),
            ("str(b),set-var(txn.v,ifnotexists)", "none"),
            ("var(txn.v)", "str:a"),
            // The frontend has the request slots 0 and 1, and no response slots.
            ("str(a),capture-req(1)", "str:a"),
            ("capture.req.hdr(1)", "str:a"),
            ("str(a),capture-req(2)", "none"),
            ("str(a),capture-res(0)", "none"),
        ],
    );
}

#[test]
fn default_values_may_be_empty() {
    let mut world = World::new();
    for (file, text) in [("words", "b one\n"), ("numbers", "b 7\n"), ("addresses", "b 1.2.3.4\n")] {
        world.files.insert(file, text);
    }
    check(
        &world,
        &[
            ("var(txn.nope)", "none"),
            (r#"var(txn.nope,"")"#, "str:"),
            ("var(txn.nope,)", "str:"),
            ("var(txn.nope,x)", "str:x"),
            ("str(a),map(words)", "none"),
            (r#"str(a),map(words,"")"#, "str:"),
            ("str(a),map_beg(words,)", "str:"),
            (r#"str(a),map_regm(words,"")"#, "str:"),
            ("str(a),map_str_int(numbers)", "none"),
            (r#"str(a),map_str_int(numbers,"")"#, "sint:0"),
            ("str(a),map_str_int(numbers,x)", "error: `map_str_int` argument 2: `x` is not a valid integer"),
            ("str(a),map_str_ip(addresses)", "none"),
            ("str(a),map_str_ip(addresses,5.6.7.8)", "ipv4:5.6.7.8"),
            ("str(a),map_str_ip(addresses,5.6.7.8/8)", "ipv4:5.6.7.8"),
            ("str(a),map_str_ip(addresses,::1)", "ipv6:::1"),
            ("str(a),map_str_ip(addresses,)", "error: `map_str_ip`: the default `` is not an address"),
            ("str(a),map_str_ip(addresses,zz)", "error: `map_str_ip`: the default `zz` is not an address"),
            (
                "str(a),map_str_ip(addresses,5.6.7.8/99)",
                "error: `map_str_ip`: the default `5.6.7.8/99` is not an address",
            ),
        ],
    );
}

#[test]
#[rustfmt::skip]
fn headers_and_cookies() {
    let mut world = World::new();
    check(&world, &[
        ("req.hdr(host)", "str:www.Example.com:8080"), ("hdr(HOST)", "str:www.Example.com:8080"), ("req.hdr(x-forwarded-for)", "str:10.0.0.3"),
        ("req.hdr(x-forwarded-for,1)", "str:10.0.0.1"), ("req.hdr(x-forwarded-for,-2)", "str:10.0.0.2"), ("req.hdr(x-forwarded-for,9)", "none"),
        ("req.fhdr(x-forwarded-for,1)", "str:10.0.0.1, 10.0.0.2"), ("req.fhdr(x-forwarded-for)", "str:10.0.0.3"),
        ("req.hdr_cnt(x-forwarded-for)", "sint:3"), ("req.fhdr_cnt(x-forwarded-for)", "sint:2"), ("req.hdr_cnt(nope)", "sint:0"),
        ("req.hdr_ip(x-forwarded-for,1)", "ipv4:10.0.0.1"), ("req.hdr_val(content-length)", "sint:12"), ("req.hdr(nope)", "none"),
        ("req.hdr_names(;)", "str:host;user-agent;x-forwarded-for;x-forwarded-for;cookie;accept-language;authorization;content-length"),
        ("req.cook(sid)", "str:def"), ("req.cook(n)", "str:42"), ("req.cook_val(n)", "sint:42"), ("req.cook_cnt(sid)", "sint:2"), ("req.cook(zz)", "none"),
        ("req.cook_names", "str:sid,n,sid"),
    ]);
    world.place = Place::HttpResponse;
    check(&world, &[
        ("status", "sint:404"), ("res.hdr(server)", "str:unit"), ("hdr(server)", "str:unit"), ("res.hdr_val(x-num)", "sint:17"), ("res.cook(sid)", "str:new"),
        ("res.ver", "str:1.1"), ("server_status", "sint:404"), ("srv_name", "str:s1"), ("srv_id", "sint:1"), ("be_name", "str:be"), ("bc_src", "ipv4:10.1.1.254"), ("bc_dst_port", "sint:80"),
        ("res.timer.hdr", "sint:69"), ("txn.timer.total", "sint:119"), ("bc.timer.connect", "sint:30"), ("req.timer.queue", "sint:1"), ("fc.timer.handshake", "sint:3"),
    ]);
}

#[test]
fn timers_end_at_the_last_timestamp_if_the_clock_lags() {
    let mut world = World::new();
    let times = &mut world.transaction.times;
    // The clock is at 2,000 ms.
    (times.idle_from, times.started, times.request) = (2_000_000, 2_003_000, 2_004_000);
    (times.queued, times.connected, times.response, times.closed) = (0, 0, 0, 0);
    world.place = Place::HttpResponse;
    check(&world, &[("txn.timer.user", "sint:1"), ("txn.timer.total", "sint:1")]);
}

#[test]
#[rustfmt::skip]
fn converters_of_text() {
    check(&World::new(), &[
        ("str(AbC),lower", "str:abc"), ("str(AbC),upper", "str:ABC"), ("str(abc),length", "sint:3"), ("str(abc),reverse", "str:cba"),
        ("str(www.a.example),reverse_dom", "str:example.a.www"), ("str(abcdef),bytes(2)", "bin:cdef"), ("str(abc),bytes(3,txn.none)", "bin:"), ("str(abc),bytes(2,txn.none)", "none"), ("int(-3),x509_v_err_str", "str:18446744073709551613"), ("str(abcdef),bytes(2,2)", "bin:cd"), ("str(abc),bytes(9)", "bin:"),
        ("str(f1_f2_f3__f5),field(4,_)", "str:"), ("str(f1_f2_f3__f5),field(5,_)", "str:f5"), ("str(a.b),field(3,.)", "none"), ("str(f1_f2_f3__f5),field(2,_,0)", "str:f2_f3__f5"),
        ("str(f1_f2_f3__f5),field(2,_,2)", "str:f2_f3"), ("str(f1_f2_f3__f5),field(-2,_,3)", "str:f2_f3_"), ("str(f1_f2_f3__f5),field(-3,_,0)", "str:f1_f2_f3"),
        ("str(w1_w2_w3__w4),word(4,_)", "str:w4"), ("str(w1_w2_w3__w4),word(2,_,0)", "str:w2_w3__w4"), ("str(w1_w2_w3__w4),word(3,_,2)", "str:w3__w4"),
        ("str(w1_w2_w3__w4),word(-2,_,3)", "str:w1_w2_w3"), ("str(w1_w2_w3__w4),word(-3,_,0)", "str:w1_w2"), ("str(/w1/w2),word(1,/)", "str:w1"),
        ("str(a),concat(b,txn.nope,c)", "str:abc"), ("str(x),set-var(txn.v),concat(-,txn.v)", "str:x-x"), ("str(),add_item(\",\",,x)", "str:x"), ("str(a),add_item(\",\",,x)", "str:a,x"),
        ("str(/a/b/a),regsub(a,X)", "str:/X/b/a"), ("str(/a/b/a),regsub(a,X,g)", "str:/X/b/X"), ("str(/A),regsub(a,X,i)", "str:/X"), (r#"str(/here/x),regsub("^/(here)(/|$)","my/\1",g)"#, "str:my/herex"),
        ("str(abc),ltrim(ab)", "str:c"), ("str(abc),rtrim(bc)", "str:a"), ("str(\"a\\r\\nb\"),cut_crlf", "str:a"),
        ("str(h:80),host_only", "str:h"), ("str([::1]:80),host_only", "str:[::1]"), ("str(h:80),port_only", "sint:80"), ("str(h),port_only", "sint:0"),
        ("str(a=1&b=2),param(b)", "str:2"), ("str(a=1;b),param(b,;)", "str:"), ("str(ab=1),param(a)", "none"),
        ("req.fhdr(accept-language),language(\"en;fr\",de)", "str:fr"), ("str(it),language(\"en;fr\",de)", "str:de"),
        ("str(a b),url_enc", "str:a%20b"), ("str(a%20b),url_dec", "str:a b"), ("str(a%2),url_dec", "none"),
        ("str(a\tb),has_ctl", "bool:0"), ("str(a\tb),has_ctl(any)", "bool:1"), ("str(a),json", "str:a"), ("str(\"a\\\"/\"),json(utf8)", "str:a\\\"\\/"),
        (r#"str('{"a":{"b":[1,2]},"s":"x"}'),json_query('$.a.b[1]',int)"#, "sint:2"), (r#"str('{"s":"x"}'),json_query('$.s')"#, "str:x"), (r#"str('{}'),json_query('$.s')"#, "none"),
        (r#"str('{"a":1,"a":2}'),json_query('$.a')"#, "str:1"), (r#"str('{"a":1700000000}'),json_query('$.a')"#, "str:1.7e+09"), (r#"str('{"a":1700000000}'),json_query('$.a',int)"#, "sint:1700000000"),
        (r#"str('{"a":9007199254740992}'),json_query('$.a',int)"#, "none"), (r#"str('{"a":-1.9e5}'),json_query('$.a',int)"#, "sint:-1"), (r#"str('{"a":"12"}'),json_query('$.a',int)"#, "str:12"),
        (r#"str('{"a":[ 1, {} ]'),json_query('$.a',int)"#, "str:[ 1, {} ]"), (r#"str('{"a":{}'),json_query('$.a')"#, "none"),
        ("bool(true),iif(yes,no)", "str:yes"), ("int(0),iif(yes,no)", "str:no"),
    ]);
}

#[test]
#[rustfmt::skip]
fn converters_of_numbers_bytes_and_dates() {
    check(&World::new(), &[
        ("int(7),add(3)", "sint:10"), ("int(7),sub(10)", "sint:-3"), ("int(7),mul(3)", "sint:21"), ("int(7),div(2)", "sint:3"), ("int(7),div(0)", "sint:9223372036854775807"),
        ("int(7),mod(4)", "sint:3"), ("int(6),and(3)", "sint:2"), ("int(6),or(1)", "sint:7"), ("int(6),xor(3)", "sint:5"), ("int(0),cpl", "sint:-1"), ("int(5),neg", "sint:-5"),
        ("int(0),not", "bool:1"), ("int(2),bool", "bool:1"), ("int(3),odd", "bool:1"), ("int(3),even", "bool:0"), ("str(4),add(1)", "sint:5"),
        ("str(ab),hex", "str:6162"), ("str(ff),hex2i", "sint:255"), ("str(abc),base64", "str:YWJj"), ("str(YWJj),b64dec", "bin:abc"), ("str(YQ),b64dec", "none"), ("bool(1),hex", "str:0000000000000001"), ("str(abc),wt6", "sint:2483038440"), ("str(abc),crc32c", "sint:910901175"), ("str(abc),crc32(1)", "sint:930845320"), ("int(1234567890123),http_date(0,ms)", "str:Fri, 13 Feb 2009 23:31:30.123 GMT"), ("bin(fffe),ub64enc", "str:__4"), ("str(__4),ub64dec,hex", "str:FFFE"),
        ("bin(01020304),be2dec(:,2)", "str:258:772"), ("bin(01020304),le2dec(:,2)", "str:513:1027"), ("bin(010203),be2hex(-,2)", "str:0102-03"), ("bin(05),base2", "str:00000101"), ("int(1),htonl,hex", "str:00000001"),
        ("str(abc),crc32", "sint:891568578"), ("str(abc),djb2", "sint:193485963"), ("str(abc),sdbm", "sint:807794786"), ("str(abc),xxh64", "sint:4952883123889572249"), ("str(abc),sha1,hex", "str:A9993E364706816ABA3E25717850C26C9CD0D89D"),
        ("str(abc),sha2,hex", "str:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"), ("str(abc),digest(sha512),length", "sint:64"),
        ("str(data),hmac(sha256,a2V5),hex", "str:5031FE3D989C6D1537A013FA6E739DA23463FDAEC3B70137D828E36ACE221BD0"),
        ("int(1234567890),utime(\"%Y-%m-%d %H:%M:%S %j %a %b\")", "str:2009-02-13 23:31:30 044 Fri Feb"), ("int(1234567890123),ms_utime(\"%S.%3N\")", "str:30.123"), ("int(0),http_date", "str:Thu, 01 Jan 1970 00:00:00 GMT"),
        ("str('Sun, 06 Nov 1994 08:49:37 GMT'),date", "sint:784111777"), ("src,ipmask(24)", "ipv4:192.0.2.0"), ("src,ipmask(255.255.0.0)", "ipv4:192.0.0.0"), ("ipv6(2001:db8:1::1),ipmask(24,32)", "ipv6:2001:db8::"),
        ("date(0,ms),div(1000000000000)", "sint:1"), ("src,ipmask(33)", "error: `ipmask` argument 1: `33` is not a valid IPv4 mask"), ("str(a),add(x)", "error: `add` argument 1: `x` is neither a number nor a variable"),
        ("int(5),set-var(txn.n),add(txn.n)", "sint:10"), ("str(secret),set-var(txn.k),secure_memcmp(txn.k)", "bool:1"), ("str(b),set-var(txn.k),strcmp(txn.k)", "sint:0"),
        ("bin(41),ipmask(8)", "error: converter `ipmask` cannot be applied: it takes addr, but the input is bin"),
    ]);
}

#[test]
#[rustfmt::skip]
fn converters_of_protocols() {
    check(&World::new(), &[
        (r#"str('for="[::1]:_p";proto=http'),rfc7239_is_valid"#, "bool:1"), ("str(for=127.0.0.1;proto=http),rfc7239_is_valid", "bool:1"), ("str(proto=custom),rfc7239_is_valid", "bool:0"),
        ("str(proto=http;proto=http),rfc7239_is_valid", "bool:0"), ("str(by=[::1]),rfc7239_is_valid", "bool:0"), (r#"str('by="[::1]:"'),rfc7239_is_valid"#, "bool:0"), ("str('\"'),rfc7239_is_valid", "bool:0"), (r#"str('for="unknown:132";host="[::1]:65535";by="_obfs:_port";proto=https'),rfc7239_is_valid"#, "bool:1"),
        (r#"str('proto=https;host="haproxy.org:80";for="127.0.0.1:9999"'),rfc7239_field(host)"#, "str:haproxy.org:80"), (r#"str('for="127.0.0.1:9999"'),rfc7239_field(for)"#, "str:127.0.0.1:9999"),
        ("str(127.0.0.1:9999),rfc7239_n2nn", "ipv4:127.0.0.1"), ("str([ab:cd::1]:9998),rfc7239_n2nn", "ipv6:ab:cd::1"), ("str(_name:_port),rfc7239_n2nn", "str:_name"), ("str(127.0.0.1:9999),rfc7239_n2np", "sint:9999"), ("str(_name:_port),rfc7239_n2np", "str:_port"), ("str(_name),rfc7239_n2np", "none"),
        ("ipv6(::1),rfc7239_nn", "str:[::1]"), ("str(test),rfc7239_nn", "str:_test"), ("str(),rfc7239_nn", "str:unknown"), ("int(12),rfc7239_np", "str:12"), ("str(x),rfc7239_np", "str:_x"),
        ("str(abc),ub64dec,hex", "str:69B7"), ("bin(8fac41),json(utf8p)", "none"), ("bin(8fac41c3),json(utf8ps)", "str:A"), ("bin(c0af41),json(utf8p)", r"str:\/A"), ("bin(c0af41),json(utf8)", "none"), ("bin(c0af41),json(utf8s)", "str:A"), ("bin(eda08041),json(utf8p)", "none"), ("bin(eda08041),json(utf8ps)", "str:A"), ("bin(e282ac),json(utf8)", r"str:\u20ac"), ("bin(ffffffffffffffff),be2dec(.,8)", "str:18446744073709551615"), ("str(10.0.0.1:80),ipmask(8)", "ipv4:10.0.0.0"), ("str(010.0.0.1 x),ipmask(32)", "ipv4:10.0.0.1"), ("str(10.0.0.1.5),ipmask(32)", "none"), ("str(::ffff:1.2.3.4),ipmask(24)", "ipv4:1.2.3.0"), ("str(Example.COM:80),host_only", "str:example.com"), ("str(d),set-var(txn.k),bytes(1),concat(b),strcmp(txn.k)", "sint:-2"), ("str(a.b),jwt_payload_query", "none"), ("str(PUT),ub64dec,hex", "str:3D44"), ("bin(383d4649582e342e3401393d350133353d300131303d31363301),fix_is_valid", "bool:1"), ("bin(383d4649582e342e3401393d350133353d300131303d30303001),fix_is_valid", "bool:0"), ("bin(383d4649582e342e3401393d350133353d300131303d31363301),fix_tag_value(MsgType)", "bin:0"), ("str(foo),fix_is_valid", "none"), ("str(foo foo foo foo foo foo foo foo),fix_is_valid", "bool:0"),
        ("bin(450000287ab44000400600007f0000017f000002),ip.src", "ipv4:127.0.0.1"), ("bin(450000287ab44000400600007f0000017f000002),ip.df", "sint:1"), ("bin(450000287ab44000400600007f0000017f000002),ip.ttl", "sint:64"), ("bin(450000287ab44000400600007f0000017f000002ff),ip.data,hex", "str:FF"),
        ("bin(3039005000000001000000007002400000000000020405b401010402),tcp.options.mss", "sint:1460"), ("bin(3039005000000001000000007002400000000000020405b4010104),tcp.options_list", "none"), ("bin(00),tcp.options_list", "none"), ("bin(0039005000000001000000006002400000000000020405b4),tcp.options.wscale", "sint:0"), ("bin(00390050000000010000000060024000000000000101010103),tcp.options.mss", "sint:0"), ("bin(00390050000000010000000060024000000000000204),tcp.options.sack", "none"), ("bin(3039005000000001000000007002400000000000020405b401010402),tcp.dst", "sint:80"), ("bin(3039005000000001000000007002400000000000020405b401010402),tcp.options_list,hex", "str:02010104"), ("bin(3039005000000001000000007002400000000000020405b401010402),tcp.options.wsopt", "sint:0"),
        ("bin(ffffffffffff02000000000181000005080045),eth.vlan", "sint:5"), ("bin(ffffffffffff02000000000181000005080045),eth.proto", "sint:2048"), ("bin(ffffffffffff02000000000181000005080045),eth.data,hex", "str:45"),
        ("str(eyJhbGciOiJIUzI1NiJ9),jwt_header_query('$.alg')", "str:HS256"), ("str(eyJhbGciOiJIUzI1NiJ9),jwt_payload_query", "none"),
        ("str(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UiLCJhZ2UiOjd9.c2ln),jwt_header_query('$.alg')", "str:HS256"), ("str(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UiLCJhZ2UiOjd9.c2ln),jwt_payload_query('$.age',int)", "sint:7"), ("str(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UiLCJhZ2UiOjd9.c2ln),jwt_payload_query", r#"str:{"sub":"joe","age":7}"#),
        ("str(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UiLCJhZ2UiOjd9.c2ln),jwt_verify(HS256,key)", "sint:0"), ("str(a.b),jwt_verify(HS256,key)", "sint:-3"), ("str(a.b.c),jwt_verify(txn.none,key)", "none"), ("str(a.b.c),jwt_verify(HS256,txn.none)", "none"), ("str(a.b.c),jwt_verify(HS256,\"\")", "none"), ("str(a.b.YQ==),jwt_verify(HS256,key)", "sint:0"), ("str(a.b.),jwt_verify(none,key)", "sint:1"), ("str(a.b),jwt_verify(none,key)", "sint:-3"), ("str(a.b.YQ),jwt_verify(none,key)", "sint:0"), ("str(a.b.),jwt_verify(none,key)", "sint:1"), ("str(a.b.c),jwt_verify(none,key)", "sint:0"), ("str(a.b..),jwt_verify(none,key)", "sint:-3"), ("str(a),jwt_verify(none,key)", "sint:-3"), ("str(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UiLCJhZ2UiOjd9.c2ln=),jwt_verify(HS256,key)", "sint:-3"), ("str(a),bytes(1),set-var(txn.k),concat(a),add_item(;,txn.k)", "str:a"), ("str(a.b.c),jwt_verify(XS256,key)", "error: `jwt_verify`: unknown algorithm `XS256`"), ("str(a.b.),jwt_verify(none,x)", "sint:1"), ("str(a.b.c),jwt_verify(RS256,x)", "error: `jwt_verify`: cannot read the public key `x`: No such file or directory"),
        // An MQTT 3.1.1 CONNECT of client `cid` with a user, and a CONNACK.
        ("bin(101600044d5154540480003c0003636964),mqtt_is_valid", "none"),
        ("bin(101600044d5154540480003c000363696400056d75736572),mqtt_is_valid", "bool:1"), ("bin(101600044d5154540480003c000363696400056d75736572),mqtt_field_value(connect,username)", "str:muser"), ("bin(101600044d5154540480003c000363696400056d75736572),mqtt_field_value(1,keepalive)", "str:60"), ("bin(20020000),mqtt_field_value(connack,reason_code)", "str:0"), ("bin(20020000),mqtt_field_value(connect,flags)", "none"),
        ("bin(089601),protobuf(1,int32)", "sint:150"), ("bin(1a03089601),protobuf(3.1,uint64)", "sint:150"), ("bin(120774657374696e67),protobuf(2,string)", "str:testing"), ("bin(0803),protobuf(1,sint32)", "sint:-2"), ("bin(0d0000c03f),protobuf(1,float)", "str:1.5"), ("bin(089601),protobuf(2,int32)", "none"), ("bin(0000000003089601),ungrpc(1,int32)", "sint:150"), ("bin(08),protobuf(1,foo)", "error: `protobuf`: unknown type `foo`; use one of: int32, int64, uint32, uint64, sint32, sint64, bool, enum, fixed32, sfixed32, float, fixed64, sfixed64, double, string, bytes"),
        ("str(a=1&b),param(b,0x26)", "str:"), ("str(example.com.),reverse_dom", "str:com.example"), ("bin(0102),be2hex", "str:0102"),
    ]);
}

/// Keys and tokens made for this test only.
const RSA_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA3JWEXzfDAp4KEai+QXfT\nWevdx2QfHYoCS/2YiQ2KIIm07u+1mW11vOyWBq7+b503Im6z+NJ4oo9wWSpF/fDQ\n2kbb3dRHMxTTV8vI9BEQLDRaeLftJjORIRcYGjOkZRcPpEwEP0L0HYmodiVbB/Ee\n0wCHffsNxqbDvW07vy3KWB5YvrFlz9ESCd8Y0kisTugd9z1GAu3wkKJZZe/7B8nK\nOezUzuK32Vpz2N6l46mxvb6yni8QH9HUTgwYS3Pfei2ZZWeAuM1HTmSCHIAhQyJy\nc3YKADJ3fP8c6Z4uBZQG0A8nKLv1PtDN0l88HW5kpXf8szl5xVdDKVDIV8Vh0yAe\nowIDAQAB\n-----END PUBLIC KEY-----\n";
const RSA_TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqb2UifQ.MDM0OHwnId0VSp0IUHZOeogxoQW_qeYoJF3uoAAaDXrZGsm7PD2XzIQKXiiWMwQgowSZOkQ0bWLIW2TD7hFB__mnYYGaARt1VhNjr6ULAY31oQHm_sGdU8rXi9lVWEU0MnJsFAwUUoP7rosK9vZYIrksKC-SZIvx2t1IBR_fY8lBYGO6zuh3sAHl_oqTRyFxYKY8kyozK3bkLylyXHYMS7ffhBQ9kQ2O7KcCUSWSeQAQKMorD5pxYMqploy6M4OOhxjokHz-eE3gZdurzv_4VGrTfHWqSlGdsgw-XCo_yQaDXvg1H_WrmLaHHDSZe6YmsYx24UBP6TMk2Exzy6dg2A";
const EC_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEWCRXM4ywgZx+/HCRPAhg6ELj1+eb\nXny/kBP10T8+aU0lU0KePD5zdTBsyvD8CYNNERRPWDZJdOvgW7PnJ0Ccpg==\n-----END PUBLIC KEY-----\n";
const EC_TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJqb2UifQ.bRrOtYkhbPie5Sh9-oBtZDZAiaj5qSHvxH72pD-WkRUFtAnz2bC9f_CDoOWYsXwiU4yO8UIxEd4097jRc8u8bw";

#[test]
fn tokens_signed_with_public_keys_are_verified() {
    let mut world = World::new();
    world.files.insert("rsa.pem", RSA_PUBLIC);
    world.files.insert("ec.pem", EC_PUBLIC);
    let eval = |token: &str, verify: &str| world.eval(&format!("str({token}),{verify}"));
    assert_eq!(eval(RSA_TOKEN, "jwt_verify(RS256,rsa.pem)"), "sint:1");
    assert_eq!(eval(EC_TOKEN, "jwt_verify(ES256,ec.pem)"), "sint:1");
    assert_eq!(eval(RSA_TOKEN, "jwt_verify(RS512,rsa.pem)"), "sint:0");
    // A variable may only name a file that appears elsewhere in the configuration.
    for (name, result) in [("rsa.pem", "sint:1"), ("other.pem", "sint:-5")] {
        assert_eq!(eval(name, "set-var(txn.file)"), format!("str:{name}"));
        assert_eq!(eval(RSA_TOKEN, "jwt_verify(RS256,txn.file)"), result);
    }
    assert_eq!(eval(RSA_TOKEN, "jwt_verify(ES256,ec.pem)"), "sint:0");
    assert_eq!(eval(RSA_TOKEN, "set-var(txn.t),jwt_header_query('$.alg'),set-var(txn.alg)"), "str:RS256");
}

#[test]
fn rule_responses_are_neither_errors_nor_services() {
    let mut world = World::new();
    world.transaction.server = None;
    world.transaction.status = 200;
    world.transaction.termination.cause = sample::Cause::Local;
    world.transaction.termination.phase = sample::Phase::Request;
    for (condition, holds) in
        [("normal", true), ("error", false), ("!error", true), ("toapplet", false), ("processed", false)]
    {
        let expected = if holds { "str:x" } else { "none" };
        assert_eq!(world.eval(&format!("str(x),when({condition})")), expected, "{condition}");
    }
    world.transaction.service = Some("<STATS>");
    assert_eq!(world.eval("str(x),when(toapplet)"), "str:x");
}

#[test]
fn proxies_and_servers_are_found_by_name() {
    check(
        &World::new(),
        &[
            ("str(fe),fe_exists", "bool:1"),
            ("str(nope),fe_exists", "bool:0"),
            ("bin(ff00),fe_exists", "bool:0"),
            ("str(be),nbsrv", "sint:2"),
            ("str(nope),nbsrv", "none"),
            ("str(be/s1),srv_is_up", "bool:1"),
            ("str(s2),srv_is_up", "bool:1"),
            ("str(be/s9),srv_is_up", "none"),
            ("str(be/s1),srv_queue", "sint:0"),
        ],
    );
}

#[test]
fn encryption_round_trips() {
    let world = World::new();
    let (nonce, key) = ("MTIzNDU2Nzg5MDEy", "Zm9vb2Zvb29mb29vb29vbw==");
    let gcm =
        format!("str(plain),aes_gcm_enc(128,{nonce},{key},txn.tag),aes_gcm_dec(128,{nonce},{key},txn.tag)");
    assert_eq!(world.eval(&gcm), "bin:plain");
    let covered = format!(
        "str(plain),aes_gcm_enc(128,{nonce},{key},txn.tag,YQ==),aes_gcm_dec(128,{nonce},{key},txn.tag)"
    );
    assert_eq!(world.eval(&covered), "none");
    // Computed with `openssl enc -aes-128-cbc`, the same key and the sixteen digits as the IV.
    let cbc = format!("str(plain),aes_cbc_enc(128,MTIzNDU2Nzg5MDEyMzQ1Ng==,{key}),hex");
    assert_eq!(world.eval(&cbc), "str:9461FCF29CA0F36D6D6C1AC907B60D65");
    assert_eq!(
        world.eval(&cbc.replace(",hex", &format!(",aes_cbc_dec(128,MTIzNDU2Nzg5MDEyMzQ1Ng==,{key})"))),
        "bin:plain"
    );
}

#[test]
fn maps_answer_by_their_method() {
    let mut world = World::new();
    world.files.insert("m", "/static dir\n/static/img deep\nwww.example.com host\n# x\n10 ten\n");
    world.files.insert("ip", "192.0.2.0/24 net\n192.0.2.7 host\n");
    world.files.insert("n", "10 1\n");
    world.files.insert("re", "^/static/(.*)\\.png$ img:\\1\n");
    check(
        &world,
        &[
            ("path,map_beg(m)", "str:deep"),
            ("path,map_dir(m)", "str:dir"),
            ("req.hdr(host),host_only,lower,map(m)", "str:host"),
            ("str(zz),map(m,dflt)", "str:dflt"),
            ("str(zz),map(m)", "none"),
            ("src,map_ip(ip)", "str:host"),
            ("ipv4(192.0.2.9),map_ip(ip)", "str:net"),
            ("path,map_regm(re)", "str:img:img/logo"),
            ("path,map_beg_key(m)", "str:/static/img"),
            ("str(11),map_str_int(n,5)", "sint:5"),
            (
                "str(x),map(gone)",
                "error: `map`: failed to open pattern file <gone>: No such file or directory",
            ),
        ],
    );
}

#[test]
fn typed_maps_refuse_other_values() {
    let mut world = World::new();
    world.files.insert("n", "a 7\nb\nc seven\n");
    world.files.insert("fine", "a 7\nb\n");
    world.files.insert("i", "a 1.2.3.4\nb\n");
    let cases = [
        (
            "str(a),map_str_int(n)",
            "error: `map_str_int`: `seven`, the value of `c` in `n`, is not an integer",
        ),
        ("str(a),map_beg_int(fine)", "sint:7"),
        ("str(a),map_str_ip(i)", "error: `map_str_ip`: ``, the value of `b` in `i`, is not an address"),
        ("str(a),be2dec(:,2,2)", "error: `be2dec`: the last argument is 1 to omit an incomplete chunk, or 0"),
        ("int(1),http_date(0,h)", "error: `http_date`: the unit must be s, ms or us"),
    ];
    check(&world, &cases);
}

#[test]
#[rustfmt::skip]
fn conditions_hold_as_their_acls_do() {
    let mut world = World::new();
    world.files.insert("nets", "10.0.0.0/8\n192.0.2.0/24\n");
    for line in ["img path_beg /static /images", "img path_end .gif", "old hdr(host) -i WWW.example.COM:8080", "xff req.hdr(x-forwarded-for) 10.0.0.1", "never always_false"] {
        let list = common::words(line);
        let (name, criterion) = sample::acl::compile_declaration(&mut sample::Words::new(&list, diag::Span::default()), &world.scope()).unwrap();
        world.acls.add(name, criterion);
    }
    let cases = [
        ("img", Test::Yes), ("!img", Test::No), ("img old", Test::Yes), ("never || img", Test::Yes), ("never or never", Test::No), ("! never", Test::Yes), ("!!img", Test::Yes),
        ("xff", Test::Yes), ("{ src -f nets }", Test::Yes), ("!{ src 10.0.0.0/8 }", Test::Yes), ("{ src 192.0.2 }", Test::No), ("{ dst_port 80 443 }", Test::Yes), ("{ dst_port gt 80 }", Test::No), ("{ dst_port ge 80 }", Test::Yes),
        ("{ req.cook(sid) abc }", Test::Yes), ("{ urlp_val(empty) -m found }", Test::Yes), ("{ urlp_val(empty) 0 }", Test::Yes), ("{ req.hdr(nope) -m found }", Test::No), ("{ req.hdr(host) -m found }", Test::Yes), ("{ path -m reg ^/stat.*png$ }", Test::Yes), ("{ path_sub img }", Test::Yes), ("{ path_dir img }", Test::Yes),
        ("{ hdr_dom(host) -i example.com }", Test::Yes), ("{ hdr_dom(host) xample }", Test::No), ("{ path,length gt 5 }", Test::Yes), ("{ path_len 20 }", Test::Yes), ("{ url_reg -i LOGO }", Test::Yes), ("{ method GET HEAD }", Test::Yes), ("METH_GET", Test::Yes), ("METH_POST", Test::No),
        ("HTTP_1.1", Test::Yes), ("HTTP_URL_SLASH", Test::Yes), ("LOCALHOST", Test::No), ("TRUE !FALSE", Test::Yes), ("WAIT_END", Test::Yes), ("HTTP_CONTENT", Test::Yes), ("{ http_auth_group(users) dev }", Test::Yes), ("{ http_auth_group(users) admin }", Test::No),
        ("{ http_auth(users) }", Test::Yes), ("{ str(a) -m bin 61 }", Test::Yes), ("{ var(txn.none) -m found }", Test::No), ("{ nbsrv(be) lt 3 }", Test::Yes), ("{ ssl_fc }", Test::No), ("{ acl(img,!never) }", Test::Yes), ("{ urlp(b) two }", Test::Yes), ("{ hdr_beg(host) -i www. }", Test::Yes),
    ];
    for (text, expected) in cases {
        assert_eq!(world.test(text), Ok(expected), "{text}");
    }
    let errors = [
        ("nope", "unknown ACL `nope`"), ("", "missing ACL in the condition"), ("img or", "missing ACL after the last `or`"), ("{ src 10.0.0.1", "the anonymous ACL has no closing brace"),
        ("{ foo bar }", "unknown fetch method `foo` in ACL expression `foo`"), ("{ var(txn.x) 1 }", "`var(txn.x)` returns type any, which has no default match method"), ("{ dst_port x }", "`x` is neither a number nor a range of numbers"),
        ("{ path -m xx /a }", "unknown match method `xx`"), ("{ src,table_conn_cnt(t) gt 1 }", "`table_conn_cnt` argument 1: there is no stick table `t`"),
    ];
    for (text, expected) in errors {
        assert_eq!(world.test(text), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn malformed_credentials_yield_no_value() {
    let mut world = World::new();
    // The header, its type, and whether it authenticates a user of the list.
    let cases = [
        ("Basic am9lOnNlY3JldA==", "str:Basic", "bool:1"),
        ("Basic am9lOndyb25n", "str:Basic", "bool:0"),
        ("Basic am9l", "none", "none"),
        ("Basic !!", "none", "none"),
        ("Bearer abc", "str:Bearer", "none"),
        ("Bearer", "none", "none"),
        ("Digest abc", "none", "none"),
    ];
    for (header, kind, known) in cases {
        world.transaction.request.remove_if(|name, _| name.eq_ignore_ascii_case(b"authorization"));
        assert!(world.transaction.request.append(b"Authorization", header.as_bytes()));
        assert_eq!(world.eval("http_auth_type"), kind, "{header}");
        assert_eq!(world.eval("http_auth(users)"), known, "{header}");
    }
}

#[test]
fn without_cookies_the_names_are_empty() {
    let mut world = World::new();
    world.transaction.request.remove_if(|name, _| name.eq_ignore_ascii_case(b"cookie"));
    assert_eq!(world.eval("req.cook_names"), "str:");
}

#[test]
fn conditions_wait_for_more_bytes() {
    let mut world = World::new();
    world.place = Place::TcpRequestContent;
    world.transaction.is_http = false;
    world.request_bytes = b"abc".to_vec();
    world.complete = false;
    world.process.buffer.store(100, std::sync::atomic::Ordering::Relaxed);
    let cases = [
        ("{ req.len gt 10 }", Test::Wait),
        ("{ req.len gt 2 }", Test::Yes),
        ("!{ req.len gt 2 }", Test::No),
        ("WAIT_END", Test::Wait),
        ("{ req.payload(0,3) -m bin 616263 }", Test::Yes),
        ("{ req.payload(0,9) -m found }", Test::Wait),
        ("{ req.payload(0,0) -m found }", Test::Yes),
        ("{ req.payload_lv(0,1) -m found }", Test::Wait),
        // A buffer cannot hold as many bytes.
        ("{ req.payload(0,101) -m found }", Test::No),
        ("{ req.payload(100,1) -m found }", Test::No),
        ("{ req.payload(200,0) -m found }", Test::No),
        ("{ req.payload_lv(0,2) -m found }", Test::No),
        ("{ src 10.0.0.1 } WAIT_END", Test::No),
        ("{ src 192.0.2.7 } || WAIT_END", Test::Yes),
        ("{ req.ssl_hello_type 1 }", Test::No),
    ];
    for (text, expected) in cases {
        assert_eq!(world.test(text), Ok(expected), "{text}");
    }
    world.complete = true;
    assert_eq!(world.test("{ req.len gt 10 }"), Ok(Test::No));
    assert_eq!(world.test("WAIT_END"), Ok(Test::Yes));
}

#[test]
fn client_hellos_yield_the_server_name() {
    let mut world = World::new();
    world.place = Place::TcpRequestContent;
    world.transaction.is_http = false;
    let name = b"sni.example.org";
    let mut list = vec![0, (name.len() + 3) as u8, 0, 0, name.len() as u8];
    list.extend_from_slice(name);
    let mut extensions = vec![0, 0, 0, list.len() as u8];
    extensions.extend_from_slice(&list);
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 0x01, 1, 0, 0, extensions.len() as u8]);
    body.extend_from_slice(&extensions);
    let mut hello = vec![0x16, 3, 1, 0, (body.len() + 4) as u8, 1, 0, 0, body.len() as u8];
    hello.extend_from_slice(&body);
    for cut in 1..hello.len() {
        world.request_bytes = hello[..cut].to_vec();
        world.complete = false;
        assert_eq!(world.test("{ req.ssl_sni -i sni.example.org }"), Ok(Test::Wait), "{cut}");
    }
    world.request_bytes = hello;
    assert_eq!(world.eval("req.ssl_sni"), "str:sni.example.org");
    assert_eq!(world.eval("req.ssl_ver"), "sint:196611");
    assert_eq!(world.eval("req.ssl_cipherlist,hex"), "str:1301");
    assert_eq!(world.eval("req.ssl_sigalgs"), "none");
    assert_eq!(world.test("{ req_ssl_hello_type 1 }"), Ok(Test::Yes));
}

#[test]
fn variables_are_dumped_by_scope_prefix_and_delimiter() {
    let world = World::new();
    for set in [
        "str(John \"Doe\"\n),set-var(txn.name)",
        "bin(48656c6c6f),set-var(txn.data)",
        "int(42),set-var(req.count)",
        "bool(true),set-var(sess.active)",
        "src,set-var(res.client)",
        "method,set-var(txn.method)",
    ] {
        assert!(!world.eval(&set.replace('"', "\\\"")).starts_with("error"), "{set}");
    }
    let all = "sess.active=true, txn.name=\"John \\\"Doe\\\"\\n\", txn.data=x48656c6c6f, txn.method=\"GET\", req.count=42, res.client=192.0.2.7";
    let found = world.eval("dump_all_vars");
    assert!(found.starts_with(&format!("str:{all}")), "{found}");
    assert_eq!(world.eval("dump_all_vars(txn,da)"), "str:txn.data=x48656c6c6f");
    assert_eq!(world.eval("dump_all_vars(txn,,'; ')").matches("; ").count(), 2);
    assert_eq!(
        world.eval("dump_all_vars(galaxy)"),
        "error: `dump_all_vars`: unknown scope `galaxy`; use sess, txn, req, res or proc"
    );
}
