//! Lua scripts (manual, section 3.1 `lua-…`, section 3.2 `tune.lua.…`).

use std::time::Duration;

use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use lua::{Libraries, Stderr};

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global};
use crate::draft::row::Outcome;
use crate::draft::settings::GlobalSettings;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //     name                            arguments           description                                                        setting
    global("lua-load",                     "<file> [<arg>*]",  "loads a script into the state shared by all threads",           |g, a| load(g, a, false)),
    global("lua-load-per-thread",          "<file> [<arg>*]",  "loads a script into a separate state for each thread",          |g, a| load(g, a, true)),
    global("lua-prepend-path",             "<string> [path]",  "prepends a directory to the search path of `require`",          prepend_path).partial("libraries written in C (`cpath`) cannot be loaded"),
    global("tune.lua.bool-sample-conversion", "{ normal | pre-3.1-bug }", "whether boolean samples become booleans or integers in scripts", booleans),
    global("tune.lua.burst-timeout",       "<time>",           "maximum time that a script may run without yielding, 0 for no limit", |g, a| time(&mut g.lua.settings.burst, a)),
    global("tune.lua.forced-yield",        "<number>",         "number of instructions after which a script yields",            |g, a| { g.lua.settings.forced_yield = Some(a.integer("a number", 1, i32::MAX as u32)?); a.finish() }),
    global("tune.lua.log.loggers",         "{ on | off }",     "whether messages from scripts are sent to loggers",             |g, a| { g.lua.settings.to_loggers = a.on_off()?; a.finish() }),
    global("tune.lua.log.stderr",          "{ on | auto | off }", "whether messages from scripts are written to standard error; `auto`: only without a logger", |g, a| { g.lua.settings.to_stderr = a.one_of(&[("on", Stderr::On), ("auto", Stderr::Auto), ("off", Stderr::Off)])?; a.finish() }),
    global("tune.lua.maxmem",              "<megabytes>",      "maximum memory for scripts, 0 for no limit",                    |g, a| { g.lua.settings.max_memory = a.integer::<usize>("a number of megabytes", 0, 1 << 30)? << 20; a.finish() }),
    global("tune.lua.openlibs",            "[all | none | <library>[,<library>]*]", "standard libraries available to scripts",  libraries).partial("`debug` provides only `traceback` and `getinfo`"),
    global("tune.lua.service-timeout",     "<time>",           "maximum run time of a service",                                 |g, a| time(&mut g.lua.settings.service, a)),
    global("tune.lua.session-timeout",     "<time>",           "maximum run time of an action",                                 |g, a| time(&mut g.lua.settings.session, a)),
    global("tune.lua.task-timeout",        "<time>",           "maximum run time of a task",                                    |g, a| time(&mut g.lua.settings.task, a)),
];

fn load<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>, per_thread: bool) -> Outcome {
    let file = args.required("a file")?;
    let arguments = args.rest().iter().map(|word| word.as_str().to_owned()).collect();
    global.lua.scripts.push((file, arguments, per_thread));
    Ok(())
}

fn prepend_path<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let path = args.required("a file name pattern")?;
    match args.next() {
        None => {}
        Some(kind) if *kind == "path" => {}
        Some(kind) if *kind == "cpath" => {
            return Err(args
                .wrong("libraries written in C cannot be loaded, because their time and memory cannot be limited")
                .help("use a library written in Lua, with `path`"));
        }
        Some(kind) => return Err(args.wrong(format!("expected `path` or `cpath`, not `{kind}`"))),
    }
    // The path added last is searched first.
    global.lua.settings.paths.insert(0, path.as_str().to_owned());
    args.finish()
}

fn booleans<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let keeps = args.one_of(&[("normal", true), ("pre-3.1-bug", false)])?;
    if global.lua.scripts.is_empty() {
        global.lua.settings.keeps_booleans = keeps;
        global.lua.says_booleans = true;
    } else {
        args.warn("`tune.lua.bool-sample-conversion` must come before the scripts it applies to");
    }
    args.finish()
}

fn libraries<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let list = args.required("a list of libraries")?;
    if !global.lua.scripts.is_empty() || !global.lua.settings.paths.is_empty() {
        return Err(args
            .wrong("`tune.lua.openlibs` comes too late")
            .help("put it before `lua-load`, `lua-load-per-thread` and `lua-prepend-path`"));
    }
    let mut chosen = Libraries::all(*list == "all");
    if *list != "all" && *list != "none" {
        for name in list.split(',') {
            match chosen.named(name) {
                Some(library) => *library = true,
                None => {
                    let near = diag::suggest(name, Libraries::NAMES);
                    let known = Libraries::NAMES.join(", ");
                    return Err(args
                        .wrong(format!("unknown Lua library `{name}`"))
                        .did_you_mean(near)
                        .help(format!("use some of {known}, or `all`, or `none`")));
                }
            }
        }
    }
    global.lua.settings.libraries = chosen;
    args.finish()
}

/// A time limit; 0 for none.
fn time(limit: &mut Option<Duration>, args: &mut Args<'_, '_>) -> Result<(), Diagnostic> {
    *limit = Some(args.duration(Milliseconds)?).filter(|time| !time.is_zero());
    args.finish()
}
