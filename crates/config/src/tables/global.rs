//! The `global` section (manual, chapter 3), except for `tune.*`, `log` and the environment.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ::tls::VerifyMode;
use base::raw::path_of;
use base::units::DefaultUnit::{Milliseconds, Seconds};
use diag::Diagnostic;
use plan::global::{Capability, Chroot, DefaultPath, LatencyHistograms};
use sample::convert::jwe;
use state::Statuses;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global, ineffective, removed, removed_since};
use crate::draft::row::Outcome;
use crate::draft::row::places::G;
use crate::draft::settings::GlobalSettings;
use crate::draft::tls::TlsValue;
use crate::system::{error_text, group_id, user_id};
use crate::tables::tls;

const POLLER: &str = "there is only one polling method";

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //     name                       arguments                description                                                setting
    global("daemon",                  "",                      "runs in the background",                                 |g, a| flag(&mut g.plan.daemon, a)),
    global("quiet",                   "",                      "suppresses messages during startup",                     |g, a| flag(&mut g.plan.quiet, a)),
    global("reload",                  "in-place",              "reloads the configuration in the same process on SIGUSR2; Weir extension", reload),
    global("latency-histograms",      "{ on | off | native }", "histograms of the times of requests for each proxy and server; Weir extension", latency_histograms),
    global("zero-warning",            "",                      "refuses to start if there are warnings",                 |g, a| flag(&mut g.plan.zero_warning, a)),
    global("set-dumpable",            "",                      "allows core dumps after privileges are dropped",         set_dumpable).negatable()
        .partial("`libs` has no effect in a static binary"),
    global("strict-limits",           "",                      "refuses to start if resource limits cannot be raised",   |g, a| flag(&mut g.plan.strict_limits, a)).negatable(),
    global("external-check",         "[preserve-env]",        "allows health checks by external programs",              |g, a| { g.plan.external_check = true; g.plan.external_check_environment |= a.take("preserve-env"); a.finish() }),
    global("insecure-setuid-wanted",  "",                      "allows external checks to run setuid programs",          |g, a| flag(&mut g.plan.insecure_setuid_wanted, a)),
    global("insecure-fork-wanted",    "",                      "allows external checks to fork",                         |g, a| flag(&mut g.plan.insecure_fork_wanted, a)).negatable(),
    global("h2-workaround-bogus-websocket-clients", "",         "does not announce WebSocket support to HTTP/2 clients", |g, a| flag(&mut g.plan.tune.h2.no_websocket, a)).negatable(),
    global("nosplice",                "",                      "disables forwarding inside the kernel",                  |g, a| flag(&mut g.plan.no_splice, a)),
    global("noreuseport",             "",                      "opens one socket per address, shared by all threads",    |g, a| flag(&mut g.plan.no_reuseport, a)),
    global("dns-accept-family",       "<family>[,...]",        "address families to resolve: ipv4, ipv6, auto",          crate::tables::resolvers::dns_accept_family),
    global("maxconn",                 "<number>",              "maximum number of concurrent connections over all frontends", maxconn).once(),
    global("maxconnrate",             "<number>",              "maximum number of new connections per second",           |g, a| number(&mut g.plan.max_connection_rate, a, 0, u32::MAX)).lenient_numbers().once(),
    global("maxsessrate",             "<number>",              "maximum number of new sessions per second",              |g, a| number(&mut g.plan.max_session_rate, a, 0, u32::MAX)).lenient_numbers().once(),
    global("maxpipes",                "<number>",              "maximum number of pipes for forwarding inside the kernel", |g, a| number(&mut g.plan.tune.max_pipes, a, 0, usize::MAX)).lenient_numbers().once(),
    global("ulimit-n",                "<number>",              "maximum number of file descriptors",                     |g, a| some(&mut g.plan.ulimit_n, a, 0, u64::MAX)).lenient_numbers().once(),
    global("fd-hard-limit",           "<number>",              "upper bound of the automatic file descriptor limit",     |g, a| some(&mut g.plan.fd_hard_limit, a, 0, u64::MAX)).lenient_numbers(),
    global("uid",                     "<number>",              "user to run as, by ID",                                  |g, a| account(&mut g.plan.uid, a)).once_of("user/uid"),
    global("gid",                     "<number>",              "group to run as, by ID",                                 |g, a| account(&mut g.plan.gid, a)).once_of("group/gid"),
    global("user",                    "<name>",                "user to run as",                                         user).once_of("user/uid"),
    global("group",                   "<name>",                "group to run as",                                        group).once_of("group/gid"),
    global("chroot",                  "{ <directory> | auto }", "root directory of the process after startup",           chroot).once(),
    global("setcap",                  "<name>[,...]",          "capabilities that an unprivileged user keeps",           setcap),
    global("pidfile",                 "<file>",                "file for the process ID",                                |g, a| path(&mut g.plan.pidfile, a)).once(),
    global("node",                    "<name>",                "name of this machine in the statistics",                 node),
    global("description",             "<text>",                "description of this process in the statistics",          description),
    global("warn-blocked-traffic-after", "<time>",             "time after which a task that blocks its thread is reported, 1 to 1000 ms", blocked_traffic),
    global("hard-stop-after",         "<time>",                "maximum lifetime of a stopping process",                 |g, a| time(&mut g.plan.hard_stop_after, a)).lenient_words(),
    global("grace",                   "<time>",                "time for which listening sockets stay open after a soft stop", |g, a| time(&mut g.plan.grace, a)).lenient_words(),
    global("close-spread-time",       "<time>",                "period over which idle connections are closed on a stop", close_spread_time),
    global("spread-checks",           "<percent>",             "random variation of check intervals, in percent",        |g, a| number(&mut g.plan.spread_checks, a, 0, 50)).lenient_numbers().once(),
    global("max-spread-checks",       "<time>",                "maximum period over which the first checks are spread",  |g, a| time(&mut g.plan.max_spread_checks, a)),
    global("server-state-base",       "<directory>",           "directory of server state files",                        |g, a| path(&mut g.plan.server_state_base, a)).lenient_words().once(),
    global("server-state-file",       "<file>",                "server states saved by an earlier process",              |g, a| path(&mut g.plan.server_state_file, a)).lenient_words().once(),
    global("anonkey",                 "<key>",                 "key of anonymized output (`set anon`)",                  |g, a| number(&mut g.plan.anonymous_key, a, 0, u32::MAX)).lenient_numbers(),
    global("profiling.tasks",         "{ on | off | auto } [no-lock | no-memory]", "profiles tasks from startup (`show profiling`)", profiling)
        .partial("`lock` and `memory` are not profiled, and `auto` is the same as `off`"),
    global("stats-file",              "<file>",                "counters saved by an earlier process (`dump stats-file`)", |g, a| path(&mut g.plan.stats_file, a)).once(),
    global("shm-stats-file",          "<name>",                "shared memory that keeps the counters of objects with a `guid` across reloads", shm_stats_file),
    global("shm-stats-file-max-objects", "<number>",           "maximum number of objects in that shared memory",        shm_stats_objects),
    global("unix-bind",               "[prefix <p>] [mode <m>] [user <u>] [uid <n>] [group <g>] [gid <n>]", "default settings of UNIX sockets on bind lines", unix_bind),
    global("h1-case-adjust",          "<from> <to>",           "spelling of a header name for peers that require it",    h1_case_adjust),
    global("h1-case-adjust-file",     "<file>",                "file with such spellings",                               h1_case_adjust_file),
    global("h1-do-not-close-on-insecure-transfer-encoding", "", "keeps connections open after messages with both Content-Length and Transfer-Encoding", |g, a| flag(&mut g.plan.h1_keep_insecure, a)),
    global("prealloc-fd",             "",                      "allocates the file descriptor table before threads start", |g, a| flag(&mut g.plan.preallocates_descriptors, a)),
    global("h1-accept-payload-with-any-method", "",            "accepts a body in GET and HEAD requests",                |g, a| flag(&mut g.plan.h1_accept_payload_with_any_method, a)),
    global("http-err-codes",          "[+-]<range>[,...]",     "status codes that count as request errors",              |g, a| status_set(&mut g.plan.counted.errors, a)),
    global("http-fail-codes",         "[+-]<range>[,...]",     "status codes that count as server failures",             |g, a| status_set(&mut g.plan.counted.failures, a)),
    global("default-path",            "{ current | config | parent | origin <path> }", "base directory of relative file names", default_path),
    global("stats socket",            "<address> [param*]",    "socket for runtime commands",                            |g, a| { g.stats_sockets.push(a.statement); a.rest(); Ok(()) }),
    global("stats timeout",           "<time>",                "idle timeout of a runtime socket",                       stats_timeout).lenient_words(),
    global("stats maxconn",           "<number>",              "maximum number of concurrent runtime socket connections", |g, a| number(&mut g.plan.stats_maxconn, a, 1, u32::MAX)).lenient_words(),
    global("stats history",           "{ on | off }",          "keeps the last minutes of proxies and servers for the statistics page; Weir extension", |g, a| { g.plan.stats_history = a.on_off()?; a.finish() }),
    global("set-var",                 "<name> <expression>",   "sets a variable with process scope",                     variable),
    global("set-var-fmt",             "<name> <format>",       "sets a variable with process scope from a format string", variable),
    global("expose-experimental-directives", "",               "allows experimental keywords",                           |g, a| flag(&mut g.experimental, a)),
    global("expose-deprecated-directives",   "",               "allows deprecated keywords; no remaining keyword needs it", |_, a| a.finish()),
    global("mworker-max-reloads",     "<number>",              "maximum number of reloads that an old worker survives",  |g, a| some(&mut g.plan.max_reloads, a, 0, i32::MAX as u32)).lenient_numbers(),
    global("harden.reject-privileged-ports.tcp", "{ on | off }", "rejects clients with source ports below 1024",         |g, a| { g.plan.reject_privileged_ports = a.on_off()?; a.finish() }),
    global("pp2-never-send-local",    "",                      "marks health checks as proxied connections (PROXY protocol version 2)", |g, a| flag(&mut g.plan.pp2_never_send_local, a)),
    global("master-worker",           "[no-exit-on-failure]",  "runs a master process that manages the worker (deprecated: use -W)", master_worker),

    removed_since("nbproc",           G, "2.5", "There is one process; use `nbthread` to set the number of threads"),
    ineffective("numa-cpu-mapping",   G, "use `cpu-policy` instead"),
    ineffective("nogetaddrinfo",      G, "names are always resolved with getaddrinfo(3)"),
    ineffective("noepoll",            G, POLLER),
    ineffective("nopoll",             G, POLLER),
    ineffective("nokqueue",           G, POLLER),
    ineffective("noevports",          G, POLLER),
    ineffective("no-memory-trimming", G, "workers never stop to trim memory"),
    ineffective("profiling.memory",   G, "memory profiling is not supported"),
    ineffective("force-cfg-parser-pause", G, "debugging aid of HAProxy"),
    ineffective("stress-level",       G, "debugging aid of HAProxy"),
    global("maxsslconn",              "<number>",              "maximum number of concurrent TLS connections, on both sides", |g, a| number(&mut g.plan.max_tls_connections, a, 0, u32::MAX)).lenient_numbers().partial("if it is not set there is no limit, regardless of `-m`"),
    global("maxsslrate",              "<number>",              "maximum number of new TLS connections per second",       |g, a| number(&mut g.plan.max_tls_rate, a, 0, u32::MAX)).lenient_numbers().once(),
    global("ca-base",            "<directory>",           "base directory of CA files",                             |g, a| base(&mut g.tls.authorities, a)),
    global("crt-base",           "<directory>",  "base directory of certificates",                                       |g, a| { base(&mut g.bases.certificates, a)?; g.tls.certificates = g.bases.certificates; Ok(()) }),
    global("key-base",           "<directory>",  "base directory of private keys",            |g, a| { base(&mut g.bases.keys, a)?; g.tls.keys = g.bases.keys; Ok(()) }),
    global("issuers-chain-path", "<directory>",  "directory of chains for certificates without one", |g, a| { let word = a.required("a directory")?; g.tls.issuers = Some(word.into()); a.finish() }),
    global("noktls",             "",             "disables kernel TLS, which is not used in any case",                    |g, a| flag(&mut g.tls.no_kernel, a)),
    global("jwt.decrypt_alg_list", "<name>[:<name>]*", "key management algorithms accepted for encrypted JWTs",           |g, a| { g.allowed_jwt[0] = Some(allowed(a, jwe::ALGORITHMS)?); Ok(()) }),
    global("jwt.decrypt_enc_list", "<name>[:<name>]*", "content encryption algorithms accepted for encrypted JWTs",       |g, a| { g.allowed_jwt[1] = Some(allowed(a, jwe::ENCRYPTIONS)?); Ok(()) }),
    global("ssl-default-bind-ciphers", "<list>", "default cipher suites of bind lines up to TLS 1.2",                     |g, a| default(&mut g.tls.bind.ciphers, a)),
    global("ssl-default-bind-ciphersuites", "<list>", "default TLS 1.3 cipher suites of bind lines",                      |g, a| default(&mut g.tls.bind.ciphersuites, a)),
    global("ssl-default-bind-client-sigalgs", "<list>", "default signature algorithms for client certificates on bind lines", |g, a| default(&mut g.tls.bind.client_sigalgs, a)).partial("not passed to OpenSSL if it serves the line"),
    global("ssl-default-bind-curves", "<list>", "default key exchange groups of bind lines",                             |g, a| default(&mut g.tls.bind.curves, a)),
    global("ssl-default-bind-options", "<option> ...", "default versions, tickets and other options of bind lines", |g, a| tls::options(&mut g.tls.bind, Some(&mut g.tls.strict_sni), a)),
    global("ssl-default-bind-sigalgs", "<list>", "default signature algorithms of bind lines", |g, a| default(&mut g.tls.bind.sigalgs, a)),
    global("ssl-default-server-ciphers", "<list>", "default cipher suites of server lines up to TLS 1.2", |g, a| default(&mut g.tls.server.ciphers, a)),
    global("ssl-default-server-ciphersuites", "<list>", "default TLS 1.3 cipher suites of server lines", |g, a| default(&mut g.tls.server.ciphersuites, a)),
    global("ssl-default-server-client-sigalgs", "<list>", "default signature algorithms for client certificates on server lines", |g, a| default(&mut g.tls.server.client_sigalgs, a)).partial("not passed to OpenSSL if it serves the line"),
    global("ssl-default-server-curves", "<list>", "default key exchange groups of server lines", |g, a| default(&mut g.tls.server.curves, a)),
    global("ssl-default-server-options", "<option> ...", "default versions and tickets of server lines", |g, a| tls::options(&mut g.tls.server, None, a)),
    global("ssl-default-server-sigalgs", "<list>", "default signature algorithms of server lines", |g, a| default(&mut g.tls.server.sigalgs, a)),
    global("legacy-tls", "{ on | off }", "whether lines that need OpenSSL use it or are rejected", |g, a| { g.tls.no_legacy = !a.one_of(&[("on", true), ("off", false)])?; a.finish() }),
    global("ssl-dh-param-file", "<file>", "Diffie-Hellman parameters", |g, a| { g.tls.dh_file = Some(a.required("a file")?.into()); a.finish() }),
    ineffective("ssl-engine",              G, "OpenSSL removed engines in favor of providers (`ssl-provider`)"),
    global("ssl-load-extra-del-ext", "", "replaces the `.crt` extension when looking for extra files", |g, a| { g.tls.extra.replaces_ending = true; a.finish() }),
    global("ssl-load-extra-files", "{ none | all | bundle | sctl | ocsp | issuer | key } ...", "extra files to load along with certificates", |g, a| tls::extra_files(&mut g.tls.extra, a)),
    ineffective("ssl-mode-async",          G, "only OpenSSL engines are asynchronous, and engines are not supported"),
    global("ssl-passphrase-cmd", "<command> <argument>*", "command that prints the passphrases of encrypted keys", |g, a| { a.required("a command")?; a.rest(); g.tls.passphrases = Some(Arc::new(passphrases(a.statement.arguments()))); Ok(()) }),
    ineffective("ssl-propquery",           G, "rustls has one set of algorithms; use `ssl-provider` to select OpenSSL providers"),
    global("ssl-provider", "<name>", "OpenSSL provider to load; OpenSSL then serves all lines", |g, a| tls::provider(&mut g.tls, a)),
    global("ssl-provider-path", "<directory>", "directory of OpenSSL providers", |g, a| { g.tls.provider_path = Some(a.required("a directory")?); a.finish() }),
    global("ssl-security-level", "<number>", "OpenSSL security level; below 2, OpenSSL serves the peers that rustls rejects", |g, a| { g.tls.security_level = Some(a.integer("a number", 0, 5)?); a.finish() }).partial("levels above 2 apply only to lines that OpenSSL serves"),
    global("ssl-server-verify", "{ none | required }", "whether server certificates are verified", |g, a| { g.tls.server_verify = a.one_of(&[("none", VerifyMode::None), ("required", VerifyMode::Required)])?; a.finish() }),
    global("ssl-skip-self-issued-ca", "", "does not send self-issued root certificates to clients", |g, a| flag(&mut g.tls.skips_roots, a)),
    removed("debug", G, "Use the `-d` command line option"),
    removed("monitor-net", G, "Use 'http-request return' with an ACL"),
];

