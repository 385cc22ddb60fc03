//! Script settings of the `global` section.

use syntax::Word;

/// The script settings read so far.
#[derive(Debug, Default)]
pub struct LuaWords<'a> {
    /// The settings.
    pub settings: lua::LuaSettings,
    /// Each file with its arguments, and whether every worker loads it into its own state.
    pub scripts: Vec<(&'a Word, Vec<String>, bool)>,
    /// Whether `tune.lua.bool-sample-conversion` was set before the first script.
    pub says_booleans: bool,
}
