//! Why requests, streams and connections end abnormally: the causes, with their names, meanings and remedies, and counters for each
//! proxy. `proxy` records a cause when a stream ends; logs (`%[fault]`), metrics and traces show its name.

use std::array;
use std::sync::OnceLock;

use runtime::{Count, LazySharded};

/// A row of the table: name, meaning, remedy.
type FaultRow = (&'static str, &'static str, &'static str);

macro_rules! causes {
    ($($cause:ident $name:literal $happened:literal $remedy:literal)*) => {
        /// A cause of an abnormal end.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum FaultCause {
            $(#[doc = $happened] $cause,)*
        }

        impl FaultCause {
            /// All causes.
            pub const ALL: &'static [Self] = &[$(Self::$cause,)*];
        }

        const ROWS: &[FaultRow] = &[$(($name, $happened, $remedy),)*];
    };
}

causes! {
    BadRequest "bad_request"
        "The client's request is invalid."
        "`show errors` shows the position of the error. Clients that cannot be corrected may need `option accept-unsafe-violations-in-http-request`."
    BadRequestBody "bad_request_body"
        "The body of the request is malformed, for example its chunks."
        "Correct the client, or a proxy in front of Weir."
    RequestTimeout "request_timeout"
        "The request head was not complete within `timeout http-request`."
        "Usual for clients that open connections in advance. Increase `timeout http-request` if slow clients are affected."
    RequestAborted "request_aborted"
        "The client closed before its request was complete."
        "Usual for port scans and health checks; `option dontlognull` keeps the empty ones out of the logs."
    RequestCut "request_body_cut"
        "The client closed within the body of its request."
        "Compare the time with the client's own timeout for uploads."
    ClientAborted "client_aborted"
        "The client left while its request was served."
        "Look for a slow server (`%Tr`) and for timeouts of clients that are shorter than its responses."
    ClientReset "client_reset"
        "The client's connection broke."
        "Look for a network device or a timeout that closes connections between the client and Weir."
    ClientTimeout "client_timeout"
        "The client sent or accepted no data within `timeout client`."
        "Increase `timeout client` if pauses are intended, and `timeout tunnel` for upgraded connections."
    DeniedByRule "denied_by_rule"
        "A rule denied or rejected the request or the connection."
        "`%[last_entity]` in the log format shows the file and line of the rule."
    RateLimited "rate_limited"
        "A rule denied the request with status 429."
        "Compare the counter in `show table` with the limit in the rule."
    Tarpitted "tarpitted"
        "A rule held the request back and then denied it (`tarpit`)."
        "`%[last_entity]` in the log format shows the file and line of the rule."
    ResponseDenied "response_denied"
        "A rule denied the response."
        "`%[last_entity]` in the log format shows the file and line of the rule."
    BackendUnknown "backend_unknown"
        "The name computed by `use_backend` is not a backend, and there is no `default_backend`. `%[fault]` appends the name after a colon."
        "Add the backend, correct the map, or set a `default_backend`."
    NoBackend "no_backend"
        "No `use_backend` rule matched, and there is no usable `default_backend`."
        "Set a `default_backend`; `show backend` lists the backends that exist."
    NoServer "no_server"
        "No server of the backend can be used: all are down, in maintenance or draining."
        "`show events servers` shows why. `set server <b>/<s> state ready` ends a maintenance."
    NoConnection "no_reverse_connection"
        "The server's connections are opened by the other side (`rhttp@`), and there is none."
        "Check that the other side is running and reaches the listener."
    QueueFull "queue_full"
        "The server has no free slot (`maxconn`), and its queue is full (`maxqueue`)."
        "Add servers, or increase `maxconn` if the server is not at its limit."
    QueueTimeout "queue_timeout"
        "No server had a free slot within `timeout queue`."
        "Add servers, or increase `maxconn` if the servers are not at their limits."
    ConnectRefused "connect_refused"
        "The server refused the connection."
        "Start the server, or correct the address and port on the `server` line."
    ConnectTimeout "connect_timeout"
        "The connection was not established within `timeout connect`."
        "Look for a firewall that drops packets, and for a server with a full accept queue (`ss -lnt`)."
    ConnectUnreachable "connect_unreachable"
        "The network or host of the server is unreachable."
        "Check the route with `ip route get <address>`, and the address on the `server` line."
    ConnectTls "connect_tls"
        "The TLS handshake with the server failed."
        "`%[bc_err_str]` and `%[ssl_bc_err_str]` in the log format show the reason. Check `verify`, `ca-file`, `sni` and the server's certificate."
    ConnectResources "connect_resources"
        "Descriptors, source ports or memory ran out."
        "Compare `ulimit-n` with `show info`; add source addresses (`source`), or enable connection reuse (`http-reuse`)."
    ConnectFailed "connect_failed"
        "The connection to the server failed for another reason."
        "`%[bc_err_str]` in the log format shows the reason."
    SendFailed "send_failed"
        "The server closed the connection while the request was being sent."
        "Look for a limit on request sizes in the server's log."
    EmptyResponse "server_empty_response"
        "The server closed the connection without a response."
        "Look for a crash in the server's log. On reused connections, its keep-alive timeout must be longer than `pool-purge-delay`; `retry-on empty-response` repeats such requests."
    Unprocessed "server_unprocessed"
        "The server reported that it has not processed the request."
        "Usual when a server restarts; `retries` and `option redispatch` repeat such requests."
    ResponseCut "response_head_cut"
        "The server closed the connection within the head of its response."
        "Look for a crash in the server's log."
    BadResponse "bad_response"
        "The server's response is invalid."
        "`show errors` shows the position of the error. Servers that cannot be corrected may need `option accept-unsafe-violations-in-http-response`."
    ResponseTimeout "response_timeout"
        "The response head did not arrive within `timeout server`."
        "Find out what the server does with the request; increase `timeout server` if it needs that long."
    Truncated "response_truncated"
        "The server closed the connection before the end of the response."
        "Look for a crash or a timeout in the server's log."
    BadResponseBody "bad_response_body"
        "The body of the response is malformed, for example its chunks."
        "Correct the server."
    ServerTimeout "server_timeout"
        "The server sent or accepted no data within `timeout server` after the response had begun."
        "Increase `timeout server` if pauses are intended, and `timeout tunnel` for upgraded connections."
    EarlyRefused "early_data_refused"
        "The server rejected early data, and the request could not be repeated."
        "Add `0rtt-rejected` to `retry-on`, or remove `allow-0rtt` from the `server` line."
    RetryStatus "retry_status"
        "An attempt ended with a status listed in `retry-on`, and the request was repeated. Only traces show this cause, because the last response is passed to the client."
        "Look at the server; `retries` sets the number of retries."
    GrpcUnavailable "grpc_unavailable"
        "The server could not serve a gRPC call, and the call was repeated. Only traces show this cause, because the last response is passed to the client."
        "Look at the server; `retries` sets the number of retries."
    KilledByOperator "killed_by_operator"
        "A command ended the stream (`shutdown session`)."
        "The operator's log shows who sent the command."
    KilledServerDown "killed_server_down"
        "The server went down (`on-marked-down shutdown-sessions`)."
        "`show events servers` shows why."
    KilledServerUp "killed_server_up"
        "A server with a higher priority came up (`on-marked-up shutdown-backup-sessions`)."
        "No action is needed."
    ClientTls "client_tls"
        "The TLS handshake with the client failed."
        "`%[fc_err_str]` and `%[ssl_fc_err_str]` in `error-log-format` show the reason, often a version or cipher that the `bind` line does not allow."
    ProxyHeader "proxy_header"
        "The client sent no valid PROXY or NetScaler header."
        "Remove `accept-proxy` from the `bind` line, or enable the header in the client. `%[fc_err_str]` shows the reason."
    Internal "internal_error"
        "Weir failed: a rewrite did not fit into `tune.maxrewrite`, a script failed, or there is a bug."
        "Standard error and `debug counters bug` show bugs; please report them."
}

impl FaultCause {
    /// Returns the name, as in logs and labels.
    pub fn name(self) -> &'static str {
        ROWS[self as usize].0
    }

    /// Returns one sentence on the meaning.
    pub fn happened(self) -> &'static str {
        ROWS[self as usize].1
    }

    /// Returns one or two sentences on what to do.
    pub fn remedy(self) -> &'static str {
        ROWS[self as usize].2
    }
}