/// Parses a colon-separated list of names into bits: `ALL` means all, and a leading `!` removes a name.
fn allowed(args: &mut Args<'_, '_>, names: &[&'static str]) -> Result<u32, Diagnostic> {
    let list = args.required("algorithms separated by colons")?;
    let mut bits = 0;
    for item in list.split(':') {
        let (name, add) = item.strip_prefix('!').map_or((item, true), |name| (name, false));
        let bit = match names.iter().position(|known| *known == name) {
            Some(position) => 1 << position,
            None if name == "ALL" => (1 << names.len()) - 1,
            None => {
                let near = diag::suggest(name, names.iter().copied());
                return Err(args
                    .wrong(format!("unknown algorithm `{name}` in this list"))
                    .did_you_mean(near));
            }
        };
        bits = if add { bits | bit } else { bits & !bit };
    }
    args.finish()?;
    Ok(bits)
}

fn flag(value: &mut bool, args: &mut Args<'_, '_>) -> Outcome {
    *value = !args.negated();
    args.finish()
}

fn reload<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("in-place")?;
    if word != "in-place" {
        return Err(Diagnostic::alert(format!("unknown argument `{word}` for `reload`"))
            .at(word.span())
            .label("expected `in-place`")
            .haproxy(format!("'reload' : unknown value '{word}', expects 'in-place'.")));
    }
    global.plan.reloads_in_place = true;
    args.finish()
}

