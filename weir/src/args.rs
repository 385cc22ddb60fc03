//! The command line: HAProxy's flags (management guide, chapter 3) and long options with the same meaning.
//!
//! Parsed by hand, because HAProxy's flags follow no convention (`-dK<class>`, `-sf <pid>*`, `-cc <condition>`).

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use diag::{Diagnostic, FileId, SourceMap};

use crate::messages::MessageStyle;

/// The action to perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ProgramAction {
    /// Start.
    #[default]
    Run,
    /// `-c`: check the configuration and exit.
    Check,
    /// `-cc`: evaluate a condition and exit.
    Condition,
    /// `-v`.
    Version,
    /// `-vv`.
    VersionAndBuild,
    /// `-vq`: print only the version.
    VersionAlone,
    /// `-vqs`, `-vqb`: print the branch.
    Branch,
    /// `-dK` without a configuration file.
    Keywords,
    /// `-h`, `--help`.
    Help,
    /// `-dMhelp`.
    HelpOnMemory,
    /// `-dthelp`.
    HelpOnTraces,
}

/// The parsed command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommandLineArgs {
    /// The action to perform.
    pub(crate) action: ProgramAction,
    /// `-f`, and the arguments after `--`: files and directories, in order.
    pub(crate) files: Vec<PathBuf>,
    /// The name and the text of a generated configuration, which replaces the files.
    pub(crate) generated: Option<(&'static str, Box<str>)>,
    /// The condition of `-cc`.
    pub(crate) condition: String,
    /// `-d`: stay in the foreground and print events.
    pub(crate) debug: bool,
    /// `-D`.
    pub(crate) daemon: bool,
    /// `-db`.
    pub(crate) foreground: bool,
    /// `-q`.
    pub(crate) quiet: bool,
    /// `-V`.
    pub(crate) verbose: bool,
    /// `-W`, `-Ws`.
    pub(crate) master_worker: bool,
    /// `-Ws`: notify systemd when ready.
    pub(crate) notify: bool,
    /// `-C`.
    pub(crate) directory: Option<PathBuf>,
    /// `-L`.
    pub(crate) local_peer: Option<String>,
    /// `-n`.
    pub(crate) maxconn: Option<u32>,
    /// `-m`, in megabytes.
    pub(crate) memory_limit: Option<u64>,
    /// `-N`.
    pub(crate) proxy_maxconn: Option<u32>,
    /// `-p`.
    pub(crate) pidfile: Option<PathBuf>,
    /// `-dK`: classes of keywords to print.
    pub(crate) dump_keywords: Option<String>,
    /// `-dC`: print the configuration as read. Unless the key is 0, private data are replaced by hashes made with it.
    pub(crate) dump_configuration: Option<u32>,
    /// `-dD`.
    pub(crate) diagnostics: bool,
    /// `-dW`.
    pub(crate) zero_warning: bool,
    /// `-dr`.
    pub(crate) ignore_resolution: bool,
    /// `-4`: query name servers for IPv4 addresses only.
    pub(crate) only_v4: bool,
    /// `-dI`: allow programs to be started, as with `insecure-fork-wanted`.
    pub(crate) insecure_fork: bool,
    /// `-dL`: print the loaded object files.
    pub(crate) dump_objects: bool,
    /// `-dS`.
    pub(crate) no_splice: bool,
    /// `-dR`.
    pub(crate) no_reuseport: bool,
    /// `-dG`: make `feature(GETADDRINFO)` false.
    pub(crate) no_getaddrinfo: bool,
    /// `-x`: the command socket of the process from which the sockets are taken over.
    pub(crate) take_over: Option<PathBuf>,
    /// `-S`: the address of the master's command socket.
    pub(crate) master_socket: Option<String>,
    /// `-sf`: processes asked to finish once this one has started.
    pub(crate) finish: Vec<i32>,
    /// `-st`: processes to terminate.
    pub(crate) terminate: Vec<i32>,
    /// `-dA`: where to write the archive of object files.
    pub(crate) archive: Option<PathBuf>,
    /// `-dt`: traces printed on standard error, each `name:level:verbosity`.
    pub(crate) traces: Option<String>,
    /// Known flags that have no effect in Weir.
    pub(crate) ineffective: Vec<String>,
    /// `-dT`: do not use kernel TLS.
    pub(crate) no_kernel_tls: bool,
    /// `--messages`.
    pub(crate) messages: Option<MessageStyle>,
}

impl CommandLineArgs {
    /// Reads the configuration files, or takes the generated text.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn sources(&self, sources: &mut SourceMap) -> Result<Vec<FileId>, Vec<Diagnostic>> {
        match &self.generated {
            Some((name, text)) => Ok(vec![sources.add(*name, &**text)]),
            None => syntax::load(sources, &self.files),
        }
    }
}

