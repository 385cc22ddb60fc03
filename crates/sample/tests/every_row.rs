//! Every fetch and every converter has a case here, and every row's arguments are checked: the tests walk the tables and name the rows that
//! have none. A case is an expression and its value; `sint:*` is any number, where only a property of the moment can be told.

mod common;

use std::collections::HashSet;

use common::World;
use runtime::usage::Turns;
use sample::args::Kind;
use sample::{ConnectionError, Place, convert, fetch};

/// In a usual world: one request with its response, and whatever may be told of them.
#[rustfmt::skip]
const USUAL: &[(&str, &str)] = &[
    ("always_false", "bool:0"),
    ("always_true", "bool:1"),
    ("bool(true)", "bool:1"),
    ("int(1)", "sint:1"),
    ("str(x)", "str:x"),
    ("bin(4142)", "bin:AB"),
    ("ipv4(1.2.3.4)", "ipv4:1.2.3.4"),
    ("ipv6(::1)", "ipv6:::1"),
    ("meth(PUT)", "meth:PUT"),
    ("var(txn.a,none set)", "str:none set"),
    ("dump_all_vars", "str:"),
    ("acl(yes)", "bool:1"),
    ("env(PATH)", "str:*"),
    ("date", "sint:*"),
    ("date_us", "sint:*"),
    ("rand(1)", "sint:0"),
    ("uuid,length", "sint:36"),
    ("act_conn", "sint:0"),
    ("hostname", "str:*"),
    ("nbproc", "sint:1"),
    ("proc", "sint:1"),
    ("pid", "sint:*"),
    ("quic_enabled", "bool:0"),
    ("stopping", "bool:0"),
    ("tgroup", "sint:0"),
    ("thread", "sint:0"),
    ("uptime", "sint:2"),
    ("wait_end", "bool:1"),
    ("last_rule_line", "sint:9"),
    ("last_rule_file", "str:a.cfg"),
    ("prio_class", "sint:0"),
    ("prio_offset", "sint:0"),
    ("txn.id32", "sint:31"),
    ("txn.sess_term_state", "str:--"),
    ("txn.conn_retries", "sint:0"),
    ("txn.redispatched", "bool:0"),
    ("unique-id", "str:id-77"),
    ("cpu_calls", "sint:1"),
    ("cpu_ns_avg", "sint:*"),
    ("cpu_ns_tot", "sint:*"),
    ("lat_ns_avg", "sint:0"),
    ("lat_ns_tot", "sint:0"),
    ("cpu_usage_thr", "sint:*"),
    ("cpu_usage_grp", "sint:*"),
    ("cpu_usage_proc", "sint:*"),
    ("internal.strm.is_htx", "bool:1"),
    ("avg_queue(be)", "sint:0"),
    ("be_conn(be)", "sint:0"),
    ("be_conn_free(be)", "sint:20"),
    ("be_id", "sint:3"),
    ("be_name", "str:be"),
    ("be_sess_rate(be)", "sint:0"),
    ("connslots(be)", "sint:-1"),
    ("dst_conn", "sint:0"),
    ("fe_conn(fe)", "sint:0"),
    ("fe_id", "sint:2"),
    ("fe_name", "str:fe"),
    ("fe_req_rate(fe)", "sint:0"),
    ("fe_sess_rate(fe)", "sint:0"),
    ("nbsrv(be)", "sint:2"),
    ("queue(be)", "sint:0"),
    ("so_id", "sint:1"),
    ("so_name", "str:sock-1"),
    ("srv_conn(be/s1)", "sint:0"),
    ("srv_conn_free(be/s1)", "sint:10"),
    ("srv_id", "sint:1"),
    ("srv_is_up(be/s1)", "bool:1"),
    ("srv_iweight(be/s1)", "sint:100"),
    ("srv_name", "str:s1"),
    ("srv_queue(be/s1)", "sint:0"),
    ("srv_sess_rate(be/s1)", "sint:0"),
    ("srv_uweight(be/s1)", "sint:100"),
    ("srv_weight(be/s1)", "sint:100"),
    ("cur_client_timeout", "sint:0"),
    ("cur_connect_timeout", "sint:0"),
    ("cur_queue_timeout", "sint:0"),
    ("cur_server_timeout", "sint:0"),
    ("cur_tarpit_timeout", "sint:0"),
    ("cur_tunnel_timeout", "sint:0"),
    ("cur_max_retries", "sint:3"),
    ("fe_client_timeout", "sint:0"),
    ("fe_tarpit_timeout", "sint:0"),
    ("fe_defbe", "str:be"),
    ("be_connect_timeout", "sint:0"),
    ("be_queue_timeout", "sint:0"),
    ("be_server_timeout", "sint:0"),
    ("be_tarpit_timeout", "sint:0"),
    ("be_tunnel_timeout", "sint:0"),
    ("be_max_retries", "sint:3"),
    ("src", "ipv4:192.0.2.7"),
    ("src_port", "sint:4711"),
    ("src_is_local", "bool:0"),
    ("dst", "ipv4:203.0.113.1"),
    ("dst_port", "sint:80"),
    ("fc_src", "ipv4:10.9.9.9"),
    ("fc_src_port", "sint:5000"),
    ("fc_dst", "ipv4:203.0.113.1"),
    ("fc_dst_port", "sint:80"),
    ("fc_rcvd_proxy", "bool:1"),
    ("fc_pp_authority", "str:sni.example"),
    ("fc_pp_unique_id", "str:uid-1"),
    ("fc_pp_tlv(UNIQUE_ID)", "str:uid-1"),
    ("fc_http_major", "sint:1"),
    ("fc_glitches", "sint:2"),
    ("bc_reused", "bool:1"),
    ("bc_src", "ipv4:10.1.1.254"),
    ("bc_src_port", "sint:33000"),
    ("bc_dst", "ipv4:10.1.1.1"),
    ("bc_dst_port", "sint:80"),
    ("bc_http_major", "sint:1"),
    ("bc_glitches", "sint:4"),
    ("bc_srv_queue", "sint:0"),
    ("bc_be_queue", "sint:0"),
    ("dst_is_local", "bool:0"),
    ("fc_src_is_local", "bool:0"),
    ("fc_dst_is_local", "bool:0"),
    ("fc_nb_streams", "sint:1"),
    ("bc_nb_streams", "sint:1"),
    ("fc_settings_streams_limit", "sint:1"),
    ("bc_settings_streams_limit", "sint:1"),
    ("res.comp", "bool:0"),
    ("res.comp_algo", "none"),
    ("res.cache_hit", "bool:0"),
    ("res.cache_name", "none"),
    ("ssl_fc", "bool:0"),
    ("ssl_bc", "bool:0"),
    ("ssl_c_used", "bool:0"),
    ("ssl_fc_has_crt", "bool:0"),
    ("ssl_fc_has_sni", "bool:0"),
    ("ssl_fc_has_early", "bool:0"),
    ("ssl_fc_is_resumed", "bool:0"),
    ("ssl_fc_sni", "none"),
    ("ssl_fc_alpn", "none"),
    ("ssl_fc_cipher", "none"),
    ("ssl_fc_protocol", "none"),
    ("ssl_fc_err", "none"),
    ("ssl_fc_err_str", "none"),
    ("ssl_c_err", "none"),
    ("ssl_c_ca_err", "none"),
    ("ssl_c_verify", "none"),
    ("ssl_c_s_dn", "none"),
    ("ssl_c_i_dn", "none"),
    ("ssl_c_sha1", "none"),
    ("ssl_c_serial", "none"),
    ("ssl_c_notbefore", "none"),
    ("ssl_c_notafter", "none"),
    ("ssl_c_der", "none"),
    ("accept_date", "sint:1234567890"),
    ("request_date", "sint:1234567890"),
    ("fc.timer.handshake", "sint:3"),
    ("fc.timer.total", "sint:132"),
    ("req.timer.idle", "sint:10"),
    ("req.timer.tq", "sint:23"),
    ("req.timer.hdr", "sint:10"),
    ("req.timer.queue", "sint:1"),
    ("bc.timer.connect", "sint:30"),
    ("res.timer.hdr", "sint:69"),
    ("res.timer.data", "sint:9"),
    ("txn.timer.total", "sint:119"),
    ("txn.timer.user", "sint:122"),
    ("bytes_in", "sint:300"),
    ("bytes_out", "sint:2750"),
    ("req.bytes_in", "sint:300"),
    ("req.bytes_out", "sint:300"),
    ("res.bytes_in", "sint:2750"),
    ("res.bytes_out", "sint:2750"),
    ("method", "meth:GET"),
    ("path", "str:/static/img/logo.png"),
    ("pathq", "str:/static/img/logo.png?a=1&b=two&A=3&empty="),
    ("query", "str:a=1&b=two&A=3&empty="),
    ("url", "str:/static/img/logo.png?a=1&b=two&A=3&empty="),
    ("url_ip", "none"),
    ("url_port", "none"),
    ("url32", "sint:2631463611"),
    ("url32+src,hex,length", "sint:16"),
    ("url_param(b)", "str:two"),
    ("urlp(b)", "str:two"),
    ("urlp_val(A)", "sint:3"),
    ("base", "str:www.Example.com:8080/static/img/logo.png"),
    ("baseq", "str:www.Example.com:8080/static/img/logo.png?a=1&b=two&A=3&empty="),
    ("base32", "sint:3076570091"),
    ("base32+src,hex,length", "sint:16"),
    ("req.ver", "str:1.1"),
    ("req_ver", "str:1.1"),
    ("req.proto_http", "bool:1"),
    ("req_proto_http", "bool:1"),
    ("http_first_req", "bool:1"),
    ("status", "sint:404"),
    ("server_status", "sint:404"),
    ("txn.status", "sint:404"),
    ("res.ver", "str:1.1"),
    ("resp_ver", "str:1.1"),
    ("http_auth(users)", "bool:1"),
    ("http_auth_bearer", "none"),
    ("http_auth_group(users)", "str:dev"),
    ("http_auth_pass", "str:secret"),
    ("http_auth_type", "str:Basic"),
    ("http_auth_user", "str:joe"),
    ("hdr(host)", "str:www.Example.com:8080"),
    ("hdr_cnt(x-forwarded-for)", "sint:3"),
    ("hdr_ip(x-forwarded-for,1)", "ipv4:10.0.0.1"),
    ("hdr_val(content-length)", "sint:12"),
    ("req.hdr(x-forwarded-for,-1)", "str:10.0.0.3"),
    ("req.fhdr(x-forwarded-for,1)", "str:10.0.0.1, 10.0.0.2"),
    ("req.fhdr_cnt(x-forwarded-for)", "sint:2"),
    ("req.hdr_cnt(x-forwarded-for)", "sint:3"),
    ("req.hdr_ip(x-forwarded-for)", "ipv4:10.0.0.3"),
    ("req.hdr_val(content-length)", "sint:12"),
    ("req.hdr_names", "str:host,user-agent,x-forwarded-for,x-forwarded-for,cookie,accept-language,authorization,content-length"),
    ("req.hdrs,length", "sint:*"),
    ("req.hdrs_bin,bytes(0,5),hex", "str:04686F7374"),
    ("res.hdr(server)", "str:unit"),
    ("res.fhdr(set-cookie)", "str:sid=new; Path=/"),
    ("res.fhdr_cnt(server)", "sint:1"),
    ("res.hdr_cnt(server)", "sint:1"),
    ("res.hdr_ip", "none"),
    ("res.hdr_val(x-num)", "sint:17"),
    ("res.hdr_names", "str:set-cookie,server,x-num"),
    ("res.hdrs,length", "sint:*"),
    ("res.hdrs_bin,bytes(0,1),hex", "str:0A"),
    ("shdr(server)", "str:unit"),
    ("shdr_cnt(server)", "sint:1"),
    ("shdr_ip", "none"),
    ("shdr_val(x-num)", "sint:17"),
    ("cook(n)", "str:42"),
    ("cook_cnt(sid)", "sint:2"),
    ("cook_val(n)", "sint:42"),
    ("cookie(n)", "str:42"),
    ("req.cook(n)", "str:42"),
    ("req.cook_cnt(sid)", "sint:2"),
    ("req.cook_val(n)", "sint:42"),
    ("req.cook_names", "str:sid,n,sid"),
    ("res.cook(sid)", "str:new"),
    ("res.cook_cnt", "sint:1"),
    ("res.cook_val", "sint:0"),
    ("res.cook_names", "str:sid"),
    ("scook(sid)", "str:new"),
    ("scook_cnt", "sint:1"),
    ("scook_val", "sint:0"),
    ("req.body", "bin:name=x&v=two"),
    ("req.body_len", "sint:12"),
    ("req.body_size", "sint:12"),
    ("req.body_param(v)", "bin:two"),
    ("res.body", "bin:"),
    ("res.body_len", "sint:0"),
    ("res.body_size", "sint:0"),
    ("payload(0,4)", "bin:name"),
    ("payload_lv(0,1)", "none"),
    ("req.len", "sint:12"),
    ("req_len", "sint:12"),
    ("req.payload(0,4)", "bin:name"),
    ("req.payload_lv(1,1)", "none"),
    ("capture.req.hdr(0)", "str:agent {x|y}"),
    ("capture.res.hdr(0)", "none"),
    ("capture.req.method", "str:GET"),
    ("capture.req.uri", "str:/static/img/logo.png?a=1&b=two&A=3&empty="),
    ("capture.req.ver", "str:HTTP/1.1"),
    ("capture.res.ver", "str:HTTP/1.1"),
    ("fc_rtt", "sint:12"),
    ("fc_rttvar(us)", "sint:2345"),
    ("fc_unacked", "sint:1"),
    ("fc_sacked", "sint:2"),
    ("fc_retrans", "sint:4"),
    ("fc_fackets", "sint:5"),
    ("fc_lost", "sint:3"),
    ("fc_reordering", "sint:6"),
    ("fc_saved_syn", "bin:SYN"),
    ("bc_rtt", "sint:0"),
    ("bc_rttvar(ms)", "sint:1"),
    ("fc_err", "sint:0"),
    ("fc_err_name", "str:"),
    ("fc_err_str", "str:Success"),
    ("bc_err", "sint:46"),
    ("bc_err_name", "str:EREFUSED"),
    ("bc_err_str", "str:ECONNREFUSED returned by OS"),
    ("fs.aborted", "bool:0"),
    ("fs.id", "sint:0"),
    ("fs.debug_str(18)", "str:mux=h1 mux.reqs=1 fd=11"),
    ("fs.rst_code", "none"),
    ("bs.aborted", "bool:0"),
    ("bs.id", "sint:2"),
    ("bs.debug_str(4)", "str:xprt=raw"),
    ("bs.rst_code", "none"),
    ("last_entity", "str:a.cfg:9"),
    ("waiting_entity", "str:a.cfg:10"),
    ("term_events", "str:{,,,,,-,-}"),
    ("internal.htx.data", "sint:284"),
    ("internal.htx.free", "sint:15972"),
    ("internal.htx.free_data", "sint:15964"),
    ("internal.htx.has_eom", "bool:1"),
    ("internal.htx.nbblks", "sint:11"),
    ("internal.htx.size", "sint:16344"),
    ("internal.htx.used", "sint:372"),
    ("internal.htx_blk.size(1)", "sint:24"),
    ("internal.htx_blk.type(head)", "str:HTX_BLK_REQ_SL"),
    ("internal.htx_blk.data(tail)", "bin:name=x&v=two"),
    ("internal.htx_blk.hdrname(1)", "str:Host"),
    ("internal.htx_blk.hdrval(1)", "str:www.Example.com:8080"),
    ("internal.htx_blk.start_line(first)", "str:GET /static/img/logo.png?a=1&b=two&A=3&empty= HTTP/1.1"),
];

