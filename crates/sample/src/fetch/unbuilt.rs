//! Names that HAProxy knows and that are not built here: using one is an error that says what it
//! needs.

#[rustfmt::skip]
pub(super) const NAMES: &[&str] = &[
    "fcgi.docroot", "fcgi.index", "sc0_bytes_in_rate", "sc0_bytes_out_rate", "sc0_clr_gpc0",
    "sc0_clr_gpc1", "sc0_conn_cnt", "sc0_conn_cur", "sc0_conn_rate", "sc0_get_gpc0", "sc0_get_gpc1",
    "sc0_get_gpt0", "sc0_glitch_cnt", "sc0_glitch_rate", "sc0_gpc0_rate", "sc0_gpc1_rate",
    "sc0_http_err_cnt", "sc0_http_err_rate", "sc0_http_fail_cnt", "sc0_http_fail_rate",
    "sc0_http_req_cnt", "sc0_http_req_rate", "sc0_inc_gpc0", "sc0_inc_gpc1", "sc0_kbytes_in",
    "sc0_kbytes_out", "sc0_key", "sc0_sess_cnt", "sc0_sess_rate", "sc0_tracked", "sc0_trackers",
    "sc1_bytes_in_rate", "sc1_bytes_out_rate", "sc1_clr_gpc", "sc1_clr_gpc0", "sc1_clr_gpc1",
    "sc1_conn_cnt", "sc1_conn_cur", "sc1_conn_rate", "sc1_get_gpc0", "sc1_get_gpc1", "sc1_get_gpt0",
    "sc1_glitch_cnt", "sc1_glitch_rate", "sc1_gpc0_rate", "sc1_gpc1_rate", "sc1_http_err_cnt",
    "sc1_http_err_rate", "sc1_http_fail_cnt", "sc1_http_fail_rate", "sc1_http_req_cnt",
    "sc1_http_req_rate", "sc1_inc_gpc0", "sc1_inc_gpc1", "sc1_kbytes_in", "sc1_kbytes_out",
    "sc1_key", "sc1_sess_cnt", "sc1_sess_rate", "sc1_tracked", "sc1_trackers", "sc2_bytes_in_rate",
    "sc2_bytes_out_rate", "sc2_clr_gpc0", "sc2_clr_gpc1", "sc2_conn_cnt", "sc2_conn_cur",
    "sc2_conn_rate", "sc2_get_gpc0", "sc2_get_gpc1", "sc2_get_gpt0", "sc2_glitch_cnt",
    "sc2_glitch_rate", "sc2_gpc0_rate", "sc2_gpc1_rate", "sc2_http_err_cnt", "sc2_http_err_rate",
    "sc2_http_fail_cnt", "sc2_http_fail_rate", "sc2_http_req_cnt", "sc2_http_req_rate",
    "sc2_inc_gpc0", "sc2_inc_gpc1", "sc2_kbytes_in", "sc2_kbytes_out", "sc2_key", "sc2_sess_cnt",
    "sc2_sess_rate", "sc2_tracked", "sc2_trackers", "sc_bytes_in_rate", "sc_bytes_out_rate",
    "sc_clr_gpc", "sc_clr_gpc0", "sc_clr_gpc1", "sc_conn_cnt", "sc_conn_cur", "sc_conn_rate",
    "sc_get_gpc", "sc_get_gpc0", "sc_get_gpc1", "sc_get_gpt", "sc_get_gpt0", "sc_glitch_cnt",
    "sc_glitch_rate", "sc_gpc0_rate", "sc_gpc1_rate", "sc_gpc_rate", "sc_http_err_cnt",
    "sc_http_err_rate", "sc_http_fail_cnt", "sc_http_fail_rate", "sc_http_req_cnt",
    "sc_http_req_rate", "sc_inc_gpc", "sc_inc_gpc0", "sc_inc_gpc1", "sc_kbytes_in", "sc_kbytes_out",
    "sc_key", "sc_sess_cnt", "sc_sess_rate", "sc_tracked", "sc_trackers", "spoe.engine-id",
    "src_bytes_in_rate", "src_bytes_out_rate", "src_clr_gpc", "src_clr_gpc0", "src_clr_gpc1",
    "src_conn_cnt", "src_conn_cur", "src_conn_rate", "src_get_gpc", "src_get_gpc0", "src_get_gpc1",
    "src_get_gpt", "src_get_gpt0", "src_glitch_cnt", "src_glitch_rate", "src_gpc0_rate",
    "src_gpc1_rate", "src_gpc_rate", "src_http_err_cnt", "src_http_err_rate", "src_http_fail_cnt",
    "src_http_fail_rate", "src_http_req_cnt", "src_http_req_rate", "src_inc_gpc", "src_inc_gpc0",
    "src_inc_gpc1", "src_kbytes_in", "src_kbytes_out", "src_sess_cnt", "src_sess_rate",
    "src_updt_conn_cnt", "table_avl", "table_cnt",
];

/// What each needs, by how its name begins; the first that fits counts.
const NEEDS: &[(&str, &str)] = &[
    ("fcgi.", "FastCGI applications"),
    ("sc", "stick tables"),
    ("spoe.", "SPOE filters"),
    ("src_", "stick tables"),
    ("table_", "stick tables"),
];

/// What the name needs.
pub(super) fn needs(name: &str) -> &'static str {
    NEEDS.iter().find(|(start, _)| name.starts_with(start)).map_or("what is not built", |(_, needs)| needs)
}
