//! Fuzz targets for expressions on non-HTTP bytes: the first bytes of a connection, packets and messages of other protocols, and
//! encoded field values.

use super::expressions::Fixed;

const PLAIN: &[u8] = b"POST / HTTP/1.1\r\nhost: h\r\n\r\n";

/// Checks that values extracted from messages of other protocols and from packets lie within the message.
pub fn payload(bytes: &[u8]) {
    static VALUES: Fixed = Fixed::new(&[
        "req.body,mqtt_is_valid",
        "req.body,mqtt_field_value(connect,client_identifier),hex",
        "req.body,mqtt_field_value(connect,username),hex",
        "req.body,mqtt_field_value(connect,17)",
        "req.body,mqtt_field_value(connack,reason_code)",
        "req.body,fix_is_valid",
        "req.body,fix_tag_value(MsgType),hex",
        "req.body,fix_tag_value(49),hex",
        "req.body,protobuf(1.2.3,string),hex",
        "req.body,protobuf(2,sint64)",
        "req.body,protobuf(3,double)",
        "req.body,ungrpc(1.2,string),hex",
        "req.body,ungrpc(3,fixed64)",
        "req.body,eth.data,hex",
        "req.body,eth.proto",
        "req.body,ip.data,hex",
        "req.body,ip.fp,hex",
        "req.body,ip.hdr,hex",
        "req.body,tcp.options_list",
        "req.body,tcp.options.mss",
        "req.body,tcp.options.tsval",
        "req.body,tcp.options.wscale",
        "req.body,tcp.options.sack",
    ]);
    let values = VALUES.values(PLAIN, bytes);
    if values[0] == b"0" {
        assert!(values[1..5].iter().all(Vec::is_empty), "{values:?}");
    }
    are_parts(&values, &[1, 2, 6, 7, 8, 11, 13, 15, 17], bytes);
}

/// Checks that the selected values, in hexadecimal, are parts of `bytes`.
fn are_parts(values: &[Vec<u8>], which: &[usize], bytes: &[u8]) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    for at in which {
        let value = String::from_utf8_lossy(&values[*at]);
        assert!(hex.contains(&*value), "{value} at {at}");
    }
}

/// Checks samples of the first bytes of a connection, which rules inspect before anything is parsed.
pub fn first_bytes(bytes: &[u8]) {
    static VALUES: Fixed = Fixed::new(&[
        "req.rdp_cookie,hex",
        "req.rdp_cookie(mstshash),hex",
        "req.rdp_cookie_cnt",
        "req.ssl_hello_type",
        "req.ssl_ver",
        "req.ssl_sni,hex",
        "req.ssl_alpn",
        "req.ssl_ec_ext",
        "req.ssl_st_ext",
        "req.ssl_cipherlist,hex",
        "req.ssl_sigalgs,hex",
        "req.ssl_supported_groups,hex",
        "req.ssl_keyshare_groups,be2dec(-,2)",
        "req.payload_lv(0,2),hex",
        "req.payload_lv(3,1,-2),hex",
        "req.payload(5,3),hex",
        "distcc_param(ARGC)",
        "distcc_body(DOTI),hex",
    ]);
    let values = VALUES.values(b"", bytes);
    are_parts(&values, &[0, 1, 5, 9, 10, 11, 13, 14, 15, 17], bytes);
}

/// Checks that encoded field values decode to values that can be encoded to the same again, and that parsers of structured fields
/// return parts of them.
pub fn encoded(bytes: &[u8]) {
    static VALUES: Fixed = Fixed::new(&[
        "req.body,base64",
        "req.body,base64,b64dec,hex",
        "req.body,ub64enc,ub64dec,hex",
        "req.body,hex",
        "req.body,url_enc,url_dec,hex",
        "req.body,b64dec,base64",
        "req.body,ub64dec,ub64enc",
        "req.body,hex2i",
        "req.body,be2dec(:,3)",
        "req.body,be2hex(:,3,1)",
        "req.body,rfc7239_is_valid",
        "req.body,rfc7239_field(for)",
        "req.body,rfc7239_field(for),rfc7239_nn",
        "req.body,rfc7239_field(by),rfc7239_np",
        "req.body,host_only",
        "req.body,port_only",
        "req.body,language(fr;en;de,fr)",
        "req.body,word(2,',;')",
        "req.body,field(-2,;)",
        "req.body,param(a,;)",
        "req.body,bytes(3,5),hex",
        "req.body,ltrim(a),rtrim(b),hex",
        "req.body,reverse,reverse,hex",
        "req.body,reverse_dom",
        "req.body,regsub(a+,b,g)",
        "req.body,lower,upper,hex",
        "req.body,jwt_header_query('$.kid')",
        "req.body,json_query('$.a.b[1]')",
        "req.body,lower,ipmask(24,64)",
        "req.body,add_item(-,,x)",
        "req.body,has_ctl",
        "req.body,cut_crlf,hex",
    ]);
    let values = VALUES.values(PLAIN, bytes);
    // Strings end at a NUL byte.
    let texts: &[usize] = if bytes.contains(&0) { &[] } else { &[4, 22] };
    for at in [1, 2].iter().chain(texts) {
        assert_eq!(values[*at].escape_ascii().to_string(), values[3].escape_ascii().to_string(), "{at}");
    }
}