/// In the world `tls`.
#[rustfmt::skip]
const TLS: &[(&str, &str)] = &[
    ("req.ssl_hello_type", "sint:1"),
    ("req_ssl_hello_type", "sint:1"),
    ("req.ssl_ver", "sint:196611"),
    ("req_ssl_ver", "sint:196611"),
    ("req.ssl_sni", "str:sni.example"),
    ("req_ssl_sni", "str:sni.example"),
    ("req.ssl_alpn", "str:h2,http/1.1"),
    ("req.ssl_ec_ext", "bool:1"),
    ("req.ssl_st_ext", "sint:2"),
    ("req.ssl_cipherlist,hex", "str:1301C02B"),
    ("req.ssl_sigalgs,hex", "str:04030804"),
    ("req.ssl_supported_groups,hex", "str:001D0017"),
    ("req.ssl_keyshare_groups,hex", "str:001D0017"),
    ("res.ssl_hello_type", "sint:2"),
    ("rep_ssl_hello_type", "sint:2"),
];

/// In the world `raw`.
#[rustfmt::skip]
const RAW: &[(&str, &str)] = &[
    ("payload_lv(0,1)", "bin:abc"),
    ("req.payload_lv(0,1)", "bin:abc"),
    ("res.payload_lv(0,2)", "bin:xy"),
    ("res.payload(2,1)", "bin:x"),
    ("res.len", "sint:4"),
    ("req.len", "sint:6"),
    ("req_len", "sint:6"),
];

