//! The columns of the statistics in the order of the management manual's 9.1, and a row of values. `stat` fills in the values;
//! every output reads them.

use state::Proxy;

use crate::field::{StatColumn, StatValue};

/// Removes the underscore that keeps a name from being a Rust keyword.
const fn plain(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [.., b'_'] => name.split_at(name.len() - 1).0,
        _ => name,
    }
}

macro_rules! columns {
    ($($name:ident $tags:literal $text:literal)*) => {
        /// Columns by name; the number is the position.
        #[allow(non_camel_case_types, dead_code, reason = "the names are part of the interface; some fields are always empty")]
        #[derive(Clone, Copy)]
        pub(crate) enum C { $($name),* }

        /// All columns, in order.
        pub(crate) const COLUMNS: &[StatColumn] =
            &[$(StatColumn { name: plain(stringify!($name)), tags: $tags, text: $text }),*];
    };
}

columns! {
    pxname         "KNS" "Proxy name"
    svname         "KNS" "Server name"
    qcur           "MGP" "Number of current queued connections"
    qmax           "MMP" "Highest value of queued connections encountered since process started"
    scur           "MGP" "Number of current sessions on the frontend, backend or server"
    smax           "MMP" "Highest value of current sessions encountered since process started"
    slim           "CLP" "Frontend/listener/server's maxconn, backend's fullconn"
    stot           "MCP" "Total number of sessions since process started"
    bin            "MCP" "Total number of request bytes since process started"
    bout           "MCP" "Total number of response bytes since process started"
    dreq           "MCP" "Total number of denied requests since process started"
    dresp          "MCP" "Total number of denied responses since process started"
    ereq           "MCP" "Total number of invalid requests since process started"
    econ           "MCP" "Total number of failed connections to server since the worker process started"
    eresp          "MCP" "Total number of invalid responses since the worker process started"
    wretr          "MCP" "Total number of server connection retries since the worker process started"
    wredis         "MCP" "Total number of server redispatches due to connection failures"
    status         "SGP" "Frontend/listen status: OPEN/WAITING/FULL/STOP; backend: UP/DOWN; server: last check status"
    weight         "MaP" "Server's effective weight, or sum of active servers' effective weights for a backend"
    act            "MGP" "Total number of active UP servers with a non-zero weight"
    bck            "MGP" "Total number of backup UP servers with a non-zero weight"
    chkfail        "MCP" "Total number of failed individual health checks per server/backend"
    chkdown        "MCP" "Total number of failed checks causing UP to DOWN server transitions, per server/backend"
    lastchg        "MAPP" "How long ago the last server state changed, in seconds"
    downtime       "MCPV" "Total time spent in DOWN state, for server or backend"
    qlimit         "CLS" "Limit on the number of connections in queue, for servers only (maxqueue argument)"
    pid            "KGP" "Relative worker process number (1)"
    iid            "KGS" "Frontend or Backend numeric identifier ('id' setting)"
    sid            "KGS" "Server numeric identifier ('id' setting)"
    throttle       "MaP" "Throttling ratio applied to a server's maxconn and weight during the slowstart period (0 to 100%)"
    lbtot          "MCP" "Total number of requests routed by load balancing"
    tracked        "CNS" "Name of the other server this server tracks for its state"
    type_          "CGS" "Type of the object (Listener, Frontend, Backend, Server)"
    rate           "MRP" "Total number of sessions processed by this object over the last second"
    rate_lim       "CLP" "Limit on the number of sessions accepted in a second (frontend only, 'rate-limit sessions' setting)"
    rate_max       "MMP" "Highest value of sessions per second observed since the worker process started"
    check_status   "MOP" "Status report of the server's latest health check, prefixed with '*' if a check is in progress"
    check_code     "MOP" "HTTP/SMTP/LDAP status code reported by the latest server health check"
    check_duration "MDP" "Total duration of the latest server health check, in milliseconds"
    hrsp_1xx       "MCP" "Total number of HTTP responses with status 100-199 returned by this object"
    hrsp_2xx       "MCP" "Total number of HTTP responses with status 200-299 returned by this object"
    hrsp_3xx       "MCP" "Total number of HTTP responses with status 300-399 returned by this object"
    hrsp_4xx       "MCP" "Total number of HTTP responses with status 400-499 returned by this object"
    hrsp_5xx       "MCP" "Total number of HTTP responses with status 500-599 returned by this object"
    hrsp_other     "MCP" "Total number of HTTP responses with status <100, >599 returned by this object"
    hanafail       "MOP" "Failed health checks details"
    req_rate       "MRP" "Number of HTTP requests processed over the last second on this object"
    req_rate_max   "MMP" "Highest value of http requests observed since the worker process started"
    req_tot        "MCP" "Total number of HTTP requests processed by this object"
    cli_abrt       "MCP" "Total number of requests or connections aborted by the client"
    srv_abrt       "MCP" "Total number of requests or connections aborted by the server"
    comp_in        "MCP" "Total number of bytes submitted to the HTTP compressor for this object"
    comp_out       "MCP" "Total number of bytes emitted by the HTTP compressor for this object"
    comp_byp       "MCP" "Total number of bytes that bypassed HTTP compression for this object"
    comp_rsp       "MCP" "Total number of HTTP responses that were compressed for this object"
    lastsess       "MAPP" "How long ago some traffic was seen on this object on this worker process, in seconds"
    last_chk       "MOP" "Short description of the latest health check report for this server (see also check_desc)"
    last_agt       "MOP" "Short description of the latest agent check report for this server (see also agent_desc)"
    qtime          "MaP" "Time spent in the queue, in milliseconds, averaged over the 1024 last requests"
    ctime          "MaP" "Time spent waiting for a connection to complete, in milliseconds, averaged over the 1024 last requests"
    rtime          "MaP" "Time spent waiting for a server response, in milliseconds, averaged over the 1024 last requests"
    ttime          "MaP" "Total request+response time, in milliseconds, averaged over the 1024 last requests"
    agent_status   "MOP" "Status report of the server's latest agent check, prefixed with '*' if a check is in progress"
    agent_code     "MOP" "Status code reported by the latest server agent check"
    agent_duration "MDP" "Total duration of the latest server agent check, in milliseconds"
    check_desc     "MOP" "Textual description of the latest health check report for this server"
    agent_desc     "MOP" "Textual description of the latest agent check report for this server"
    check_rise     "CGS" "Number of successful health checks before declaring a server UP (server 'rise' setting)"
    check_fall     "CGS" "Number of failed health checks before declaring a server DOWN (server 'fall' setting)"
    check_health   "CGS" "Current server health check level (0..fall-1=DOWN, fall..rise-1=UP)"
    agent_rise     "CGS" "Number of successful agent checks before declaring a server UP"
    agent_fall     "CGS" "Number of failed agent checks before declaring a server DOWN"
    agent_health   "CGS" "Current server agent check level (0..fall-1=DOWN, fall..rise-1=UP)"
    addr           "CGS" "Server's address:port, shown only if show-legends is set, or at levels oper/admin for the CLI"
    cookie         "CNS" "Backend's cookie name or Server's cookie value, shown only if show-legends is set, or at levels oper/admin for the CLI"
    mode           "CGS" "'mode' setting (tcp/http/health/cli)"
    algo           "CGS" "Backend's load balancing algorithm, shown only if show-legends is set, or at levels oper/admin for the CLI"
    conn_rate      "MRP" "Number of new connections accepted over the last second on the frontend for this worker process"
    conn_rate_max  "MMP" "Highest value of connections per second observed since the worker process started"
    conn_tot       "MCP" "Total number of new connections accepted on this frontend since the worker process started"
    intercepted    "MCP" "Total number of HTTP requests intercepted on the frontend (redirects/stats/services)"
    dcon           "MCP" "Total number of incoming connections blocked on a listener/frontend by a tcp-request connection rule"
    dses           "MCP" "Total number of incoming sessions blocked on a listener/frontend by a tcp-request session rule"
    wrew           "MCP" "Total number of failed HTTP header rewrites since the worker process started"
    connect        "MCP" "Total number of outgoing connection attempts on this backend/server since the worker process started"
    reuse          "MCP" "Total number of reused connection on this backend/server since the worker process started"
    cache_lookups  "MCP" "Total number of HTTP requests looked up in the cache on this frontend/backend"
    cache_hits     "MCP" "Total number of HTTP requests found in the cache on this frontend/backend"
    srv_icur       "MGP" "Current number of idle connections available for reuse on this server"
    src_ilim       "CLP" "Limit on the number of available idle connections on this server (server 'pool_max_conn' directive)"
    qtime_max      "MMP" "Maximum observed time spent in the queue, in milliseconds (backend/server)"
    ctime_max      "MMP" "Maximum observed time spent waiting for a connection to complete, in milliseconds (backend/server)"
    rtime_max      "MMP" "Maximum observed time spent waiting for a server response, in milliseconds (backend/server)"
    ttime_max      "MMP" "Maximum observed total request+response time, in milliseconds (backend/server)"
    eint           "MCP" "Total number of internal errors since process started"
    idle_conn_cur  "MGP" "Current number of unsafe idle connections"
    safe_conn_cur  "MGP" "Current number of safe idle connections"
    used_conn_cur  "MGP" "Current number of connections in use"
    need_conn_est  "MGP" "Estimated needed number of connections"
    uweight        "MaP" "Server's user weight, or sum of active servers' user weights for a backend"
    agg_server_status       "MGP" "Backend's aggregated gauge of servers' status"
    agg_server_check_status "MGP" "Backend's aggregated gauge of servers' state check status (deprecated)"
    agg_check_status        "MGP" "Backend's aggregated gauge of servers' state check status"
    srid           "MCPV" "Server revision"
    sess_other     "MCPV" "Total number of sessions other than HTTP since process started"
    h1sess         "MCP" "Total number of HTTP/1 sessions since process started"
    h2sess         "MCP" "Total number of HTTP/2 sessions since process started"
    h3sess         "MCP" "Total number of HTTP/3 sessions since process started"
    req_other      "MCP" "Total number of sessions other than HTTP processed by this object since the worker process started"
    h1req          "MCP" "Total number of HTTP/1 sessions processed by this object since the worker process started"
    h2req          "MCP" "Total number of HTTP/2 sessions processed by this object since the worker process started"
    h3req          "MCP" "Total number of HTTP/3 sessions processed by this object since the worker process started"
    proto          "SGPV" "Protocol"
    priv_idle_cur  "MGP" "Current number of private idle server connections"
    reqbin         "MCP" "Total number of request bytes received since the worker process started"
    reqbout        "MCP" "Total number of request bytes sent since the worker process started"
    resbin         "MCP" "Total number of response bytes received since the worker process started"
    resbout        "MCP" "Total number of response bytes sent since the worker process started"
    cache_hint_hits "MCP" "Total number of cache hits having served early hints"
    h2_headers_rcvd      "MCPV" "Total number of received HEADERS frames"
    h2_data_rcvd         "MCPV" "Total number of received DATA frames"
    h2_settings_rcvd     "MCPV" "Total number of received SETTINGS frames"
    h2_rst_stream_rcvd   "MCPV" "Total number of received RST_STREAM frames"
    h2_goaway_rcvd       "MCPV" "Total number of received GOAWAY frames"
    h2_detected_conn_protocol_errors "MCPV" "Total number of connection protocol errors"
    h2_detected_strm_protocol_errors "MCPV" "Total number of stream protocol errors"
    h2_rst_stream_resp   "MCPV" "Total number of RST_STREAM sent on detected error"
    h2_goaway_resp       "MCPV" "Total number of GOAWAY sent on detected error"
    h2_open_connections  "MGPV" "Count of currently open connections"
    h2_backend_open_streams  "MGPV" "Count of currently open streams"
    h2_total_connections "MCPV" "Total number of connections"
    h2_backend_total_streams "MCPV" "Total number of streams"
    ssl_sess             "MCPV" "Number of new TLS sessions"
    ssl_reused_sess      "MCPV" "Number of resumed TLS sessions"
    ssl_failed_handshake "MCPV" "Number of failed TLS handshakes"
    ssl_ocsp_staple      "MCPV" "Number of stapled OCSP responses"
    ssl_failed_ocsp_staple "MCPV" "Number of expired or otherwise unusable OCSP responses"
    h3_data              "MCPV" "Total number of received HTTP/3 DATA frames"
    h3_headers           "MCPV" "Total number of received HTTP/3 HEADERS frames"
    h3_cancel_push       "MCPV" "Total number of received HTTP/3 CANCEL_PUSH frames"
    h3_push_promise      "MCPV" "Total number of received HTTP/3 PUSH_PROMISE frames"
    h3_max_push_id       "MCPV" "Total number of received HTTP/3 MAX_PUSH_ID frames"
    h3_goaway            "MCPV" "Total number of received HTTP/3 GOAWAY frames"
    h3_settings          "MCPV" "Total number of received HTTP/3 SETTINGS frames"
    h3_no_error          "MCPV" "Total number of H3_NO_ERROR codes sent or received"
    h3_general_protocol_error "MCPV" "Total number of H3_GENERAL_PROTOCOL_ERROR codes sent or received"
    h3_internal_error    "MCPV" "Total number of H3_INTERNAL_ERROR codes sent or received"
    h3_stream_creation_error "MCPV" "Total number of H3_STREAM_CREATION_ERROR codes sent or received"
    h3_closed_critical_stream "MCPV" "Total number of H3_CLOSED_CRITICAL_STREAM codes sent or received"
    h3_frame_unexpected  "MCPV" "Total number of H3_FRAME_UNEXPECTED codes sent or received"
    h3_frame_error       "MCPV" "Total number of H3_FRAME_ERROR codes sent or received"
    h3_excessive_load    "MCPV" "Total number of H3_EXCESSIVE_LOAD codes sent or received"
    h3_id_error          "MCPV" "Total number of H3_ID_ERROR codes sent or received"
    h3_settings_error    "MCPV" "Total number of H3_SETTINGS_ERROR codes sent or received"
    h3_missing_settings  "MCPV" "Total number of H3_MISSING_SETTINGS codes sent or received"
    h3_request_rejected  "MCPV" "Total number of H3_REQUEST_REJECTED codes sent or received"
    h3_request_cancelled "MCPV" "Total number of H3_REQUEST_CANCELLED codes sent or received"
    h3_request_incomplete "MCPV" "Total number of H3_REQUEST_INCOMPLETE codes sent or received"
    h3_message_error     "MCPV" "Total number of H3_MESSAGE_ERROR codes sent or received"
    h3_connect_error     "MCPV" "Total number of H3_CONNECT_ERROR codes sent or received"
    h3_version_fallback  "MCPV" "Total number of H3_VERSION_FALLBACK codes sent or received"
    pack_decompression_failed "MCPV" "Total number of QPACK_DECOMPRESSION_FAILED codes sent or received"
    qpack_encoder_stream_error "MCPV" "Total number of QPACK_ENCODER_STREAM_ERROR codes sent or received"
    qpack_decoder_stream_error "MCPV" "Total number of QPACK_DECODER_STREAM_ERROR codes sent or received"
    quic_rxbuf_full      "MCPV" "Total number of datagrams dropped because a receive buffer or queue was full"
    quic_dropped_pkt     "MCPV" "Total number of dropped packets"
    quic_dropped_pkt_bufoverrun "MCPV" "Total number of packets dropped for lack of buffer space"
    quic_dropped_parsing_pkt "MCPV" "Total number of packets dropped because they could not be parsed"
    quic_socket_full     "MCPV" "Total number of sends delayed by a full send buffer"
    quic_sendto_err      "MCPV" "Total number of failed sends"
    quic_sendto_err_unknwn "MCPV" "Total number of failed sends with an unexpected error"
    quic_sent_pkt        "MCPV" "Total number of sent packets"
    quic_lost_pkt        "MCPV" "Total number of lost packets"
    quic_too_short_dgram "MCPV" "Total number of datagrams too short for their first packet"
    quic_retry_sent      "MCPV" "Total number of sent Retry packets"
    quic_retry_validated "MCPV" "Total number of validated Retry tokens"
    quic_retry_error     "MCPV" "Total number of invalid Retry tokens"
    quic_half_open_conn  "MGPV" "Current number of handshakes in progress"
    quic_hdshk_fail      "MCPV" "Total number of failed handshakes"
    quic_stless_rst_sent "MCPV" "Total number of sent stateless resets"
    quic_conn_migration_done "MCPV" "Total number of completed connection migrations"
    quic_transp_err_no_error "MCPV" "Total number of NO_ERROR codes"
    quic_transp_err_internal_error "MCPV" "Total number of INTERNAL_ERROR codes"
    quic_transp_err_connection_refused "MCPV" "Total number of CONNECTION_REFUSED codes"
    quic_transp_err_flow_control_error "MCPV" "Total number of FLOW_CONTROL_ERROR codes"
    quic_transp_err_stream_limit_error "MCPV" "Total number of STREAM_LIMIT_ERROR codes"
    quic_transp_err_stream_state_error "MCPV" "Total number of STREAM_STATE_ERROR codes"
    quic_transp_err_final_size_error "MCPV" "Total number of FINAL_SIZE_ERROR codes"
    quic_transp_err_frame_encoding_error "MCPV" "Total number of FRAME_ENCODING_ERROR codes"
    quic_transp_err_transport_parameter_error "MCPV" "Total number of TRANSPORT_PARAMETER_ERROR codes"
    quic_transp_err_connection_id_limit "MCPV" "Total number of CONNECTION_ID_LIMIT_ERROR codes"
    quic_transp_err_protocol_violation_error "MCPV" "Total number of PROTOCOL_VIOLATION codes"
    quic_transp_err_invalid_token "MCPV" "Total number of INVALID_TOKEN codes"
    quic_transp_err_application_error "MCPV" "Total number of APPLICATION_ERROR codes"
    quic_transp_err_crypto_buffer_exceeded "MCPV" "Total number of CRYPTO_BUFFER_EXCEEDED codes"
    quic_transp_err_key_update_error "MCPV" "Total number of KEY_UPDATE_ERROR codes"
    quic_transp_err_aead_limit_reached "MCPV" "Total number of AEAD_LIMIT_REACHED codes"
    quic_transp_err_no_viable_path "MCPV" "Total number of NO_VIABLE_PATH codes"
    quic_transp_err_crypto_error "MCPV" "Total number of CRYPTO_ERROR codes"
    quic_transp_err_unknown_error "MCPV" "Total number of unknown transport error codes"
    quic_data_blocked    "MCPV" "Total number of received DATA_BLOCKED frames"
    quic_stream_data_blocked "MCPV" "Total number of received STREAM_DATA_BLOCKED frames"
    quic_streams_blocked_bidi "MCPV" "Total number of received STREAMS_BLOCKED frames for bidirectional streams"
    quic_streams_blocked_uni "MCPV" "Total number of received STREAMS_BLOCKED frames for unidirectional streams"
    quic_ncbuf_gap_limit "MCPV" "Total number of packets dropped because of too many gaps in received data"
    h1_open_connections  "MGPV" "Count of currently open connections"
    h1_open_streams      "MGPV" "Count of currently open streams"
    h1_total_connections "MCPV" "Total number of connections"
    h1_total_streams     "MCPV" "Total number of streams"
    h1_bytes_in          "MCPV" "Total number of bytes received"
    h1_bytes_out         "MCPV" "Total number of bytes sent"
    h1_spliced_bytes_in  "MCPV" "Total number of bytes received using kernel splicing"
    h1_spliced_bytes_out "MCPV" "Total number of bytes sent using kernel splicing"
}

