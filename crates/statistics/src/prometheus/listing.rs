//! The series that the exporter can write, for the reference page (`docs/metrics-list.md`).

use crate::column::{COLUMNS, ObjectKind};
use crate::prometheus::tables::{As, PROCESS, WITH_MODULES};
use crate::prometheus::{TABLES, object};
use crate::{
    aggregates, certificates, discovery, disks, durations, faults, info, mirrors, policies, resolvers,
    telemetry,
};

/// A series of the exporter.
#[derive(Debug)]
pub struct MetricSeries {
    /// The kind of object: `process`, `frontend`, `resolver` and so on.
    pub object: &'static str,
    /// The whole name.
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// One line of description.
    pub help: &'static str,
    /// The labels, without that of a description (`desc-labels`).
    pub labels: &'static [&'static str],
    /// Whether the series is only written on request (`extra-counters`).
    pub is_extra: bool,
}

use ObjectKind::{Backend, Frontend, Listener, Server};

/// The kinds of objects that have a value of each metric; a test of the program compares them with a
/// scrape.
#[rustfmt::skip]
const OBJECTS: &[(&[ObjectKind], &[&str])] = &[
    (&[Frontend, Listener, Backend, Server], &[
        "current_sessions", "max_sessions", "limit_sessions", "sessions_total", "bytes_in_total",
        "bytes_out_total", "responses_denied_total", "status", "failed_header_rewriting_total",
        "internal_errors_total", "req_bytes_in_total", "req_bytes_out_total", "res_bytes_in_total",
        "res_bytes_out_total", "ssl_sess", "ssl_reused_sess", "ssl_failed_handshake", "ssl_ocsp_staple",
        "ssl_failed_ocsp_staple",
    ]),
    (&[Frontend, Listener, Backend], &[
        "requests_denied_total",
    ]),
    (&[Frontend, Listener], &[
        "request_errors_total", "connections_total", "denied_connections_total", "denied_sessions_total",
    ]),
    (&[Frontend, Backend, Server], &[
        "current_session_rate", "max_session_rate", "http_responses_total", "http_requests_total",
    ]),
    (&[Frontend], &[
        "limit_session_rate", "http_requests_rate_max", "connections_rate_max",
        "intercepted_requests_total",
    ]),
    (&[Frontend, Backend], &[
        "http_comp_bytes_in_total", "http_comp_bytes_out_total", "http_comp_bytes_bypassed_total",
        "http_comp_responses_total", "http_cache_lookups_total", "http_cache_hits_total",
        "http_cache_hint_hits_total", "h2_headers_rcvd", "h2_data_rcvd", "h2_settings_rcvd",
        "h2_rst_stream_rcvd", "h2_goaway_rcvd", "h2_detected_conn_protocol_errors",
        "h2_detected_strm_protocol_errors", "h2_rst_stream_resp", "h2_goaway_resp", "h2_open_connections",
        "h2_backend_open_streams", "h2_total_connections", "h2_backend_total_streams",
        "h1_open_connections", "h1_total_connections", "h1_total_streams", "h1_bytes_in", "h1_bytes_out",
        "h1_spliced_bytes_in", "h1_spliced_bytes_out",
        "h3_data", "h3_headers", "h3_cancel_push", "h3_push_promise", "h3_max_push_id",
        "h3_goaway", "h3_settings", "h3_no_error", "h3_general_protocol_error",
        "h3_internal_error", "h3_stream_creation_error", "h3_closed_critical_stream",
        "h3_frame_unexpected", "h3_frame_error", "h3_excessive_load", "h3_id_error",
        "h3_settings_error", "h3_missing_settings", "h3_request_rejected", "h3_request_cancelled",
        "h3_request_incomplete", "h3_message_error", "h3_connect_error", "h3_version_fallback",
        "pack_decompression_failed", "qpack_encoder_stream_error", "qpack_decoder_stream_error",
        "quic_rxbuf_full", "quic_dropped_pkt", "quic_dropped_pkt_bufoverrun",
        "quic_dropped_parsing_pkt", "quic_socket_full", "quic_sendto_err",
        "quic_sendto_err_unknwn", "quic_sent_pkt", "quic_lost_pkt", "quic_too_short_dgram",
        "quic_retry_sent", "quic_retry_validated", "quic_retry_error", "quic_half_open_conn",
        "quic_hdshk_fail", "quic_stless_rst_sent", "quic_conn_migration_done",
        "quic_transp_err_no_error", "quic_transp_err_internal_error",
        "quic_transp_err_connection_refused", "quic_transp_err_flow_control_error",
        "quic_transp_err_stream_limit_error", "quic_transp_err_stream_state_error",
        "quic_transp_err_final_size_error", "quic_transp_err_frame_encoding_error",
        "quic_transp_err_transport_parameter_error", "quic_transp_err_connection_id_limit",
        "quic_transp_err_protocol_violation_error", "quic_transp_err_invalid_token",
        "quic_transp_err_application_error", "quic_transp_err_crypto_buffer_exceeded",
        "quic_transp_err_key_update_error", "quic_transp_err_aead_limit_reached",
        "quic_transp_err_no_viable_path", "quic_transp_err_crypto_error",
        "quic_transp_err_unknown_error", "quic_data_blocked", "quic_stream_data_blocked",
        "quic_streams_blocked_bidi", "quic_streams_blocked_uni", "quic_ncbuf_gap_limit",
    ]),
    (&[Backend, Server], &[
        "current_queue", "max_queue", "connection_errors_total", "response_errors_total",
        "retry_warnings_total", "redispatch_warnings_total", "weight", "check_up_down_total",
        "check_last_change_seconds", "downtime_seconds_total", "loadbalanced_total", "client_aborts_total",
        "server_aborts_total", "last_session_seconds", "queue_time_average_seconds",
        "connect_time_average_seconds", "response_time_average_seconds", "total_time_average_seconds",
        "connection_attempts_total", "connection_reuses_total", "max_queue_time_seconds",
        "max_connect_time_seconds", "max_response_time_seconds", "max_total_time_seconds", "uweight",
    ]),
    (&[Backend], &[
        "active_servers", "backup_servers", "agg_server_status", "agg_server_check_status",
        "agg_check_status", "h1_open_streams",
    ]),
    (&[Server], &[
        "active", "backup", "check_failures_total", "queue_limit", "current_throttle", "check_status",
        "check_code", "check_duration_seconds", "agent_status", "agent_code", "agent_duration_seconds",
        "idle_connections_current", "idle_connections_limit", "unsafe_idle_connections_current",
        "safe_idle_connections_current", "used_connections_current", "need_connections_current",
        "private_idle_connections_current",
    ]),
];