fn number<T>(value: &mut T, args: &mut Args<'_, '_>, low: T, high: T) -> Outcome
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    *value = args.integer("an integer", low, high)?;
    args.finish()
}

fn some<T>(value: &mut Option<T>, args: &mut Args<'_, '_>, low: T, high: T) -> Outcome
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    *value = Some(args.integer("an integer", low, high)?);
    args.finish()
}

/// The passphrase provider: a command that gets the encrypted key's file name as its first argument.
fn passphrases(words: &[syntax::Word]) -> ::tls::store::Passphrases {
    let words: Vec<String> = words.iter().map(|word| word.as_str().to_owned()).collect();
    ::tls::store::Passphrases::new(move |file| {
        let (command, arguments) = words.split_first()?;
        let output = Command::new(command)
            .arg(file)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        let mut passphrase = output.stdout;
        while matches!(passphrase.last(), Some(b'\n' | b'\r')) {
            passphrase.pop();
        }
        Some(passphrase)
    })
}

fn time(value: &mut Option<Duration>, args: &mut Args<'_, '_>) -> Outcome {
    *value = Some(args.duration(Milliseconds)?);
    args.finish()
}

/// Turns task profiling on or off. `auto` has no automatic mode in Weir.
fn profiling(global: &mut GlobalSettings<'_>, args: &mut Args<'_, '_>) -> Outcome {
    args.required("'on', 'off' or 'auto'")?;
    let words = args.statement.arguments();
    args.rest();
    for word in words {
        match word.as_str() {
            "on" => global.plan.profile_tasks = true,
            "off" | "auto" => global.plan.profile_tasks = false,
            "no-lock" | "no-memory" => {}
            "lock" | "memory" => {
                args.advise(format!("`profiling.tasks {word}` has no effect: it is not profiled"))
            }
            other => {
                let near =
                    diag::suggest(other, ["on", "off", "auto", "lock", "no-lock", "memory", "no-memory"]);
                return Err(Diagnostic::alert(format!("unknown argument `{other}` for `profiling.tasks`"))
                    .at(word.span())
                    .did_you_mean(near)
                    .haproxy(format!(
                        "'profiling.tasks' expects either 'on', 'auto', 'lock', 'no-lock', 'memory', 'no-memory' or 'off' but got '{other}'."
                    )));
            }
        }
    }
    Ok(())
}

