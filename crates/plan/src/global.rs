//! The `global` section, resolved (configuration manual, chapter 3).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::address::Family;
use runtime::placement::{Placement, Wishes};

use crate::bind::{Bind, Shards};
use crate::compression::CompressionLimits;
use crate::log::Logger;
use crate::quic::{QuicSide, QuicTune};
use crate::resolvers::AcceptFamily;

/// The root directory of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chroot {
    /// A given directory.
    Directory(PathBuf),
    /// `auto`: an empty directory without a name.
    Auto,
}

/// A capability that `setcap` may keep (capabilities(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// `cap_net_raw`: foreign addresses, interfaces, marks.
    NetRaw,
    /// `cap_net_admin`.
    NetAdmin,
    /// `cap_net_bind_service`: ports below 1024.
    NetBindService,
    /// `cap_sys_admin`: network namespaces.
    SysAdmin,
}

/// `latency-histograms`: how the times of requests are counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum LatencyHistograms {
    /// In classic buckets.
    #[default]
    On,
    /// Not at all.
    Off,
    /// In the cells of native histograms. Cannot be changed while the process runs.
    Native,
}

/// Process-wide settings.
#[derive(Debug, Default, Clone)]
pub struct Global {
    /// `http-err-codes`, `http-fail-codes`.
    pub counted: state::CountedStatuses,
    /// `daemon`.
    pub daemon: bool,
    /// `master-worker` (removed in 3.5, still accepted) or `-W`.
    pub master_worker: bool,
    /// `quiet`.
    pub quiet: bool,
    /// `reload in-place`: `SIGUSR2` reloads the configuration within the process.
    pub reloads_in_place: bool,
    /// `latency-histograms`.
    pub latency_histograms: LatencyHistograms,
    /// Whether the times of HTTP requests are also counted by their attributes, for an `opentelemetry` section with
    /// `metrics-interval`.
    pub counts_by_attributes: bool,
    /// Whether the times of requests are counted in classic buckets and nowhere else, so that a single check decides.
    pub counts_only_classic: bool,
    /// `zero-warning`.
    pub zero_warning: bool,
    /// The configuration of threads and CPUs.
    pub wishes: Wishes,
    /// The resulting placement of the workers on this machine.
    pub placement: Placement,
    /// `maxconn`; `None` to derive the limit from the descriptor limit.
    pub maxconn: Option<u32>,
    /// `maxconnrate`; 0 for none.
    pub max_connection_rate: u32,
    /// `maxsessrate`; 0 for none.
    pub max_session_rate: u32,
    /// `maxsslrate`; 0 for none.
    pub max_tls_rate: u32,
    /// `maxcomprate` and similar keywords.
    pub compression: CompressionLimits,
    /// `maxsslconn`; 0 for none.
    pub max_tls_connections: u32,
    /// `ulimit-n`.
    pub ulimit_n: Option<u64>,
    /// `fd-hard-limit`.
    pub fd_hard_limit: Option<u64>,
    /// `user`/`uid`.
    pub uid: Option<u32>,
    /// `group`/`gid`.
    pub gid: Option<u32>,
    /// `chroot`.
    pub chroot: Option<Chroot>,
    /// `warn-blocked-traffic-after`: warn when a task blocks its worker for longer than this; `None` for 100 ms.
    pub blocked_traffic: Option<Duration>,
    /// `setcap`: the capabilities of root that the process keeps as another user.
    pub capabilities: Vec<Capability>,
    /// `pidfile`, or `-p`.
    pub pidfile: Option<PathBuf>,
    /// `log`.
    pub loggers: Vec<Logger>,
    /// `log-tag`; `haproxy` if not set.
    pub log_tag: Option<Box<[u8]>>,
    /// `log-send-hostname`; `Some("")` for the host name.
    pub log_send_hostname: Option<Box<[u8]>>,
    /// `stats socket`: the runtime sockets. Level and mode are in the bind.
    pub stats_sockets: Vec<Bind>,
    /// `stats timeout`.
    pub stats_timeout: Duration,
    /// `stats maxconn`.
    pub stats_maxconn: u32,
    /// `stats history`: whether the last minutes of proxies and servers are kept for the statistics page.
    pub stats_history: bool,
    /// `node`.
    pub node: Option<Box<str>>,
    /// `description`.
    pub description: Option<Box<str>>,
    /// `hard-stop-after`.
    pub hard_stop_after: Option<Duration>,
    /// `grace`.
    pub grace: Option<Duration>,
    /// `close-spread-time`.
    pub close_spread_time: Option<Duration>,
    /// `spread-checks`, in percent.
    pub spread_checks: u32,
    /// `max-spread-checks`.
    pub max_spread_checks: Option<Duration>,
    /// `dns-accept-family`.
    pub dns_accept_family: AcceptFamily,
    /// `httpclient.…`.
    pub http_client: HttpClient,
    /// `acme.scheduler off`.
    pub no_acme_scheduler: bool,
    /// `ocsp-update.httpproxy`.
    pub ocsp_proxy: Option<SocketAddr>,
    /// `external-check`.
    pub external_check: bool,
    /// `external-check preserve-env`.
    pub external_check_environment: bool,
    /// `insecure-setuid-wanted`: whether programs may gain privileges through the modes of their files.
    pub insecure_setuid_wanted: bool,
    /// `insecure-fork-wanted`.
    pub insecure_fork_wanted: bool,
    /// `pp2-never-send-local`: for servers that do not support the LOCAL command of the PROXY protocol.
    pub pp2_never_send_local: bool,
    /// `mworker-max-reloads`; 50 by default.
    pub max_reloads: Option<u32>,
    /// `harden.reject-privileged-ports.tcp`: connections from ports below 1024 are closed at once (RFC 6335, 6).
    pub reject_privileged_ports: bool,
    /// `set-dumpable`.
    pub set_dumpable: bool,
    /// `server-state-base`.
    pub server_state_base: Option<PathBuf>,
    /// `server-state-file`.
    pub server_state_file: Option<PathBuf>,
    /// `anonkey`; 0 for none.
    pub anonymous_key: u32,
    /// `profiling.tasks on`.
    pub profile_tasks: bool,
    /// `stats-file`: the counters of an earlier process.
    pub stats_file: Option<PathBuf>,
    /// `shm-stats-file`, without its leading slash.
    pub shm_stats_file: Option<Box<str>>,
    /// `shm-stats-file-max-objects`.
    pub shm_stats_objects: Option<u32>,
    /// `unix-bind`.
    pub unix_bind: UnixBind,
    /// `h1-case-adjust`: the lower-case name and the name to send.
    pub h1_case_adjust: Vec<(Box<str>, Box<str>)>,
    /// `h1-do-not-close-on-insecure-transfer-encoding`.
    pub h1_keep_insecure: bool,
    /// `prealloc-fd`.
    pub preallocates_descriptors: bool,
    /// `h1-accept-payload-with-any-method`.
    pub h1_accept_payload_with_any_method: bool,
    /// `cluster-secret`: the secret from which QUIC tokens are derived; `None` for a random one.
    pub cluster_secret: Option<Box<str>>,
    /// `tune.*`.
    pub tune: Tune,
    /// `-d…` on the command line and `no…` in global.
    pub debug: bool,
    /// `nosplice` / `-dS`.
    pub no_splice: bool,
    /// `noreuseport` / `-dR`.
    pub no_reuseport: bool,
    /// `strict-limits`.
    pub strict_limits: bool,
    /// `default-path`.
    pub default_path: DefaultPath,
}

