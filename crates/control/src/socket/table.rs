//! The table of runtime socket commands: lookup, permission checks and help.

use std::fmt::Write;
use std::sync::Arc;

use base::keyword_support::Support;
use runtime::watchdog;

use crate::access::AccessLevel;
use crate::commands::{
    anonymized, authorities, backends, caches, captured, certificates, clearing, debug, descriptors, dev,
    events, handshakes, http_client, lists, orders, overviews, patterns, peers, profiling, quic, rare,
    reloads, servers, sets, show, streams, tables, traces, variables,
};
use crate::invocation::{Call, CommandReply, ConnectionSettings, denied, error, info};
use crate::process::Runtime;

/// The mode required for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandMode {
    Normal,
    Experimental,
    Expert,
}

type CommandFn = fn(&mut Call<'_>) -> CommandReply;

/// A row of the table.
pub(crate) struct Command {
    pub(crate) words: &'static str,
    usage: &'static str,
    text: &'static str,
    level: AccessLevel,
    mode: CommandMode,
    /// The function of the command, or `None` for a command that is known but not supported.
    run: Option<CommandFn>,
    support: Support,
}

impl Command {
    const fn partial(self, reason: &'static str) -> Self {
        Self { support: Support::Partial(reason), ..self }
    }
}

/// Commands that change nothing which a reload resets: the first words, or all of them.
const KEEPING: &[&str] = &[
    "clear counters",
    "clear table",
    "dump",
    "echo",
    "experimental-mode",
    "expert-mode",
    "explain",
    "get",
    "help",
    "operator",
    "prompt",
    "quit",
    "reload",
    "save",
    "set anon",
    "set profiling",
    "set severity-output",
    "set table",
    "set timeout",
    "show",
    "shutdown session",
    "shutdown sessions",
    "trace",
    "user",
    "wait",
];

impl Command {
    fn keeps_settings(&self) -> bool {
        KEEPING.iter().any(|words| {
            self.words.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    }
}

const fn row(
    words: &'static str,
    usage: &'static str,
    level: AccessLevel,
    text: &'static str,
    run: CommandFn,
) -> Command {
    Command { words, usage, text, level, mode: CommandMode::Normal, run: Some(run), support: Support::Full }
}

/// A developer command, which requires expert mode.
const fn debug(words: &'static str, usage: &'static str, text: &'static str, run: CommandFn) -> Command {
    Command {
        words,
        usage,
        text,
        level: Admin,
        mode: CommandMode::Expert,
        run: Some(run),
        support: Support::Full,
    }
}

/// A command that will never be supported, with the reason.
const fn refused(words: &'static str, usage: &'static str, why: &'static str) -> Command {
    let support = Support::None(why);
    Command { words, usage, text: why, level: Admin, mode: CommandMode::Expert, run: None, support }
}

use AccessLevel::{Admin, Operator, User};

/// All commands of the worker (management manual 9.3), sorted alphabetically as in `help`.
#[rustfmt::skip]
pub(crate) const COMMANDS: &[Command] = &[
    // words usage level description function
    row  ("_getsocks",                "",                                 Admin,    "pass the listening sockets to another process",                                     |_| CommandReply::Quit),
    row  ("abort ssl ca-file",        "<cafile>", Admin,    "abort a transaction for a CA file", authorities::abort_ca),
    row  ("abort ssl cert",           "<certfile>",                       Admin,    "abort a transaction for a certificate file", certificates::abort),
    row  ("abort ssl crl-file",       "<crlfile>", Admin,    "abort a transaction for a CRL file", authorities::abort_crl),
    row  ("acme challenge_ready",     "<certificate> domain <domain>",    Admin,    "notify that the challenge of a domain is ready", orders::challenge_ready),
    row  ("acme renew",               "<certificate>",                    Admin,    "renew a certificate with the ACME protocol", orders::renew),
    row  ("acme status",              "",                                 Admin,    "show the status of certificates configured with ACME", orders::status),
    row  ("add acl",                  "[@<ver>] <acl> <pattern>",         Admin,    "add an acl entry",                                                                  patterns::add_acl),
    row  ("add backend",              "<bk> from <defpx> [mode <mode>]",  Admin,    "create a new backend", backends::add),
    row  ("add map",                  "[@<ver>] <map> <key> <val>",       Admin,    "add a map entry (payload supported instead of key/val)",                            patterns::add_map),
    row  ("add server",               "<bk>/<srv> <addr> [opts]*",        Admin,    "create a new server",                                                               servers::add),
    row  ("add ssl ca-file",          "<cafile> <payload>", Admin,    "add a certificate into the CA file", authorities::add_ca),
    row  ("add ssl crt-list",         "<list> <cert> [opts]*", Admin,    "add to crt-list file <list> a line <cert> or a payload", lists::add),
    row  ("add ssl jwt",              "<cert>",                           Admin,    "add a certificate to those usable with jwt_verify_cert", certificates::add_jwt),
    row  ("clear acl",                "[@<ver>] <acl>",                   Admin,    "clear the contents of this acl",                                                    patterns::clear_acl),
    row  ("clear cache",              "<cache> [key|prefix|tag <what>]",  Admin,    "remove all responses of a cache, or those with a key, prefix or tag",              caches::clear),
    row  ("clear counters",           "[all|server <bk>/<srv> [force]]",  Operator, "clear max statistics counters (or all counters)",                                 clearing::clear_counters),
    row  ("clear map",                "[@<ver>] <map>",                   Admin,    "clear the contents of this map",                                                    patterns::clear_map),
    row  ("clear table",              "<table> [<filter>]*",              Operator, "remove an entry from a table (filter: data/key)", tables::clear),
    row  ("commit acl",               "@<ver> <acl>",                     Admin,    "commit the ACL at this version",                                                    patterns::commit_acl),
    row  ("commit map",               "@<ver> <map>",                     Admin,    "commit the map at this version",                                                    patterns::commit_map),
    row  ("commit ssl ca-file",       "<cafile>", Admin,    "commit a CA file", authorities::commit_ca),
    row  ("commit ssl cert",          "<certfile>",                       Admin,    "commit a certificate file", certificates::commit),
    row  ("commit ssl crl-file",      "<crlfile>", Admin,    "commit a CRL file", authorities::commit_crl),
    row  ("debug counters",           "[?|all|bug|cnt|chk|glt]*",         Operator, "dump/reset rare event counters",                                                  rare::counters),
    debug("debug dev abort",          "",                                 "terminate the process with SIGABRT",                                                 debug::abort),
    debug("debug dev bug",            "",                                 "cause a panic, which closes the connection and is counted",                         debug::bug),
    debug("debug dev check",          "",                                 "write a warning to standard error",                                                 debug::warn),
    refused("debug dev close",        "<fd> [hard]",                      "a descriptor can only be closed by its owner: use `shutdown session` or `shutdown frontend`"),
    refused("debug dev deadlock",     "[nbtask]",                         "no task can deadlock, because locks are never held across await points: use `debug dev loop` to block a worker"),
    debug("debug dev delay",          "[ms]",                             "block the thread by sleeping (100 ms by default)",                                  debug::delay),
    debug("debug dev exit",           "[code]",                           "terminate the process immediately",                                                debug::exit),
    debug("debug dev fd",             "",                                 "list the open file descriptors of the process",                                     descriptors::raw),
    row  ("debug dev hash",           "[msg]",                            User,     "return msg hashed if anon is set",                                                anonymized::hash),
    refused("debug dev hex",          "<addr> [len]",                     "memory cannot be read by address in safe Rust"),
    debug("debug dev log",            "[msg] ...",                        "send this msg to global logs",                                                      debug::log),
    debug("debug dev loop",           "<ms> [warn]",                      "block the thread by computing",                                                     debug::busy_loop).partial("`isolated` is rejected: threads are not isolated"),
    debug("debug dev panic",          "",                                 "terminate the process with SIGABRT",                                                 debug::abort),
    refused("debug dev sched",        "{task|tasklet} [k=v]*",            "tokio schedules the tasks"),
    refused("debug dev stream",       "[k=v]*",                           "streams have no flags that can be changed: use `show sess` and `shutdown session`"),
    refused("debug dev sym",          "<addr>",                           "function addresses are not resolved: a panic prints files and lines"),
    refused("debug dev task",         "<ptr> [wake|expire|kill]",         "tasks have no addresses: use `show tasks` and `shutdown session`"),
    refused("debug dev tkill",        "[thr] [sig]",                      "signals are sent to the process: use kill(1)"),
    debug("debug dev warn",           "",                                 "write a warning to standard error",                                                 debug::warn),
    debug("debug dev write",          "[size]",                           "write that many bytes",                                                             debug::write),
    row  ("del acl",                  "<acl> [<key>|#<ref>]",             Admin,    "delete acl entries matching <key>",                                                 patterns::del_acl),
    row  ("del backend",              "<bk>",                             Admin,    "delete a backend", backends::del),
    row  ("del map",                  "<map> [<key>|#<ref>]",             Admin,    "delete map entries matching <key>",                                                 patterns::del_map),
    row  ("del server",               "<bk>/<srv>",                       Admin,    "remove a dynamically added server",                                                 servers::del),
    row  ("del ssl ca-file",          "<cafile>", Admin,    "delete an unused CA file", authorities::del_ca),
    row  ("del ssl cert",             "<certfile>",                       Admin,    "delete an unused certificate file", certificates::del),
    row  ("del ssl crl-file",         "<crlfile>", Admin,    "delete an unused CRL file", authorities::del_crl),
    row  ("del ssl crt-list",         "<list> <cert[:line]>", Admin,    "delete a line <cert> from crt-list file <list>", lists::del),
    row  ("del ssl jwt",              "<cert>",                           Admin,    "remove a certificate from those usable with jwt_verify_cert", certificates::del_jwt),
    row  ("disable agent",            "<bk>/<srv>",                       Admin,    "disable agent checks",                                                              sets::disable_agent),
    row  ("disable dynamic-cookie backend", "<bk>",                       Admin,    "disable dynamic cookies on a specific backend",                                    sets::disable_dynamic_cookie),
    row  ("disable frontend",         "<frontend>",                       Admin,    "temporarily disable specific frontend",                                           sets::disable_frontend),
    row  ("disable health",           "<bk>/<srv>",                       Admin,    "disable health checks",                                                           sets::disable_health),
    row  ("disable server",           "<bk>/<srv>",                       Admin,    "disable a server for maintenance (use 'set server' instead)",                     sets::disable_server),
    row  ("dump ssl cert",            "<certfile>",                       Admin,    "dump the SSL certificates in PEM format", certificates::dump),
    row  ("dump stats-file",          "",                                 User,     "dump stats for a stats-file",                                                      overviews::stats_file),
    row  ("echo",                     "<text>",                           User,     "print text to the output",                                                        show::echo),
    row  ("enable agent",             "<bk>/<srv>",                       Admin,    "enable agent checks",                                                               sets::enable_agent),
    row  ("enable dynamic-cookie backend", "<bk>",                        Admin,    "enable dynamic cookies on a specific backend",                                     sets::enable_dynamic_cookie),
    row  ("enable frontend",          "<frontend>",                       Admin,    "re-enable specific frontend",                                                     sets::enable_frontend),
    row  ("enable health",            "<bk>/<srv>",                       Admin,    "enable health checks",                                                            sets::enable_health),
    row  ("enable server",            "<bk>/<srv>",                       Admin,    "enable a disabled server (use 'set server' instead)",                             sets::enable_server),
    row  ("experimental-mode",        "[on|off]",                         Admin,    "enable/disable experimental features",                                            sets::experimental_mode),
    row  ("expert-mode",              "[on|off]",                         Admin,    "enable/disable expert features",                                                  sets::expert_mode),
    row  ("explain",                  "<method> <url> [src <ip>] [<header>: <value>]*", Operator, "explain what would happen to a request, without sending it", overviews::explain),
    row  ("get acl",                  "<acl> <value>",                    Admin,    "report the patterns matching a sample for an ACL",                                  patterns::get_acl),
    row  ("get map",                  "<map> <value>",                    Admin,    "report the keys and values matching a sample for a map",                            patterns::get_map),
    row  ("get var",                  "<name>",                           Operator, "retrieve contents of a process-wide variable",                                      variables::get_var),
    row  ("get weight",               "<bk>/<srv>",                       User,     "report a server's current weight",                                                sets::get_weight),
    row  ("help",                     "[<command>]",                      User,     "list matching or all commands",                                                   help),
    debug("httpclient",               "[--htx] <method> <URI>",           "send a request and show the response",                                                http_client::send).partial("`--htx` shows only block types and lengths; bodies are limited to 64 MiB"),
    row  ("new ssl ca-file",          "<cafile>", Admin,    "create a new CA file to be used in a crt-list", authorities::new_ca),
    row  ("new ssl cert",             "<certfile>",                       Admin,    "create a new certificate file to be used in a crt-list or a directory", certificates::new),
    row  ("new ssl crl-file",         "<crlfile>", Admin,    "create a new CRL file to be used in a crt-list", authorities::new_crl),
    row  ("operator",                 "",                                 User,     "lower the level of the current CLI session to operator",                          sets::operator),
    row  ("prepare acl",              "<acl>",                            Admin,    "prepare a new version for atomic ACL replacement",                                  patterns::prepare_acl),
    row  ("prepare map",              "<map>",                            Admin,    "prepare a new version for atomic map replacement",                                  patterns::prepare_map),
    row  ("prompt",                   "[help | n | i | p | timed]*",      User,     "toggle interactive mode with prompt",                                             sets::prompt),
    row  ("publish backend",          "<bk>",                             Admin,    "mark a backend as ready for traffic",                                             sets::publish_backend),
    row  ("quit",                     "",                                 User,     "disconnect",                                                                      sets::quit),
    row  ("refresh discovery",        "[<section>]",                      Operator, "read the lists of discovered servers in files and behind URLs now",                 overviews::refresh_discovery),
    row  ("reload",                   "[colour | json]",                   Admin,    "reload the configuration in this process and report the changes",                    reloads::reload),
    row  ("reload dry-run",           "[colour | json]",                   Admin,    "report what a reload would change, from the files or the payload",                   reloads::dry_run),
    row  ("save config",              "<file>",                            Admin,    "write the output of 'show config' to a file",                                        reloads::save_config),
    row  ("set anon global-key",      "<value>",                          Admin,    "change the global anonymizing key",                                               anonymized::global_key),
    row  ("set anon off",             "",                                 User,     "deactivate the anonymized mode",                                                  anonymized::off),
    row  ("set anon on",              "[value]",                          User,     "activate the anonymized mode",                                                    anonymized::on),
    row  ("set dynamic-cookie-key backend", "<bk> <k>",                   Admin,    "change a backend secret key for dynamic cookies",                                  sets::dynamic_cookie_key),
    row  ("set map",                  "<map> [<key>|#<ref>] <value>",     Admin,    "modify a map entry",                                                                patterns::set_map),
    row  ("set maxconn frontend",     "<frontend> <value>",               Admin,    "change a frontend's maxconn setting",                                             sets::maxconn_frontend),
    row  ("set maxconn global",       "<value>",                          Admin,    "change the per-process maxconn setting",                                          sets::maxconn_global),
    row  ("set maxconn server",       "<bk>/<srv> <value>",               Admin,    "change a server's maxconn setting",                                               sets::maxconn_server),
    row  ("set profiling",            "<what> {auto|on|off}",             Admin,    "enable/disable resource profiling (tasks,memory)", profiling::set_profiling).partial("`memory`, `lock` and `auto` are not supported"),
    row  ("set rate-limit",           "<setting> <value>",                Admin,    "change a rate limiting value",                                                    sets::rate_limit),
    row  ("set server",               "<bk>/<srv> [opts]",                Admin,    "change a server's state, weight, address or ssl",                                 sets::set_server),
    row  ("set severity-output",      "[none|number|string]",             User,     "set presence of severity level in feedback information",                          sets::severity_output),
    row  ("set ssl ca-file",          "<cafile> <payload>", Admin,    "replace a CA file", authorities::set_ca),
    row  ("set ssl cert",             "<certfile> <payload>",             Admin,    "replace a certificate file", certificates::set),
    row  ("set ssl crl-file",         "<crlfile> <payload>", Admin,    "replace a CRL file", authorities::set_crl),
    row  ("set ssl ocsp-response",    "<resp|payload>", Admin,     "update a certificate's OCSP Response from a base64-encode DER", handshakes::set_ocsp_response),
    row  ("set ssl tls-key",          "[id|file] <key>", Admin,     "set the next TLS key for the <id> or <file> listener to <key>", handshakes::set_tls_key),
    row  ("set table",                "<table> key <k> [data.* <v>]*",    Operator, "update or create a table entry's data", tables::set),
    row  ("set timeout",              "[cli] <delay>",                    User,     "change a timeout setting",                                                        sets::timeout),
    Command { words: "set var", usage: "<name> [fmt|expr] {<fmt>|<expr>}", level: Operator, text: "set variable from an expression/format", mode: CommandMode::Experimental, run: Some(variables::set_var), support: Support::Full },
    row  ("set weight",               "<bk>/<srv> <weight>[%]",           Admin,    "change a server's weight (use 'set server' instead)",                             sets::weight),
    row  ("show acl",                 "[@<ver>] [<acl>]",                 Admin,    "report available acls or dump an acl's contents",                                   patterns::show_acl),
    row  ("show activity",            "[-1|0|thread_num]",                Operator, "show per-thread activity stats (for support/developers)",                         show::activity),
    row  ("show anon",                "",                                 User,     "display the current state of anonymized mode",                                    anonymized::show),
    row  ("show backend",             "",                                 User,     "list backends in the current running config",                                     show::backend),
    row  ("show cache",               "",                                 Admin,    "show cache status",                                                               caches::show),
    row  ("show cache disk",          "[<cache>]",                        User,     "show the files of disk caches (all or for a cache)",                                  overviews::cache_disk),
    row  ("show cli level",           "",                                 User,     "display the level of the current CLI session",                                    show::cli_level),
    row  ("show cli sockets",         "",                                 User,     "dump list of cli sockets",                                                        show::cli_sockets),
    row  ("show config",              "",                                  Admin,    "show the configuration including changes made at run time",                          reloads::show_config),
    row  ("show default-server",      "[<bk>]",                           User,     "list the default-server definitions",                                               servers::show_defaults),
    row  ("show defaults",            "",                                 User,     "list the named defaults sections",                                                    backends::show_defaults),
    row  ("show dev",                 "",                                 User,     "show debug info for developers",                                                  show::dev),
    row  ("show discovery",           "[<section>|json]",                 User,     "show the sources of discovered servers (all, or one with its instances)", overviews::discovery),
    row  ("show env",                 "[<var>]",                          Operator, "dump environment variables known to the process",                                 show::env),
    row  ("show errors",              "[<px>] [request|response]",        Operator, "report last request and/or response errors for each proxy",                       captured::show_errors),
    row  ("show events",              "[<sink> [-w] [-n] [-0]|<topic> [<object>] [since <time>]]", User, "show event sink state, or recent events of a topic (all, servers, reloads, certificates, limits)",                                                             events::show_events),
    row  ("show fd",                  "[-!plcfbs]* [num]",                Operator, "dump list of file descriptors in use or a specific one",                          descriptors::show).partial("shows the type of each descriptor; there are no poller flags to show"),
    row  ("show hedge",               "[<backend>]",                      User,     "show statistics of hedged requests (all or for a backend)",                           overviews::hedge),
    row  ("show info",                "[desc|json|typed|float]*",         User,     "report information about the running process",                                    show::info),
    row  ("show libs",                "",                                 Operator, "show loaded object files and libraries",                                          dev::libs),
    row  ("show map",                 "[@ver] [map]",                     Admin,    "report available maps or dump a map's contents",                                    patterns::show_map),
    row  ("show mirror",              "[<backend>]",                      User,     "show statistics of mirrored requests (all or for a backend)",                         overviews::mirror),
    row  ("show opentelemetry",       "[<section>]",                      User,     "show the exports to OpenTelemetry collectors", overviews::opentelemetry),
    row  ("show outliers",            "[<backend>]",                      User,     "compare servers to their peers and show which are ejected (all or for a backend)",    overviews::outliers),
    row  ("show peers",               "[dict|-] [section]",               User,     "dump some information about all the peers or this peers section", peers::show),
    row  ("show pools",               "[by*] [match <pfx>] [nb]",         User,     "report information about the memory pools usage", profiling::show_pools),
    row  ("show profiling",           "[<what>|<#lines>|<opts>]*",        Admin,    "show profiling state (all,status,tasks,memory)", profiling::show_profiling).partial("`memory` is not supported; function addresses are not shown"),
    row  ("show quic",                "[help|<format>] [<filter>]",       Operator, "display quic connections status",                                                   quic::show).partial("connection IDs are those of the handshake, `expire` is the next timer of the connection, and offsets of streams are not shown"),
    row  ("show resolvers",           "[id]",                             User,     "dumps counters from all resolvers section and associated name servers",             overviews::resolvers),
    row  ("show retry-budget",        "[<backend>]",                      User,     "show the retry budget (all or for a backend)",                                        overviews::retry_budget),
    row  ("show schema json",         "",                                 User,     "report schema used for stats",                                                    show::schema),
    row  ("show servers conn",        "[<backend>]",                      User,     "dump server connections status (all or for a single backend)",                    show::servers_conn),
    row  ("show servers state",       "[<backend>]",                      User,     "dump volatile server information (all or for a single backend)",                  show::servers_state),
    row  ("show sess",                "[help|<id>|all] [<options>*]",     Operator, "report the list of current streams or dump this exact stream",                    streams::show_sess),
    row  ("show ssl ca-file",         "[<cafile>[:<index>]]", Operator, "display the SSL CA files used in memory, or the details of a <cafile>", authorities::show_ca),
    row  ("show ssl cert",            "[<certfile>]",                     Operator, "display the SSL certificates used in memory, or the details of a file", certificates::show),
    row  ("show ssl crl-file",        "[<crlfile[:<index>>]]", Operator, "display the SSL CRL files used in memory, or the details of a <crlfile>", authorities::show_crl),
    row  ("show ssl crt-list",        "[-n] [<list>]", Admin,    "show the list of crt-lists or the content of a crt-list file <list>", lists::show),
    row  ("show ssl jwt",             "",                                 Operator, "list the certificates usable with jwt_verify_cert", certificates::show_jwt),
    row  ("show ssl ocsp-response",   "[[text|base64] id]", Admin,     "display the IDs of the OCSP responses used in memory, or the details of one", handshakes::ocsp_response).partial("extensions other than the nonce are shown as OID and bytes"),
    row  ("show ssl ocsp-updates",    "", Admin,     "display information about the next 'nb' ocsp responses to be updated", handshakes::ocsp_updates),
    row  ("show ssl providers",       "", User,      "show loaded SSL providers", handshakes::providers).partial("there is a single cryptographic library"),
    row  ("show ssl sni",             "[-f <frontend>]", User,      "show the list of SNI and their corresponding filename", handshakes::sni),
    row  ("show startup-logs",        "",                                 Operator, "report logs emitted during startup",                                              show::startup_logs),
    row  ("show stat",                "[desc|json|no-maint|typed|up]*",   User,     "report counters for each proxy and server",                                       show::stat),
    row  ("show table",               "<table> [<filter>]*",              User,     "report table usage stats or dump this table's contents (filter: data/key)", tables::show),
    row  ("show tasks",               "",                                 User,     "show running tasks",                                                              dev::tasks),
    row  ("show threads",             "",                                 User,     "show some threads debugging information",                                         show::threads),
    row  ("show tls-keys",            "[id|*]", Admin,     "show tls keys references or dump tls ticket keys when id specified", handshakes::tls_keys),
    row  ("show trace",               "[<module>]",                       User,     "show live tracing state", traces::show),
    row  ("show version",             "",                                 User,     "show version of the current process",                                             show::version),
    row  ("shutdown frontend",        "<frontend>",                       Admin,    "stop a specific frontend",                                                        sets::shutdown_frontend),
    row  ("shutdown session",         "[id]",                             Admin,    "kill a specific session",                                                         streams::shutdown_session),
    row  ("shutdown sessions server", "<bk>/<srv>",                       Admin,    "kill sessions on a server",                                                       streams::shutdown_sessions_server),
    row  ("trace",                    "[<module>|0] [cmd [args...]]",     Operator, "manage live tracing (empty to list, 0 to stop all)", traces::trace).partial("sources: h2, fcgi, spop, acme, ssl, h3, quic, qmux, h1, stream, peers, check, session, rules; no `qcm`, `applet`, `pt`, `haterm`; events that cannot occur are rejected"),
    row  ("unpublish backend",        "<bk>",                             Admin,    "mark a backend as not ready for traffic",                                         sets::unpublish_backend),
    row  ("update ssl ocsp-response", "<certfile>",                       Admin,    "send ocsp request and update stored ocsp response", handshakes::update_ocsp_response),
    row  ("user",                     "",                                 User,     "lower the level of the current CLI session to user",                              sets::user),
    row  ("wait",                     "{-h|<delay_ms>} cond [args...]",   Admin,    "wait the specified delay or condition (-h to see list)",                          servers::wait),
];

/// The commands at the end of every help.
const LAST: [&str; 3] = ["help", "prompt", "quit"];

/// The command that matches the start of `words`; of several, the one with the most words.
pub(crate) fn find(words: &[String]) -> Option<&'static Command> {
    let first = words.first()?;
    COMMANDS
        .iter()
        // A comparison of prefixes excludes most of them quickly, for clients that send a million commands.
        .filter(|command| command.words.starts_with(first.as_str()))
        .filter(|command| {
            let mut given = words.iter();
            command.words.split(' ').all(|own| given.next().is_some_and(|word| word == own))
        })
        .max_by_key(|command| command.words.len())
}

/// Runs one command.
pub(crate) fn run(
    runtime: &Arc<Runtime>,
    words: &[String],
    payload: Option<&str>,
    settings: &mut ConnectionSettings,
) -> CommandReply {
    let Some(command) = find(words) else {
        if let Some(answer) = runtime.scripts().and_then(|scripts| scripts.run(words)) {
            return CommandReply::Later(Box::pin(async move { CommandReply::Text(answer.await) }));
        }
        let scripted = scripted(runtime, words);
        let all = matching(words).is_empty() && scripted.is_empty();
        let first = words.first().map_or("", String::as_str);
        let title = if all {
            format!("Unknown command: '{first}'. Please enter one of the following commands only:")
        } else {
            format!("Unknown command: '{first}', but maybe one of the following ones is a better match:")
        };
        return info(listing(&title, words, &scripted));
    };
    // The mode is checked before the level, so that errors appear in the same order as in HAProxy.
    match command.mode {
        CommandMode::Expert if !settings.expert => {
            return error("This command is restricted to expert mode only.");
        }
        CommandMode::Experimental if !settings.experimental => {
            return error("This command is restricted to experimental mode only.");
        }
        _ => {}
    }
    if settings.level < command.level {
        return denied();
    }
    let Some(run) = command.run else {
        return error(match command.support {
            Support::None(why) if why != "not supported yet" => {
                format!("The command '{}' is not supported: {why}.", command.words)
            }
            _ => format!("The command '{}' is not supported yet.", command.words),
        });
    };
    if !command.keeps_settings() {
        runtime.set_edited(true);
    }
    let args = &words[command.words.split(' ').count()..];
    watchdog::during(watchdog::TaskName::Command, || run(&mut Call { runtime, args, payload, settings }))
}

/// The commands that share the most leading words with `words`, sorted by similarity. The last word may be incomplete.
fn matching(words: &[String]) -> Vec<&'static Command> {
    let listed = || COMMANDS.iter().filter(|command| command.mode == CommandMode::Normal);
    let shared = |command: &Command| {
        let own = command.words.split(' ');
        own.zip(words).take_while(|(own, word)| own == word).count()
    };
    let most = listed().map(shared).max().unwrap_or(0);
    if most > 0 {
        let best: Vec<_> = listed().filter(|command| shared(command) == most).collect();
        let begun: Vec<_> = best
            .iter()
            .copied()
            .filter(|command| {
                let next = command.words.split(' ').nth(most);
                next.zip(words.get(most)).is_some_and(|(own, word)| own.starts_with(word.as_str()))
            })
            .collect();
        return if begun.is_empty() { best } else { begun };
    }
    let typed = words.join(" ");
    listed().filter(|command| distance(command.words, &typed) <= 2).collect()
}

/// The edit distance of two short texts.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let best = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}

/// The usages of script commands that begin with the first of `words`, or of all script commands.
fn scripted(runtime: &Arc<Runtime>, words: &[String]) -> Vec<String> {
    let all = runtime.scripts().map_or_else(Vec::new, |scripts| scripts.usages());
    let is_meant = |path: &str| {
        words.first().is_none_or(|first| path.split(' ').next().is_some_and(|word| word == first))
    };
    all.into_iter().filter(|(path, _)| is_meant(path)).map(|(_, usage)| usage).collect()
}

/// The help text: a title, the matching commands, the commands of scripts, and the commands that are always shown. Every level sees
/// all commands.
fn listing(title: &str, words: &[String], scripted: &[String]) -> String {
    let mut shown = if words.is_empty() { Vec::new() } else { matching(words) };
    if shown.is_empty() && (words.is_empty() || scripted.is_empty()) {
        shown = COMMANDS.iter().filter(|command| command.mode == CommandMode::Normal).collect();
    }
    shown.retain(|command| !LAST.contains(&command.words) && command.words != "_getsocks");
    shown.extend(COMMANDS.iter().filter(|command| LAST.contains(&command.words)));
    let mut out = format!("{title}\n");
    for command in shown {
        let call = format!("{} {}", command.words, command.usage);
        let _ = writeln!(out, "  {:<40}: {}", call.trim_end(), command.text);
    }
    for usage in scripted {
        let _ = writeln!(out, "  {usage}");
    }
    out
}

fn help(call: &mut Call<'_>) -> CommandReply {
    let scripted = scripted(call.runtime, call.args);
    info(listing("The following commands are valid at this level:", call.args, &scripted))
}

/// A command in lists and references.
#[derive(Debug, Clone, Copy)]
pub struct CommandRow {
    /// The words of the command.
    pub words: &'static str,
    /// The arguments.
    pub usage: &'static str,
    /// A one-line description.
    pub doc: &'static str,
    /// Whether the command is supported. Unsupported commands are recognized and refused.
    pub built: bool,
    /// How completely it is supported.
    pub support: Support,
    /// The required level.
    pub level: AccessLevel,
    /// The command that enables the mode which this one requires.
    pub mode: Option<&'static str>,
}

/// All commands of HAProxy's worker, supported or not.
pub fn commands() -> impl Iterator<Item = CommandRow> {
    COMMANDS.iter().map(|command| CommandRow {
        words: command.words,
        usage: command.usage,
        doc: command.text,
        built: command.run.is_some(),
        support: command.support,
        level: command.level,
        mode: match command.mode {
            CommandMode::Normal => None,
            CommandMode::Experimental => Some("experimental-mode"),
            CommandMode::Expert => Some("expert-mode"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn commands_are_sorted_unique_and_matched_longest_first() {
        assert!(COMMANDS.windows(2).all(|pair| pair[0].words < pair[1].words));
        for command in COMMANDS {
            assert_eq!(find(&words(command.words)).map(|c| c.words), Some(command.words));
        }
        assert_eq!(find(&words("show servers state be")).map(|c| c.words), Some("show servers state"));
        assert!(find(&words("show servers")).is_none());
        assert!(find(&words("shows info")).is_none());
    }

    #[test]
    fn unknown_commands_get_suggestions() {
        let names = |line| matching(&words(line)).iter().map(|c| c.words).collect::<Vec<_>>();
        assert_eq!(
            names("set maxconn foo"),
            ["set maxconn frontend", "set maxconn global", "set maxconn server"]
        );
        assert_eq!(names("show serv"), ["show servers conn", "show servers state"]);
        assert_eq!(names("hlep"), ["help"]);
        assert!(names("xyzzyxyzzy").is_empty());
    }
}
