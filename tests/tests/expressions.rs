//! Fetches, converters and ACLs seen from outside: what the program makes of each in rules, beside
//! what HAProxy 3.5 made of the same expressions over the same messages.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

use weir_tests::{PATIENCE, Scratch, Weir, client, free_port, scratch};

/// Expressions and what they give. `MAPS`, `KEY` and `NONCE` stand for a folder, 16 bytes and 12
/// bytes.
#[rustfmt::skip]
const CONVERTERS: &[(&str, &str)] = &[
    ("str(a),add_item(-,txn.text,!)", "a-text!"),
    ("str(text),aes_cbc_enc(128,KEY,KEY),hex", "656EECB9170E36EFE596FF5E253B3290"),
    ("str(text),aes_cbc_enc(128,KEY,KEY),aes_cbc_dec(128,KEY,KEY)", "text"),
    ("str(text),aes_gcm_enc(128,NONCE,KEY,txn.tag),hex", "E709DFBA"),
    ("str(text),aes_gcm_enc(128,NONCE,KEY,txn.tag),aes_gcm_dec(128,NONCE,KEY,txn.tag)", "text"),
    ("int(12),and(10)", "8"),
    ("str(dGV4dA==),b64dec", "text"),
    ("str(text),base64", "dGV4dA=="),
    ("str(text),sha1,hex", "372EA08CAB33E71C02C651DBC83A474D32C676EA"),
    ("bin(0102030405),be2dec(-,2)", "258-772-5"),
    ("bin(0102030405),be2hex(-,2)", "0102-0304-05"),
    ("int(7),bool", "1"),
    ("str(abcdef),bytes(1,3)", "bcd"),
    ("int(5),cpl", "-6"),
    ("str(one),concat(-,,two)", "one-two"),
    ("str(a),cut_crlf", "a"),
    ("int(86400),utime(%Y-%m-%d)", "1970-01-02"),
    ("str(text),debug(x)", "text"),
    ("str(text),digest(sha256),hex", "982D9E3EB996F559E633F4D194DEF3761D909F5A3B647D1A851FEAD67C32C9D1"),
    ("int(17),div(5)", "3"),
    ("str(text),djb2", "2090756362"),
    ("str(text),djb2(1)", "2627594824"),
    ("bin(ffffffffffff001122334455080045000000),eth.data,length", "1"),
    ("bin(ffffffffffff00112233445508004500),eth.dst,hex", "FFFFFFFFFFFF"),
    ("bin(ffffffffffff00112233445508004500),eth.src,hex", "001122334455"),
    ("bin(ffffffffffff00112233445508004500),eth.hdr,hex", "FFFFFFFFFFFF0011223344550800"),
    ("bin(ffffffffffff00112233445508004500),eth.proto", "2048"),
    ("bin(ffffffffffff0011223344558100000708004500000000),eth.vlan", "7"),
    ("int(4),even", "1"),
    ("int(5),odd", "1"),
    ("bin(0041),has_ctl", "1"),
    ("str(ff),hex2i", "255"),
    ("str(text),hmac(sha256,a2V5),hex", "6AFA9046A9579CAD143A384C1B564B9A250D27D6F6A63F9F20BF3A7594C9E2C6"),
    ("int(258),htonl,hex", "00000102"),
    ("int(86400),http_date", "Fri, 02 Jan 1970 00:00:00 GMT"),
    ("int(4000000),ltime(%Y)", "1970"),
    ("bin(45000028000100004006000000000000),ip.ver", "4"),
    ("bin(4510002800014000400600000a0000010a000002),ip.tos", "16"),
    ("bin(4510002800014000400600000a0000010a000002),ip.df", "1"),
    ("bin(4510002800014000400600000a0000010a000002),ip.ttl", "64"),
    ("bin(4510002800014000400600000a0000010a000002),ip.proto", "6"),
    ("bin(4510002800014000400600000a0000010a000002),ip.src", "10.0.0.1"),
    ("bin(4510002800014000400600000a0000010a000002),ip.dst", "10.0.0.2"),
    ("bin(4510002800014000400600000a0000010a0000020102),ip.hdr,hex", "4510002800014000400600000A0000010A000002"),
    ("bin(4510002800014000400600000a0000010a0000021f900050000000010000000060022000000000000204058001030307),ip.data,tcp.src", "8080"),
    ("bin(1f9000500000000100000000600220000000000002040580),tcp.dst", "80"),
    ("bin(1f9000500000000100000000600220000000000002040580),tcp.seq", "1"),
    ("bin(1f9000500000000100000000600220000000000002040580),tcp.flags", "2"),
    ("bin(1f9000500000000100000000600220000000000002040580),tcp.win", "8192"),
    ("bin(1f9000500000000100000000600220000000000002040580),tcp.options.mss", "1408"),
    ("bin(1f900050000000010000000070022000000000000204058004020000),tcp.options.sack", "1"),
    ("bin(1f90005000000001000000007002200000000000020405800303070000),tcp.options.wscale", "7"),
    ("bin(1f90005000000001000000007002200000000000020405800303070000),tcp.options.wsopt", "1"),
    ("bin(1f90005000000001000000008002200000000000080a00000001000000020101),tcp.options.tsval", "1"),
    ("bin(1f90005000000001000000008002200000000000080a00000001000000020101),tcp.options.tsopt", "1"),
    ("bin(1f90005000000001000000008002200000000000080a00000001000000020101),tcp.options_list,hex", "080101"),
    ("bin(6109),json(ascii)", r#"a\t"#),
    ("req.fhdr(x-json),json_query($.a)", "b"),
    ("req.fhdr(x-json),json_query($.list[1])", "2"),
    ("req.hdr(x-jwt),jwt_header_query($.alg)", "HS256"),
    ("req.hdr(x-jwt),jwt_payload_query($.sub)", "someone"),
    ("req.hdr(x-jwt),jwt_verify(HS256,secret-key-of-32-bytes-for-hs256)", "1"),
    ("req.hdr(accept-language),language(de;fr;en,de)", "en"),
    ("bin(0102030405),le2dec(-,2)", "513-1027-5"),
    ("str(xxabc),ltrim(x)", "abc"),
    ("str(abcxx),rtrim(x)", "abc"),
    ("str(abc),lower", "abc"),
    ("str(b),map(MAPS/str.map,none)", "bee"),
    ("str(b),map_str(MAPS/str.map,none)", "bee"),
    ("str(b),map_str_int(MAPS/num.map,0)", "7"),
    ("str(b),map_str_ip(MAPS/ip.map)", "192.0.2.9"),
    ("str(b),map_str_key(MAPS/str.map)", "b"),
    ("str(bcd),map_beg(MAPS/str.map)", "bee"),
    ("str(bcd),map_beg_int(MAPS/num.map)", "7"),
    ("str(bcd),map_beg_ip(MAPS/ip.map)", "192.0.2.9"),
    ("str(bcd),map_beg_key(MAPS/str.map)", "b"),
    ("str(dcb),map_end(MAPS/str.map)", "bee"),
    ("str(dcb),map_end_int(MAPS/num.map)", "7"),
    ("str(dcb),map_end_ip(MAPS/ip.map)", "192.0.2.9"),
    ("str(dcb),map_end_key(MAPS/str.map)", "b"),
    ("str(xbx),map_sub(MAPS/str.map)", "bee"),
    ("str(xbx),map_sub_int(MAPS/num.map)", "7"),
    ("str(xbx),map_sub_ip(MAPS/ip.map)", "192.0.2.9"),
    ("str(xbx),map_sub_key(MAPS/str.map)", "b"),
    ("str(/x/b/y),map_dir(MAPS/str.map)", "bee"),
    ("str(/x/b/y),map_dir_int(MAPS/num.map)", "7"),
    ("str(/x/b/y),map_dir_ip(MAPS/ip.map)", "192.0.2.9"),
    ("str(/x/b/y),map_dir_key(MAPS/str.map)", "b"),
    ("str(x.b.y),map_dom(MAPS/str.map)", "bee"),
    ("str(x.b.y),map_dom_int(MAPS/num.map)", "7"),
    ("str(x.b.y),map_dom_ip(MAPS/ip.map)", "192.0.2.9"),
    ("str(x.b.y),map_dom_key(MAPS/str.map)", "b"),
    ("str(bbb),map_reg(MAPS/reg.map)", "bees"),
    ("str(bbb),map_reg_int(MAPS/regnum.map)", "8"),
    ("str(bbb),map_reg_ip(MAPS/regip.map)", "192.0.2.8"),
    ("str(bbb),map_reg_key(MAPS/reg.map)", "^b+$"),
    ("str(bxc),map_regm(MAPS/regm.map)", "got-x"),
    ("int(15),map_int(MAPS/int.map)", "teens"),
    ("int(15),map_int_int(MAPS/intnum.map)", "11"),
    ("int(15),map_int_ip(MAPS/intip.map)", "192.0.2.11"),
    ("int(15),map_int_key(MAPS/int.map)", "10:20"),
    ("ipv4(10.1.2.3),map_ip(MAPS/net.map)", "ten"),
    ("ipv4(10.1.2.3),map_ip_int(MAPS/netnum.map)", "10"),
    ("ipv4(10.1.2.3),map_ip_ip(MAPS/netip.map)", "192.0.2.10"),
    ("ipv4(10.1.2.3),map_ip_key(MAPS/net.map)", "10.0.0.0/8"),
    ("int(17),mod(5)", "2"),
    ("int(6),mul(7)", "42"),
    ("int(6),sub(7)", "-1"),
    ("int(6),neg", "-6"),
    ("int(6),not", "0"),
    ("int(6),or(9)", "15"),
    ("int(6),xor(5)", "3"),
    ("str(be),nbsrv", "1"),
    ("str(be/s),srv_is_up", "1"),
    ("str(be/s),srv_queue", "0"),
    ("int(1500),ms_ltime(%Y)", "1970"),
    ("int(1500),ms_utime(%S%N)", "01500000000"),
    ("int(1500000),us_ltime(%Y)", "1970"),
    ("int(1500000),us_utime(%S%N)", "01500000000"),
    ("str(a=1&b=2),param(b)", "2"),
    ("str(www.example.com:8080),port_only", "8080"),
    ("str(www.example.com:8080),host_only", "www.example.com"),
    ("bin(089601),protobuf(1,int64)", "150"),
    ("bin(0000000003089601),ungrpc(1,int64)", "150"),
    ("str(abcabc),regsub(b,X,g)", "aXcaXc"),
    ("str(abc),reverse", "cba"),
    ("str(www.example.com),reverse_dom", "com.example.www"),
    (r#"str("for=192.0.2.43;proto=http;host=a"),rfc7239_is_valid"#, "1"),
    ("req.hdr(forwarded),rfc7239_is_valid", "1"),
    ("req.hdr(forwarded),rfc7239_field(for)", "192.0.2.43:47011"),
    ("req.hdr(forwarded),rfc7239_field(for),rfc7239_nn", ""),
    ("req.hdr(forwarded),rfc7239_field(for),rfc7239_np", ""),
    ("req.hdr(forwarded),rfc7239_field(by),rfc7239_n2nn", "_hidden"),
    ("req.hdr(forwarded),rfc7239_field(by),rfc7239_n2np", "_port"),
    ("str(text),sdbm", "1196085869"),
    ("str(text),sha2(256),hex", "982D9E3EB996F559E633F4D194DEF3761D909F5A3B647D1A851FEAD67C32C9D1"),
    ("str(text),secure_memcmp(txn.text)", "1"),
    ("str(text),strcmp(txn.text)", "0"),
    ("str(kept),set-var(txn.kept)", "kept"),
    ("str(gone),set-var(txn.gone),unset-var(txn.gone)", "gone"),
    ("str(a-b_),ub64dec,hex", "6BE6FF"),
    ("str(text?>),ub64enc", "dGV4dD8-"),
    ("str(a%20b),url_dec", "a b"),
    ("str(a b/),url_enc", "a%20b%2F"),
    ("str(one two),word(2,_)", ""),
    ("req.hdr(x-words),word(2,-)", "two"),
    ("str(text),wt6", "1415644080"),
    ("str(text),xxh3", "5145922347574273553"),
    ("str(text),xxh32", "2564554603"),
    ("str(text),xxh64", "-9176476119878291630"),
    ("str(text),crc32", "999008199"),
    ("str(18),x509_v_err_str", "X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT"),
    ("str(text),when(stopping)", ""),
    ("req.hdr(x-fix),fix_is_valid", ""),
    ("req.hdr(x-mqtt),b64dec,mqtt_is_valid", "1"),
    ("req.hdr(x-mqtt),b64dec,mqtt_field_value(connect,client_identifier)", "name"),
    ("int(5),base2", "0000000000000000000000000000000000000000000000000000000000000101"),
    ("str(kept),capture-req(0)", "kept"),
];

/// Fetches over the request of [`request`].
#[rustfmt::skip]
const OF_REQUESTS: &[(&str, &str)] = &[
    ("always_true", "1"),
    ("always_false", "0"),
    ("meth(GET)", "GET"),
    ("ipv6(2001:db8::1)", "2001:db8::1"),
    ("env(TEST_NAME)", "value"),
    ("nbproc", "1"),
    ("tgroup", "0"),
    ("base32", "2062358751"),
    ("base32+src,length", "5"),
    ("baseq", "www.example.com:8080/some/dir/page.html?a=1&b=two"),
    ("cook_cnt(sid)", "1"),
    ("cook_val(num)", "42"),
    ("hdr_cnt(x-list)", "2"),
    ("hdr_val(x-num)", "42"),
    ("hdr_ip(x-ip)", "192.0.2.7"),
    ("http_auth_bearer(x-token)", "abc"),
    ("req.hdr(authorization)", "Basic dXNlcjpwYXNz"),
    ("http_auth_type", "Basic"),
    ("http_auth_pass", "pass"),
    ("http_auth_user", "user"),
    ("req.body_len", "20"),
    ("req.body_param(name)", "body%20text"),
    ("req.body_size", "20"),
    ("req.cook_cnt(theme)", "1"),
    ("req.cook_names", "sid,theme,num"),
    ("req.cook_val(num)", "42"),
    ("req.fhdr_cnt(x-list)", "1"),
    ("req.hdr_cnt(x-list)", "2"),
    ("req.hdr_ip(x-ip)", "192.0.2.7"),
    ("req.hdr_val(x-num)", "42"),
    ("req.hdrs,length,bool", "1"),
    ("req.hdrs_bin,length,bool", "1"),
    ("req.ver", "1.1"),
    ("req_ver", "1.1"),
    ("req_proto_http", "1"),
    ("capture.req.ver", "HTTP/1.1"),
    ("http_first_req", "1"),
    ("request_date,bool", "1"),
    ("accept_date,bool", "1"),
    ("req.timer.hdr,length,bool", "1"),
    ("req.timer.idle,length,bool", "1"),
    ("req.timer.tq,length,bool", "1"),
    ("url32", "1212887327"),
    ("url32+src,length", "5"),
    ("urlp(a)", "1"),
    ("urlp_val(a)", "1"),
    ("url_port", ""),
    ("url_ip", ""),
    ("req.ssl_ver", ""),
    ("req_ssl_ver", ""),
    ("req.ssl_sni", ""),
    ("req_ssl_sni", ""),
    ("req.ssl_hello_type", ""),
    ("req_ssl_hello_type", ""),
    ("req.ssl_alpn", ""),
    ("req.ssl_ec_ext", ""),
    ("req.ssl_st_ext", ""),
    ("req.ssl_cipherlist", ""),
    ("req.ssl_keyshare_groups", ""),
    ("req.ssl_sigalgs", ""),
    ("req.ssl_supported_groups", ""),
    ("req.rdp_cookie(mstshash)", ""),
    ("rdp_cookie(mstshash)", ""),
    ("rdp_cookie_cnt(mstshash)", "0"),
    ("req.payload_lv(0,1)", ""),
    ("payload_lv(0,1)", ""),
    ("distcc_body(ARGC)", ""),
    ("distcc_param(ARGC)", ""),
    ("internal.htx.nbblks", "19"),
    ("internal.htx.has_eom", "1"),
    ("internal.htx.size", "16344"),
    ("internal.htx_blk.type(0)", "HTX_BLK_REQ_SL"),
    ("internal.htx_blk.start_line(0)", "POST /some/dir/page.html?a=1&b=two HTTP/1.1"),
    ("internal.htx_blk.hdrname(1)", "host"),
    ("internal.htx_blk.hdrval(1)", "www.example.com:8080"),
    ("internal.htx_blk.data(1)", ""),
    ("fc_settings_streams_limit", "1"),
    ("fc_nb_streams", "1"),
    ("fc_http_major", "1"),
    ("fs.aborted", "0"),
    ("fs.rst_code", ""),
    ("fs.debug_str,bool", "0"),
    ("ssl_fc", "0"),
    ("ssl_c_used", ""),
    ("ssl_fc_has_crt", ""),
    ("ssl_fc_has_sni", "0"),
    ("ssl_fc_has_early", ""),
    ("ssl_fc_is_resumed", "0"),
    ("ssl_c_verify", ""),
    ("ssl_c_err", ""),
    ("ssl_c_ca_err", ""),
    ("ssl_c_der", ""),
    ("ssl_c_i_dn", ""),
    ("ssl_c_s_dn", ""),
    ("ssl_c_notafter", ""),
    ("ssl_c_notbefore", ""),
    ("ssl_c_serial", ""),
    ("ssl_c_sha1", ""),
    ("ssl_fc_alpn", ""),
    ("ssl_fc_cipher", ""),
    ("ssl_fc_protocol", ""),
    ("ssl_fc_sni", ""),
    ("ssl_fc_err", ""),
    ("ssl_fc_err_str", ""),
    ("cur_client_timeout", "20000"),
    ("fe_client_timeout", "20000"),
    ("fe_tarpit_timeout", "7000"),
    ("cur_tarpit_timeout", "7000"),
    ("fe_defbe", "be"),
    ("fe_id", "33"),
    ("so_id", "3"),
    ("so_name", "sock"),
    ("fc.timer.handshake,length,bool", "1"),
    ("fc.timer.total,length,bool", "1"),
    ("fc_src_is_local", "1"),
    ("fc_dst_is_local", "1"),
    ("src_is_local", "1"),
    ("dst_is_local", "1"),
    ("fc_src_port,bool", "1"),
    ("fc_dst_port,bool", "1"),
    ("dst_conn,bool", "1"),
    ("fc_rttvar,length,bool", "1"),
    ("fc_retrans,length", "1"),
    ("fc_sacked,length", "1"),
    ("fc_lost,length", "1"),
    ("fc_reordering,length,bool", "1"),
    ("fc_fackets,length", "1"),
    ("fc_unacked,length", "1"),
    ("fc_pp_authority", ""),
    ("fc_pp_unique_id", ""),
    ("avg_queue(be)", "0"),
    ("be_conn_free(be)", "50"),
    ("be_sess_rate(be),length,bool", "1"),
    ("connslots(be)", "-1"),
    ("fe_conn(fe),bool", "1"),
    ("fe_req_rate(fe),length,bool", "1"),
    ("fe_sess_rate(fe),length,bool", "1"),
    ("srv_conn(be/s)", "0"),
    ("srv_conn_free(be/s)", "50"),
    ("srv_iweight(be/s)", "9"),
    ("srv_weight(be/s)", "9"),
    ("srv_queue(be/s)", "0"),
    ("srv_sess_rate(be/s),length,bool", "1"),
    ("cpu_ns_avg,length,bool", "1"),
    ("lat_ns_avg,length,bool", "1"),
    ("lat_ns_tot,length,bool", "1"),
    ("prio_class", "0"),
    ("prio_offset", "0"),
    ("txn.id32,length,bool", "1"),
    ("txn.sess_term_state", "LR"),
    ("waiting_entity", ""),
    ("wait_end", "1"),
    ("act_conn,bool", "1"),
    ("date,bool", "1"),
    ("date_us,length,bool", "1"),
    ("dump_all_vars(txn,tex)", r#"txn.text="text""#),
    ("hostname,length,bool", "1"),
    ("uptime,length,bool", "1"),
    ("uuid,length", "36"),
    ("txn.timer.total,length,bool", "1"),
    ("txn.timer.user,length,bool", "1"),
];

/// Fetches over [`RESPONSE`].
#[rustfmt::skip]
const OF_RESPONSES: &[(&str, &str)] = &[
    ("rep_ssl_hello_type", ""),
    ("res.ssl_hello_type", ""),
    ("res.body_len", "5"),
    ("res.body_size", "5"),
    ("res.cook(sid)", "abc"),
    ("res.cook_cnt", "2"),
    ("res.cook_names", "sid,num"),
    ("res.cook_val(num)", "42"),
    ("res.fhdr_cnt(x-list)", "1"),
    ("res.hdr(x-one)", "first"),
    ("res.hdr_cnt(x-list)", "2"),
    ("res.hdr_ip(x-ip)", "192.0.2.7"),
    ("res.hdr_names,bytes(0,5)", "x-one"),
    ("res.hdr_val(x-num)", "42"),
    ("res.hdrs,length,bool", "1"),
    ("res.hdrs_bin,length,bool", "1"),
    ("res.payload_lv(0,1)", ""),
    ("res.timer.hdr,length,bool", "1"),
    ("scook(sid)", "abc"),
    ("scook_cnt(sid)", "1"),
    ("scook_val(num)", "42"),
    ("shdr(x-one)", "first"),
    ("shdr_cnt(x-list)", "2"),
    ("shdr_ip(x-ip)", "192.0.2.7"),
    ("shdr_val(x-num)", "42"),
    ("bc.timer.connect,length,bool", "1"),
    ("bc_be_queue", "0"),
    ("bc_srv_queue", "0"),
    ("bc_dst", "127.0.0.1"),
    ("bc_dst_port,bool", "1"),
    ("bc_src", "127.0.0.1"),
    ("bc_src_port,bool", "1"),
    ("bc_err_str", "Success"),
    ("bc_err", "0"),
    ("bc_http_major", "1"),
    ("bc_nb_streams", "1"),
    ("bc_reused", "0"),
    ("bc_settings_streams_limit", "1"),
    ("bs.aborted", "0"),
    ("bs.debug_str,bool", "0"),
    ("bs.id", "0"),
    ("bs.rst_code", ""),
    ("capture.res.hdr(0)", ""),
    ("capture.res.ver", "HTTP/1.1"),
    ("req.timer.queue,length,bool", "1"),
    ("res.comp", "0"),
    ("res.comp_algo", ""),
    ("res.cache_hit", "0"),
    ("res.cache_name", ""),
    ("res.ver", "1.1"),
    ("resp_ver", "1.1"),
    ("server_status", "200"),
    ("ssl_bc", "0"),
    ("txn.conn_retries", "0"),
    ("txn.hedged", "0"),
    ("txn.redispatched", "0"),
    ("srv_name", "s"),
    ("srv_id", "5"),
    ("res.bytes_in,length,bool", "1"),
    ("res.bytes_out,length,bool", "1"),
    ("bytes_out,length,bool", "1"),
    ("be_connect_timeout", "5000"),
    ("be_queue_timeout", "6000"),
    ("be_server_timeout", "21000"),
    ("be_tarpit_timeout", "7000"),
    ("be_tunnel_timeout", "8000"),
    ("be_max_retries", "3"),
    ("be_id", "44"),
    ("be_name", "be"),
    ("cur_connect_timeout", "5000"),
    ("cur_queue_timeout", "6000"),
    ("cur_server_timeout", "21000"),
    ("cur_tunnel_timeout", "8000"),
    ("cur_max_retries", "3"),
    ("str(kept),capture-res(0)", "kept"),
    ("txn.status", "200"),
];

/// Conditions that hold for the request.
#[rustfmt::skip]
const CONDITIONS_OF_REQUESTS: &[&str] = &[
    "base_beg www.example",
    "base_dir dir",
    "base_dom example",
    "base_end page.html",
    "base_len 39",
    "base_reg ^www.*html$",
    "base_sub some/dir",
    "cook_beg(sid) ab",
    "cook_dir(sid) abc",
    "cook_dom(sid) abc",
    "cook_end(sid) bc",
    "cook_len(sid) 3",
    "cook_reg(sid) ^a.c$",
    "cook_sub(sid) b",
    "hdr_beg(host) www.",
    "hdr_dir(x-path) two",
    "hdr_dom(host) example",
    "hdr_len(x-num) 2",
    "hdr_reg(x-num) ^4",
    "hdr_sub(host) exam",
    "path_dir dir",
    "path_dom some",
    "path_len 19",
    "url_beg /some",
    "url_dir dir",
    "url_dom page",
    "url_end =two",
    "url_len 29",
    r#"url_reg a=\d"#,
    "url_sub page",
    "urlp(a) 1",
    "urlp_beg(b) t",
    "urlp_dir(b) two",
    "urlp_dom(b) two",
    "urlp_end(b) wo",
    "urlp_len(b) 3",
    "urlp_reg(b) ^t",
    "urlp_sub(b) w",
    "req_ver 1.1",
];

/// Conditions that hold for the response.
#[rustfmt::skip]
const CONDITIONS_OF_RESPONSES: &[&str] = &[
    "resp_ver 1.1",
    "scook(sid) abc",
    "scook_beg(sid) ab",
    "scook_dir(sid) abc",
    "scook_dom(sid) abc",
    "scook_end(sid) bc",
    "scook_len(sid) 3",
    "scook_reg(sid) ^a.c$",
    "scook_sub(sid) b",
    "shdr(x-one) first",
    "shdr_beg(x-one) fi",
    "shdr_dir(x-path) two",
    "shdr_dom(x-path) one",
    "shdr_end(x-one) st",
    "shdr_len(x-one) 5",
    "shdr_reg(x-one) ^f",
    "shdr_sub(x-one) irs",
];

/// A TLS client says hello, in hexadecimal.
const CLIENT_HELLO: &str = "1603010200010001fc0303354ba559174e90600e330bd9627ed22d580af728c2856c0c2a396d0ebcf0f8de207b3ae077855559479d41073036558a3bcd69606148a9d05e814fa9292b9b070d0024130213031301c02cc030c02bc02fcca9cca8c024c028c023c027009f009e006b006700ff0100018f00000014001200000f7777772e6578616d706c652e636f6d000b000403000102000a00160014001d0017001e0019001801000101010201030104002300000010000e000c02683208687474702f312e310016000000170000000d002a0028040305030603080708080809080a080b080408050806040105010601030303010302040205020602002b00050403040303002d00020101003300260024001d00200d656380f3aa44506b818a141cfff06702c00db24c35ff895d70ebfb6282087d001500cc000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000";

/// What is seen of it.
#[rustfmt::skip]
const SEEN_IN_CLIENT_HELLO: &[(&str, &str)] = &[
    ("req.len", "517"),
    ("req_len", "517"),
    ("req.ssl_hello_type", "1"),
    ("req_ssl_hello_type", "1"),
    ("req.ssl_ver", "196611"),
    ("req_ssl_ver", "196611"),
    ("req.ssl_sni", "www.example.com"),
    ("req_ssl_sni", "www.example.com"),
    ("req.ssl_alpn", "h2"),
    ("req.ssl_ec_ext", "1"),
    ("req.ssl_st_ext", "1"),
    ("req.ssl_cipherlist,hex", "130213031301C02CC030C02BC02FCCA9CCA8C024C028C023C027009F009E006B006700FF"),
    ("req.ssl_keyshare_groups,hex", "001D"),
    ("req.ssl_sigalgs,hex", "040305030603080708080809080A080B080408050806040105010601030303010302040205020602"),
    ("req.ssl_supported_groups,hex", "001D0017001E0019001801000101010201030104"),
    ("req.payload(0,3),hex", "160301"),
    ("req.payload_lv(3,2),length", "1"),
    ("payload_lv(3,2),length", "1"),
];

/// Conditions that hold for it.
#[rustfmt::skip]
const CONDITIONS_OF_CLIENT_HELLO: &[&str] = &[
    "req_ssl_ver 3.0:3.4",
    "req.ssl_ver 3.0:3.4",
    "req_ssl_sni www.example.com",
    "payload_lv(3,2) -m found",
];

/// The first packet of a remote desktop client.
const RDP: &[u8] =
    b"\x03\x00\x00*%\xe0\x00\x00\x00\x00\x00Cookie: mstshash=user\x0d\x0a\x01\x00\x08\x00\x03\x00\x00\x00";

/// What is seen of it.
#[rustfmt::skip]
const SEEN_IN_RDP: &[(&str, &str)] = &[
    ("req.rdp_cookie(mstshash)", "user"),
    ("rdp_cookie(mstshash)", "user"),
    ("rdp_cookie_cnt(mstshash)", "1"),
];

/// Conditions that hold for it.
#[rustfmt::skip]
const CONDITIONS_OF_RDP: &[&str] = &[
    "req_rdp_cookie(mstshash) user",
    "req_rdp_cookie_cnt(mstshash) 1",
];

/// A distcc client begins.
const DISTCC: &[u8] = b"DIST00000001ARGC00000002ARGV00000002ccARGV00000002-cDOTI00000005hello";

/// What is seen of it.
#[rustfmt::skip]
const SEEN_IN_DISTCC: &[(&str, &str)] = &[
    ("distcc_param(ARGC)", "2"),
    ("distcc_body(DOTI)", "hello"),
];

const KEY: &str = "AAECAwQFBgcICQoLDA0ODw==";
const NONCE: &str = "AAECAwQFBgcICQoL";

/// Name, key and value of the maps.
#[rustfmt::skip]
const MAPS: &[(&str, &str)] = &[
    ("int.map", r"10:20 teens"),
    ("intip.map", r"10:20 192.0.2.11"),
    ("intnum.map", r"10:20 11"),
    ("ip.map", r"b 192.0.2.9"),
    ("net.map", r"10.0.0.0/8 ten"),
    ("netip.map", r"10.0.0.0/8 192.0.2.10"),
    ("netnum.map", r"10.0.0.0/8 10"),
    ("num.map", r"b 7"),
    ("reg.map", r"^b+$ bees"),
    ("regip.map", r"^b+$ 192.0.2.8"),
    ("regm.map", r"^b(.)c$ got-\1"),
    ("regnum.map", r"^b+$ 8"),
    ("str.map", r"b bee"),
];

/// The request whose field `x-row` chooses the rule.
fn request(row: usize) -> String {
    [
        "POST /some/dir/page.html?a=1&b=two HTTP/1.1",
        "host: www.example.com:8080",
        &format!("x-row: {row}"),
        "cookie: sid=abc; theme=dark; num=42",
        "x-num: 42",
        "x-ip: 192.0.2.7",
        "x-list: one,two",
        "x-words: one-two",
        r#"x-json: {"a":"b","list":[1,2]}"#,
        "x-jwt: eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJzb21lb25lIn0.lLNolaJBQKxNGEqhu_p5MtUc4bV22OkVgyQX-t6C-lM",
        "x-mqtt: EBAABE1RVFQEAgA8AARuYW1l",
        "accept-language: fr,en;q=0.5",
        r#"forwarded: for="192.0.2.43:47011";by="_hidden:_port""#,
        "x-token: Bearer abc",
        "x-path: one/two/three",
        "authorization: Basic dXNlcjpwYXNz",
        "content-length: 20",
        "",
        "a=1&name=body%20text",
    ]
    .join("\r\n")
}

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nx-one: first\r\nx-path: one/two\r\nx-list: one,two\r\nx-ip: 192.0.2.7\r\nx-num: 42\r\nset-cookie: sid=abc\r\nset-cookie: num=42\r\ncontent-length: 5\r\n\r\nhello";

/// A server that answers every request of [`request`] with [`RESPONSE`].
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut received = Vec::new();
            let mut piece = [0; 4096];
            while !received.ends_with(b"body%20text") {
                match stream.read(&mut piece) {
                    Ok(length @ 1..) => received.extend_from_slice(&piece[..length]),
                    _ => break,
                }
            }
            let _ = stream.write_all(RESPONSE);
        }
    });
    port
}