impl Global {
    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.placement.workers()
    }

    /// Sets the process-wide rate limits (`maxconnrate`, `maxsessrate`, `maxcomprate`, `maxsslrate`) and the size of buffers.
    pub fn set_limits(&self, process: &state::Process) {
        process.buffer.store(u32::try_from(self.tune.bufsize).unwrap_or(0), Relaxed);
        process.connection_limit.store(self.max_connection_rate, Relaxed);
        process.session_limit.store(self.max_session_rate, Relaxed);
        process.compression_limit.store(self.compression.rate, Relaxed);
        process.tls_limit.store(self.max_tls_rate, Relaxed);
    }

    /// Sets the process-wide limit of TLS connections (`maxsslconn`).
    pub fn limit_tls(&self) {
        tls::limit::set_limit(self.max_tls_connections);
    }
}

/// `default-path`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub enum DefaultPath {
    /// Relative to the working directory.
    #[default]
    Current,
    /// Relative to the directory of the file.
    Config,
    /// Relative to the directory above that of the file.
    Parent,
    /// Relative to this directory.
    Origin(PathBuf),
}

/// `unix-bind`: defaults for bound UNIX sockets.
#[derive(Debug, Default, Clone)]
pub struct UnixBind {
    /// `prefix`.
    pub prefix: Option<Box<str>>,
    /// `mode`.
    pub mode: Option<u32>,
    /// `uid` or `user`.
    pub uid: Option<u32>,
    /// `gid` or `group`.
    pub gid: Option<u32>,
}

