//! The configuration as written: sections and statements with their keyword rows and locations.

use std::any::Any;
use std::path::PathBuf;
use std::time::Duration;

use diag::{FileId, Span};
use plan::proxy::Timeouts;
use syntax::{Environment, Word};

use crate::draft::row::{KeywordRow, Negation, Where};

/// The time limit for the handshake of peers.
const PEERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The kinds of known sections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SectionKind {
    /// `global`.
    Global,
    /// `defaults`.
    Defaults,
    /// `frontend`.
    Frontend,
    /// `backend`.
    Backend,
    /// `listen`.
    Listen,
    /// `userlist`.
    Userlist,
    /// `http-errors`.
    HttpErrors,
    /// `crt-store`.
    CrtStore,
    /// `acme`.
    Acme,
    /// `fcgi-app`.
    FcgiApp,
    /// `healthcheck`.
    Healthcheck,
    /// `resolvers`.
    Resolvers,
    /// `mailers`.
    Mailers,
    /// `peers`.
    Peers,
    /// `cache`.
    Cache,
    /// `ring`.
    Ring,
    /// `log-forward`.
    LogForward,
    /// `log-profile`.
    LogProfile,
    /// `traces`.
    Traces,
    /// `spoe-agent`, in a file of `filter spoe`.
    SpoeAgent,
    /// `spoe-message`, in a file of `filter spoe`.
    SpoeMessage,
    /// `spoe-group`, in a file of `filter spoe`.
    SpoeGroup,
    /// `opentelemetry`.
    OpenTelemetry,
    /// `discovery`.
    Discovery,
    /// `udp-lb`.
    UdpLb,
    /// A section of HAProxy that is not supported: its lines are ignored.
    Unsupported,
}

impl SectionKind {
    /// Returns the timeouts of a section without `timeout` lines.
    pub fn default_timeouts(self) -> Timeouts {
        let limit = (self == Self::Peers).then_some(PEERS_TIMEOUT);
        Timeouts { client: limit, connect: limit, server: limit, ..Timeouts::default() }
    }

    /// The section's bit in the keyword tables.
    pub fn place(self) -> Where {
        match self {
            Self::Global => Where::GLOBAL,
            Self::Defaults => Where::D,
            Self::Frontend => Where::F,
            Self::Backend => Where::B,
            Self::Listen => Where::L,
            Self::Userlist => Where::USERLIST,
            Self::HttpErrors => Where::ERRORS,
            Self::CrtStore => Where::CRT_STORE,
            Self::Acme => Where::ACME,
            Self::FcgiApp => Where::FCGI_APP,
            Self::Healthcheck => Where::HEALTHCHECK,
            Self::Resolvers => Where::RESOLVERS,
            Self::Mailers => Where::MAILERS,
            Self::Peers => Where::PEERS,
            Self::Cache => Where::CACHE,
            Self::Ring => Where::RING,
            Self::LogForward => Where::LOG_FORWARD,
            Self::LogProfile => Where::LOG_PROFILE,
            Self::Traces => Where::TRACES,
            Self::SpoeAgent => Where::SPOE_AGENT,
            Self::SpoeMessage => Where::SPOE_MESSAGE,
            Self::SpoeGroup => Where::SPOE_GROUP,
            Self::OpenTelemetry => Where::OPENTELEMETRY,
            Self::Discovery => Where::DISCOVERY,
            Self::UdpLb => Where::UDP_LB,
            Self::Unsupported => Where(0),
        }
    }

    /// Whether it defines a proxy.
    pub fn is_proxy(self) -> bool {
        self.inherits() || self == Self::UdpLb
    }

    /// Whether it defines a proxy that inherits the settings of `defaults`.
    pub fn inherits(self) -> bool {
        matches!(self, Self::Frontend | Self::Backend | Self::Listen)
    }
}