/// A shared memory name for `shm_open`.
fn shm_stats_file<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a name")?;
    let name = word.trim_start_matches('/');
    if name.is_empty() || name.len() > 255 || name.contains('/') || [".", ".."].contains(&name) {
        return Err(args
            .wrong(format!("`shm-stats-file`: invalid shared memory name `{word}`"))
            .label("use a name without `/` after the first character, for a file in /dev/shm"));
    }
    global.plan.shm_stats_file = Some(name.into());
    args.finish()
}

fn shm_stats_objects<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    // Each object has a record of 400 bytes per process. This takes address space, and memory once the record is used.
    global.plan.shm_stats_objects = Some(args.integer("a number", 1, 1_000_000)?);
    args.finish()
}

fn blocked_traffic<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a time")?;
    let time = args.time(word, Milliseconds)?;
    if !(1..=1000).contains(&time.as_millis()) {
        return Err(args.wrong(format!("{word} is out of range")).label("1 ms to 1000 ms"));
    }
    global.plan.blocked_traffic = Some(time);
    args.finish()
}

fn chroot<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.chroot = Some(match args.required("a path or `auto`")?.as_str() {
        "auto" => Chroot::Auto,
        path => Chroot::Directory(path_of(path).into()),
    });
    args.finish()
}

fn setcap<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    const NAMES: &[(&str, Capability)] = &[
        ("cap_net_raw", Capability::NetRaw),
        ("cap_net_admin", Capability::NetAdmin),
        ("cap_net_bind_service", Capability::NetBindService),
        ("cap_sys_admin", Capability::SysAdmin),
    ];
    let names = || NAMES.iter().map(|(name, _)| *name);
    let known = || format!("one of: {}", names().collect::<Vec<_>>().join(", "));
    let word = args.required(&known())?;
    for part in word.as_str().split(',').filter(|part| !part.is_empty()) {
        let Some((_, capability)) = NAMES.iter().find(|(name, _)| *name == part) else {
            return Err(Diagnostic::alert(format!("unknown capability `{part}` for `setcap`"))
                .at(word.span())
                .did_you_mean(diag::suggest(part, names()))
                .help(known())
                .haproxy(format!("'setcap' : unsupported capability '{part}'.")));
        };
        if !global.plan.capabilities.contains(capability) {
            global.plan.capabilities.push(*capability);
        }
    }
    args.finish()
}

