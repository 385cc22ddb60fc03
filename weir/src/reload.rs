//! In-place reload: the configuration is read again in the running process, and the new plan replaces the current one (`reload` on
//! the runtime socket; `SIGUSR2` if the global section has `reload in-place`).
//!
//! Parts that both plans have are kept (`config`, `resolve::carry_over`): the states of proxies, servers, listeners, tables and
//! rings are the same objects, sockets are kept, and each worker moves its idle connections and its connections between requests
//! to the new plan (`proxy::worker::succeed`). Removed parts drain. The configuration is resolved twice: first separately, to
//! check it and to find the changes; then again, with the state that is kept. If only backends with simple settings have changed,
//! only these are resolved (`config::partial`).

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use config::partial::ChangedSections;
use config::{Boot, Loaded};
use control::DifferenceFormat;
use diag::{Diagnostics, FileId, Severity, SourceMap, render};
use plan::Plan;
use state::proxy::Admission;
use state::{Admin, EventTopic, journal, transition};

use crate::args::CommandLineArgs;
use crate::differences::{self, Changed};
use crate::generation::{Generation, InUse};
use crate::hand_over::Exposed;
use crate::listeners;
use crate::process_context::Common;
use crate::sockets::{Inherited, ListeningSocket, SocketOwner};
use crate::{changes, check, checks, config_dump, memory, sharing, traces, view};

/// Reloads the configuration.
pub(crate) struct Reloader {
    common: Arc<Common>,
    in_use: Arc<InUse>,
    args: CommandLineArgs,
    /// Serialises reloads.
    changing: Mutex<()>,
}

/// Sockets that the new plan does not have, by frontend and bind line of the old plan.
type Left = HashSet<(usize, usize)>;

/// A configuration that was loaded separately.
struct LoadedConfig {
    plan: Plan,
    differences: Vec<Changed>,
}

impl Reloader {
    pub(crate) fn new(common: Arc<Common>, in_use: Arc<InUse>, args: CommandLineArgs) -> Self {
        Self { common, in_use, args, changing: Mutex::default() }
    }

    /// Reloads on a signal and reports the result as messages.
    pub(crate) fn report_reload(&self) {
        match self.renew(DifferenceFormat::Text) {
            Ok(text) => self.common.messages.say(Severity::Notice, &format!("reloaded: {}", text.trim_end())),
            Err(text) => {
                self.common.messages.say(Severity::Alert, &format!("not reloaded: {}", text.trim_end()));
            }
        }
    }

    fn boot(&self) -> Boot {
        let mut boot = check::boot(&self.args);
        boot.setting.is_running = true;
        boot.setting.set_priority = None;
        boot
    }

    /// Reads the configuration files, or the given text instead.
    fn sources(&self, text: Option<&str>) -> Result<(SourceMap, Vec<FileId>), String> {
        let mut sources = SourceMap::new();
        if let Some(text) = text {
            let files = crate::remote::files_of_payload(text);
            let files = files
                .into_iter()
                .map(|(name, text)| sources.add(name, &*base::raw::bytes_of(text)))
                .collect();
            return Ok((sources, files));
        }
        let files = self.args.sources(&mut sources).map_err(|errors| {
            let mut diagnostics = Diagnostics::new();
            errors.into_iter().for_each(|error| diagnostics.push(error));
            shown(&diagnostics, &SourceMap::new(), DifferenceFormat::Text)
        })?;
        Ok((sources, files))
    }

    /// Loads a configuration separately and compares it with the plan in use.
    fn read(&self, text: Option<&str>, form: DifferenceFormat) -> Result<LoadedConfig, String> {
        let (sources, files) = self.sources(text)?;
        let loaded = config::load_sources(sources, files, &self.boot());
        let Loaded { plan, diagnostics, sources } = loaded;
        let Some(mut plan) = plan else { return Err(shown(&diagnostics, &sources, form)) };
        check::apply(&self.args, &mut plan);
        if diagnostics.has_warnings() && plan.global.zero_warning {
            return Err(
                shown(&diagnostics, &sources, form) + "Some warnings were found and 'zero-warning' is set.\n"
            );
        }
        let shared = self.in_use.shared();
        let old = &shared.plan;
        let refused = changes::refused(old, &plan);
        if !refused.is_empty() {
            return Err(format!(
                "A running process cannot change: {}. Start a new process with `-sf` and the PID of this one, or reload through the master.\n",
                refused.join(", ")
            ));
        }
        let mut differences = differences::between(&old.source, &plan.source);
        changes::add_lost(old, &plan, &mut differences);
        changes::add_lists(&self.common.runtime.view().patterns, &plan.patterns, &mut differences);
        changes::add_certificates(old, &plan, &mut differences);
        Ok(LoadedConfig { plan, differences })
    }

