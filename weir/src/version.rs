//! Version and build information, for people and for tools that expect HAProxy's output; and the facts that conditions can query.

use syntax::ProgramFacts;

/// The HAProxy version that this program implements.
pub(crate) const SPOKEN: &str = "3.5-dev5";
/// The branch of that HAProxy version.
pub(crate) const BRANCH: &str = "3.5";
/// The HAProxy version and Weir's own version, as shown by `-v` under the name `haproxy`, by `show info` and in messages.
pub(crate) const FULL: &str = concat!("3.5-dev5-weir-", env!("CARGO_PKG_VERSION"));
/// The release date of that version.
pub(crate) const DATE: &str = "2026/08/21";

/// Features as listed by `-vv` and found by `feature()`; `false` for those that are not built in.
#[rustfmt::skip]
const FEATURES: &[(&str, bool)] = &[
    ("51DEGREES", false), ("ACCEPT4", true), ("ACME", true), ("BACKTRACE", true), ("CLOSEFROM", false), ("CPU_AFFINITY", true),
    ("CRYPT_H", true), ("DEVICEATLAS", false), ("DL", false), ("ECH", false), ("ENGINE", false), ("EPOLL", true), ("EVPORTS", false),
    ("FCGI", true), ("GETADDRINFO", true), ("H2", true), ("HAVE_TCP_MD5SIG", true), ("KQUEUE", false), ("KTLS", false),
    ("LIBATOMIC", true), ("LIBCRYPT", true), ("LINUX_CAP", true), ("LINUX_SPLICE", true), ("LINUX_TPROXY", true), ("LUA", true),
    ("MATH", true), ("MEMORY_PROFILING", false), ("NETFILTER", true), ("NS", true), ("OBSOLETE_LINKER", false),
    ("OPENSSL", cfg!(feature = "legacy-tls")), ("OPENSSL_AWSLC", false), ("OPENSSL_WOLFSSL", false),
    ("OT", false), ("PCRE", false), ("PCRE2", true), ("PCRE2_JIT", true), ("PCRE_JIT", false), ("POLL", true), ("PRCTL", true),
    ("PROCCTL", false), ("PROMEX", true), ("PTHREAD_EMULATION", false), ("QUIC", true), ("QUIC_OPENSSL_COMPAT", false),
    ("RT", true), ("SHM_OPEN", true), ("SLZ", false), ("SPOE", true), ("SSL", true), ("STATIC_PCRE", false), ("STATIC_PCRE2", false),
    ("TFO", true), ("THREAD", true), ("THREAD_DUMP", true), ("TPROXY", true), ("TRACE", true), ("WURFL", false), ("ZLIB", true),
];

/// Features that depend on the running system.
fn detected() -> [(&'static str, bool); 1] {
    [("HAVE_WORKING_TCP_MD5SIG", signs_segments())]
}

/// Iterates over the built-in and the detected features.
fn features() -> impl Iterator<Item = (&'static str, bool)> {
    FEATURES.iter().copied().chain(detected())
}

/// Returns whether the kernel supports TCP segment signatures (`tcp-md5sig`), tested on an unconnected socket.
fn signs_segments() -> bool {
    use std::os::fd::AsFd;
    let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
        .is_ok_and(|socket| net::sys::set_md5_key(socket.as_fd(), peer, b"probe", false).is_ok())
}

/// Returns the facts that conditions can query.
pub(crate) fn facts(diag_mode: bool, disabled: &[&str]) -> ProgramFacts {
    let enabled = ["EPOLL", "POLL", "SPLICE", "GETADDRINFO", "REUSEPORT", "FAST-FORWARD"];
    let library = ssl_library();
    ProgramFacts {
        version: SPOKEN.parse().unwrap_or_default(),
        features: features().filter(|(_, present)| *present).map(|(name, _)| name).collect(),
        enabled: enabled.into_iter().filter(|option| !disabled.contains(option)).collect(),
        ssl_library: Some(library),
        openssl_version: library.split(' ').nth(1).and_then(|version| version.parse().ok()),
        diag_mode,
        ..ProgramFacts::default()
    }
}

/// Returns the TLS library that is reported to configurations written for HAProxy. Behaviour and keywords are those of OpenSSL 3,
/// whether or not it is built in.
fn ssl_library() -> &'static str {
    match config::openssl_version() {
        "" => "OpenSSL 3.0.0",
        version => version,
    }
}

/// Returns the output of `-v`, in the format that tools expect if called as `haproxy`.
pub(crate) fn short(as_haproxy: bool) -> String {
    let own = env!("CARGO_PKG_VERSION");
    if as_haproxy {
        return format!(
            "HAProxy version {FULL} {DATE} - https://haproxy.org/\n\
             Status: development branch - not safe for use in production.\n\
             Known bugs: https://github.com/weir-proxy/weir/issues\n\
             Running on: {}\n",
            system()
        );
    }
    format!("weir {own} (speaks HAProxy {SPOKEN})\nRunning on: {}\n", system())
}