/// Settings of the process's HTTP client (`httpclient.…`).
#[derive(Debug, Clone)]
pub struct HttpClient {
    /// The `resolvers` section for names; `None` if names cannot be resolved.
    pub resolvers: Option<Arc<state::resolvers::ResolversSection>>,
    /// `httpclient.resolvers.prefer`.
    pub prefer: Option<Family>,
    /// `httpclient.retries`.
    pub retries: u32,
    /// `httpclient.timeout.connect`.
    pub connect_timeout: Duration,
    /// The TLS settings, which are created when needed, because the system has many CA certificates. `None` if this is not
    /// possible.
    pub connector: Option<Arc<tls::Connector>>,
    /// `httpclient.ssl.verify`.
    pub verifies: bool,
}

impl Default for HttpClient {
    fn default() -> Self {
        Self {
            resolvers: None,
            prefer: None,
            retries: 3,
            connect_timeout: Duration::from_secs(5),
            connector: None,
            verifies: true,
        }
    }
}

/// `tune.listener.multi-queue`: how the worker for a connection is chosen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum MultiQueue {
    /// The less loaded of two random workers.
    #[default]
    On,
    /// Round robin.
    Fair,
    /// The worker that accepted the connection.
    Off,
}

/// The `tune.*` settings used by the data path.
#[derive(Debug, Clone)]
pub struct Tune {
    /// `tune.bufsize`, in bytes.
    pub bufsize: usize,
    /// `tune.bufsize.large`, in bytes; 0 for no large buffers.
    pub large_bufsize: usize,
    /// `tune.cli.max-payload-size`, in bytes.
    pub cli_payload: usize,
    /// `tune.maxrewrite`, in bytes.
    pub maxrewrite: usize,
    /// `tune.http.maxhdr`.
    pub max_headers: usize,
    /// `tune.http.cookielen`.
    pub cookie_length: usize,
    /// `tune.stick-counters`.
    pub stick_counters: u32,
    /// `tune.http.logurilen`.
    pub log_uri_length: usize,
    /// `tune.maxaccept`.
    pub maxaccept: i32,
    /// `tune.pool-high-fd-ratio`, in percent.
    pub pool_high_fd_ratio: u32,
    /// `tune.pool-low-fd-ratio`, in percent.
    pub pool_low_fd_ratio: u32,
    /// `tune.idle-pool.shared`.
    pub idle_pool_shared: bool,
    /// `tune.rcvbuf.client`: bytes, 0 for the kernel's default.
    pub rcvbuf_client: usize,
    /// `tune.rcvbuf.server`: bytes, 0 for the kernel's default.
    pub rcvbuf_server: usize,
    /// `tune.rcvbuf.frontend`: for sockets that receive datagrams.
    pub rcvbuf_frontend: usize,
    /// `tune.sndbuf.frontend`: for sockets that send datagrams to clients.
    pub sndbuf_frontend: usize,
    /// `tune.rcvbuf.backend`: for sockets that receive datagrams from servers.
    pub rcvbuf_backend: usize,
    /// `tune.sndbuf.backend`: for sockets that send datagrams to servers, log servers included.
    pub sndbuf_backend: usize,
    /// `tune.sndbuf.client`: bytes, 0 for the kernel's default.
    pub sndbuf_client: usize,
    /// `tune.sndbuf.server`: bytes, 0 for the kernel's default.
    pub sndbuf_server: usize,
    /// `tune.notsent-lowat.client`: bytes, 0 for no limit.
    pub notsent_client: usize,
    /// `tune.notsent-lowat.server`, in bytes.
    pub notsent_server: usize,
    /// `tune.renice.startup`.
    pub renice_startup: Option<i32>,
    /// `tune.renice.runtime`.
    pub renice_runtime: Option<i32>,
    /// The consequences of tolerated protocol violations.
    pub glitches: Glitches,
    /// `tune.h2.*`.
    pub h2: Http2,
    /// `tune.quic.*`.
    pub quic: QuicTune,
    /// `tune.streams-elasticity`: streams in percent of `maxconn`, 0 for no limit.
    pub streams_elasticity: u32,
    /// `tune.pipesize`, 0 for the kernel's default.
    pub pipesize: usize,
    /// `maxpipes`, 0 for a quarter of maxconn.
    pub max_pipes: usize,
    /// `tune.peers.max-updates-at-once`: how many entries are sent to a peer at once.
    pub peers_updates: usize,
    /// `tune.listener.multi-queue`.
    pub multi_queue: MultiQueue,
    /// `tune.listener.default-shards`.
    pub default_shards: Shards,
    /// `tune.max-checks-per-thread`, 0 for none.
    pub max_checks_per_thread: u32,
    /// `tune.vars.*-max-size` in bytes; 0 for none.
    pub vars_max: sample::limits::VariableLimits,
}