/// In the world `rdp`.
#[rustfmt::skip]
const RDP: &[(&str, &str)] = &[
    ("rdp_cookie(mstshash)", "str:user"),
    ("rdp_cookie_cnt", "sint:1"),
    ("req.rdp_cookie", "str:user"),
    ("req.rdp_cookie_cnt(msts)", "sint:0"),
];

/// In the world `distcc`.
#[rustfmt::skip]
const DISTCC: &[(&str, &str)] = &[
    ("distcc_param(ARGC)", "sint:1"),
    ("distcc_param(ARGV)", "sint:2"),
    ("distcc_body(ARGV)", "bin:cc"),
    ("distcc_param(DOTI,1)", "sint:256"),
    ("distcc_body(DOTI)", "bin:int"),
    ("distcc_param(DOTI,2)", "none"),
    ("distcc_param(NONE)", "none"),
];

/// A converter, an expression that uses it, and the value.
#[rustfmt::skip]
const CONVERTERS: &[(&str, &str, &str)] = &[
    ("add", "int(7),add(3)", "sint:10"),
    ("sub", "int(7),sub(10)", "sint:-3"),
    ("mul", "int(7),mul(3)", "sint:21"),
    ("div", "int(7),div(2)", "sint:3"),
    ("mod", "int(7),mod(4)", "sint:3"),
    ("and", "int(6),and(3)", "sint:2"),
    ("or", "int(6),or(1)", "sint:7"),
    ("xor", "int(6),xor(3)", "sint:5"),
    ("cpl", "int(0),cpl", "sint:-1"),
    ("neg", "int(5),neg", "sint:-5"),
    ("not", "int(0),not", "bool:1"),
    ("bool", "int(2),bool", "bool:1"),
    ("odd", "int(3),odd", "bool:1"),
    ("even", "int(3),even", "bool:0"),
    ("iif", "bool(true),iif(yes,no)", "str:yes"),
    ("htonl", "int(1),htonl,hex", "str:00000001"),
    ("lower", "str(AbC),lower", "str:abc"),
    ("upper", "str(AbC),upper", "str:ABC"),
    ("length", "uuid,length", "sint:36"),
    ("reverse", "str(abc),reverse", "str:cba"),
    ("reverse_dom", "str(www.a.example),reverse_dom", "str:example.a.www"),
    ("bytes", "uuid(7),bytes(14,1)", "bin:7"),
    ("bytes", "str(abc),bytes", "bin:abc"),
    ("field", r#"str("a.b,,c.d"),field(2,",",-1)"#, "str:,c.d"),
    ("word", r#"str("a.b,,c.d"),word(-1,",",-2)"#, "str:a.b,,c.d"),
    ("field", "str(f1_f2_f3__f5),field(4,_)", "str:"),
    ("word", "str(w1_w2_w3__w4),word(4,_)", "str:w4"),
    ("concat", "str(a),concat(b,txn.nope,c)", "str:abc"),
    ("add_item", r#"str(),add_item(",",,x)"#, "str:x"),
    ("regsub", "str(/a/b/a),regsub(a,X)", "str:/X/b/a"),
    ("cut_crlf", r#"str("a\r\nb"),cut_crlf"#, "str:a"),
    ("ltrim", "str(abc),ltrim(ab)", "str:c"),
    ("rtrim", "str(abc),rtrim(bc)", "str:a"),
    ("strcmp", "str(b),set-var(txn.k),strcmp(txn.k)", "sint:0"),
    ("secure_memcmp", "str(secret),set-var(txn.k),secure_memcmp(txn.k)", "bool:1"),
    ("host_only", "str(h:80),host_only", "str:h"),
    ("port_only", "str(h:80),port_only", "sint:80"),
    ("param", "str(a=1&b=2),param(b)", "str:2"),
    ("language", r#"req.fhdr(accept-language),language("en;fr",de)"#, "str:fr"),
    ("has_ctl", "str(a	b),has_ctl", "bool:0"),
    ("base64", "str(abc),base64", "str:YWJj"),
    ("b64dec", "str(YWJj),b64dec", "bin:abc"),
    ("ub64enc", "bin(fffe),ub64enc", "str:__4"),
    ("ub64dec", "str(__4),ub64dec,hex", "str:FFFE"),
    ("hex", "str(ab),hex", "str:6162"),
    ("hex2i", "str(ff),hex2i", "sint:255"),
    ("base2", "bin(05),base2", "str:00000101"),
    ("be2dec", "bin(01020304),be2dec(:,2)", "str:258:772"),
    ("le2dec", "bin(01020304),le2dec(:,2)", "str:513:1027"),
    ("be2hex", "bin(010203),be2hex(-,2)", "str:0102-03"),
    ("url_dec", "str(a%20b),url_dec", "str:a b"),
    ("url_enc", "str(a b),url_enc", "str:a%20b"),
    ("crc32", "str(abc),crc32(1)", "sint:930845320"),
    ("crc32c", "str(abc),crc32c", "sint:910901175"),
    ("djb2", "str(abc),djb2", "sint:193485963"),
    ("sdbm", "str(abc),sdbm", "sint:807794786"),
    ("wt6", "str(abc),wt6", "sint:2483038440"),
    ("xxh32", "str(abc),xxh32", "sint:852579327"),
    ("xxh64", "str(abc),xxh64", "sint:4952883123889572249"),
    ("xxh3", "str(abc),xxh3", "sint:*"),
    ("sha1", "str(abc),sha1,hex", "str:A9993E364706816ABA3E25717850C26C9CD0D89D"),
    ("sha2", "str(abc),sha2,hex", "str:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"),
    ("digest", "str(abc),digest(sha512),length", "sint:64"),
    ("hmac", "str(data),hmac(sha256,a2V5),hex", "str:5031FE3D989C6D1537A013FA6E739DA23463FDAEC3B70137D828E36ACE221BD0"),
    ("ltime", "int(0),ltime(%%)", "str:%"),
    ("utime", r#"int(1234567890),utime("%Y-%m-%d %H:%M:%S %j %a %b")"#, "str:2009-02-13 23:31:30 044 Fri Feb"),
    ("ms_ltime", "int(0),ms_ltime(%%)", "str:%"),
    ("ms_utime", r#"int(1234567890123),ms_utime("%S.%3N")"#, "str:30.123"),
    ("us_ltime", "int(0),us_ltime(%%)", "str:%"),
    ("utime", "int(7),utime(%Z)", "str:GMT"),
    ("us_utime", "int(1000005),us_utime(%s)", "str:1"),
    ("http_date", "int(1234567890123),http_date(0,ms)", "str:Fri, 13 Feb 2009 23:31:30.123 GMT"),
    ("date", "str('Sun, 06 Nov 1994 08:49:37 GMT'),date", "sint:784111777"),
    ("ipmask", "src,ipmask(24)", "ipv4:192.0.2.0"),
    ("ipmask", "str(::ffff:1.2.3.4),ipmask(24)", "ipv4:1.2.3.0"),
    ("ipmask", "str(::1),ipmask(32)", "ipv4:0.0.0.1"),
    ("ipmask", "str(2002:102:304::5),ipmask(24,64)", "ipv4:1.2.3.0"),
    ("ipmask", "str(2001:db8::1),ipmask(24)", "none"),
    ("map", "req.hdr(host),host_only,lower,map(m)", "str:host"),
    ("map_regm", "path,map_regm(re)", "str:img:img/logo"),
    ("map_str", "str(b),map_str(txt.words)", "str:one"),
    ("map_str_int", "str(b),map_str_int(txt.numbers)", "sint:7"),
    ("map_str_ip", "str(b),map_str_ip(txt.addresses)", "ipv4:1.2.3.4"),
    ("map_str_key", "str(b),map_str_key(txt.words)", "str:b"),
    ("map_beg", "str(bcd),map_beg(txt.words)", "str:one"),
    ("map_beg_int", "str(bcd),map_beg_int(txt.numbers)", "sint:7"),
    ("map_beg_ip", "str(bcd),map_beg_ip(txt.addresses)", "ipv4:1.2.3.4"),
    ("map_beg_key", "str(bcd),map_beg_key(txt.words)", "str:b"),
    ("map_end", "str(ab),map_end(txt.words)", "str:one"),
    ("map_end_int", "str(ab),map_end_int(txt.numbers)", "sint:7"),
    ("map_end_ip", "str(ab),map_end_ip(txt.addresses)", "ipv4:1.2.3.4"),
    ("map_end_key", "str(ab),map_end_key(txt.words)", "str:b"),
    ("map_sub", "str(abc),map_sub(txt.words)", "str:one"),
    ("map_sub_int", "str(abc),map_sub_int(txt.numbers)", "sint:7"),
    ("map_sub_ip", "str(abc),map_sub_ip(txt.addresses)", "ipv4:1.2.3.4"),
    ("map_sub_key", "str(abc),map_sub_key(txt.words)", "str:b"),
    ("map_dir", "str(a/b/c),map_dir(txt.words)", "str:one"),
    ("map_dir_int", "str(a/b/c),map_dir_int(txt.numbers)", "sint:7"),
    ("map_dir_ip", "str(a/b/c),map_dir_ip(txt.addresses)", "ipv4:1.2.3.4"),
    ("map_dir_key", "str(a/b/c),map_dir_key(txt.words)", "str:b"),
    ("map_dom", "str(a.b.c),map_dom(txt.words)", "str:one"),
    ("map_dom_int", "str(a.b.c),map_dom_int(txt.numbers)", "sint:7"),
    ("map_dom_ip", "str(a.b.c),map_dom_ip(txt.addresses)", "ipv4:1.2.3.4"),
    ("map_dom_key", "str(a.b.c),map_dom_key(txt.words)", "str:b"),
    ("map_reg", "str(b),map_reg(txt.words)", "str:one"),
    ("map_reg_int", "str(b),map_reg_int(txt.numbers)", "sint:7"),
    ("map_reg_ip", "str(b),map_reg_ip(txt.addresses)", "ipv4:1.2.3.4"),
    ("map_reg_key", "str(b),map_reg_key(txt.words)", "str:b"),
    ("map_int", "int(5),map_int(num.words)", "str:one"),
    ("map_int_int", "int(5),map_int_int(num.numbers)", "sint:7"),
    ("map_int_ip", "int(5),map_int_ip(num.addresses)", "ipv4:1.2.3.4"),
    ("map_int_key", "int(5),map_int_key(num.words)", "str:5"),
    ("map_ip", "ipv4(10.0.0.5),map_ip(net.words)", "str:one"),
    ("map_ip_int", "ipv4(10.0.0.5),map_ip_int(net.numbers)", "sint:7"),
    ("map_ip_ip", "ipv4(10.0.0.5),map_ip_ip(net.addresses)", "ipv4:1.2.3.4"),
    ("map_ip_key", "ipv4(10.0.0.5),map_ip_key(net.words)", "str:10.0.0.0/8"),
    ("json", "str(a),json", "str:a"),
    ("json_query", r#"str('{"a":[1,{"b":"x"}]}'),json_query('$.a[1].b')"#, "str:x"),
    ("jwt_header_query", "str(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UiLCJhZ2UiOjd9.c2ln),jwt_header_query('$.alg')", "str:HS256"),
    ("jwt_payload_query", "str(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UiLCJhZ2UiOjd9.c2ln),jwt_payload_query('$.age',int)", "sint:7"),
    ("jwt_verify", "str(eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UiLCJhZ2UiOjd9.c2ln),jwt_verify(HS256,key)", "sint:0"),
    ("jwt_verify_cert", "str(a.b.),jwt_verify_cert(ES256,cert.pem)", "sint:-3"),
    ("jwt_decrypt_jwk", "str(x),jwt_decrypt_jwk(txn.none)", "none"),
    ("jwt_decrypt_secret", "str(x),jwt_decrypt_secret(YWJj)", "none"),
    ("jwt_decrypt_cert", "str(x),jwt_decrypt_cert(txn.none)", "none"),
    ("rfc7239_is_valid", "str(for=127.0.0.1;proto=http),rfc7239_is_valid", "bool:1"),
    ("rfc7239_field", "str(for=127.0.0.1;proto=http),rfc7239_field(proto)", "str:http"),
    ("rfc7239_n2nn", "str(127.0.0.1:9999),rfc7239_n2nn", "ipv4:127.0.0.1"),
    ("rfc7239_n2np", "str(127.0.0.1:9999),rfc7239_n2np", "sint:9999"),
    ("rfc7239_nn", "ipv6(::1),rfc7239_nn", "str:[::1]"),
    ("rfc7239_np", "int(12),rfc7239_np", "str:12"),
    ("fix_is_valid", "bin(383d4649582e342e3401393d350133353d300131303d31363301),fix_is_valid", "bool:1"),
    ("fix_tag_value", "bin(383d4649582e342e3401393d350133353d300131303d31363301),fix_tag_value(MsgType)", "bin:0"),
    ("eth.data", "bin(ffffffffffff02000000000181000005080045),eth.data,hex", "str:45"),
    ("eth.dst", "bin(ffffffffffff0200000000010800),eth.dst,hex", "str:FFFFFFFFFFFF"),
    ("eth.hdr", "bin(ffffffffffff020000000001080045),eth.hdr,hex", "str:FFFFFFFFFFFF0200000000010800"),
    ("eth.proto", "bin(ffffffffffff02000000000181000005080045),eth.proto", "sint:2048"),
    ("eth.src", "bin(ffffffffffff0200000000010800),eth.src,hex", "str:020000000001"),
    ("eth.vlan", "bin(ffffffffffff02000000000181000005080045),eth.vlan", "sint:5"),
    ("ip.data", "bin(450000287ab44000400600007f0000017f000002ff),ip.data,hex", "str:FF"),
    ("ip.df", "bin(450000287ab44000400600007f0000017f000002),ip.df", "sint:1"),
    ("ip.dst", "bin(4500003c0a654000400632557f0000017f000001e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),ip.dst", "ipv4:127.0.0.1"),
    ("ip.fp", "bin(4500003c0a654000400632557f0000017f000001e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),ip.fp(7),hex", "str:0050A8FFD7FFD7474002040801037F000001"),
    ("ip.hdr", "bin(4500003c0a654000400632557f0000017f000001e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),ip.hdr,hex", "str:4500003C0A654000400632557F0000017F000001"),
    ("ip.proto", "bin(4500003c0a654000400632557f0000017f000001e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),ip.proto", "sint:6"),
    ("ip.src", "bin(450000287ab44000400600007f0000017f000002),ip.src", "ipv4:127.0.0.1"),
    ("ip.tos", "bin(4500003c0a654000400632557f0000017f000001e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),ip.tos", "sint:0"),
    ("ip.ttl", "bin(450000287ab44000400600007f0000017f000002),ip.ttl", "sint:64"),
    ("ip.ver", "bin(4500003c0a654000400632557f0000017f000001e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),ip.ver", "sint:4"),
    ("tcp.dst", "bin(3039005000000001000000007002400000000000020405b401010402),tcp.dst", "sint:80"),
    ("tcp.flags", "bin(e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),tcp.flags", "sint:2"),
    ("tcp.options.mss", "bin(3039005000000001000000007002400000000000020405b401010402),tcp.options.mss", "sint:1460"),
    ("tcp.options.sack", "bin(e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),tcp.options.sack", "sint:1"),
    ("tcp.options.tsopt", "bin(e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),tcp.options.tsopt", "sint:1"),
    ("tcp.options.tsval", "bin(e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),tcp.options.tsval", "sint:29533978"),
    ("tcp.options.wscale", "bin(e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),tcp.options.wscale", "sint:7"),
    ("tcp.options.wsopt", "bin(3039005000000001000000007002400000000000020405b401010402),tcp.options.wsopt", "sint:0"),
    ("tcp.options_list", "bin(3039005000000001000000007002400000000000020405b401010402),tcp.options_list,hex", "str:02010104"),
    ("tcp.seq", "bin(e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),tcp.seq", "sint:28266046"),
    ("tcp.src", "bin(e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),tcp.src", "sint:57842"),
    ("tcp.win", "bin(e1f2115d01af4e3e00000000a002ffd7fe3000000204ffd70402080a01c2a71a0000000001030307),tcp.win", "sint:65495"),
    ("mqtt_is_valid", "bin(101600044d5154540480003c000363696400056d75736572),mqtt_is_valid", "bool:1"),
    ("mqtt_field_value", "bin(101600044d5154540480003c000363696400056d75736572),mqtt_field_value(connect,username)", "bin:muser"),
    ("protobuf", "bin(089601),protobuf(1,int32)", "sint:150"),
    ("ungrpc", "bin(0000000003089601),ungrpc(1,int32)", "sint:150"),
    ("aes_gcm_enc", "str(plain),aes_gcm_enc(128,MTIzNDU2Nzg5MDEy,Zm9vb2Zvb29mb29vb29vbw==,txn.tag),hex,length", "sint:10"),
    ("aes_gcm_dec", "str(plain),aes_gcm_enc(128,MTIzNDU2Nzg5MDEy,Zm9vb2Zvb29mb29vb29vbw==,txn.tag),aes_gcm_dec(128,MTIzNDU2Nzg5MDEy,Zm9vb2Zvb29mb29vb29vbw==,txn.tag)", "bin:plain"),
    ("aes_cbc_enc", "str(plain),aes_cbc_enc(128,MTIzNDU2Nzg5MDEyMzQ1Ng==,Zm9vb2Zvb29mb29vb29vbw==),hex", "str:9461FCF29CA0F36D6D6C1AC907B60D65"),
    ("aes_cbc_dec", "bin(9461FCF29CA0F36D6D6C1AC907B60D65),aes_cbc_dec(128,MTIzNDU2Nzg5MDEyMzQ1Ng==,Zm9vb2Zvb29mb29vb29vbw==)", "bin:plain"),
    ("fe_exists", "str(fe),fe_exists", "bool:1"),
    ("nbsrv", "str(be),nbsrv", "sint:2"),
    ("srv_is_up", "str(be/s1),srv_is_up", "bool:1"),
    ("srv_queue", "str(be/s1),srv_queue", "sint:0"),
    ("set-var", "str(x),set-var(txn.v),concat(-,txn.v)", "str:x-x"),
    ("unset-var", "str(x),unset-var(txn.gone)", "str:x"),
    ("when", "str(x),when(normal)", "str:x"),
    ("capture-req", "str(x),capture-req(1)", "str:x"),
    ("capture-res", "str(x),capture-res(7)", "str:x"),
    ("debug", "str(x),debug(test,stderr)", "str:x"),
    ("x509_v_err_str", "int(10),x509_v_err_str", "str:X509_V_ERR_CERT_HAS_EXPIRED"),
];

/// The name of the fetch at the start of an expression.
fn fetch_of(expression: &str) -> &str {
    expression.split(['(', ',']).next().unwrap_or_default()
}

/// The value of an expression, at the first of the places where it may stand.
fn eval_anywhere(world: &mut World, text: &str) -> String {
    let mut found = String::new();
    for place in [
        Place::HttpRequest,
        Place::HttpResponse,
        Place::Log,
        Place::TcpRequestContent,
        Place::TcpResponseContent,
    ] {
        world.place = place;
        found = Turns::default().measure(|| world.eval(text));
        if !found.contains("cannot be used here") {
            break;
        }
    }
    found
}

fn fits(found: &str, expected: &str) -> bool {
    match expected.strip_suffix('*') {
        Some(start) => found.starts_with(start),
        None => found == expected,
    }
}

fn check(world: &mut World, cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let found = eval_anywhere(world, text);
        if !fits(&found, expected) {
            wrong.push(format!("{text}\n   gives {found}\n  wanted {expected}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn usual() -> World {
    let mut world = World::new();
    world.kernel = true;
    world.transaction.last_rule = Some(("a.cfg", 9));
    world.transaction.waiting_rule = Some(("a.cfg", 10));
    world.transaction.server_uses = 3;
    world.transaction.server_glitches = 4;
    world.session.glitches = 2;
    world.transaction.server_error = ConnectionError::REFUSED;
    let _ = world.frontend.default_backend.set("be".into());
    world.declare_acl("yes", "always_true");
    world
}

fn raw(request: &[u8], response: &[u8]) -> World {
    let mut world = World::new();
    world.transaction.is_http = false;
    world.request_bytes = request.to_vec();
    world.response_bytes = response.to_vec();
    world
}

/// A client hello with everything that is asked for, and a server hello.
fn hellos() -> World {
    let extension = |kind: u8, body: &[u8]| [&[0, kind, 0, body.len() as u8], body].concat();
    let name = b"sni.example";
    let extensions = [
        extension(0, &[&[0, name.len() as u8 + 3, 0, 0, name.len() as u8], &name[..]].concat()),
        extension(16, b"\x00\x0c\x02h2\x08http/1.1"),
        extension(10, &[0, 4, 0, 0x1d, 0, 0x17]),
        extension(13, &[0, 4, 4, 3, 8, 4]),
        extension(35, b"ticket"),
        extension(51, &[0, 11, 0, 0x1d, 0, 1, 9, 0, 0x17, 0, 2, 9, 9]),
    ]
    .concat();
    let random = [7; 32];
    let body =
        [&[3, 3][..], &random, &[0, 0, 4, 0x13, 1, 0xc0, 0x2b, 1, 0, 0, extensions.len() as u8], &extensions]
            .concat();
    let record = |kind: u8, body: &[u8]| {
        [&[0x16, 3, 1, 0, body.len() as u8 + 4, kind, 0, 0, body.len() as u8], body].concat()
    };
    raw(&record(1, &body), &record(2, &[&[3, 3][..], &random, &[0, 0x13, 1, 0]].concat()))
}

#[test]
fn every_fetch_gives_what_its_cases_say() {
    check(&mut usual(), USUAL);
    check(&mut hellos(), TLS);
    check(&mut raw(b"\x03abcde", b"\x00\x02xy"), RAW);
    check(&mut raw(b"\x03\x00\x00\x2a\x25\xe0\x00\x00\x00\x00\x00Cookie: mstshash=user\r\n\x01\x00\x08\x00\x03\x00\x00\x00", b""), RDP);
    check(&mut raw(b"DIST00000001ARGC00000001ARGV00000002ccDOTI00000100int", b""), DISTCC);
    let cases = [USUAL, TLS, RAW, RDP, DISTCC].concat();
    let covered: HashSet<&str> = cases.iter().map(|(text, _)| fetch_of(text)).collect();
    let missing: Vec<&str> =
        fetch::all().map(|row| row.name).filter(|name| !covered.contains(name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn every_converter_gives_what_its_case_says() {
    let mut world = usual();
    for (file, text) in [
        ("txt.words", "b one\n"),
        ("txt.numbers", "b 7\n"),
        ("txt.addresses", "b 1.2.3.4\n"),
        ("num.words", "5 one\n"),
        ("num.numbers", "5 7\n"),
        ("num.addresses", "5 1.2.3.4\n"),
        ("net.words", "10.0.0.0/8 one\n"),
        ("net.numbers", "10.0.0.0/8 7\n"),
        ("net.addresses", "10.0.0.0/8 1.2.3.4\n"),
        ("m", "/static dir\n/static/img deep\nwww.example.com host\n# x\n10 ten\n"),
        ("ip", "192.0.2.0/24 net\n192.0.2.7 host\n"),
        ("re", "^/static/(.*)\\.png$ img:\\1\n"),
        ("cert.pem", CERTIFICATE),
        ("rsa.pem", RSA_PUBLIC),
    ] {
        world.files.insert(file, text);
    }
    let cases: Vec<(&str, &str)> = CONVERTERS.iter().map(|(_, text, expected)| (*text, *expected)).collect();
    check(&mut world, &cases);
    for (name, text, _) in CONVERTERS {
        assert!(text.contains(&format!(",{name}")), "`{text}` does not use `{name}`");
    }
    let covered: HashSet<&str> = CONVERTERS.iter().map(|(name, ..)| *name).collect();
    let missing: Vec<&str> =
        convert::all().map(|row| row.name).filter(|name| !covered.contains(name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

/// Keys that are well formed; nothing here depends on what they are.
#[rustfmt::skip]
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIBETCBt6ADAgECAgEHMAoGCCqGSM49BAMCMBExDzANBgNVBAMMBnRva2VuczAg\nFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowETEPMA0GA1UEAwwGdG9r\nZW5zMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAER3/Q+sjEzieXQ9UfS6m5ms7h\nmWRor9MFYEAJMk9zQb0qz4x/+xorl6mJ32xpEp31gIoB+XUJ92qw4dgfoCcRWDAK\nBggqhkjOPQQDAgNJADBGAiEApy/8xvfm6zoQ/em2+jR9yPyos0aUUDr2/V35M6Tt\nJtkCIQDXKJR5v3LskDEiQ79xzYUTYyOoqaCFDFKkrA5v+ibxbQ==\n-----END CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIMq3/Jsd1WSsh5Uq/3OhUlh4Ns6TyH9YwRlZvVcJiDrOoAoGCCqGSM49\nAwEHoUQDQgAER3/Q+sjEzieXQ9UfS6m5ms7hmWRor9MFYEAJMk9zQb0qz4x/+xor\nl6mJ32xpEp31gIoB+XUJ92qw4dgfoCcRWA==\n-----END EC PRIVATE KEY-----\n";
#[rustfmt::skip]
const RSA_PUBLIC: &str = "-----BEGIN RSA PUBLIC KEY-----\nAAAA\n-----END RSA PUBLIC KEY-----\n";

/// A text that is no argument of that kind, where there is one.
fn wrong(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Int => "one",
        Kind::Time => "1parsec",
        Kind::Ip4 | Kind::Mask4 => "300.1.1.1",
        Kind::Ip6 | Kind::Mask6 => "g::",
        Kind::Frontend | Kind::Backend | Kind::Userlist => "nowhere",
        Kind::Server => "nowhere/s1",
        Kind::Variable | Kind::IntOrVariable => "galaxy.x",
        Kind::Regex => "(",
        Kind::Table | Kind::Str | Kind::HeaderName | Kind::StrOrVariable => return None,
    })
}

/// A text that is one.
fn right(kind: Kind) -> &'static str {
    match kind {
        Kind::Int | Kind::Mask4 | Kind::Mask6 | Kind::IntOrVariable => "1",
        Kind::Time => "1s",
        Kind::Ip4 => "1.1.1.1",
        Kind::Ip6 => "::1",
        Kind::Frontend => "fe",
        Kind::Backend => "be",
        Kind::Server => "be/s1",
        Kind::Userlist => "users",
        Kind::Variable => "txn.x",
        Kind::Table | Kind::Str | Kind::HeaderName | Kind::StrOrVariable | Kind::Regex => "x",
    }
}

/// Whether `message` names the keyword and says `part`.
fn tells(message: &str, name: &str, part: &str) -> bool {
    message.starts_with("error: ") && message.contains(&format!("`{name}`")) && message.contains(part)
}

#[test]
fn every_row_refuses_too_many_too_few_and_wrong_arguments() {
    let mut world = usual();
    let rows = fetch::all().map(|row| ("", row.name, row.args));
    let rows = rows.chain(convert::all().map(|row| ("str(x),", row.name, row.args)));
    let mut failures = Vec::new();
    for (before, name, specs) in rows {
        // A converter that takes no text is tried behind a number.
        let before = match convert::find(name).filter(|_| !before.is_empty()).map(|row| row.takes) {
            Some(taken) if !sample::Type::Str.casts_to(taken) => "int(1),",
            _ => before,
        };
        let mut expect = |args: Vec<&str>, part: String| {
            let text = format!("{before}{name}({})", args.join(","));
            let found = eval_anywhere(&mut world, &text);
            if !tells(&found, name, &part) {
                failures.push(format!("{text}\n   says {found}\n  wanted a word of {part}"));
            }
        };
        let all: Vec<&str> = specs.iter().map(|spec| right(spec.kind)).collect();
        let many = if specs.is_empty() { "takes no argument" } else { "takes at most" };
        expect([&all[..], &["x"]].concat(), many.to_owned());
        let needed = specs.iter().take_while(|spec| !spec.optional).count();
        let named = |kind| matches!(kind, Kind::Frontend | Kind::Backend);
        if let Some(last) = needed.checked_sub(1).filter(|last| *last > 0 && !named(specs[*last].kind)) {
            expect(all[..last].to_vec(), format!("needs argument {needed}"));
        }
        for (at, spec) in specs.iter().enumerate() {
            let Some(bad) = wrong(spec.kind) else { continue };
            let mut args = all[..=at].to_vec();
            args[at] = bad;
            expect(args, format!("argument {}", at + 1));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_row_refuses_a_place_without_its_facts_and_a_type_that_it_does_not_take() {
    let mut world = usual();
    for row in fetch::all() {
        let args: Vec<&str> =
            row.args.iter().filter(|spec| !spec.optional).map(|spec| right(spec.kind)).collect();
        let text =
            if args.is_empty() { row.name.to_owned() } else { format!("{}({})", row.name, args.join(",")) };
        for place in [Place::TcpConnection, Place::Boot, Place::Check] {
            world.place = place;
            let allowed = row.columns.meets(sample::place::columns(&world.scope()));
            let found = world.eval(&text);
            if !allowed && !found.contains("argument") && !found.contains(&format!("`{}`:", row.name)) {
                assert!(
                    tells(&found, row.name, "cannot be used here: it needs"),
                    "{place:?} {text}: {found}"
                );
            }
        }
    }
    world.place = Place::HttpRequest;
    for row in convert::all().filter(|row| !sample::Type::Bool.casts_to(row.takes)) {
        let args: Vec<&str> =
            row.args.iter().filter(|spec| !spec.optional).map(|spec| right(spec.kind)).collect();
        let text = format!("bool(true),{}({})", row.name, args.join(","));
        let found = world.eval(&text);
        assert!(tells(&found, row.name, "cannot be applied here: it takes"), "{text}: {found}");
    }
}

#[test]
fn what_is_known_and_not_built_says_what_it_needs() {
    let world = World::new();
    for (text, needs) in [
        ("sc0_conn_cnt", "stick tables"),
        ("src_conn_cnt", "stick tables"),
        ("ssl_fc_session_id", "TLS"),
        ("fcgi.docroot", "FastCGI applications"),
        ("spoe.engine-id", "SPOE filters"),
        ("src,in_table(t)", "stick tables"),
        ("src,table_conn_cnt(t)", "stick tables"),
    ] {
        let name = text.rsplit(',').next().unwrap_or_default().split('(').next().unwrap_or_default();
        assert_eq!(world.eval(text), format!("error: `{name}` is not supported yet: it needs {needs}"));
    }
}
