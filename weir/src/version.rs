//! Version and build, as people and as tools that expect HAProxy read them; and the facts
//! conditions may ask about.

use syntax::Facts;

/// The HAProxy version whose manual this program follows.
pub(crate) const SPOKEN: &str = "3.5-dev5";
/// The branch of it.
pub(crate) const BRANCH: &str = "3.5";
/// The version of HAProxy followed and our own, as `-v` under the name `haproxy`, `show info` and
/// messages have them.
pub(crate) const FULL: &str = concat!("3.5-dev5-weir-", env!("CARGO_PKG_VERSION"));
/// The date of that version.
pub(crate) const DATE: &str = "2026/08/21";

/// Features built in, as `-vv` lists them and `feature()` finds them; `false` for those that are
/// not.
#[rustfmt::skip]
const FEATURES: &[(&str, bool)] = &[
    ("51DEGREES", false), ("ACCEPT4", true), ("ACME", false), ("BACKTRACE", true), ("CPU_AFFINITY", false),
    ("CRYPT_H", true), ("DEVICEATLAS", false), ("DL", false), ("ENGINE", false), ("EPOLL", true), ("EVPORTS", false),
    ("GETADDRINFO", true), ("KQUEUE", false), ("KTLS", false), ("LIBATOMIC", true), ("LIBCRYPT", true),
    ("LINUX_SPLICE", true), ("LINUX_TPROXY", true), ("LUA", true), ("MATH", true), ("MEMORY_PROFILING", false),
    ("NETFILTER", true), ("NS", true), ("OPENSSL", cfg!(feature = "legacy-tls")), ("OPENSSL_AWSLC", false), ("OPENSSL_WOLFSSL", false),
    ("OT", false), ("PCRE", false), ("PCRE2", true), ("POLL", false), ("PRCTL", true), ("PROCCTL", false),
    ("PROMEX", true), ("PTHREAD_EMULATION", false), ("QUIC", false), ("QUIC_OPENSSL_COMPAT", false), ("RT", true),
    ("SLZ", false), ("SSL", true), ("STATIC_PCRE", false), ("TFO", true), ("THREAD", true), ("TPROXY", true), ("WURFL", false),
    ("ZLIB", true),
];

/// What is built in, and what the kernel must have for it to work.
fn features() -> impl Iterator<Item = (&'static str, bool)> {
    FEATURES.iter().copied().chain([("HAVE_TCP_MD5SIG", true), ("HAVE_WORKING_TCP_MD5SIG", signs_segments())])
}

/// Whether the kernel takes a key for signing TCP segments (`tcp-md5sig`), tried on a socket that
/// goes nowhere.
fn signs_segments() -> bool {
    use std::os::fd::AsFd;
    let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
        .is_ok_and(|socket| net::sys::set_md5_key(socket.as_fd(), peer, b"probe", false).is_ok())
}

/// What conditions may ask about.
pub(crate) fn facts(diag_mode: bool, disabled: &[&str]) -> Facts {
    let enabled = ["EPOLL", "SPLICE", "GETADDRINFO", "REUSEPORT", "FAST-FORWARD"];
    let library = ssl_library();
    Facts {
        version: SPOKEN.parse().unwrap_or_default(),
        features: features().filter(|(_, present)| *present).map(|(name, _)| name).collect(),
        enabled: enabled.into_iter().filter(|option| !disabled.contains(option)).collect(),
        ssl_library: Some(library),
        openssl_version: library.split(' ').nth(1).and_then(|version| version.parse().ok()),
        diag_mode,
        ..Facts::default()
    }
}

/// The library of TLS that files made for HAProxy may count on: what is spoken, and how keywords are
/// spelled, is that of OpenSSL 3, built in or not.
fn ssl_library() -> &'static str {
    match config::openssl_version() {
        "" => "OpenSSL 3.0.0",
        version => version,
    }
}

/// What `-v` prints. Called under the name `haproxy`, the form that tools expect.
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

/// What `-vv` prints.
pub(crate) fn long(as_haproxy: bool) -> String {
    let features: Vec<String> =
        features().map(|(name, present)| format!("{}{name}", if present { '+' } else { '-' })).collect();
    let tune = plan::global::Tune::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}Build options :\n  TARGET  = {}-{}\n  PROFILE = {}\n\nFeature list : {}\n\n\
         Default settings :\n  bufsize = {}, maxrewrite = {}\n\n\
         Built with multi-threading support (MAX_TGROUPS=256, MAX_THREADS=4096, default={threads}).\n\
         Encrypted password support via crypt(3): yes\n\
         {}\n\
         Available polling systems :\n      epoll : pref=300,  test result OK\nTotal: 1 (1 usable), will use epoll.\n",
        short(as_haproxy),
        std::env::consts::OS,
        std::env::consts::ARCH,
        if cfg!(debug_assertions) { "debug" } else { "release" },
        features.join(" "),
        tune.bufsize,
        tune.maxrewrite,
        engines(),
    )
}

/// What makes connections of TLS. Tools look for the lines about OpenSSL as HAProxy writes them.
fn engines() -> String {
    let rustls = "TLS by rustls : TLSv1.2 TLSv1.3\n";
    match config::openssl_version() {
        "" => format!("{rustls}TLS by OpenSSL : not built in\n"),
        version => format!(
            "{rustls}TLS by OpenSSL : TLSv1.0 TLSv1.1 TLSv1.2 TLSv1.3, for lines that only it can serve\n\
             Running on SSL library version : {version}\n"
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
    fn the_version_holds_for_itself() {
        let facts = facts(false, &["SPLICE"]);
        let environment = syntax::Environment::new();
        let cases = [
            ("version_atleast(3.5-dev5)", true),
            ("version_before(3.5-dev5)", false),
            ("feature(THREAD)", true),
            ("feature(LUA)", true),
            ("feature(OPENSSL)", cfg!(feature = "legacy-tls")),
            ("enabled(EPOLL)", true),
            ("enabled(SPLICE)", false),
        ];
        for (condition, expected) in cases {
            let value = syntax::evaluate_condition(condition, &facts, &environment).ok();
            assert_eq!(value, Some(expected), "{condition}");
        }
    }

    #[test]
    fn tools_find_the_version_where_they_look_for_it() {
        assert!(FULL.starts_with(SPOKEN) && SPOKEN.starts_with(BRANCH));
        assert!(short(true).starts_with("HAProxy version 3.5-dev5-weir-"));
        assert!(long(true).contains("\nFeature list : -51DEGREES +ACCEPT4 "));
        assert!(short(false).contains("(speaks HAProxy 3.5-dev5)"));
    }
}
