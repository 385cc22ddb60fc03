//! Loads the scripts of a configuration, before anything that refers to their functions is compiled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use diag::Diagnostic;
use lua::{KnownNames, Mailing, Program, Script};
use runtime::shard;
use sample::pattern::{MatchMethod, View};
use sample::vars::Variables;

use crate::draft::lua::LuaWords;
use crate::resolve::ResolveContext;

/// Runs the files. After this call, the functions that they register can be used.
pub(super) fn load(words: &LuaWords<'_>, context: &mut ResolveContext<'_>) {
    if words.scripts.is_empty() {
        return;
    }
    if !words.says_booleans {
        context.diagnostics.push(
            Diagnostic::warning("scripts receive boolean samples as integers 0 and 1")
                .at(words.scripts[0].0.span())
                .help("set `tune.lua.bool-sample-conversion` before it, to `normal` for booleans, or to `pre-3.1-bug` to keep this behavior"),
        );
    }
    let mut settings = words.settings.clone();
    settings.may_fork = context.global.insecure_fork_wanted;
    let environment = context.environment.iter();
    settings.environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let scripts: Vec<Script> = words
        .scripts
        .iter()
        .map(|(file, arguments, per_thread)| Script {
            path: context.names.path(file),
            arguments: arguments.clone(),
            per_thread: *per_thread,
        })
        .collect();
    match lua::load(settings, &scripts, shard::workers(), &Maps { context, program: None }) {
        Ok(program) => context.names.lua = Some(Arc::new(program)),
        Err(failed) => {
            for lua::LoadFailed { script, message } in failed {
                let file = words.scripts[script.unwrap_or(0)].0;
                context.diagnostics.push(
                    Diagnostic::alert(format!("cannot load the script: {message}"))
                        .at(file.span())
                        .haproxy(format!("Lua runtime error: {message}")),
                );
            }
        }
    }
}

/// The configuration's maps, for scripts.
struct Maps<'a, 'c> {
    context: &'a ResolveContext<'c>,
    /// The program to notify of maps that are added after the configuration was read.
    program: Option<&'a Program>,
}

impl lua::Loading for Maps<'_, '_> {
    fn map(&self, file: &str, method: MatchMethod) -> Result<View, String> {
        let read = |path: &str| sample::Names::read_patterns(&self.context.names, path);
        let mut lists = self.context.patterns.borrow_mut();
        let list = lists.file(file, true, read)?;
        if let Some(program) = self.program {
            lists.finish();
            program.know_lists(Arc::new(lists.clone()));
        }
        View::new(list, method, false)
    }
}

/// The e-mail settings of a proxy, for scripts that send e-mails.
fn mailing(proxy: &plan::Proxy) -> Option<(Box<str>, Mailing)> {
    let alert = proxy.email_alert.as_ref()?;
    let mailers = &alert.mailers.mailers;
    let own = Mailing {
        tells_checks: proxy.options.log_health_checks,
        level: alert.level,
        servers: mailers.iter().map(|mailer| (mailer.name.clone(), mailer.address)).collect(),
        limit: mailers.first().map(|mailer| mailer.limit).unwrap_or_default(),
        hello: alert.hello.clone(),
        from: alert.from.clone(),
        to: alert.to.clone(),
    };
    Some((proxy.state.name.clone(), own))
}

/// Provides the names that scripts may use at run time, and runs their deferred initialization, which may add maps to the pattern
/// lists.
pub(super) fn finish(
    program: &Program,
    variables: &Variables,
    proxies: &[Arc<plan::Proxy>],
    context: &mut ResolveContext<'_>,
) {
    let (names, mut tables) = (&context.names, HashMap::new());
    tables.extend(names.tables.iter().map(|(name, table)| (name.clone(), table.clone())));
    program.know(KnownNames {
        directory: sample::Names::directory(names).unwrap_or_default(),
        tables,
        stick_counters: names.stick_counters,
        variables: variables.aside(),
        lists: Mutex::new(Arc::new(context.patterns.borrow().clone())),
        mailing: proxies.iter().filter_map(|proxy| mailing(proxy)).collect(),
    });
    if context.diagnostics.has_errors() {
        return;
    }
    if let Err(message) = program.init(&Maps { context, program: Some(program) }) {
        context.diagnostics.push(Diagnostic::alert(format!(
            "a function registered with `core.register_init` failed: {message}"
        )));
    }
}