/// Lists features like `-vv`, with a plus or a minus before each.
fn list(features: impl IntoIterator<Item = (&'static str, bool)>) -> String {
    let shown = |(name, present): (&str, bool)| format!("{}{name}", if present { '+' } else { '-' });
    features.into_iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Returns the version and build information (`-vv`). Tools search for HAProxy's lines, so lines with the same meaning have the
/// same wording.
pub(crate) fn long(as_haproxy: bool) -> String {
    let tune = plan::global::Tune::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let codings =
        compress::Algorithm::ALL.map(|(name, algorithm)| format!("{name}(\"{}\")", algorithm.token()));
    let ((major, minor), has_jit) = sample::regex::pcre2_version();
    format!(
        "{}Build options :\n  TARGET  = {}-{}\n  PROFILE = {}\n\n\
         Feature list : {}\nDetected feature list : {}\n\n\
         Default settings :\n  bufsize = {}, maxrewrite = {}\n\n\
         Built with multi-threading support (MAX_TGROUPS=256, MAX_THREADS=4096, default={threads}).\n\
         {}\
         Built with Lua version : Lua 5.4\n\
         Built with the Prometheus exporter as a service\n\
         Built with network namespace support.\n\
         Compression algorithms supported : {}\n\
         Built with transparent proxy support using: IP_TRANSPARENT IPV6_TRANSPARENT IP_FREEBIND\n\
         Built with PCRE2 version : {major}.{minor}\n\
         PCRE2 library supports JIT : {}\n\
         Encrypted password support via crypt(3): yes\n\n\
         Available polling systems :\n      epoll : pref=300,  test result OK\nTotal: 1 (1 usable), will use epoll.\n\n\
         {PROTOCOLS}\nAvailable services : prometheus-exporter\n{FILTERS}",
        short(as_haproxy),
        std::env::consts::OS,
        std::env::consts::ARCH,
        if cfg!(debug_assertions) { "debug" } else { "release" },
        list(FEATURES.iter().copied()),
        list(detected()),
        tune.bufsize,
        tune.maxrewrite,
        engines(),
        codings.join(", "),
        if has_jit { "yes" } else { "no" },
    )
}

const PROTOCOLS: &str = "\
Available multiplexer protocols :
(protocols marked as <default> cannot be specified using 'proto' keyword)
         h2 : mode=HTTP  side=FE|BE  mux=H2    flags=HTX|HOL_RISK|NO_UPG
       fcgi : mode=HTTP  side=BE     mux=FCGI  flags=HTX|HOL_RISK|NO_UPG
  <default> : mode=SPOP  side=BE     mux=SPOP  flags=HOL_RISK|NO_UPG
       spop : mode=SPOP  side=BE     mux=SPOP  flags=HOL_RISK|NO_UPG
       qmux : mode=HTTP  side=FE|BE  mux=QMUX  flags=HTX|NO_UPG
       quic : mode=HTTP  side=FE|BE  mux=QUIC  flags=HTX|NO_UPG|FRAMED
  <default> : mode=HTTP  side=FE|BE  mux=H1    flags=HTX
         h1 : mode=HTTP  side=FE|BE  mux=H1    flags=HTX|NO_UPG
  <default> : mode=TCP   side=FE|BE  mux=PASS  flags=
       none : mode=TCP   side=FE|BE  mux=PASS  flags=NO_UPG
";

const FILTERS: &str = "\
Available filters :
\t[BWLIM] bwlim-in
\t[BWLIM] bwlim-out
\t[CACHE] cache
\t[COMP] comp-req
\t[COMP] comp-res
\t[COMP] compression
\t[FCGI] fcgi-app
\t[SPOE] spoe
\t[TRACE] trace
";

/// Returns the TLS library lines that tools search for.
fn engines() -> String {
    let rustls = "TLS by rustls : TLSv1.2 TLSv1.3\n";
    match config::openssl_version() {
        "" => format!("{rustls}TLS by OpenSSL : not built in\n"),
        version => format!(
            "{rustls}TLS by OpenSSL : TLSv1.0 TLSv1.1 TLSv1.2 TLSv1.3, for lines that rustls cannot \
             serve\nBuilt with SSL library version : {version}\nRunning on SSL library version : \
             {version}\nSSL library supports TLS extensions : yes\nSSL library supports SNI : yes\nSSL \
             library supports : TLSv1.0 TLSv1.1 TLSv1.2 TLSv1.3\n"
        ),
    }
}

fn system() -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    let parts = [read("ostype"), read("osrelease"), read("version")];
    let words: Vec<&str> = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect();
    format!("{} {}", words.join(" "), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_satisfies_its_own_condition() {
        let facts = facts(false, &["SPLICE"]);
        let environment = syntax::Environment::new();
        let cases = [
            ("version_atleast(3.5-dev5)", true),
            ("version_before(3.5-dev5)", false),
            ("feature(THREAD)", true),
            ("feature(LUA)", true),
            ("feature(ACME)", true),
            (
                "feature(CPU_AFFINITY) && feature(SPOE) && feature(FCGI) && feature(H2) && feature(TRACE)",
                true,
            ),
            ("feature(QUIC)", true),
            ("feature(OPENSSL)", cfg!(feature = "legacy-tls")),
            ("enabled(EPOLL)", true),
            ("enabled(POLL)", true),
            ("enabled(SPLICE)", false),
        ];
        for (condition, expected) in cases {
            let value = syntax::evaluate_condition(condition, &facts, &environment).ok();
            assert_eq!(value, Some(expected), "{condition}");
        }
    }

    #[test]
    fn version_output_matches_what_tools_search_for() {
        assert!(FULL.starts_with(SPOKEN) && SPOKEN.starts_with(BRANCH));
        assert!(short(true).starts_with("HAProxy version 3.5-dev5-weir-"));
        assert!(long(true).contains("\nFeature list : -51DEGREES +ACCEPT4 "));
        for line in [
            "Built with the Prometheus exporter as a service",
            "Built with Lua version : Lua 5.4",
            "Available services : prometheus-exporter",
            "PCRE2 library supports JIT : yes",
        ] {
            assert!(long(true).lines().any(|own| own == line), "{line}");
        }
        assert!(short(false).contains("(speaks HAProxy 3.5-dev5)"));
    }
}