/// `tune.h1.fe.glitches-threshold`, `tune.h1.be.glitches-threshold` and `tune.glitches.kill.cpu-usage`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Glitches {
    /// How many glitches by a client end its connection, 0 for no limit.
    pub client: u32,
    /// How many glitches by a server end a connection to it, 0 for no limit.
    pub server: u32,
    /// The CPU usage of the thread at which this applies, in percent.
    pub cpu_usage: u8,
}

/// `tune.h2.*`.
#[derive(Debug, Clone)]
pub struct Http2 {
    /// `tune.h2.header-table-size`, in bytes.
    pub header_table: u32,
    /// `tune.h2.max-frame-size`; `None` for the size of a buffer.
    pub max_frame: Option<u32>,
    /// `tune.h2.initial-window-size`, in bytes.
    pub initial_window: u32,
    /// `tune.h2.max-concurrent-streams`, 0 for no limit.
    pub max_streams: u32,
    /// `tune.h2.log-errors`.
    pub log_errors: LogErrors,
    /// `h2-workaround-bogus-websocket-clients`.
    pub no_websocket: bool,
    /// For clients.
    pub front: Http2Side,
    /// For servers.
    pub back: Http2Side,
}

/// `tune.h2.fe.*` or `tune.h2.be.*`.
#[derive(Debug, Default, Clone)]
pub struct Http2Side {
    /// `initial-window-size`, in bytes.
    pub initial_window: Option<u32>,
    /// `max-concurrent-streams`, 0 for no limit.
    pub max_streams: Option<u32>,
    /// `rxbuf`, in bytes.
    pub rxbuf: Option<u64>,
    /// `glitches-threshold`, 0 for none.
    pub glitches: u32,
    /// `max-frames-at-once`, 0 for no limit.
    pub max_frames_at_once: u32,
    /// `max-rst-at-once`, 0 for no limit.
    pub max_resets_at_once: u32,
    /// `max-total-streams`, 0 for no limit.
    pub max_total_streams: u32,
    /// `max-concurrent-streams … rq-load`.
    pub moderation: Option<Moderation>,
}

/// How the advertised streams depend on the load of the worker (`rq-load`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moderation {
    /// The load, in waiting tasks, up to which all streams are advertised.
    pub load: u32,
    /// Minimum number of streams to advertise.
    pub least: u32,
}