/// A numeric user or group ID; HAProxy ignores other values.
fn account(value: &mut Option<u32>, args: &mut Args<'_, '_>) -> Outcome {
    let word = args.required("an integer")?;
    if word.is_empty() || word.contains(|c: char| !c.is_ascii_digit()) && !word.starts_with('-') {
        let name = args.keyword();
        let other = if name == "uid" { "user" } else { "group" };
        args.diagnostics.push(
            Diagnostic::warning(format!("`{name}`: `{word}` is not a number, and is ignored"))
                .at(word.span())
                .label(format!("use `{other} {word}` for a name"))
                .haproxy(format!("{name}: string '{word}' is not a number.\n   | You might want to use '{other} {word}' to use a system {other} name.")),
        );
        return args.finish();
    }
    *value = Some(args.number(word, 0, u32::MAX)?);
    args.finish()
}

/// The base directory of file names. Setting it twice would be ambiguous.
fn base<'a>(value: &mut Option<&'a str>, args: &mut Args<'a, '_>) -> Outcome {
    if value.is_some() {
        let name = args.keyword();
        return Err(Diagnostic::alert(format!("`{name}` is already set"))
            .at(args.statement.keyword_span())
            .help("remove one of the two lines")
            .haproxy(format!("'{name}' already specified.")));
    }
    *value = Some(args.required("a directory")?);
    args.finish()
}