    /// Replaces the plan in use with the current contents of the files, and records the outcome in the journal.
    fn renew(&self, form: DifferenceFormat) -> Result<String, String> {
        let outcome = self.try_renew(form);
        let text = match &outcome {
            Ok(_) => "Reloaded in place.".to_owned(),
            Err(error) => {
                let first = error.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
                format!("Reload in place refused: {}", first.trim())
            }
        };
        journal::record(EventTopic::Reloads, "-", &text);
        outcome
    }

    fn try_renew(&self, form: DifferenceFormat) -> Result<String, String> {
        // A panic in an earlier reload changed nothing.
        let _changing = self.changing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.common.process.stopping.load(Relaxed) {
            return Err("The process is stopping.\n".to_owned());
        }
        if let Some(outcome) = self.renew_changed(form) {
            return outcome;
        }
        // Commands during the reload may come too late for it.
        let edited = self.common.runtime.set_edited(false);
        let outcome = self.renew_all(form);
        if outcome.is_err() && edited {
            self.common.runtime.set_edited(true);
        }
        outcome
    }

    /// Reloads by resolving everything.
    fn renew_all(&self, form: DifferenceFormat) -> Result<String, String> {
        let LoadedConfig { plan, differences } = self.read(None, form)?;
        let text = differences::show(&differences, form);
        self.prepare_orders(&plan)?;
        let (bound, left) = self.bind(&plan)?;
        drop(plan);
        let old = self.in_use.desk();
        let plan = self.take_over(&old.shared.plan, form)?;
        self.swap(&old, plan, bound, left)?;
        Ok(text)
    }

    /// Reloads by resolving only the changed sections; returns `None` if that is not sufficient.
    fn renew_changed(&self, form: DifferenceFormat) -> Option<Result<String, String>> {
        if self.common.runtime.is_edited() {
            return None;
        }
        let old = self.in_use.desk();
        let (sources, files) = self.sources(None).ok()?;
        let (boot, plan) = (self.boot(), &old.shared.plan);
        let changed = ChangedSections::find(&sources, &files, plan)?;
        let new = changed.check(&boot, plan)?;
        let former: Vec<_> = changed.indexes().map(|index| plan.source[index].clone()).collect();
        let text = differences::show(&differences::between(&former, &new), form);
        // All listeners are unchanged.
        let (bound, left) = self.bind(plan).ok()?;
        let plan = changed.apply(&boot, plan)?;
        Some(self.swap(&old, plan, bound, left).map(|()| text))
    }

    /// Prepares the files that certificate orders need, as at start.
    fn prepare_orders(&self, plan: &Plan) -> Result<(), String> {
        let failed = |error: String| error + "\n";
        let notices = acme::keep_account_keys(plan).map_err(failed)?;
        for text in notices.into_iter().chain(acme::complete_pairs(plan).map_err(failed)?) {
            self.common.messages.say(Severity::Notice, &text);
        }
        acme::try_files(plan).map_err(failed)
    }

    /// Binds the sockets that the new plan adds, and keeps the sockets that both plans have. Also returns the sockets that the new
    /// plan does not have.
    fn bind(&self, plan: &Plan) -> Result<(Vec<ListeningSocket>, Left), String> {
        let copies = self.common.exposed.copies();
        let mut kept: Inherited = copies.map_err(|error| format!("Cannot keep the sockets: {error}.\n"))?;
        let bound = listeners::bind(plan, &mut kept, self.common.limits.max_connections)
            .map_err(|error| crate::messages::without_numbers(&error) + "\n")?;
        let left = kept.iter().filter_map(|taken| match taken.owner? {
            SocketOwner::Frontend { proxy, bind } => Some((proxy, bind)),
            SocketOwner::Datagrams { .. } | SocketOwner::RuntimeSocket(_) => None,
        });
        Ok((bound, left.collect()))
    }

    /// Resolves the configuration on top of the state that is kept.
    fn take_over(&self, old: &Plan, form: DifferenceFormat) -> Result<Plan, String> {
        let (sources, files) = self.sources(None)?;
        let Loaded { plan, diagnostics, sources } = config::load_after(sources, files, &self.boot(), old);
        // The configuration was valid in the first pass.
        let mut plan = plan.ok_or_else(|| shown(&diagnostics, &sources, form))?;
        check::apply(&self.args, &mut plan);
        Ok(plan)
    }

