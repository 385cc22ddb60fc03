//! What the `global` section says of scripts.

use syntax::Word;

/// It, as said so far.
#[derive(Debug, Default)]
pub struct LuaWords<'a> {
    /// The settings.
    pub settings: lua::LuaSettings,
    /// Each file, with its word, and whether workers have states of their own for it.
    pub scripts: Vec<(&'a Word, Vec<String>, bool)>,
    /// Whether `tune.lua.bool-sample-conversion` was said in time.
    pub says_booleans: bool,
}
