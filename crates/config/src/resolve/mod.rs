//! Resolves the draft into the plan: names become indexes or shared objects, and expressions are compiled.
//!
//! Three passes over the proxies. The first parses lines into [`ProxySettings`], inheriting defaults. The second creates the shared
//! states of all proxies and servers, so that every name can be found. The third compiles everything that refers to names and
//! checks that the parts fit together.

mod acme;
mod advice;
mod balance;
mod binds;
mod cache;
mod captures;
mod carry_over;
pub(crate) mod certificates;
mod check;
mod crt_list;
mod discovered;
mod discovery;
mod fcgi;
mod filters;
mod formats;
mod global;
mod guids;
mod httpclient;
mod inherited;
mod ktls;
mod labels;
mod legacy;
mod lines;
pub(crate) mod log;
mod log_sections;
mod lua;
mod mail;
pub(crate) mod names;
mod peers;
mod policies;
mod proxies;
mod qmux;
mod quic;
mod resolvers;
mod reverse;
mod rule_sets;
mod rules;
pub(crate) mod runtime_defaults;
pub(crate) mod runtime_scope;
mod saved_addresses;
mod script_filters;
mod sections;
mod server_line;
mod server_modes;
mod server_settings;
mod servers;
mod spoe;
mod spoe_message;
mod stick;
mod tables;
mod telemetry;
mod tls;
mod tls_files;
mod tls_server;
mod traces;
mod track;
mod udp;
mod unique;
mod unused;
mod warnings;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use diag::{Diagnostic, Diagnostics, SourceMap, Span};
use plan::global::Global;
use plan::{Plan, RuntimeDefaults};
use runtime::placement::Placement;
use state::proxy::ProxySeed;
use syntax::Environment;

use crate::draft::args::Args;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::row::Negation;
use crate::draft::settings::{GlobalSettings, ProxySettings};
use crate::draft::tls::TlsDefaults;
use crate::draft::{Draft, EngineFile, Section, SectionKind, Statement};
use crate::find::without_side;
use names::NameTable;
use runtime_scope::Around;

/// Command line settings that affect a plan.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// `-dr`: servers with names that do not resolve start without an address.
    pub ignore_resolution_failures: bool,
    /// `-N`: the connection limit of proxies that do not set one.
    pub default_maxconn: Option<u32>,
    /// Whether the command line allows starting external programs regardless of the global section.
    pub insecure_fork: bool,
    /// `-dT`: TLS runs in user space.
    pub no_kernel_tls: bool,
    /// Whether the kernel supports TLS; called if a line requests it.
    pub kernel_has_tls: Option<fn() -> bool>,
    /// Whether the process is already running: its variables keep their values.
    pub is_running: bool,
    /// `-dD`: also reports advice.
    pub diagnostics: bool,
    /// Sets the priority of this process (`tune.renice.startup`), from the global sections to the end of the configuration.
    pub set_priority: Option<fn(i32) -> std::io::Result<()>>,
}

/// A proxy between the passes.
pub(crate) struct PendingProxy<'a> {
    pub(crate) section: &'a Section,
    /// Boxed because it is large, and is moved from pass to pass.
    pub(crate) settings: Box<ProxySettings<'a>>,
    pub(crate) state: Arc<state::Proxy>,
}

