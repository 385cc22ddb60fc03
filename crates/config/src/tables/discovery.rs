//! The lines of `discovery` sections (docs/discovery.md). `resolve::discovery` builds the sections.

use std::time::Duration;

use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::discovery::SourceKind;

use crate::draft::args::Args;
use crate::draft::discovery::{DiscoveryDraft, SourceDraft};
use crate::draft::keyword::{self, Apply, Keyword, ReadDiscovery};
use crate::draft::row::{Outcome, Where};

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadDiscovery) -> Keyword {
    keyword::row(name, Where::DISCOVERY, signature, doc, Apply::Discovery(read))
}

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("targets", "<file | url> [refresh <time>] [option*]", "reads instances from a file or URL in Prometheus' format", |d, a| source(d, a, SourceKind::Targets)),
];

/// The options of sources.
const OPTIONS: [&str; 5] = ["ca-file", "crt", "refresh", "token-file", "verify"];

/// The shortest time between two requests.
const SHORTEST: Duration = Duration::from_millis(100);

fn source<'a>(draft: &mut DiscoveryDraft<'a>, args: &mut Args<'a, '_>, kind: SourceKind) -> Outcome {
    let statement = args.statement;
    if let Some(other) = &draft.source {
        return Err(Diagnostic::alert("a discovery section has one source")
            .at(statement.keyword_span())
            .related(other.span, "the first one is here")
            .help("use another `discovery` section for this source"));
    }
    let words: Vec<String> = statement.words.iter().map(|word| word.to_string()).collect();
    let mut source = SourceDraft {
        kind,
        span: statement.span,
        text: words.join(" "),
        place: None,
        refresh: None,
        ca_file: None,
        certificate: None,
        verify: None,
        token_file: None,
    };
    match kind {
        SourceKind::Targets => source.place = Some(args.required("a file or a URL")?),
    }
    while let Some(word) = args.next() {
        match word.as_str() {
            "ca-file" => source.ca_file = Some(args.required("a file")?.into()),
            "crt" => source.certificate = Some(args.required("a file")?.into()),
            "refresh" => source.refresh = Some(refresh(args)?),
            "token-file" => source.token_file = Some(args.required("a file")?),
            "verify" => {
                let verify = args.one_of(&[("none", false), ("required", true)])?;
                source.verify = Some((verify, args.last().span()));
            }
            _ => {
                return Err(args
                    .wrong(format!("unknown option `{word}` of `{}`", kind.name()))
                    .did_you_mean(diag::suggest(word, OPTIONS))
                    .help(format!(
                        "the options are {}",
                        OPTIONS.map(|name| format!("`{name}`")).join(", ")
                    )));
            }
        }
    }
    draft.source = Some(source);
    Ok(())
}

fn refresh(args: &mut Args<'_, '_>) -> Result<Duration, Diagnostic> {
    let time = args.duration(Milliseconds)?;
    if time < SHORTEST {
        return Err(args.wrong("`refresh` must be at least 100ms").help("use a time such as `5s`"));
    }
    Ok(time)
}