/// Why a command line cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ArgsError {
    /// No such flag.
    Unknown(String),
    /// The flag needs a value.
    MissingValue(String),
    /// The value is not a number.
    NotANumber(String, String),
    /// `-dA` without a file.
    NoArchive,
    /// An option of `-dM` that HAProxy does not have.
    UnknownMemoryOption(String),
    /// The value is not a style of messages.
    UnknownStyle(String),
    /// No configuration file was named.
    NoFile,
}

impl fmt::Display for ArgsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(flag) => write!(f, "unknown option '{flag}'"),
            Self::MissingValue(flag) => write!(f, "'{flag}' needs a value"),
            Self::NotANumber(flag, value) => write!(f, "'{flag}' needs a number, not '{value}'"),
            Self::NoArchive => f.write_str("-dA: missing output file name"),
            Self::UnknownMemoryOption(option) => {
                write!(f, "-dM: unknown pool debugging feature <{option}>")
            }
            Self::UnknownStyle(style) => {
                write!(f, "'--messages' needs rich, haproxy or json, not '{style}'")
            }
            Self::NoFile => f.write_str("no configuration file: use -f"),
        }
    }
}

/// Parses the arguments after the program name.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<CommandLineArgs, ArgsError> {
    let mut args = CommandLineArgs::default();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let flag = word.to_string_lossy().into_owned();
        let mut value = || words.next().ok_or_else(|| ArgsError::MissingValue(flag.clone()));
        match flag.as_str() {
            "--" => {
                args.files.extend(words.by_ref().map(PathBuf::from));
            }
            "-f" | "--config" | "--file" => args.files.push(value()?.into()),
            "-c" | "--check" => args.action = ProgramAction::Check,
            "-cc" | "--condition" => {
                args.condition = text(value()?);
                args.action = ProgramAction::Condition;
            }
            "-v" | "--version" => return only(ProgramAction::Version),
            "-vv" | "--build" => return only(ProgramAction::VersionAndBuild),
            "-vq" => return only(ProgramAction::VersionAlone),
            "-vqs" | "-vqb" => return only(ProgramAction::Branch),
            "-h" | "--help" => return only(ProgramAction::Help),
            "-d" | "--debug" => args.debug = true,
            "-D" | "--daemon" => args.daemon = true,
            "-db" | "--foreground" => args.foreground = true,
            "-q" | "--quiet" => args.quiet = true,
            "-V" | "--verbose" => args.verbose = true,
            "-W" | "--master-worker" => args.master_worker = true,
            "-Ws" => (args.master_worker, args.notify) = (true, true),
            "-C" | "--directory" => args.directory = Some(value()?.into()),
            "-L" | "--local-peer" => args.local_peer = Some(text(value()?)),
            "-n" | "--maxconn" => args.maxconn = limit(&text(value()?)),
            "-m" => args.memory_limit = limit(&text(value()?)),
            "-N" => args.proxy_maxconn = limit(&text(value()?)),
            "-p" | "--pidfile" => args.pidfile = Some(value()?.into()),
            "-x" | "--take-over" => args.take_over = Some(value()?.into()),
            "-S" => args.master_socket = Some(text(value()?)),
            "-sf" => take_pids(&mut words, &mut args.finish),
            "-st" => take_pids(&mut words, &mut args.terminate),
            "-dD" => args.diagnostics = true,
            "-dW" | "--zero-warning" => args.zero_warning = true,
            "-4" => args.only_v4 = true,
            "-dI" => args.insecure_fork = true,
            "-dL" => args.dump_objects = true,
            "-dr" => args.ignore_resolution = true,
            "-dT" => args.no_kernel_tls = true,
            // HAProxy's fast forwarding and zero-copy forwarding are both splicing in Weir.
            "-dS" | "-dF" | "-dZ" => args.no_splice = true,
            "-dR" => args.no_reuseport = true,
            "-dG" => {
                args.no_getaddrinfo = true;
                args.ineffective.push(flag);
            }
            "--messages" => {
                let name = text(value()?);
                let style = MessageStyle::named(&name).ok_or(ArgsError::UnknownStyle(name))?;
                args.messages = Some(style);
            }
            "-dMhelp" => return only(ProgramAction::HelpOnMemory),
            "-dthelp" => return only(ProgramAction::HelpOnTraces),
            "-dt" => {
                let is_trace = |word: &OsString| !word.to_string_lossy().starts_with('-');
                let traces = words.next_if(is_trace).map(text).unwrap_or_default();
                if traces == "help" {
                    return only(ProgramAction::HelpOnTraces);
                }
                args.traces = Some(traces);
            }
            "--keywords" => args.dump_keywords = Some("all".to_owned()),
            _ => debug_flag(&flag, &mut args)?,
        }
    }
    // `-V` overrides `-q`, whichever comes first.
    args.quiet &= !args.verbose;
    let needs_file = matches!(args.action, ProgramAction::Run | ProgramAction::Check);
    if needs_file && args.files.is_empty() {
        if args.dump_keywords.is_some() {
            args.action = ProgramAction::Keywords;
            return Ok(args);
        }
        return Err(ArgsError::NoFile);
    }
    Ok(args)
}

