//! Names that HAProxy knows and that are not built here: using one is an error that says what it
//! needs.

#[rustfmt::skip]
pub(super) const NAMES: &[&str] = &[
    "in_table", 
    "table_bytes_in_rate", "table_bytes_out_rate", "table_clr_gpc", "table_clr_gpc0", "table_clr_gpc1",
    "table_conn_cnt", "table_conn_cur", "table_conn_rate", "table_expire", "table_glitch_cnt",
    "table_glitch_rate", "table_gpc", "table_gpc0", "table_gpc0_rate", "table_gpc1", "table_gpc1_rate",
    "table_gpc_rate", "table_gpt", "table_gpt0", "table_http_err_cnt", "table_http_err_rate",
    "table_http_fail_cnt", "table_http_fail_rate", "table_http_req_cnt", "table_http_req_rate", "table_idle",
    "table_inc_gpc", "table_inc_gpc0", "table_inc_gpc1", "table_kbytes_in", "table_kbytes_out", "table_server_id",
    "table_sess_cnt", "table_sess_rate", "table_trackers", 
];

/// What the name needs.
pub(super) fn needs(name: &str) -> &'static str {
    if name == "in_table" || name.starts_with("table_") { "stick tables" } else { "what is not built" }
}
