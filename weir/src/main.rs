//! The `weir` binary: arguments, boot, signals, hand-over of sockets.
#![forbid(unsafe_code)]

mod archive;
mod args;
mod boot;
mod caches;
mod certificates;
mod changes;
mod check;
mod checks;
mod config_dump;
mod control_socket;
mod ctl;
mod differences;
mod discovered;
mod dump;
mod durations;
mod emails;
mod explain_command;
mod fleet_limits;
mod generation;
mod hand_over;
mod haterm;
mod history;
mod keywords;
mod listeners;
mod listening;
mod load_command;
mod master;
mod memory;
mod messages;
mod outliers;
mod peers;
mod predecessors;
mod privileges;
mod probe;
mod process_context;
mod quic_listeners;
mod reload;
mod remote;
mod scripts;
mod servers;
mod services;
mod sharing;
mod signals;
mod sockets;
mod soft_stop;
mod states;
mod system;
mod tables;
mod traces;
mod udp_sessions;
mod version;
mod view;

use std::path::Path;
use std::process::ExitCode;

use args::ProgramAction;
use diag::Severity;
use messages::{MessageFormat, MessageStyle};

#[global_allocator]
static ALLOCATOR: process::Allocator = process::Allocator;

fn main() -> ExitCode {
    let resumed = master::resume();
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    // Tools that call `haproxy` expect HAProxy's version lines.
    let file_name = Path::new(&program).file_name().and_then(std::ffi::OsStr::to_str);
    let as_haproxy = file_name == Some("haproxy");
    let own: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let commands = [remote::run, probe::run, explain_command::run, ctl::run, load_command::run_word];
    let code = load_command::run_program(file_name, &own)
        .or_else(|| commands.iter().find_map(|command| command(&own)));
    if let Some(code) = code {
        return code;
    }
    match haterm::args(file_name == Some(haterm::NAME), &own) {
        Some(Ok(args)) => return read_and_run(args, resumed),
        Some(Err(code)) => return code,
        None => {}
    }
    let args = match args::parse(words) {
        Ok(args) => args,
        Err(error) => {
            let messages = MessageFormat::new(false);
            let is_brief =
                matches!(error, args::ArgsError::NoArchive | args::ArgsError::UnknownMemoryOption(_));
            // The usage fills more than a screen, so the cause follows it.
            if !is_brief {
                eprintln!("{}", args::HELP);
            }
            messages.say(Severity::Alert, &format!("{error}."));
            return ExitCode::FAILURE;
        }
    };
    if let Some(style) = args.messages {
        style.select();
    }
    messages::note_executable();
    if let Some(name) = MessageStyle::unknown_in_environment() {
        let text = format!("WEIR_MESSAGES is rich, haproxy or json, not '{name}': the default is used.");
        MessageFormat::new(args.quiet).say(Severity::Warning, &text);
    }
    match args.action {
        ProgramAction::Help => messages::output(args::HELP),
        ProgramAction::Keywords => keywords::dump(args.dump_keywords.as_deref().unwrap_or("help")),
        ProgramAction::HelpOnMemory => messages::output(&args::help_on_memory()),
        ProgramAction::HelpOnTraces => messages::output(args::HELP_ON_TRACES),
        ProgramAction::Version => messages::output(&version::short(as_haproxy)),
        ProgramAction::VersionAndBuild => messages::output(&version::long(as_haproxy)),
        ProgramAction::VersionAlone => messages::say(format_args!("{}", version::FULL)),
        ProgramAction::Branch => messages::say(format_args!("{}", version::BRANCH)),
        ProgramAction::Condition => return check::condition(&args, MessageFormat::new(args.quiet)),
        ProgramAction::Run | ProgramAction::Check => return read_and_run(args, resumed),
    }
    ExitCode::SUCCESS
}

fn read_and_run(args: args::CommandLineArgs, resumed: Option<master::MasterState>) -> ExitCode {
    let messages = MessageFormat::new(args.quiet);
    if args.action == ProgramAction::Run
        && let Err(error) = memory::execute_again(args.memory_limit, resumed.is_some())
    {
        messages.say(Severity::Alert, &error);
        return ExitCode::FAILURE;
    }
    base::clock::start();
    if let Some(directory) = &args.directory
        && let Err(error) = std::env::set_current_dir(directory)
    {
        let shown = directory.display();
        messages.say(Severity::Alert, &format!("Could not change to directory {shown} : {error}"));
        return ExitCode::FAILURE;
    }
    if let Err(error) = traces::of_command_line(&args) {
        messages.say(Severity::Alert, &format!("config : {error}"));
        return ExitCode::FAILURE;
    }
    for flag in &args.ineffective {
        messages.say(Severity::Notice, &format!("option '{flag}' has no effect."));
    }
    if let Some(key) = args.dump_configuration {
        dump::print(&args, key);
    }
    let plan = check::plan(&args, messages);
    if let Some(classes) = &args.dump_keywords {
        keywords::dump(classes);
    }
    if (args.dump_objects || args.archive.is_some()) && plan.is_ok() {
        system::list_objects(args.verbose);
    }
    if let Some(path) = args.archive.as_ref().filter(|_| plan.is_ok())
        && let Err(error) = archive::write(path)
    {
        messages.say(Severity::Alert, &error);
        return ExitCode::FAILURE;
    }
    match (plan, resumed) {
        (Err(_), Some(state)) if args.action == ProgramAction::Run => {
            boot::end(Ok(master::go_on(state, &args, messages)), messages)
        }
        (plan, resumed) => run(plan, args, resumed),
    }
}

fn run(
    plan: Result<plan::Plan, ExitCode>,
    args: args::CommandLineArgs,
    resumed: Option<master::MasterState>,
) -> ExitCode {
    match plan {
        Err(code) => code,
        Ok(plan) if args.action == ProgramAction::Check => {
            // The process ends here, so freeing tens of thousands of servers would only take time.
            std::mem::forget(plan);
            ExitCode::SUCCESS
        }
        Ok(plan) => boot::run(plan, args, resumed),
    }
}