/// A list of `ssl-default-…`, which is parsed where it is used.
fn default<'a>(value: &mut Option<TlsValue<'a>>, args: &mut Args<'a, '_>) -> Outcome {
    *value = Some(args.required("a list")?.into());
    args.finish()
}

fn node<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a name")?;
    if word.contains(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_')) {
        return Err(args
            .wrong(format!("invalid node name `{word}`"))
            .label("use letters, digits, `.`, `-` and `_`")
            .haproxy("'node' requires valid node name - non-empty string with digits(0-9), letters(A-Z, a-z), dot(.), hyphen(-) or underscode(_)."));
    }
    global.plan.node = Some(word.as_str().into());
    args.finish()
}

fn path(value: &mut Option<PathBuf>, args: &mut Args<'_, '_>) -> Outcome {
    *value = Some(path_of(args.required("a path")?.as_str()).into());
    args.finish()
}

/// The description is the rest of the line.
fn description<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.required("a text")?;
    let words: Vec<&str> = args.statement.arguments().iter().map(|word| word.as_str()).collect();
    args.rest();
    global.plan.description = Some(words.join(" ").into());
    Ok(())
}

/// `on` or `off` may follow; `libs` has no effect on a statically linked program.
fn latency_histograms<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let kinds = [
        ("on", LatencyHistograms::On),
        ("off", LatencyHistograms::Off),
        ("native", LatencyHistograms::Native),
    ];
    global.plan.latency_histograms = args.one_of(&kinds)?;
    args.finish()
}

