//! Reads the configuration for `-c` and for starting, and evaluates the condition of `-cc`.

use std::process::ExitCode;

use config::{Boot, Loaded, Setting};
use diag::{Diagnostics, Severity, SourceMap};
use plan::Plan;
use syntax::Environment;

use crate::args::{CommandLineArgs, ProgramAction};
use crate::messages::{MessageFormat, say};
use crate::{certificates, system, version};

/// Returns the plan of the configuration, or the exit code if there is none to start.
pub(crate) fn plan(args: &CommandLineArgs, messages: MessageFormat) -> Result<Plan, ExitCode> {
    let before = system::priority();
    let Loaded { plan, diagnostics, sources } = load(args);
    // `tune.renice.startup` applies only while the configuration is read. A process that may not raise its priority
    // keeps the lower one.
    if system::priority() != before {
        let _ = system::set_priority(before);
    }
    messages.show(&diagnostics, &sources);
    let Some(mut plan) = plan else {
        messages.refuse(&diagnostics, &sources);
        return Err(ExitCode::FAILURE);
    };
    let mut warned = diagnostics.has_warnings();
    if args.notify && plan.global.daemon {
        let text = "config : 'daemon' is not compatible with -Ws (master-worker mode for systemd), ignoring.";
        messages.say(Severity::Warning, text);
        warned = true;
    }
    apply(args, &mut plan);
    certificates::report(&plan.tls, messages);
    if warned && plan.global.zero_warning {
        messages.say(Severity::Alert, "Some warnings were found and 'zero-warning' is set. Aborting.");
        return Err(ExitCode::FAILURE);
    }
    if args.diagnostics {
        let (threads, groups) = (plan.global.workers(), plan.global.placement.groups.len());
        messages.say(Severity::Diag, &format!("Created {threads} threads split into {groups} groups"));
    }
    if args.master_socket.is_some() && !plan.global.master_worker {
        let text = "a master CLI socket was defined, but master-worker mode (-W) is not enabled.";
        messages.say(Severity::Alert, text);
        return Err(ExitCode::FAILURE);
    }
    let listening = |proxy: &plan::Proxy| {
        let datagrams = proxy.log_forward.as_ref().is_some_and(|forward| !forward.datagrams.is_empty());
        !proxy.disabled && (datagrams || !proxy.binds.is_empty())
    };
    let proxies = plan.proxies.iter().any(|proxy| listening(proxy));
    let listens = proxies || !plan.global.stats_sockets.is_empty();
    if args.action == ProgramAction::Check && warned && !args.quiet {
        say(format_args!("Warnings were found."));
    }
    // A configuration without listeners is valid, but only a master starts with it, because a reload may add some.
    if !listens && !plan.global.master_worker && args.action != ProgramAction::Check {
        return Err(no_listener(messages));
    }
    if args.action == ProgramAction::Check && args.verbose {
        say(format_args!("Configuration file is valid"));
    }
    Ok(plan)
}

/// Reads and resolves the configuration.
fn load(args: &CommandLineArgs) -> Loaded {
    let mut sources = SourceMap::new();
    match args.sources(&mut sources) {
        Ok(files) => config::load_sources(sources, files, &boot(args)),
        Err(errors) => {
            let mut diagnostics = Diagnostics::new();
            errors.into_iter().for_each(|error| diagnostics.push(error));
            Loaded { plan: None, diagnostics, sources }
        }
    }
}

fn no_listener(messages: MessageFormat) -> ExitCode {
    messages.say(
        Severity::Alert,
        "config : [haproxy.main()] No enabled listener found (check for 'bind' directives) ! Exiting.",
    );
    ExitCode::FAILURE
}

/// Applies the command line, which overrides the configuration.
pub(crate) fn apply(args: &CommandLineArgs, plan: &mut Plan) {
    let global = &mut plan.global;
    global.maxconn = args.maxconn.or(global.maxconn);
    if let Some(pidfile) = &args.pidfile {
        global.pidfile = Some(pidfile.clone());
    }
    // systemd waits for the process that it has started.
    let daemon = global.daemon && !args.notify;
    global.daemon = (daemon || args.daemon) && !args.debug && !args.foreground;
    global.quiet = (global.quiet || args.quiet) && !args.verbose;
    global.debug |= args.debug;
    global.master_worker |= args.master_worker;
    global.zero_warning |= args.zero_warning;
    if args.only_v4 {
        global.dns_accept_family = plan::resolvers::AcceptFamily::V4;
    }
    global.no_splice |= args.no_splice;
    global.no_reuseport |= args.no_reuseport;
}

pub(crate) fn boot(args: &CommandLineArgs) -> Boot {
    let disabled =
        [(args.no_splice, "SPLICE"), (args.no_reuseport, "REUSEPORT"), (args.no_getaddrinfo, "GETADDRINFO")];
    let disabled: Vec<&str> = disabled.iter().filter(|(off, _)| *off).map(|(_, name)| *name).collect();
    let mut environment = Environment::from_process();
    environment.set("HAPROXY_STARTUP_VERSION", version::SPOKEN);
    environment.set("HAPROXY_BRANCH", version::BRANCH);
    match &args.local_peer {
        Some(name) => environment.give("HAPROXY_LOCALPEER", name),
        None => environment.set("HAPROXY_LOCALPEER", &hostname()),
    }
    if args.master_worker {
        environment.set("HAPROXY_MWORKER", "1");
    }
    let paths: Vec<String> = args.files.iter().map(|path| path.display().to_string()).collect();
    environment.set("HAPROXY_CFGFILES", &paths.join(";"));
    let setting = Setting {
        ignore_resolution_failures: args.ignore_resolution,
        default_maxconn: args.proxy_maxconn,
        insecure_fork: args.insecure_fork,
        no_kernel_tls: args.no_kernel_tls,
        is_running: false,
        diagnostics: args.diagnostics,
        kernel_has_tls: Some(net::sys::kernel_has_tls),
        set_priority: Some(system::set_priority),
    };
    Boot { facts: version::facts(args.diagnostics, &disabled), environment, setting }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// `-cc`: exit code 0 if the condition is true, 1 if it is false, 2 if it is invalid.
pub(crate) fn condition(args: &CommandLineArgs, messages: MessageFormat) -> ExitCode {
    let boot = boot(args);
    match syntax::evaluate_condition(&args.condition, &boot.facts, &boot.environment) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            let text = error.haproxy.as_deref().map(|text| text.trim_start_matches(": ").to_owned());
            let text = text.unwrap_or(error.message);
            messages.say(Severity::Alert, &format!("Failed to evaluate condition: {text}"));
            ExitCode::from(2)
        }
    }
}
