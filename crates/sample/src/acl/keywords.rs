//! ACL keywords that are shorthand for a fetch and a match method (manual, 7.3), and the predefined ACLs (7.4).

use crate::pattern::MatchMethod;

/// ACL keywords that are a fetch with a match method: name, fetch, method.
pub(super) const ALIASES: &[(&str, &str, MatchMethod)] = &[
    ("base", "base", MatchMethod::Str),
    ("cook", "req.cook", MatchMethod::Str),
    ("hdr", "req.hdr", MatchMethod::Str),
    ("http_auth_group", "http_auth_group", MatchMethod::Str),
    ("method", "method", MatchMethod::Str),
    ("path", "path", MatchMethod::Str),
    ("payload", "req.payload", MatchMethod::Bin),
    ("payload_lv", "req.payload_lv", MatchMethod::Bin),
    ("req.ssl_ver", "req.ssl_ver", MatchMethod::Int),
    ("req_rdp_cookie", "req.rdp_cookie", MatchMethod::Str),
    ("req_rdp_cookie_cnt", "req.rdp_cookie_cnt", MatchMethod::Int),
    ("req_ssl_sni", "req.ssl_sni", MatchMethod::Str),
    ("req_ssl_ver", "req.ssl_ver", MatchMethod::Int),
    ("req_ver", "req.ver", MatchMethod::Str),
    ("resp_ver", "res.ver", MatchMethod::Str),
    ("scook", "res.cook", MatchMethod::Str),
    ("shdr", "res.hdr", MatchMethod::Str),
    ("ssl_fc_sni_end", "ssl_fc_sni", MatchMethod::End),
    ("ssl_fc_sni_reg", "ssl_fc_sni", MatchMethod::Reg),
    ("url", "url", MatchMethod::Str),
    ("urlp", "urlp", MatchMethod::Str),
];

/// The names above that accept the suffixes below.
const SUFFIXED: &[&str] = &["base", "cook", "hdr", "path", "scook", "shdr", "url", "urlp"];
const SUFFIXES: &[(&str, MatchMethod)] = &[
    ("_beg", MatchMethod::Beg),
    ("_dir", MatchMethod::Dir),
    ("_dom", MatchMethod::Dom),
    ("_end", MatchMethod::End),
    ("_len", MatchMethod::Len),
    ("_reg", MatchMethod::Reg),
    ("_sub", MatchMethod::Sub),
];

/// The ACLs that need not be declared (manual, 7.4).
pub(super) const PREDEFINED: &[(&str, &[&str])] = &[
    ("FALSE", &["always_false"]),
    ("HTTP", &["req.proto_http"]),
    ("HTTP_1.0", &["req.ver", "1.0"]),
    ("HTTP_1.1", &["req.ver", "1.1"]),
    ("HTTP_2.0", &["req.ver", "2.0"]),
    ("HTTP_3.0", &["req.ver", "3.0"]),
    ("HTTP_CONTENT", &["req.hdr_val(content-length)", "gt", "0"]),
    ("HTTP_URL_ABS", &["url_reg", "^[^/:]*://"]),
    ("HTTP_URL_SLASH", &["url_beg", "/"]),
    ("HTTP_URL_STAR", &["url", "*"]),
    ("LOCALHOST", &["src", "127.0.0.1/8", "::1"]),
    ("METH_CONNECT", &["method", "CONNECT"]),
    ("METH_DELETE", &["method", "DELETE"]),
    ("METH_GET", &["method", "GET", "HEAD"]),
    ("METH_HEAD", &["method", "HEAD"]),
    ("METH_OPTIONS", &["method", "OPTIONS"]),
    ("METH_POST", &["method", "POST"]),
    ("METH_PUT", &["method", "PUT"]),
    ("METH_TRACE", &["method", "TRACE"]),
    ("RDP_COOKIE", &["req.rdp_cookie_cnt", "gt", "0"]),
    ("REQ_CONTENT", &["req.len", "gt", "0"]),
    ("TRUE", &["always_true"]),
    ("WAIT_END", &["wait_end"]),
];

/// The fetch and match method behind an ACL keyword.
pub(super) fn alias(name: &str) -> Option<(&'static str, MatchMethod)> {
    if let Some(row) = ALIASES.iter().find(|row| row.0 == name) {
        return Some((row.1, row.2));
    }
    let (suffix, method) = SUFFIXES.iter().find(|(suffix, _)| name.ends_with(suffix))?;
    let stem = &name[..name.len() - suffix.len()];
    let stem = SUFFIXED.iter().find(|known| **known == stem)?;
    ALIASES.iter().find(|row| row.0 == *stem).map(|row| (row.1, *method))
}

/// The names of all ACL keywords, for suggestions.
pub(super) fn names() -> impl Iterator<Item = String> {
    let suffixed =
        SUFFIXED.iter().flat_map(|stem| SUFFIXES.iter().map(move |(suffix, _)| format!("{stem}{suffix}")));
    ALIASES.iter().map(|row| row.0.to_owned()).chain(suffixed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch;

    #[test]
    fn keywords_with_a_suffix_name_a_fetch_and_a_method() {
        assert_eq!(alias("hdr_beg"), Some(("req.hdr", MatchMethod::Beg)));
        assert_eq!(alias("path_reg"), Some(("path", MatchMethod::Reg)));
        assert_eq!(alias("scook_len"), Some(("res.cook", MatchMethod::Len)));
        assert_eq!(alias("src_beg"), None);
    }

    #[test]
    fn every_alias_names_a_known_fetch() {
        for (name, fetch, _) in ALIASES {
            assert!(fetch::find(fetch).is_some(), "{name} stands for {fetch}");
        }
    }
}
