//! The HTTP/2 statistics, named as in HAProxy's `show stat`.

/// The counters since they were last taken. The caller sums them, and itself tracks the number of open connections and streams
/// (`h2_open_connections`, `h2_backend_open_streams`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// `h2_headers_rcvd`.
    pub headers_received: u32,
    /// `h2_data_rcvd`.
    pub data_received: u32,
    /// `h2_settings_rcvd`.
    pub settings_received: u32,
    /// `h2_rst_stream_rcvd`.
    pub resets_received: u32,
    /// `h2_goaway_rcvd`.
    pub goaways_received: u32,
    /// `h2_detected_conn_protocol_errors`.
    pub connection_errors: u32,
    /// `h2_detected_strm_protocol_errors`.
    pub stream_errors: u32,
    /// `h2_rst_stream_resp`: RST_STREAM sent because of an error of the peer.
    pub resets_answered: u32,
    /// `h2_goaway_resp`: GOAWAY sent because of an error of the peer.
    pub goaways_answered: u32,
    /// `h2_backend_total_streams`: streams opened.
    pub streams: u32,
}
