//! The table of benchmarks.

use std::process::ExitCode;

use crate::{diff, exchanges, trials};

/// A benchmark.
pub(crate) struct Benchmark {
    /// The subcommand.
    pub(crate) name: &'static str,
    /// One line for the help.
    pub(crate) about: &'static str,
    /// The required programs and headers, as `tools/need.sh` accepts them.
    pub(crate) needs: &'static [&'static str],
    /// The steps, which run one after the other.
    pub(crate) steps: &'static [Step],
}

/// A step of a benchmark.
pub(crate) enum Step {
    /// Runs cargo.
    Cargo(&'static [&'static str]),
    /// Builds the binary of `make release`. Later scripts measure that binary, and get the plain release build as a third argument.
    Profiled,
    /// Builds Weir and this program with the profile `release`, and runs the script `bench/NAME.sh` with
    /// their paths.
    Script,
    /// Builds Weir with this profile and calls the function with the paths of Weir and HAProxy, the first
    /// words given, and the others.
    Module(&'static str, &'static [&'static str], fn(&[String]) -> ExitCode),
}

use Step::{Cargo, Module, Profiled, Script};

const BUILD: &[&str] = &["cc", "pkg-config", "openssl", "openssl/ssl.h"];
const PROXY: &[&str] = &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy"];

/// All benchmarks, in the order of their names after the first.
#[rustfmt::skip]
pub(crate) const BENCHMARKS: &[Benchmark] = &[
    Benchmark { name: "overview", about: "one line for each kind of work: haproxy (HAPROXY= names one with AWS-LC and Lua), nginx, Weir (WEIR= names its binary; words choose rows by their titles)",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "nginx", "python3"], steps: &[Script] },
    Benchmark { name: "balance", about: "costs and effects of balancing algorithms, simulated and compared with haproxy",
        needs: PROXY, steps: &[Cargo(&["run", "-q", "--release", "-p", "weir-balance", "--example", "picks"]), Cargo(&["run", "-q", "--release", "-p", "weir-balance", "--example", "simulation"]), Script] },
    Benchmark { name: "busy-polling", about: "latency of one connection at a time", needs: PROXY, steps: &[Script] },
    Benchmark { name: "cache", about: "cache hits, compared with haproxy",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "nginx"], steps: &[Script] },
    Benchmark { name: "checks", about: "costs of health checks with many threads (PAGES=5000000 ROUNDS=1 for p99.9999)", needs: PROXY, steps: &[Script] },
    Benchmark { name: "compression", about: "compressed bodies, compared with haproxy",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "nginx", "node", "curl"], steps: &[Script] },
    Benchmark { name: "configurations", about: "memory of large configurations, and an in-place reload of one (CERTIFICATES= names a directory)",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "python3"], steps: &[Script] },
    Benchmark { name: "diff", about: "random expressions over random requests, results compared with those of haproxy (seed=N configs=N)",
        needs: PROXY, steps: &[Module("dev", &[], diff::main)] },
    Benchmark { name: "exchanges", about: "random exchanges, compared with those of haproxy (exchanges=N seed=N; HAPROXY= names a HAProxy 3.5)",
        needs: PROXY, steps: &[Module("dev", &[], exchanges::main)] },
    Benchmark { name: "expressions", about: "nanoseconds for a fetch, a converter, a condition, a format (WORD chooses those with it in their text)",
        needs: BUILD, steps: &[Cargo(&["bench", "-p", "weir-sample", "--bench", "expressions", "--"])] },
    Benchmark { name: "fleet", about: "a fleet of processes with an aggregate table: counted requests, traffic (MEMBERS= KEYS= EVERY=)",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "python3"], steps: &[Script] },
    Benchmark { name: "h2", about: "HTTP/2 on either side, compared with haproxy and nginx",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "nginx"], steps: &[Script] },
    Benchmark { name: "h3", about: "HTTP/3 to clients and servers, compared with HAProxy 3.5 (HAPROXY= and HATERM= name its programs)",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h"], steps: &[Script] },
    Benchmark { name: "http1", about: "CPU, system calls and memory of the binary of `make release`, a plain release build, haproxy, nginx and a bare forwarder (HAPROXY35=, HAPROXY_PROFILED= name further builds of haproxy)",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "nginx", "strace", "h2load"], steps: &[Profiled, Script] },
    Benchmark { name: "load", about: "time and memory to load 33,000 backends",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "time"], steps: &[Script] },
    Benchmark { name: "lookups", about: "large pattern lists: load time, memory, lookups",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "time"], steps: &[Script] },
    Benchmark { name: "lua", about: "costs of script actions, compared with haproxy (HAPROXY= names one with Lua)", needs: PROXY, steps: &[Script] },
    Benchmark { name: "peers", about: "teaching a table with a million entries, compared with haproxy", needs: PROXY, steps: &[Script] },
    Benchmark { name: "reloads", about: "1,000 reloads by each way: losses and kept state (HAPROXY35= names a second haproxy; scale=1 makes 20)",
        needs: PROXY, steps: &[Module("quick", &["reload", "scale=50"], trials::main)] },
    Benchmark { name: "tables", about: "stick tables: requests that track and stick, a million entries, compared with haproxy", needs: PROXY, steps: &[Script] },
    Benchmark { name: "threads", about: "costs of sharing, thread groups", needs: PROXY, steps: &[Script] },
    Benchmark { name: "tls", about: "TLS handshakes, requests, memory, certificates, compared with haproxy",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "haproxy", "nginx"], steps: &[Script] },
    Benchmark { name: "trials", about: "reloads, dying servers, memory, floods, the runtime socket, compared with haproxy (NAME… chooses trials, scale=N)",
        needs: PROXY, steps: &[Module("quick", &[], trials::main)] },
    Benchmark { name: "udp", about: "UDP load balancing, compared with nginx and Envoy (ENVOY= names its program)",
        needs: &["cc", "pkg-config", "openssl", "openssl/ssl.h", "nginx"], steps: &[Script] },
    Benchmark { name: "variables", about: "many variables, many accesses", needs: PROXY, steps: &[Script] },
];