/// Returns the arguments for an action that ignores all other flags.
fn only(action: ProgramAction) -> Result<CommandLineArgs, ArgsError> {
    Ok(CommandLineArgs { action, ..CommandLineArgs::default() })
}

/// Handles the `-d…` flags with an attached value, and those that affect only HAProxy's internals.
fn debug_flag(flag: &str, args: &mut CommandLineArgs) -> Result<(), ArgsError> {
    if let Some(classes) = flag.strip_prefix("-dK") {
        args.dump_keywords = Some(if classes.is_empty() { "help" } else { classes }.to_owned());
        return Ok(());
    }
    if let Some(key) = flag.strip_prefix("-dC") {
        let key = if key.is_empty() { Ok(0) } else { key.parse() };
        let wrong = |_| ArgsError::NotANumber("-dC".to_owned(), flag["-dC".len()..].to_owned());
        args.dump_configuration = Some(key.map_err(wrong)?);
        return Ok(());
    }
    if let Some(path) = flag.strip_prefix("-dA") {
        args.archive = Some(Some(path).filter(|path| !path.is_empty()).ok_or(ArgsError::NoArchive)?.into());
        return Ok(());
    }
    if let Some(traces) = flag.strip_prefix("-dt") {
        args.traces = Some(traces.to_owned());
        return Ok(());
    }
    if let Some(options) = flag.strip_prefix("-dM") {
        check_memory_options(options)?;
        args.ineffective.push(flag.to_owned());
        return Ok(());
    }
    const INEFFECTIVE: &[&str] = &["-de", "-dp", "-ds", "-dk", "-dv", "-dV", "-dc"];
    if INEFFECTIVE.contains(&flag) {
        args.ineffective.push(flag.to_owned());
        return Ok(());
    }
    Err(ArgsError::Unknown(flag.to_owned()))
}

/// The options of `-dM`: the name that sets it, the name that clears it, and a description.
const MEMORY_OPTIONS: [(&str, &str, &str); 11] = [
    ("fail", "no-fail", "allocations that fail at random"),
    ("no-merge", "merge", "separate pools of the same size"),
    ("cold-first", "hot-first", "oldest free objects first"),
    ("integrity", "no-integrity", "integrity checks of free objects"),
    ("no-global", "global", "no cache shared between threads"),
    ("no-cache", "cache", "no caches per thread"),
    ("caller", "no-caller", "caller of each allocation"),
    ("tag", "no-tag", "tag after each object"),
    ("poison", "no-poison", "new objects filled with a byte"),
    ("uaf", "no-uaf", "detection of use after free"),
    ("backup", "no-backup", "comparison with the previous object"),
];

/// Checks the options of `-dM`: a byte and names, separated by commas.
fn check_memory_options(options: &str) -> Result<(), ArgsError> {
    let (first, rest) = options.split_once(',').unwrap_or((options, ""));
    let is_byte = |word: &str| match word.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).is_ok(),
        None => word.parse::<u8>().is_ok(),
    };
    let names = if first.is_empty() || is_byte(first) { rest } else { options };
    let is_known = |name: &str| MEMORY_OPTIONS.iter().any(|(set, clear, _)| name == *set || name == *clear);
    match names.split(',').find(|name| !name.is_empty() && !is_known(name)) {
        Some(unknown) => Err(ArgsError::UnknownMemoryOption(unknown.to_owned())),
        None => Ok(()),
    }
}

/// Returns the text of `-dMhelp`.
pub(crate) fn help_on_memory() -> String {
    let mut text =
        "-dM[<byte>][,<option>...]: accepted without effect, because memory is not allocated from \
                    pools.\nOptions of HAProxy (set, clear):\n\n"
            .to_owned();
    for (set, clear, about) in MEMORY_OPTIONS {
        text.push_str(&format!("  {set:<15}|  {clear:<15}| {about}\n"));
    }
    text
}

/// The text of `-dthelp`.
pub(crate) const HELP_ON_TRACES: &str = "\
-dt[<name>[:<level>[:<verbosity>]],...]: traces on standard error.

Without a name, and with `all`, every source is traced. The level is `error` unless given. A verbosity
other than `quiet` needs a name. `show trace` on the runtime socket lists the names.

  -dt                   errors of every source
  -dtall:user           every source on level user
  -dth1,h2:proto:simple HTTP/1 on level error and HTTP/2 on level proto
";

