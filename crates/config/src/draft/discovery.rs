//! A `discovery` section that is still being parsed.

use std::time::Duration;

use diag::Span;
use plan::discovery::SourceKind;
use syntax::Word;

use crate::draft::tls::TlsValue;

/// A `discovery` section that is still being parsed.
#[derive(Debug, Default)]
pub struct DiscoveryDraft<'a> {
    /// The source.
    pub source: Option<SourceDraft<'a>>,
}

/// The line of a source.
#[derive(Debug)]
pub struct SourceDraft<'a> {
    /// The kind of the source.
    pub kind: SourceKind,
    /// The whole line.
    pub span: Span,
    /// All words, as written.
    pub text: String,
    /// The file or URL.
    pub place: Option<&'a Word>,
    /// `refresh`.
    pub refresh: Option<Duration>,
    /// `ca-file`.
    pub ca_file: Option<TlsValue<'a>>,
    /// `crt`.
    pub certificate: Option<TlsValue<'a>>,
    /// `verify`, with its location.
    pub verify: Option<(bool, Span)>,
    /// `token-file`.
    pub token_file: Option<&'a Word>,
}