/// All series, in the order in which they are written.
pub fn series() -> Vec<MetricSeries> {
    let mut all: Vec<MetricSeries> = PROCESS.iter().filter_map(|row| process(row.0, row.1, row.2)).collect();
    for kind in [Frontend, Listener, Backend, Server] {
        all.extend(proxies(kind));
    }
    all.extend(TABLES.iter().map(|(name, help)| own("sticktable", name, "gauge", help, &["name", "type"])));
    all.extend(
        resolvers::described()
            .map(|(name, help)| own("resolver", name, "gauge", help, &["resolver", "nameserver"])),
    );
    let rows = policies::described()
        .chain(mirrors::described())
        .chain(disks::described())
        .chain(aggregates::described())
        .chain(durations::described())
        .chain(faults::described())
        .chain(certificates::described())
        .chain(telemetry::described())
        .chain(discovery::described());
    all.extend(rows.map(|(object, name, kind, help, labels)| MetricSeries {
        object,
        name: format!("weir_{object}_{name}"),
        kind,
        help,
        labels,
        is_extra: false,
    }));
    all
}

fn own(
    object: &'static str,
    name: &str,
    kind: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> MetricSeries {
    MetricSeries { object, name: format!("haproxy_{object}_{name}"), kind, help, labels, is_extra: false }
}

fn process(field: &str, name: &str, counts: bool) -> Option<MetricSeries> {
    let help = info::FIELDS.iter().find(|known| known.name == field)?.text;
    let labels: &[&str] = match name {
        "build_info" => &["version"],
        "node" => &["node"],
        "description" => &["desc"],
        _ => &[],
    };
    Some(own("process", name, if counts { "counter" } else { "gauge" }, help, labels))
}

/// The metrics of one kind of object. Those that differ in a label only are one series.
fn proxies(kind: ObjectKind) -> impl Iterator<Item = MetricSeries> {
    let is_first = |at: usize| at == 0 || WITH_MODULES[at - 1].name != WITH_MODULES[at].name;
    let has =
        move |name: &str| OBJECTS.iter().any(|(kinds, names)| kinds.contains(&kind) && names.contains(&name));
    let metrics =
        WITH_MODULES.iter().enumerate().filter(move |(at, metric)| is_first(*at) && has(metric.name));
    metrics.map(move |(_, metric)| MetricSeries {
        is_extra: matches!(metric.form, As::Module(_)),
        ..own(
            object(kind),
            metric.name,
            metric.kind(),
            COLUMNS[metric.column].text,
            labels(kind, metric.form),
        )
    })
}

fn labels(kind: ObjectKind, form: As) -> &'static [&'static str] {
    match (kind, form) {
        (Server, As::Status | As::Check) => &["proxy", "server", "state"],
        (Server, As::Code(_)) => &["proxy", "server", "code"],
        (Server, As::Module(_)) => &["proxy", "server", "mod"],
        (Server, _) => &["proxy", "server"],
        (Listener, As::Status) => &["proxy", "listener", "state"],
        (Listener, As::Code(_)) => &["proxy", "listener", "code"],
        (Listener, As::Module(_)) => &["proxy", "listener", "mod"],
        (Listener, _) => &["proxy", "listener"],
        (_, As::Status | As::Tally(_)) => &["proxy", "state"],
        (_, As::Code(_)) => &["proxy", "code"],
        (_, As::Module(_)) => &["proxy", "mod"],
        (_, _) => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_in_the_list_of_objects_are_metrics() {
        let names = OBJECTS.iter().flat_map(|(_, names)| names.iter());
        let unknown: Vec<_> =
            names.filter(|name| !WITH_MODULES.iter().any(|metric| metric.name == **name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