/// The expression as a configuration has it: what stands for keys and folders filled in, in quotes
/// that keep `$` as it is.
fn quoted(expression: &str, maps: &str) -> String {
    let text = expression.replace("MAPS", maps).replace("NONCE", NONCE).replace("KEY", KEY);
    if text.contains('$') {
        return format!("'%[{text}]'");
    }
    format!("\"%[{}]\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Writes the maps into a folder of their own.
fn maps() -> Scratch {
    let folder = scratch("expressions");
    for (name, lines) in MAPS {
        std::fs::write(folder.join(name), format!("{lines}\n")).expect("the folder takes files");
    }
    folder
}

const BEFORE: &str = "global\n  setenv TEST_NAME value\n  nbthread 1\n\
    defaults\n  mode http\n  timeout client 20s\n  timeout server 21s\n  timeout connect 5s\n  timeout queue 6s\n  \
    timeout tarpit 7s\n  timeout tunnel 8s\n  option http-buffer-request\n";

/// A frontend that answers each request with the rule of its row, and leaves others to a server.
fn start(rules: &str, of_responses: &str) -> (Weir, u16) {
    let (port, origin) = (free_port(), origin());
    let weir = Weir::start(
        &format!(
            "{BEFORE}frontend fe\n  bind 127.0.0.1:{port} name sock id 3\n  id 33\n  declare capture request len 16\n  \
             declare capture response len 16\n  http-request set-var(txn.text) str(text)\n  \
             http-request set-var(txn.te) str(1)\n{rules}  default_backend be\n\
             backend be\n  id 44\n  server s 127.0.0.1:{origin} id 5 weight 9 maxconn 50\n{of_responses}"
        ),
        &[port],
    );
    (weir, port)
}

#[test]
fn expressions_over_requests_give_what_haproxy_gives() {
    let maps = maps();
    let folder = maps.to_string();
    let rows: Vec<_> = CONVERTERS.iter().chain(OF_REQUESTS).collect();
    let rules: String = (rows.iter().enumerate())
        .map(|(row, (expression, _))| {
            let text = quoted(expression, &folder);
            format!(
                "  http-request return status 200 content-type text/plain lf-string {text} if {{ req.hdr(x-row) {row} }}\n"
            )
        })
        .collect();
    let (weir, port) = start(&rules, "");
    let mut wrong = Vec::new();
    for (row, (expression, expected)) in rows.iter().enumerate() {
        let response = client::exchange(port, &request(row));
        let body = response.map(|response| String::from_utf8_lossy(&response.body).into_owned());
        if body.as_deref() != Some(*expected) {
            wrong.push(format!("{expression}: {body:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", weir.messages());
}

#[test]
fn expressions_over_responses_give_what_haproxy_gives() {
    let rules: String = (OF_RESPONSES.iter().enumerate())
        .map(|(row, (expression, _))| format!("  http-response set-header x-r{row} \"%[{expression}]\"\n"))
        .collect();
    let (weir, port) = start("", &rules);
    let response = client::exchange(port, &request(usize::MAX)).expect("a response");
    let mut wrong = Vec::new();
    for (row, (expression, expected)) in OF_RESPONSES.iter().enumerate() {
        let value = response.header(&format!("x-r{row}"));
        if value.unwrap_or_default() != *expected {
            wrong.push(format!("{expression}: {value:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", weir.messages());
}

#[test]
fn conditions_over_messages_hold_where_they_hold_in_haproxy() {
    let answer = "http-request return status 200 content-type text/plain string";
    let rules: String = (CONDITIONS_OF_REQUESTS.iter().enumerate())
        .map(|(row, condition)| {
            let chosen = format!("{{ req.hdr(x-row) {row} }}");
            format!("  {answer} yes if {chosen} {{ {condition} }}\n  {answer} no if {chosen}\n")
        })
        .collect();
    let of_responses: String = (CONDITIONS_OF_RESPONSES.iter().enumerate())
        .map(|(row, condition)| format!("  http-response set-header x-a{row} yes if {{ {condition} }}\n"))
        .collect();
    let (weir, port) = start(&rules, &of_responses);
    let holds =
        |row: &usize| client::exchange(port, &request(*row)).is_some_and(|answer| answer.body == b"yes");
    let wrong =
        (0..CONDITIONS_OF_REQUESTS.len()).filter(|row| !holds(row)).map(|row| CONDITIONS_OF_REQUESTS[row]);
    let response = client::exchange(port, &request(usize::MAX)).expect("a response");
    let missing = |row: &usize| response.header(&format!("x-a{row}")).is_none();
    let of_responses =
        (0..CONDITIONS_OF_RESPONSES.len()).filter(missing).map(|row| CONDITIONS_OF_RESPONSES[row]);
    let wrong: Vec<&str> = wrong.chain(of_responses).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", weir.messages());
}

/// What a frontend of TCP logs of a client that sends `data` and nothing else.
fn logged(data: &[u8], seen: &[(&str, &str)], conditions: &[&str]) -> String {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
    collector.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let to = collector.local_addr().expect("it is bound");
    let (port, all) = (free_port(), format!("{{ req.len ge {} }}", data.len()));
    let (mut rules, mut fields) = (String::new(), Vec::new());
    for (row, (expression, _)) in seen.iter().enumerate() {
        rules.push_str(&format!("  tcp-request content set-var(sess.v{row}) {expression} if {all}\n"));
        fields.push(format!("%[var(sess.v{row})]"));
    }
    for (row, condition) in conditions.iter().enumerate() {
        rules.push_str(&format!(
            "  tcp-request content set-var(sess.a{row}) int(1) if {all} {{ {condition} }}\n"
        ));
        fields.push(format!("%[var(sess.a{row})]"));
    }
    let _weir = Weir::start(
        &format!(
            "global\n  log {to} format raw local0\ndefaults\n  mode tcp\n  timeout client 20s\n  log global\n\
             frontend f\n  bind 127.0.0.1:{port}\n  tcp-request inspect-delay 20s\n{rules}  \
             tcp-request content reject if {all}\n  log-format \"seen={}\"\n",
            fields.join("|")
        ),
        &[port],
    );
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("the frontend listens");
    client.write_all(data).expect("it reads");
    let mut bytes = [0; 16_384];
    loop {
        let length = collector.recv(&mut bytes).expect("a log line");
        let line = String::from_utf8_lossy(&bytes[..length]).into_owned();
        // The connection that looked whether the port is open is logged too.
        if let Some(line) = line.trim_end().strip_prefix("seen=")
            && !line.starts_with('-')
        {
            return line.to_owned();
        }
    }
}

fn compare(data: &[u8], seen: &[(&str, &str)], conditions: &[&str]) {
    let values = seen.iter().map(|(_, value)| *value).chain(conditions.iter().map(|_| "1"));
    let expected: Vec<&str> = values.collect();
    assert_eq!(logged(data, seen, conditions).split('|').collect::<Vec<_>>(), expected);
}

#[test]
fn a_client_hello_is_read_without_ending_tls() {
    let byte = |at: usize| u8::from_str_radix(&CLIENT_HELLO[at..at + 2], 16).expect("hexadecimal digits");
    let hello: Vec<u8> = (0..CLIENT_HELLO.len()).step_by(2).map(byte).collect();
    compare(&hello, SEEN_IN_CLIENT_HELLO, CONDITIONS_OF_CLIENT_HELLO);
}

#[test]
fn the_cookie_of_a_remote_desktop_client_is_read() {
    compare(RDP, SEEN_IN_RDP, CONDITIONS_OF_RDP);
}

#[test]
fn parameters_and_bodies_of_distcc_are_read() {
    compare(DISTCC, SEEN_IN_DISTCC, &[]);
}

#[test]
fn a_group_is_compared_by_conditions_and_shown_as_its_user() {
    let port = free_port();
    let shown = "http-request return status 200 content-type text/plain lf-string \"%[http_auth_group(u)]|";
    let _weir = Weir::start(
        &format!(
            "{BEFORE}userlist u\n  group one users a\n  group two users a,b\n  user a insecure-password x\n  \
             user b insecure-password y\nfrontend f\n  bind 127.0.0.1:{port}\n  \
             {shown}one\" if {{ http_auth_group(u) one }}\n  {shown}two\" if {{ http_auth_group(u) two }}\n  {shown}none\"\n"
        ),
        &[port],
    );
    // `a:x`, `b:y` and `a:y`.
    for (credentials, expected) in [("YTp4", "a|one"), ("Yjp5", "b|two"), ("YTp5", "|none")] {
        let fields = format!("authorization: Basic {credentials}\r\n");
        let response = client::exchange_with(port, "/", &fields).expect("a response");
        assert_eq!(response.text(), expected);
    }
}