/// The state shared by all passes.
pub(crate) struct ResolveContext<'a> {
    pub(crate) sources: &'a SourceMap,
    pub(crate) environment: &'a Environment,
    pub(crate) setting: &'a Setting,
    pub(crate) diagnostics: &'a mut Diagnostics,
    pub(crate) names: NameTable<'a>,
    /// The TLS settings of the global section.
    pub(crate) tls: TlsDefaults<'a>,
    /// The TLS settings after each global section, with the section's location.
    pub(crate) tls_steps: Vec<(Span, TlsDefaults<'a>)>,
    /// Files for TLS that were read.
    pub(crate) tls_files: tls_files::ReadFiles,
    pub(crate) variables: RefCell<sample::vars::Variables>,
    pub(crate) patterns: RefCell<sample::pattern::PatternSets>,
    pub(crate) global: Global,
    /// The placement of the workers.
    pub(crate) placement: Placement,
    /// The names available in `log` lines.
    pub(crate) log: log::LogNames,
    /// Servers with refused lines, as `backend/server`. References to them are not reported in addition.
    pub(crate) refused: HashSet<String>,
    /// The `track` parameters, from the tracking server to the tracked one, as `backend/server`.
    pub(crate) tracks: HashMap<String, String>,
    /// Servers that can be the target of reverse connections (`bind rhttp@`), as `backend/server`.
    pub(crate) reversible: HashSet<String>,
    pub(crate) fleet_limits: HashSet<(u32, String)>,
    /// Addresses of servers from a state file.
    pub(crate) last: saved_addresses::LastAddresses,
    /// Addresses of server names already looked up.
    pub(crate) hosts: HashMap<String, Result<std::net::IpAddr, String>>,
    /// The tables shared by each `peers` section.
    pub(crate) shared: HashMap<Box<str>, Vec<plan::peers::SharedTable>>,
    /// `-dD`: the addresses bound so far, with the lines.
    pub(crate) bound: HashMap<advice::BoundAddress, Span>,
    /// `acme` sections and their orders.
    pub(crate) orders: acme::Orders<'a>,
    /// `fcgi-app` sections.
    pub(crate) fcgi_apps: fcgi::FcgiApps,
    /// The files of `filter spoe` lines.
    pub(crate) engine_files: &'a [EngineFile],
    /// Account keys by file.
    pub(crate) account_keys: HashMap<PathBuf, plan::acme::AccountKey>,
    /// The `guid`s in use.
    pub(crate) guids: guids::Guids,
    /// Whether the line being compiled is inherited from a defaults section.
    pub(crate) inherited: bool,
    /// The plan in use, if this configuration only extends it.
    pub(crate) around: Option<&'a Around<'a>>,
    /// The plan in use, if this one replaces it.
    pub(crate) previous: Option<&'a Plan>,
}

impl ResolveContext<'_> {
    /// Whether the process itself makes HTTP requests, according to the lines read so far.
    pub(crate) fn asks_others(&self) -> bool {
        self.tls_files.all.has_updates() || self.orders.are_any() || self.names.lua.is_some()
    }

    /// Adds the error of a step, if any, to the diagnostics.
    pub(crate) fn note(&mut self, outcome: Result<(), Diagnostic>) {
        if let Err(error) = outcome {
            self.diagnostics.push(error);
        }
    }

    /// Switches to `section`: to its TLS defaults, those of the global sections above it, and to its folder for `default-path`.
    pub(crate) fn enter(&mut self, section: &Section) {
        if self.tls_steps.len() > 1 {
            let place = |span: Span| (span.file, span.start);
            let at = place(section.keyword.span());
            let before = self.tls_steps.iter().rev().find(|(step, _)| place(*step) < at);
            self.tls.take_place(before.map_or(&TlsDefaults::default(), |(_, defaults)| defaults));
        }
        let path = base::raw::path_of(self.sources.file(section.file).name());
        *self.names.directory.borrow_mut() = path.parent().unwrap_or(Path::new("")).to_owned();
    }

    /// Returns `file:line` of a section, in HAProxy's notation.
    pub(crate) fn place(&self, section: &Section) -> String {
        format!("{}:{}", self.sources.file(section.file).name(), section.line)
    }
}