/// The kind of object in a row. The number is the value of the column `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Frontend = 0,
    Backend = 1,
    Server = 2,
    Listener = 3,
}

impl ObjectKind {
    /// The description of the column for rows of this kind: the nature of some columns depends on the object.
    pub(crate) fn describe(self, position: usize, column: &StatColumn) -> StatColumn {
        const ACT: usize = C::act as usize;
        const BCK: usize = C::bck as usize;
        const RATE_MAX: usize = C::rate_max as usize;
        let tags = match (self, position) {
            (Self::Server, ACT | BCK) => "SGP",
            (Self::Backend, RATE_MAX) => "MGP",
            _ => column.tags,
        };
        StatColumn { tags, ..*column }
    }

    /// Its letter in typed output and its name in JSON.
    pub(crate) fn names(self) -> (char, &'static str) {
        match self {
            Self::Frontend => ('F', "Frontend"),
            Self::Backend => ('B', "Backend"),
            Self::Server => ('S', "Server"),
            Self::Listener => ('L', "Listener"),
        }
    }
}

/// One object's values.
#[derive(Debug, Clone)]
pub(crate) struct ObjectRow {
    pub(crate) kind: ObjectKind,
    pub(crate) proxy: u32,
    pub(crate) id: u32,
    pub(crate) values: Vec<StatValue>,
}

