//! The style and the script of the page, with their hashes for the content security policy.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// A text that is part of the page.
pub(super) struct Asset {
    pub(super) text: String,
    /// Its source expression in a content security policy: `'sha256-…'`.
    pub(super) source: String,
}

pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| Asset::new(include_str!("page.css")));

pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| Asset::new(include_str!("page.js")));

/// Changes with the style or the script, so that a page of an older program reloads itself.
pub(super) static VERSION: LazyLock<String> =
    LazyLock::new(|| [&STYLE.source, &SCRIPT.source].map(|source| &source[8..14]).concat());

impl Asset {
    /// Removes indentation and lines of comments.
    fn new(written: &str) -> Self {
        let mut text = String::with_capacity(written.len());
        for line in written.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            text.push_str(line);
            text.push('\n');
        }
        let source = format!("'sha256-{}'", STANDARD.encode(Sha256::digest(&text)));
        Self { text, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_the_elements_early() {
        for asset in [&*STYLE, &*SCRIPT] {
            assert!(!asset.text.contains("</") && !asset.text.contains("<!--"));
            assert!(!asset.text.lines().any(|line| line.starts_with("//")));
        }
        assert!(STYLE.text.len() + SCRIPT.text.len() < 14_000);
    }
}