/// Resolves a whole configuration. If there are errors, adds them to the diagnostics and returns `None`.
pub(crate) fn resolve(
    draft: &Draft,
    sources: &SourceMap,
    setting: &Setting,
    around: Option<&Around<'_>>,
    previous: Option<&Plan>,
    diagnostics: &mut Diagnostics,
) -> Option<Plan> {
    let errors_before = diagnostics.error_count();
    let mut context = ResolveContext {
        variables: RefCell::new(match (around, previous) {
            (Some(around), _) => around.variables(),
            // Connections keep their variables, so names keep their slots.
            (None, Some(previous)) => previous.variables.named_alone(),
            (None, None) => sample::vars::Variables::default(),
        }),
        patterns: around.map_or_else(RefCell::default, |around| RefCell::new(around.patterns())),
        sources,
        environment: &draft.environment,
        setting,
        diagnostics,
        names: NameTable::new(sources, &draft.environment),
        global: Global::default(),
        placement: Placement::default(),
        log: log::LogNames::default(),
        refused: HashSet::new(),
        tracks: HashMap::new(),
        reversible: HashSet::new(),
        fleet_limits: HashSet::new(),
        last: saved_addresses::LastAddresses::default(),
        hosts: HashMap::new(),
        tls: TlsDefaults::default(),
        tls_steps: Vec::new(),
        tls_files: around
            .map_or_else(tls_files::ReadFiles::default, |around| tls_files::ReadFiles::with(around.tls())),
        guids: guids::Guids::default(),
        shared: HashMap::new(),
        bound: HashMap::new(),
        orders: acme::Orders::default(),
        fcgi_apps: fcgi::FcgiApps::new(),
        engine_files: &draft.engines,
        account_keys: HashMap::new(),
        inherited: false,
        around,
        previous,
    };
    let global = global::read(draft, &mut context);
    context.tls = global.tls.clone();
    if around.is_none() && context.tls.extra.replaces_ending {
        context.tls_files.all.replace_endings();
    }
    if around.is_none()
        && let Some(directory) = context.tls.issuers
    {
        let outcome = tls_files::keep_chains(directory, &context);
        context.note(outcome);
    }
    if around.is_none() {
        context.tls_files.all.set_update_settings(context.tls.updates);
        if let Some(base) = context.tls.certificates {
            context.tls_files.all.set_base(base);
        }
    }
    match around {
        Some(around) => context.names.lua = around.lua(),
        None => {
            context.global.insecure_fork_wanted = global.plan.insecure_fork_wanted;
            lua::load(&global.lua, &mut context);
        }
    }
    sections::userlists(draft, &mut context);
    sections::http_errors(draft, &mut context);
    acme::read(draft, &mut context);
    certificates::stores(draft, &global.bases, &mut context);
    let healthchecks = sections::healthchecks(draft, &mut context);
    context.names.resolvers = match around {
        Some(around) => around.resolvers(),
        None => resolvers::resolvers(draft, &mut context),
    };
    context.names.mailers = mail::mailers(draft, &mut context);
    context.names.caches = match around {
        Some(around) => around.caches(),
        None => cache::stores(draft, &mut context),
    };
    let mut proxies = read_proxies(draft, &mut context);
    // Users do not see these proxies, so they are numbered last.
    peers::check(&mut proxies, &mut context);
    proxies.sort_by_key(|(section, _)| is_like_a_proxy(section.kind));
    let plan = finish(draft, global, proxies, &healthchecks, &mut context);
    advice::sections(draft, &mut context);
    warnings::unneeded_experiments(&mut context);
    (context.diagnostics.error_count() == errors_before && !context.diagnostics.has_errors()).then_some(plan)
}

/// The defaults sections read so far.
#[derive(Default)]
struct DefaultsSeen<'a> {
    last: Option<Rc<ProxySettings<'a>>>,
    named: HashMap<&'a str, (Rc<ProxySettings<'a>>, &'a Section)>,
    ambiguous: HashSet<&'a str>,
}

fn read_proxies<'a>(
    draft: &'a Draft,
    context: &mut ResolveContext<'_>,
) -> Vec<(&'a Section, Box<ProxySettings<'a>>)> {
    let mut proxies = Vec::new();
    let mut seen = DefaultsSeen::default();
    for section in &draft.sections {
        if section.kind != SectionKind::Defaults && !section.kind.is_proxy() && !is_like_a_proxy(section.kind)
        {
            continue;
        }
        let mut settings = begin(section, &seen, context);
        for statement in &section.statements {
            read_line(section, &mut settings, statement, context);
        }
        if section.kind != SectionKind::Defaults {
            proxies.push((section, Box::new(settings)));
            continue;
        }
        inherited::check_defaults(section, &settings, context);
        let settings = Rc::new(settings);
        if !section.name.is_empty() && seen.named.insert(&section.name, (settings.clone(), section)).is_some()
        {
            seen.ambiguous.insert(&section.name);
        }
        seen.last = Some(settings);
    }
    inherited::check_proxies(&proxies, context);
    proxies
}

/// Whether a section is internally a proxy although it is not called one.
fn is_like_a_proxy(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::LogForward | SectionKind::Ring | SectionKind::Peers)
}

fn begin<'a>(
    section: &'a Section,
    seen: &DefaultsSeen<'a>,
    context: &mut ResolveContext<'_>,
) -> ProxySettings<'a> {
    let Some(from) = &section.from else {
        return match &seen.last {
            // A defaults section has no inherited settings unless it has `from`.
            Some(defaults) if section.kind.inherits() => defaults.inherit(section),
            _ => ProxySettings::new(section),
        };
    };
    match seen.named.get(from.as_str()) {
        Some((settings, _)) => {
            if seen.ambiguous.contains(from.as_str()) {
                context.diagnostics.push(
                    Diagnostic::warning(format!(
                        "several defaults sections are named `{from}`: the last one is used"
                    ))
                    .at(from.span())
                    .haproxy(format!(
                        "ambiguous defaults section name '{from}' referenced by {} '{}'.",
                        section.keyword, section.name
                    )),
                );
            }
            settings.inherit(section)
        }
        None => {
            let near = diag::suggest(from, seen.named.keys().copied());
            context.diagnostics.push(
                Diagnostic::alert(format!("there is no defaults section `{from}` above"))
                    .at(from.span())
                    .did_you_mean(near)
                    .haproxy(format!(
                        "defaults section '{from}' not found for {} '{}'.",
                        section.keyword, section.name
                    )),
            );
            ProxySettings::new(section)
        }
    }
}