impl ObjectRow {
    /// Creates a row that identifies the object.
    pub(crate) fn new(kind: ObjectKind, proxy: &Proxy, id: u32, name: String) -> Self {
        let mut row = Self { kind, proxy: proxy.id, id, values: vec![StatValue::Empty; COLUMNS.len()] };
        row.put(C::pxname, proxy.name.to_string());
        row.put(C::svname, name);
        row.put(C::pid, 1u32);
        row.put(C::iid, proxy.id);
        row.put(C::sid, id);
        row.put(C::type_, kind as u32);
        row.put(C::mode, proxy.mode.name());
        // Nothing uses TLS in these objects.
        for column in [
            C::ssl_sess,
            C::ssl_reused_sess,
            C::ssl_failed_handshake,
            C::ssl_ocsp_staple,
            C::ssl_failed_ocsp_staple,
        ] {
            row.put(column, 0u64);
        }
        row
    }

    /// Sets a value.
    pub(crate) fn put(&mut self, column: C, value: impl Into<StatValue>) {
        self.values[column as usize] = value.into();
    }

    /// A value by column.
    pub(crate) fn get(&self, column: C) -> &StatValue {
        &self.values[column as usize]
    }

    /// A value as text.
    pub(crate) fn text(&self, column: C) -> String {
        let mut out = String::new();
        self.get(column).write(&mut out);
        out
    }
}