/// `tune.h2.log-errors`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogErrors {
    /// Protocol violations are not logged.
    None,
    /// Violations that end the connection.
    Connection,
    /// Violations that end a stream too.
    #[default]
    Stream,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            header_table: 4_096,
            max_frame: None,
            initial_window: 16_384,
            max_streams: 100,
            log_errors: LogErrors::default(),
            no_websocket: false,
            front: Http2Side::default(),
            back: Http2Side::default(),
        }
    }
}

impl Tune {
    /// Returns the HTTP/2 settings for one side. `relaxed` corresponds to `option accept-unsafe-violations-in-http-…`, and
    /// `connect_protocol` enables upgrades.
    #[must_use]
    pub fn multiplexing(&self, side: &Http2Side, relaxed: bool, connect_protocol: bool) -> h2::Config {
        h2::Config {
            rules: self.message_rules(relaxed, connect_protocol),
            buffer: u32::try_from(self.bufsize).unwrap_or(u32::MAX),
            header_table_size: self.h2.header_table,
            initial_window: side.initial_window.unwrap_or(self.h2.initial_window),
            max_concurrent_streams: side.max_streams.unwrap_or(self.h2.max_streams),
            max_frame_size: self.h2.max_frame.unwrap_or(0),
            receive_buffer: side.rxbuf.map_or(0, |size| u32::try_from(size).unwrap_or(u32::MAX)),
            max_total_streams: side.max_total_streams,
            glitches_threshold: side.glitches,
            max_frames_at_once: side.max_frames_at_once,
            max_resets_at_once: side.max_resets_at_once,
        }
    }

    /// Returns the HTTP/3 settings for clients; the arguments are those of [`multiplexing`](Self::multiplexing).
    #[must_use]
    pub fn http3(&self, relaxed: bool, connect_protocol: bool) -> h3::Config {
        let most = u32::try_from(self.quic.max_total_streams).unwrap_or(u32::MAX);
        h3::Config { max_total_streams: most, ..self.http3_of(&self.quic.front, relaxed, connect_protocol) }
    }

    /// Returns the HTTP/3 settings for servers.
    #[must_use]
    pub fn http3_to_servers(&self, relaxed: bool) -> h3::Config {
        self.http3_of(&self.quic.back, relaxed, false)
    }

    fn http3_of(&self, side: &QuicSide, relaxed: bool, connect_protocol: bool) -> h3::Config {
        h3::Config {
            rules: self.message_rules(relaxed, connect_protocol),
            window: usize::try_from(side.stream_window(self.bufsize)).unwrap_or(usize::MAX),
            max_concurrent_streams: side.max_streams,
            glitches_threshold: side.glitches,
            ..h3::Config::default()
        }
    }

    fn message_rules(&self, relaxed: bool, connect_protocol: bool) -> fields::Rules {
        fields::Rules {
            max_bytes: self.bufsize.saturating_sub(self.maxrewrite),
            max_fields: self.max_headers.saturating_sub(1),
            relaxed,
            connect_protocol,
        }
    }
}

impl Default for Tune {
    fn default() -> Self {
        Self {
            default_shards: Shards::default(),
            bufsize: 16_384,
            large_bufsize: 0,
            cli_payload: 128 * 1024,
            maxrewrite: 1_024,
            max_headers: 101,
            cookie_length: 63,
            stick_counters: sample::track::DEFAULT_COUNTERS,
            log_uri_length: 1_024,
            maxaccept: 4,
            pool_high_fd_ratio: 25,
            pool_low_fd_ratio: 20,
            idle_pool_shared: true,
            rcvbuf_client: 0,
            rcvbuf_server: 0,
            rcvbuf_frontend: 0,
            sndbuf_frontend: 0,
            rcvbuf_backend: 0,
            sndbuf_backend: 0,
            sndbuf_client: 0,
            sndbuf_server: 0,
            notsent_client: 0,
            notsent_server: 0,
            renice_startup: None,
            renice_runtime: None,
            glitches: Glitches::default(),
            h2: Http2::default(),
            quic: QuicTune::default(),
            streams_elasticity: 0,
            pipesize: 0,
            max_pipes: 0,
            peers_updates: 200,
            multi_queue: MultiQueue::On,
            max_checks_per_thread: 0,
            vars_max: sample::limits::VariableLimits::default(),
        }
    }
}