pub(crate) fn read_line<'a>(
    section: &'a Section,
    settings: &mut ProxySettings<'a>,
    statement: &'a Statement,
    context: &mut ResolveContext<'_>,
) {
    if let Some(warning) = without_side(&statement.words, statement.keyword, section) {
        context.diagnostics.push(warning);
    }
    if section.kind == SectionKind::Defaults && section.name.is_empty() && needs_a_name(statement) {
        let name = statement.keyword.name;
        return context.diagnostics.push(
            Diagnostic::alert(format!("`{name}` is only allowed in named `defaults` sections"))
                .at(statement.keyword_span())
                .label("give the section a name, and select it in proxies with `from`")
                .haproxy(format!("'{name}' not allowed in anonymous 'defaults' section.")),
        );
    }
    match apply_of(statement) {
        Apply::Proxy(apply) => {
            let mut args = Args::new(statement, context.diagnostics, context.environment);
            let outcome = apply(settings, &mut args);
            context.note(outcome);
        }
        Apply::Rule => settings.rules.push(statement),
        Apply::Ineffective(reason) if statement.negation == Negation::None => {
            lines::warn_ineffective(statement, reason, context.diagnostics);
        }
        _ => {}
    }
}

/// Rules in defaults require a named section; error messages do not.
fn needs_a_name(statement: &Statement) -> bool {
    match statement.keyword.name {
        "errorfile" | "errorfiles" | "errorloc" | "errorloc302" | "errorloc303" | "http-error" => false,
        "tcp-request inspect-delay" | "tcp-response inspect-delay" => true,
        _ => matches!(apply_of(statement), Apply::Rule),
    }
}

fn finish<'a>(
    draft: &Draft,
    mut global: GlobalSettings<'a>,
    proxies: Vec<(&'a Section, Box<ProxySettings<'a>>)>,
    healthchecks: &check::Healthchecks<'_>,
    context: &mut ResolveContext<'_>,
) -> Plan {
    unique::names(draft, context);
    unique::ids(draft, context);
    let pending = make_states(proxies, context);
    let tables = tables::tables(&pending, context);
    let mut stats_sockets = Vec::new();
    for statement in std::mem::take(&mut global.stats_sockets) {
        match binds::stats_socket(statement, stats_sockets.len() as u32 + 1, context) {
            Ok(bind) => stats_sockets.push(bind),
            Err(error) => context.diagnostics.push(error),
        }
    }
    for statement in std::mem::take(&mut global.variables) {
        if context.setting.is_running && rules::is_set_already(statement) {
            continue;
        }
        let outcome = rules::global_variable(statement, context);
        context.note(outcome);
        let warnings = context.names.warnings.take();
        warnings.into_iter().for_each(|warning| context.diagnostics.push(warning));
    }
    context.global = std::mem::take(&mut global.plan);
    context.global.stats_sockets = stats_sockets;
    log_sections::profiles(draft, context);
    telemetry::sections(draft, context);
    discovery::sections(draft, context);
    log_sections::rings(&pending, context);
    let servers = servers::make(&pending, context);
    let index: HashMap<Box<str>, usize> = indexes(&pending, |settings| settings.is_backend());
    let frontends = indexes(&pending, |settings| settings.is_frontend() && settings.kind.is_proxy());
    context.log.backends =
        index.iter().map(|(name, &at)| (name.clone(), (at, pending[at].settings.mode))).collect();
    match context.around {
        Some(around) => around.lend_names(&mut context.names, &mut context.log),
        None => {
            let lines = global.loggers.iter();
            context.global.loggers = lines.filter_map(|line| log::logger(line, false, context)).collect();
            context.fcgi_apps = fcgi::apps(draft, context);
        }
    }
    let mut resolved = Vec::with_capacity(pending.len());
    let mut checks = check::Sources { healthchecks, shared: check::SharedScripts::new() };
    for (place, (proxy, servers)) in pending.iter().zip(servers).enumerate() {
        context.enter(proxy.section);
        let proxy = proxies::resolve(place, proxy, servers, &pending, &index, &mut checks, context);
        resolved.push(Arc::new(proxy));
    }
    let is_whole = context.around.is_none();
    if is_whole {
        check::note_variables(healthchecks, context);
        httpclient::settings(&global.http_client, context);
        mail::check_use(&resolved, context);
        telemetry::check_use(draft, &resolved, context);
        discovery::check_use(draft, &resolved, context);
    }
    let acme = acme::orders(context);
    let variables = context.variables.take();
    context.patterns.borrow_mut().finish();
    if let (Some(program), true) = (context.names.lua.clone(), is_whole) {
        lua::finish(&program, &variables, &resolved, context);
    }
    let environment = global::environment(draft, &context.global.stats_sockets);
    Plan {
        lua: context.names.lua.take(),
        global: std::mem::take(&mut context.global),
        acme,
        traces: traces::read(draft, context),
        attended: resolved
            .iter()
            .filter(|proxy| Plan::has_attended(proxy))
            .map(|proxy| proxy.index)
            .collect(),
        proxies: resolved.into(),
        resolvers: std::mem::take(&mut context.names.resolvers),
        mailers: std::mem::take(&mut context.names.mailers),
        frontends,
        backends: index.into(),
        kept: if is_whole { runtime_defaults::of(draft) } else { RuntimeDefaults::default() },
        source: if is_whole { runtime_defaults::source_sections(draft, context.sources) } else { Vec::new() },
        sectioned: None,
        files: context.sources.files().map(|(_, file)| file.name().to_owned()).collect(),
        variables: Arc::new(variables),
        patterns: Arc::new(context.patterns.take()),
        tables,
        revalidates: context.names.caches.iter().any(|store| store.settings.stale_while_revalidate > 0),
        caches: std::mem::take(&mut context.names.caches),
        certificates: context.names.certificates.clone(),
        tls: context.tls_files.all.clone(),
        rings: std::mem::take(&mut context.log.all_rings),
        ring_servers: std::mem::take(&mut context.log.servers),
        telemetry: std::mem::take(&mut context.names.telemetry),
        discovery: std::mem::take(&mut context.names.discovery),
        environment,
    }
}