    fn swap(
        &self,
        old: &Arc<Generation>,
        plan: Plan,
        bound: Vec<ListeningSocket>,
        left: Left,
    ) -> Result<(), String> {
        let common = &self.common;
        let plan = Arc::new(plan);
        plan.global.set_limits(&common.process);
        plan.settle_full_loads(common.limits.max_connections, Some(&old.shared.plan));
        let exposed =
            Exposed::of(&plan, &bound).map_err(|error| format!("Cannot keep the sockets: {error}.\n"))?;
        for proxy in plan.listening().filter(|proxy| !proxy.disabled && proxy.state.is_frontend) {
            // The sockets of this proxy are open again.
            if proxy.state.admission() == Admission::Stopped {
                proxy.state.set_admission(Admission::Open);
            }
        }
        traces::change(&old.shared.plan, &plan)?;
        let made = Generation::new(common, plan, Some(&old.shared));
        let new = Arc::new(made.inspect_err(|_| old.follow_sources(common))?);
        sharing::exchange(&common.runtime);
        common.runtime.statistics.replace(view::of(&new.shared.plan, &common.limits));
        sharing::exchange(&common.runtime);
        settle(common, &new.shared, &old.shared.plan);
        self.in_use.replace(new.clone());
        // From here on, a successor gets the sockets of the new plan.
        common.exposed.replace(exposed);
        let left = Arc::new(left);
        let workers = runtime::shard::workers();
        on_all(|_| {
            let (shared, left) = (new.shared.clone(), left.clone());
            Box::new(move || drop(proxy::worker::succeed(shared, left)))
        });
        let mut shares = listeners::share(bound, workers);
        on_all(|index| {
            let (old, new, common) = (old.clone(), new.clone(), common.clone());
            let share = std::mem::take(&mut shares[index]);
            Box::new(move || {
                old.leave();
                if let Some(worker) = proxy::worker::now() {
                    new.sections.start();
                    new.attend(&worker, share, &common);
                }
                proxy::worker::wake_old();
                proxy::serve::shutdown_wakers::stop();
            })
        });
        new.follow_sources(common);
        on_all(|_| Box::new(proxy::worker::release_old));
        Ok(())
    }
}

impl control::Reloader for Reloader {
    fn reload(&self, shown: DifferenceFormat) -> Result<String, String> {
        let outcome = lua::limit_time(SCRIPTS_TIME, || self.renew(shown));
        memory::return_soon();
        outcome
    }

    fn difference(&self, text: Option<&str>, shown: DifferenceFormat) -> Result<String, String> {
        let read = lua::limit_time(SCRIPTS_TIME, || self.read(text, shown));
        let text = differences::show(&read?.differences, shown);
        memory::return_soon();
        Ok(text)
    }

    fn configuration(&self) -> String {
        config_dump::configuration(&self.in_use.shared().plan, &self.common.runtime.view().patterns, None)
    }

    fn save(&self, path: &str) -> Result<(), String> {
        let (shared, view, path) = (self.in_use.shared(), self.common.runtime.view(), Path::new(path));
        // Lists are written first, so that the configuration never names a file that does not exist.
        let lists = config_dump::lists(&view.patterns, path);
        let text = config_dump::configuration(&shared.plan, &view.patterns, Some(path));
        let mut files = lists.into_iter().chain([(path.to_owned(), text.into_bytes())]);
        let outcome = files.try_for_each(|(path, bytes)| base::file::replace(&path, &bytes));
        let path = path.display();
        outcome
            .map_err(|error| crate::messages::without_numbers(&format!("Cannot write '{path}': {error}.\n")))
    }
}

/// The time that scripts may take to load. A script that never ends would prevent all further reloads.
const SCRIPTS_TIME: Duration = Duration::from_secs(60);

/// A job for a worker.
type WorkerTask = Box<dyn FnOnce() + Send>;

/// Runs a job on all workers and returns when all have finished.
fn on_all(mut work: impl FnMut(usize) -> WorkerTask) {
    let (done, wait) = mpsc::channel();
    for index in 0..runtime::shard::workers() {
        let (work, done) = (work(index), done.clone());
        runtime::worker::post(index, move || {
            work();
            // The receiver waits for all workers.
            let _ = done.send(());
        });
    }
    drop(done);
    // The wait ends when all senders have been dropped, even if a worker does not answer.
    wait.iter().for_each(drop);
}

/// Updates states that depend on the servers which each backend now has.
fn settle(common: &Common, shared: &Arc<proxy::Shared>, former: &Plan) {
    let now = base::clock::now_ms();
    for proxy in shared.plan.unshared(Some(former)).filter(|proxy| proxy.state.is_backend) {
        for server in proxy.servers.fixed() {
            if server.state.tracked().is_none() {
                let inherited = Admin::INHERITED_MAINT | Admin::INHERITED_DRAIN;
                server.state.change_admin(0, inherited, now);
            }
        }
        if let Some((level, text)) = transition::refresh_backend(&proxy.state, now) {
            checks::notify(shared, common.messages, &proxy.state, level, &text);
        }
    }
}

/// Renders diagnostics for the operator.
fn shown(diagnostics: &Diagnostics, sources: &SourceMap, form: DifferenceFormat) -> String {
    let colour = match form {
        DifferenceFormat::Colours => render::Colour::Always,
        DifferenceFormat::Text | DifferenceFormat::Json => render::Colour::Never,
    };
    let serious = diagnostics.iter().filter(|one| one.severity >= Severity::Warning);
    serious.map(|one| render::terminal(one, sources, colour) + "\n").collect()
}
