//! The script settings of the `global` section.

use std::path::PathBuf;
use std::time::Duration;

/// A file to load.
#[derive(Debug, Clone)]
pub struct Script {
    /// The path of the script.
    pub path: PathBuf,
    /// The file's arguments.
    pub arguments: Vec<String>,
    /// Whether each worker has its own state for the script (`lua-load-per-thread`).
    pub per_thread: bool,
}

/// The Lua libraries that scripts may use (`tune.lua.openlibs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Libraries {
    pub table: bool,
    pub io: bool,
    pub os: bool,
    pub string: bool,
    pub math: bool,
    pub utf8: bool,
    pub package: bool,
    pub debug: bool,
}

impl Libraries {
    /// Enables all libraries, or none.
    pub const fn all(whether: bool) -> Self {
        Self {
            table: whether,
            io: whether,
            os: whether,
            string: whether,
            math: whether,
            utf8: whether,
            package: whether,
            debug: whether,
        }
    }

    /// Returns the flag of the library with that name.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "table" => &mut self.table,
            "io" => &mut self.io,
            "os" => &mut self.os,
            "string" => &mut self.string,
            "math" => &mut self.math,
            "utf8" => &mut self.utf8,
            "package" => &mut self.package,
            "debug" => &mut self.debug,
            _ => return None,
        })
    }

    /// The names of the libraries.
    pub const NAMES: [&'static str; 8] = ["table", "io", "os", "string", "math", "utf8", "package", "debug"];
}

/// When script messages go to standard error (`tune.lua.log.stderr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Stderr {
    On,
    Off,
    /// Write messages to standard error if no logger accepts them.
    #[default]
    Auto,
}

/// The settings of all states.
#[derive(Debug, Clone)]
pub struct LuaSettings {
    /// Patterns of files that `require` searches first, in order.
    pub paths: Vec<String>,
    /// The libraries.
    pub libraries: Libraries,
    /// The variables that `os.getenv` and programs see: the environment as the configuration has changed it, which differs from the
    /// process's own.
    pub environment: Vec<(String, String)>,
    /// Whether programs may be started (`insecure-fork-wanted`).
    pub may_fork: bool,
    /// Maximum number of instructions per turn (`tune.lua.forced-yield`).
    pub forced_yield: Option<u32>,
    /// The time limit of one turn (`tune.lua.burst-timeout`); `None` for no limit.
    pub burst: Option<Duration>,
    /// Computing time limit of an action (`tune.lua.session-timeout`).
    pub session: Option<Duration>,
    /// Computing time limit of a service (`tune.lua.service-timeout`).
    pub service: Option<Duration>,
    /// Computing time limit of a task (`tune.lua.task-timeout`).
    pub task: Option<Duration>,
    /// Memory limit for scripts in bytes (`tune.lua.maxmem`); 0 for no limit.
    pub max_memory: usize,
    /// Whether booleans of the proxy are booleans in scripts (`tune.lua.bool-sample-conversion`).
    pub keeps_booleans: bool,
    /// Whether messages go to loggers (`tune.lua.log.loggers`).
    pub to_loggers: bool,
    /// Whether messages go to standard error.
    pub to_stderr: Stderr,
}

impl Default for LuaSettings {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            libraries: Libraries::all(true),
            environment: Vec::new(),
            may_fork: false,
            forced_yield: None,
            burst: Some(Duration::from_secs(1)),
            session: Some(Duration::from_secs(4)),
            service: Some(Duration::from_secs(4)),
            task: None,
            max_memory: 0,
            keeps_booleans: false,
            to_loggers: true,
            to_stderr: Stderr::Auto,
        }
    }
}
