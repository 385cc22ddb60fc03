//! Parses `server` lines, and expands `server-template` lines. `servers` creates server states from the result, and
//! `peers` builds its own lines.

use std::rc::Rc;

use diag::Diagnostic;
use state::Mode;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::server::ServerDraft;
use crate::draft::settings::DefaultServers;
use crate::draft::{SectionKind, Statement, is_name_character};
use crate::resolve::{PendingProxy, ResolveContext};
use crate::tables::server::{origin, parse_params};
use crate::tables::server_address::{ServerPlace, parse_place, refuse_datagrams};

/// A parsed line.
pub(crate) struct ServerLine<'a> {
    pub(crate) statement: &'a Statement,
    pub(crate) name: Box<str>,
    pub(crate) name_word: &'a Word,
    pub(crate) address_word: &'a Word,
    pub(crate) place: Rc<ServerPlace>,
    pub(crate) draft: ServerDraft<'a>,
}

/// Checks the characters of a server's name.
pub(super) fn check_name(name: &Word) -> Result<(), Diagnostic> {
    match name.char_indices().find(|(_, character)| !is_name_character(*character)) {
        None => Ok(()),
        Some((at, wrong)) => {
            Err(Diagnostic::alert(format!("character `{wrong}` is not allowed in a server name"))
                .at(name.part(at, at + wrong.len_utf8()))
                .haproxy(format!("character '{wrong}' is not permitted in server name '{name}'.")))
        }
    }
}

/// Parses the range of a `server-template` line: the numbers of its first and last server.
pub(super) fn template_range(range: &str) -> Option<(u32, u32)> {
    let (low, high) = range.split_once('-').unwrap_or(("1", range));
    let bounds = low.parse::<u32>().ok().zip(high.parse::<u32>().ok());
    bounds.filter(|(low, high)| low <= high && *high > 0 && high - low < 100_000)
}

/// `server name host:80`.
pub(super) fn single<'a>(
    proxy: &PendingProxy<'a>,
    statement: &'a Statement,
    defaults: &DefaultServers<'a>,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<ServerLine<'a>>, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let name = args.next();
    let (Some(name), Some(address)) = (name, args.next()) else {
        return Err(Diagnostic::alert("`server` expects a name and an address")
            .at(statement.end())
            .label("usage: server <name> <address>[:<port>] [param*]")
            .haproxy("'server' expects <name> and <addr>[:<port>] as arguments."));
    };
    check_name(name)?;
    let title = format!("server {}/{name}", proxy.settings.name);
    let (place, draft) = parameters(proxy, address, &mut args, defaults, &title)?;
    let name_text = name.as_str().into();
    Ok(vec![ServerLine { statement, name: name_text, name_word: name, address_word: address, place, draft }])
}

/// Parses the address and the parameters that follow a name.
fn parameters<'a>(
    proxy: &PendingProxy<'a>,
    address: &'a Word,
    args: &mut Args<'a, '_>,
    defaults: &DefaultServers<'a>,
    title: &str,
) -> Result<(Rc<ServerPlace>, ServerDraft<'a>), Diagnostic> {
    let place = parse_place(address, args)?;
    args.warn_of_mptcp(address);
    if proxy.settings.mode != Mode::Log || proxy.settings.kind == SectionKind::Ring {
        refuse_datagrams(&place, address)?;
    }
    let origin = origin(args, proxy.settings.name, defaults)?;
    let mut draft = origin.unwrap_or_else(|| defaults.unnamed.as_ref().clone());
    parse_params(&mut draft, args, title)?;
    draft.is_quic = place.is_quic;
    Ok((Rc::new(place), draft))
}

/// `server-template prefix 1-3 host:80`: servers `prefix1` to `prefix3`.
pub(super) fn template<'a>(
    proxy: &PendingProxy<'a>,
    statement: &'a Statement,
    defaults: &DefaultServers<'a>,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<ServerLine<'a>>, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let prefix = args.required("<prefix> <nb | range> <addr>[:<port>]")?;
    check_name(prefix)?;
    let range = args.required("<nb | range> <addr>[:<port>]")?;
    let (low, high) = template_range(range).ok_or_else(|| {
        args.wrong(format!("invalid number or range of servers `{range}`"))
            .label("use a value such as `3` or `1-3`")
            .haproxy("'server-template' expects <prefix> <nb | range> <addr>[:<port>] as arguments.")
    })?;
    let address = args.required("<addr>[:<port>]")?;
    let title = format!("server-template {}/{prefix}", proxy.settings.name);
    let (place, draft) = parameters(proxy, address, &mut args, defaults, &title)?;
    let line = |number| ServerLine {
        statement,
        name: format!("{prefix}{number}").into(),
        name_word: prefix,
        address_word: address,
        place: place.clone(),
        // An ID and a GUID apply only to the first server.
        draft: ServerDraft {
            id: draft.id.filter(|_| number == low),
            guid: draft.guid.filter(|_| number == low),
            ..draft.clone()
        },
    };
    Ok((low..=high).map(line).collect())
}