/// Every word that begins a section.
const SECTIONS: &[(&str, SectionKind)] = &[
    ("global", SectionKind::Global),
    ("defaults", SectionKind::Defaults),
    ("frontend", SectionKind::Frontend),
    ("backend", SectionKind::Backend),
    ("listen", SectionKind::Listen),
    ("userlist", SectionKind::Userlist),
    ("http-errors", SectionKind::HttpErrors),
    ("acme", SectionKind::Acme),
    ("cache", SectionKind::Cache),
    ("crt-store", SectionKind::CrtStore),
    ("discovery", SectionKind::Discovery),
    ("dynamic-update", SectionKind::Unsupported),
    ("fcgi-app", SectionKind::FcgiApp),
    ("healthcheck", SectionKind::Healthcheck),
    ("log-forward", SectionKind::LogForward),
    ("log-profile", SectionKind::LogProfile),
    ("mailers", SectionKind::Mailers),
    ("opentelemetry", SectionKind::OpenTelemetry),
    ("peers", SectionKind::Peers),
    ("program", SectionKind::Unsupported),
    ("resolvers", SectionKind::Resolvers),
    ("ring", SectionKind::Ring),
    ("traces", SectionKind::Traces),
    ("udp-lb", SectionKind::UdpLb),
];

/// A line within a section.
#[derive(Debug)]
pub struct Statement {
    /// Its keyword's row.
    pub keyword: &'static KeywordRow,
    /// The row's action, an [`Apply`](crate::keyword::Apply) to which [`apply_of`](crate::keyword::apply_of) casts this. Opaque
    /// because the functions take statements.
    pub apply: &'static (dyn Any + Send + Sync),
    /// Whether the line begins with `no` or `default`.
    pub negation: Negation,
    /// All words from the keyword on.
    pub words: Box<[Word]>,
    /// The whole line.
    pub span: Span,
    /// The line number.
    pub line: u32,
}

impl Statement {
    /// The words after the keyword.
    pub fn arguments(&self) -> &[Word] {
        &self.words[self.keyword.words()..]
    }

    /// The span of the keyword.
    pub fn keyword_span(&self) -> Span {
        self.words[0].span().to(self.words[self.keyword.words() - 1].span())
    }

    /// The end of the line's last word, where errors about a missing word point.
    pub fn end(&self) -> Span {
        let last = self.words.last().map_or(self.span, Word::span);
        Span { start: last.end, ..last }
    }
}

/// A section.
#[derive(Debug)]
pub struct Section {
    /// The kind of the section.
    pub kind: SectionKind,
    /// The keyword of the section.
    pub keyword: Word,
    /// The name of the section; empty if it has none.
    pub name: Word,
    /// `from`: the name of the defaults section.
    pub from: Option<Word>,
    /// The file that contains it.
    pub file: FileId,
    /// The line where it begins.
    pub line: u32,
    /// The lines of the section.
    pub statements: Vec<Statement>,
}

/// The part of a file that a `filter spoe` line refers to: one scope.
#[derive(Debug)]
pub struct EngineFile {
    /// The file.
    pub path: PathBuf,
    /// The scope; `None` for the whole file.
    pub scope: Option<Box<str>>,
    /// The sections of the scope.
    pub sections: Vec<Section>,
    /// The lines that refer to this scope: the spans of the file name.
    pub lines: Vec<Span>,
}

/// A whole configuration as written.
#[derive(Debug, Default)]
pub struct Draft {
    /// The sections in order.
    pub sections: Vec<Section>,
    /// The files of `filter spoe` lines.
    pub engines: Vec<EngineFile>,
    /// The environment after the last line.
    pub environment: Environment,
}

/// The kind of section that a word begins.
pub(crate) fn section_kind(word: &Word) -> Option<SectionKind> {
    SECTIONS.iter().find(|(name, _)| word == name).map(|(_, kind)| *kind)
}

/// The words that begin sections.
pub fn section_names() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|(name, _)| *name)
}

/// Whether the character is allowed in names of proxies, servers and ACLs.
pub fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | ':')
}

/// Quotes a word so that the parser reads it literally.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
