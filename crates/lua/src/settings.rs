//! What the `global` section says of scripts.

use std::path::PathBuf;
use std::time::Duration;

/// A file to be loaded.
#[derive(Debug, Clone)]
pub struct Script {
    /// Where it is.
    pub path: PathBuf,
    /// What the file gets as its arguments.
    pub arguments: Vec<String>,
    /// Whether each worker has a state of its own for it (`lua-load-per-thread`).
    pub per_thread: bool,
}

/// The libraries of Lua that scripts may use (`tune.lua.openlibs`).
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
    /// All of them, or none.
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

    /// The one of that name.
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

    /// Their names.
    pub const NAMES: [&'static str; 8] = ["table", "io", "os", "string", "math", "utf8", "package", "debug"];
}

/// When messages of scripts go to standard error (`tune.lua.log.stderr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Stderr {
    On,
    Off,
    /// Where no logger takes them.
    #[default]
    Auto,
}

/// The settings of all states.
#[derive(Debug, Clone)]
pub struct LuaSettings {
    /// Patterns of files that `require` looks at first, in the order in which they are tried.
    pub paths: Vec<String>,
    /// The libraries.
    pub libraries: Libraries,
    /// The variables that `os.getenv` and programs see: the environment as the configuration has
    /// changed it, which the process's own does not follow.
    pub environment: Vec<(String, String)>,
    /// Whether programs may be started (`insecure-fork-wanted`).
    pub may_fork: bool,
    /// Instructions until others have their turn (`tune.lua.forced-yield`).
    pub forced_yield: Option<u32>,
    /// Time that one turn may take (`tune.lua.burst-timeout`); `None` for no limit.
    pub burst: Option<Duration>,
    /// Time that an action may compute (`tune.lua.session-timeout`).
    pub session: Option<Duration>,
    /// Time that a service may compute (`tune.lua.service-timeout`).
    pub service: Option<Duration>,
    /// Time that a task may compute (`tune.lua.task-timeout`).
    pub task: Option<Duration>,
    /// Bytes that scripts may hold (`tune.lua.maxmem`); 0 for no limit.
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