/// The number of causes.
const COUNT: usize = FaultCause::ALL.len();

/// One worker's counts.
#[derive(Debug)]
struct FaultCounts([Count; COUNT]);

impl Default for FaultCounts {
    fn default() -> Self {
        Self(array::from_fn(|_| Count::default()))
    }
}

/// The number of abnormal ends of a proxy's streams by cause, since its first one.
#[derive(Debug, Default)]
pub struct Faults(OnceLock<Box<LazySharded<FaultCounts>>>);

impl Faults {
    /// Counts an end. Only workers may call this.
    #[cold]
    pub fn add(&self, cause: FaultCause) {
        self.0.get_or_init(Box::default).mine().0[cause as usize].add(1);
    }

    /// Returns the causes that have occurred, with their numbers.
    pub fn counts(&self) -> impl Iterator<Item = (FaultCause, u64)> {
        let shards = self.0.get();
        FaultCause::ALL.iter().filter_map(move |cause| {
            let count = shards?.all().map(|own| own.0[*cause as usize].get()).sum();
            (count > 0).then_some((*cause, count))
        })
    }

    /// Resets the counts (`clear counters all`).
    pub(crate) fn clear(&self) {
        if let Some(shards) = self.0.get() {
            shards.all().flat_map(|own| &own.0).for_each(Count::clear);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_labels() {
        let mut names: Vec<_> = FaultCause::ALL.iter().map(|cause| cause.name()).collect();
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FaultCause::ALL.len());
    }

    #[test]
    fn only_causes_that_occurred_are_counted() {
        let faults = Faults::default();
        assert_eq!(faults.counts().count(), 0);
        faults.add(FaultCause::NoServer);
        faults.add(FaultCause::NoServer);
        assert_eq!(faults.counts().collect::<Vec<_>>(), [(FaultCause::NoServer, 2)]);
        faults.clear();
        assert_eq!(faults.counts().count(), 0);
    }
}