fn set_dumpable<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if let Some(word) = args.next() {
        let on = args.choice(word, &[("on", true), ("off", false), ("libs", true)])?;
        global.plan.set_dumpable = on && !args.negated();
        if word == "libs" {
            args.advise("`libs` has no effect: the program is statically linked");
        }
        return args.finish();
    }
    flag(&mut global.plan.set_dumpable, args)
}

/// Zero and a missing line mean the maximum that the limit on descriptors allows.
fn maxconn<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    some(&mut global.plan.maxconn, args, 0, u32::MAX)?;
    global.plan.maxconn = global.plan.maxconn.filter(|limit| *limit > 0);
    Ok(())
}

fn user<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("a user name")?;
    let id = user_id(name).ok_or_else(|| {
        args.wrong(format!("there is no user `{name}`"))
            .haproxy(format!("cannot find user id for '{name}' (0:Success)"))
    })?;
    global.plan.uid = Some(id);
    args.finish()
}

fn group<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("a group name")?;
    let id = group_id(name).ok_or_else(|| {
        args.wrong(format!("unknown group `{name}`"))
            .haproxy(format!("cannot find group id for '{name}' (0:Success)"))
    })?;
    global.plan.gid = Some(id);
    args.finish()
}

fn close_spread_time<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.take("infinite") {
        global.plan.close_spread_time = Some(Duration::MAX);
        return args.finish();
    }
    time(&mut global.plan.close_spread_time, args)
}

fn stats_timeout<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let value = args.duration(Milliseconds)?;
    if value.is_zero() {
        return Err(args.wrong("`stats timeout` must not be zero"));
    }
    global.plan.stats_timeout = value;
    args.finish()
}

fn variable<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = args.required("a variable name and an expression")?;
    // Variables of other scopes would end with their owner.
    if name.split_once('.').is_some_and(|(scope, _)| scope != "proc") {
        let text = "only variables with process scope, `proc.<name>`, can be set here";
        let haproxy = format!(
            "'{}': cannot set variable '{name}', only scope 'proc' is permitted in the global section.",
            args.keyword()
        );
        return Err(args.wrong(text).haproxy(haproxy));
    }
    args.required("an expression")?;
    args.rest();
    global.variables.push(args.statement);
    Ok(())
}

fn master_worker<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    args.take("no-exit-on-failure");
    global.plan.master_worker = true;
    args.warn("`master-worker` is deprecated: use the `-W` option instead");
    args.finish()
}