/// Parses a limit. As in HAProxy, no limit applies if the text does not begin with a number or the number is 0.
fn limit<T: std::str::FromStr + Default + PartialEq>(text: &str) -> Option<T> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok().filter(|limit| *limit != T::default())
}

/// Takes process ids up to the next flag. There may be none, as in HAProxy.
fn take_pids(words: &mut std::iter::Peekable<impl Iterator<Item = OsString>>, pids: &mut Vec<i32>) {
    while let Some(pid) =
        words.peek().and_then(|word| word.to_str()?.parse::<i32>().ok()).filter(|pid| *pid > 0)
    {
        pids.push(pid);
        words.next();
    }
}

fn text(value: OsString) -> String {
    value.to_string_lossy().into_owned()
}

/// The text of `--help`. The manual page and the shell completions are generated from it.
pub(crate) const HELP: &str = include_str!("help.txt");

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<CommandLineArgs, ArgsError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn flags_of_the_management_guide_are_parsed() {
        let args = read("-D -f a.cfg -p /run/pid -n 500 -C /etc -sf 12 34 -dr -- b.cfg c.cfg").unwrap();
        assert!(args.daemon && args.ignore_resolution);
        assert_eq!(args.files, ["a.cfg", "b.cfg", "c.cfg"].map(PathBuf::from));
        assert_eq!(args.finish, [12, 34]);
        assert_eq!((args.maxconn, args.pidfile), (Some(500), Some("/run/pid".into())));
        let args = read("-c -V -f x -dKcfg,smp -st -dM0x50 -x /run/sock").unwrap();
        assert_eq!((args.action, args.verbose), (ProgramAction::Check, true));
        assert_eq!(args.dump_keywords.as_deref(), Some("cfg,smp"));
        assert_eq!(args.terminate, [0i32; 0]);
        assert_eq!(args.ineffective, ["-dM0x50"]);
        let args = read("-4 -ds -dL -c -f x").unwrap();
        assert!(args.only_v4 && args.dump_objects && args.ineffective == ["-ds"]);
        assert_eq!(read("-cc streq(a,a)").unwrap().condition, "streq(a,a)");
        assert_eq!(read("--check --config x").unwrap().action, ProgramAction::Check);
        assert!(!read("-q -V -f x").unwrap().quiet && !read("-V -q -f x").unwrap().quiet);
        assert!(read("-dI -f x").unwrap().insecure_fork);
        for (line, action) in [
            ("-v --nonsense", ProgramAction::Version),
            ("-vv -f", ProgramAction::VersionAndBuild),
            ("-vq", ProgramAction::VersionAlone),
            ("-vqs", ProgramAction::Branch),
            ("-vqb", ProgramAction::Branch),
        ] {
            assert_eq!(read(line).map(|args| args.action), Ok(action), "{line}");
        }
    }

    #[test]
    fn limits_without_a_number_are_unlimited() {
        for limit in ["x", "0", "-5", ""] {
            let words = ["-f", "a", "-n", limit, "-N", limit, "-m", limit].map(OsString::from);
            let args = parse(words).unwrap();
            assert_eq!((args.maxconn, args.proxy_maxconn, args.memory_limit), (None, None, None), "{limit}");
        }
        assert_eq!(read("-n 5x -f a").unwrap().maxconn, Some(5));
    }

    #[test]
    fn traces_may_be_attached_to_the_flag_or_follow_it() {
        assert_eq!(read("-dt -f a").unwrap().traces.as_deref(), Some(""));
        assert_eq!(read("-dth1:user -f a").unwrap().traces.as_deref(), Some("h1:user"));
        assert_eq!(read("-dt h2 -f a").unwrap().traces.as_deref(), Some("h2"));
        assert_eq!(read("-dt help").unwrap().action, ProgramAction::HelpOnTraces);
        assert_eq!(read("-dMhelp").unwrap().action, ProgramAction::HelpOnMemory);
    }

    #[test]
    fn invalid_command_lines_give_errors() {
        assert_eq!(read(""), Err(ArgsError::NoFile));
        assert_eq!(read("-c"), Err(ArgsError::NoFile));
        assert_eq!(read("-f"), Err(ArgsError::MissingValue("-f".into())));
        assert_eq!(read("-dCx -f a"), Err(ArgsError::NotANumber("-dC".into(), "x".into())));
        assert_eq!(read("-dA -f a"), Err(ArgsError::NoArchive));
        for (flag, option) in [("-dMbogus", "bogus"), ("-dM0x50,fail,x", "x"), ("-dM?", "?")] {
            assert_eq!(read(flag), Err(ArgsError::UnknownMemoryOption(option.into())), "{flag}");
        }
        assert_eq!(read("-f a --chekc"), Err(ArgsError::Unknown("--chekc".into())));
        assert!(read("-v").is_ok());
    }
}