fn indexes(
    pending: &[PendingProxy<'_>],
    side: impl Fn(&ProxySettings<'_>) -> bool,
) -> HashMap<Box<str>, usize> {
    let mine = pending.iter().enumerate().filter(|(_, proxy)| side(&proxy.settings));
    mine.map(|(index, proxy)| (proxy.settings.name.into(), index)).collect()
}

fn make_states<'a>(
    proxies: Vec<(&'a Section, Box<ProxySettings<'a>>)>,
    context: &mut ResolveContext<'_>,
) -> Vec<PendingProxy<'a>> {
    let taken: HashSet<u32> = proxies.iter().filter_map(|(_, settings)| settings.id).collect();
    // Automatic numbers start at 2, as in HAProxy.
    let mut next = 2;
    let default_maxconn = context.setting.default_maxconn.unwrap_or(0);
    let mut pending = Vec::with_capacity(proxies.len());
    for (section, settings) in proxies {
        let known = carry_over::number_of_proxy(&settings, context.previous).filter(|id| !taken.contains(id));
        let id = settings.id.or(known).unwrap_or_else(|| {
            while taken.contains(&next) || carry_over::has_number(context.previous, next) {
                next += 1;
            }
            next += 1;
            next - 1
        });
        let seed = ProxySeed {
            id,
            name: settings.name.into(),
            mode: settings.mode,
            is_frontend: settings.is_frontend(),
            is_backend: settings.is_backend(),
            maxconn: settings.maxconn.unwrap_or(default_maxconn),
            session_limit: settings.session_limit,
            disabled: settings.disabled,
        };
        let state = carry_over::proxy(seed, settings.guid.map(|word| word.as_str()), context.previous);
        state.forced_id.store(settings.id.is_some(), Relaxed);
        carry_over::publish(&state, &settings);
        if let Some(guid) = settings.guid {
            context.guids.name(guid.as_str().to_owned(), &state.guid, guid, context.diagnostics);
        }
        if settings.is_backend() {
            context.names.backends.insert(settings.name.into(), state.clone());
        }
        if settings.is_frontend() && settings.kind.is_proxy() {
            context.names.frontends.insert(settings.name.into(), state.clone());
        }
        pending.push(PendingProxy { section, settings, state });
    }
    pending
}