fn unix_bind<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    while let Some(word) = args.next() {
        match word.as_str() {
            "prefix" => global.unix_bind.prefix = Some(args.value()?.as_str().into()),
            "mode" => {
                let mode = args.value()?;
                global.unix_bind.mode = Some(octal(mode, args)?);
            }
            "uid" => global.unix_bind.uid = Some(args.integer("a number", 0, u32::MAX)?),
            "gid" => global.unix_bind.gid = Some(args.integer("a number", 0, u32::MAX)?),
            "user" => {
                let name = args.value()?;
                global.unix_bind.uid =
                    Some(user_id(name).ok_or_else(|| args.wrong(format!("there is no user `{name}`")))?);
            }
            "group" => {
                let name = args.value()?;
                global.unix_bind.gid =
                    Some(group_id(name).ok_or_else(|| args.wrong(format!("unknown group `{name}`")))?);
            }
            other => {
                let near = diag::suggest(other, ["prefix", "mode", "uid", "gid", "user", "group"]);
                return Err(args
                    .wrong(format!("unknown argument `{other}` for `unix-bind`"))
                    .did_you_mean(near)
                    .haproxy("'unix-bind' only supports the 'prefix', 'mode', 'user', 'group', 'uid' and 'gid' options."));
            }
        }
    }
    Ok(())
}

/// Parses a socket mode in octal.
pub fn octal(word: &syntax::Word, args: &Args<'_, '_>) -> Result<u32, Diagnostic> {
    u32::from_str_radix(word, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(|| {
        args.wrong(format!("invalid file mode `{word}`")).label("use an octal number, such as `660`")
    })
}

fn h1_case_adjust<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let (from, to) = (args.required("<from> and <to>")?, args.required("<from> and <to>")?);
    if !from.eq_ignore_ascii_case(to) {
        return Err(args.wrong(format!("`{from}` and `{to}` differ in more than case")));
    }
    if global.plan.h1_case_adjust.iter().any(|(known, _)| **known == **from) {
        return Err(Diagnostic::alert(format!("`{from}` is already mapped to another name"))
            .at(from.span())
            .haproxy(format!("duplicate entry '{from}'")));
    }
    global.plan.h1_case_adjust.push((from.as_str().into(), to.as_str().into()));
    args.finish()
}

fn h1_case_adjust_file<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let path = args.required("a file")?;
    let text = base::file::read_to_string(path.as_str())
        .map_err(|error| args.wrong(format!("cannot read `{path}`: {}", error_text(&error))))?;
    for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (None, ..) => {}
            (Some(from), Some(to), None) if from.eq_ignore_ascii_case(to) => {
                global.plan.h1_case_adjust.push((from.into(), to.into()));
            }
            _ => return Err(args.wrong(format!("`{path}` contains an invalid line: `{line}`"))),
        }
    }
    args.finish()
}

/// Parses `+404,-410-412`: `+` adds to the default set, `-` removes from it, and neither starts an empty set.
fn status_set(set: &mut Statuses, args: &mut Args<'_, '_>) -> Outcome {
    args.required("ranges of status codes")?;
    for word in args.statement.arguments() {
        let (sign, ranges) = match word.strip_prefix(['+', '-']) {
            Some(ranges) => (word.chars().next(), ranges),
            None => (None, word.as_str()),
        };
        if sign.is_none() {
            set.clear();
        }
        for range in ranges.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let bounds = low.parse::<u16>().ok().zip(high.parse::<u16>().ok());
            let Some((low, high)) = bounds.filter(|(low, high)| 100 <= *low && low <= high && *high < 600)
            else {
                return Err(Diagnostic::alert(format!("invalid range of status codes `{range}`"))
                    .at(word.span())
                    .label("use 100 to 599"));
            };
            if sign == Some('-') { set.remove(low..=high) } else { set.add(low..=high) }
        }
    }
    args.rest();
    Ok(())
}

fn default_path<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("'current', 'config', 'parent' or 'origin'")?;
    global.plan.default_path = match word.as_str() {
        "current" => DefaultPath::Current,
        "config" => DefaultPath::Config,
        "parent" => DefaultPath::Parent,
        "origin" => {
            let directory = args.required("a directory")?;
            let path = path_of(directory.as_str());
            base::seen_files::note(&path);
            std::fs::read_dir(&path).map_err(|error| {
                args.wrong(format!("cannot use `{directory}`: {error}"))
                    .haproxy(format!("couldn't set 'default-path' to origin '{directory}': {error}."))
            })?;
            DefaultPath::Origin(path.into())
        }
        other => {
            return Err(args
                .wrong(format!("unknown argument `{other}` for `default-path`"))
                .did_you_mean(diag::suggest(other, ["current", "config", "parent", "origin"])));
        }
    };
    args.finish()
}

/// The unit of `stats refresh` and the like.
pub const SECONDS: base::units::DefaultUnit = Seconds;
