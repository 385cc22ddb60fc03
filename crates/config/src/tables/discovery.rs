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
    row("consul",     "<url> [option*]",             "finds services in Consul",                            |d, a| source(d, a, SourceKind::Consul)),
    row("docker",     "<unix@path | url> [option*]", "finds running containers of Docker",                  |d, a| source(d, a, SourceKind::Docker)),
    row("etcd",       "<url> [option*]",             "finds servers in the keys of etcd",                   |d, a| source(d, a, SourceKind::Etcd)),
    row("kubernetes", "[<url>] [option*]",           "finds the endpoints of services in Kubernetes",       |d, a| source(d, a, SourceKind::Kubernetes)),
    row("nomad",      "<url> [option*]",             "finds services in Nomad",                             |d, a| source(d, a, SourceKind::Nomad)),
    row("podman",     "<unix@path | url> [option*]", "finds running containers of Podman",                  |d, a| source(d, a, SourceKind::Podman)),
    row("targets",    "<file | url> [refresh <time>] [option*]", "reads instances from a file or URL in Prometheus' format", |d, a| source(d, a, SourceKind::Targets)),
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
    source.place = match kind {
        SourceKind::Targets => Some(args.required("a file or a URL")?),
        SourceKind::Docker | SourceKind::Podman => Some(args.required("`unix@<path>` or a URL")?),
        SourceKind::Consul | SourceKind::Nomad | SourceKind::Etcd => Some(args.required("a URL")?),
        // Without a URL, the process runs in a pod, which knows the server.
        SourceKind::Kubernetes => match args.peek() {
            Some(word) if word.contains("://") => args.next(),
            _ => None,
        },
    };
    while let Some(word) = args.next() {
        match word.as_str() {
            "ca-file" => source.ca_file = Some(args.required("a file")?.into()),
            "crt" => source.certificate = Some(args.required("a file")?.into()),
            "refresh" if kind == SourceKind::Targets => source.refresh = Some(refresh(args)?),
            "token-file" => source.token_file = Some(args.required("a file")?),
            "verify" => {
                let verify = args.one_of(&[("none", false), ("required", true)])?;
                source.verify = Some((verify, args.last().span()));
            }
            _ => {
                let known = OPTIONS.iter().filter(|name| kind == SourceKind::Targets || **name != "refresh");
                let known: Vec<&str> = known.copied().collect();
                return Err(args
                    .wrong(format!("unknown option `{word}` of `{}`", kind.name()))
                    .did_you_mean(diag::suggest(word, known.iter().copied()))
                    .help(format!("the options are `{}`", known.join("`, `"))));
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
