//! What the statistics of HTTP/2 count, as HAProxy's `show stat` names it.

/// What happened since the counts were last taken. The caller adds them up; connections and streams
/// that are open (`h2_open_connections`, `h2_backend_open_streams`) are its own to know.
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
    /// `h2_rst_stream_resp`: RST_STREAM sent for an error that was found.
    pub resets_answered: u32,
    /// `h2_goaway_resp`: GOAWAY sent for an error that was found.
    pub goaways_answered: u32,
    /// `h2_backend_total_streams`: streams opened.
    pub streams: u32,
}
