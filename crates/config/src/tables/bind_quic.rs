//! The QUIC parameters of `bind` lines (manual, section 5.1), and the one that `server` lines have too.

use base::units::parse_size;
use diag::Diagnostic;
use plan::quic::Congestion;

use super::tune_quic::WINDOWS;
use crate::draft::args::Args;
use crate::draft::bind::{BindDraft, QuicWords};
use crate::draft::row::Outcome;
use crate::tables::bind_row::{BindKeyword, row};

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[BindKeyword] = &[
    // name arguments description setting
    row("quic-cc-algo",     "{ cubic | newreno | bbr | nocc }[(<max-window>)]", "QUIC congestion control algorithm", |d, a| { congestion(&mut d.quic, a)?; note(d, a); Ok(()) }),
    row("quic-force-retry", "",              "requires QUIC clients to validate their address",  |d, a| { d.quic.force_retry = true; note(d, a); Ok(()) }),
    row("quic-socket",      "{ connection | listener }", "whether QUIC connections have their own sockets", |d, a| { let word = a.value()?; note(d, a); a.choice(word, &[("connection", ()), ("listener", ())]) })
        .without_effect("connections share the sockets of their listener, and need no privilege"),
];

/// Remembers the parameter, which other sockets do not have.
fn note(draft: &mut BindDraft<'_>, args: &Args<'_, '_>) {
    draft.quic.first = draft.quic.first.or(args.parameter);
}

const ALGORITHMS: &[(&str, Congestion)] = &[
    ("cubic", Congestion::Cubic),
    ("newreno", Congestion::NewReno),
    ("bbr", Congestion::Bbr),
    ("nocc", Congestion::None),
];

/// `quic-cc-algo`.
pub(crate) fn congestion<'a>(quic: &mut QuicWords<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    let (name, parameters) = match word.split_once('(') {
        None => (word.as_str(), None),
        Some((name, rest)) => {
            let Some(inside) = rest.strip_suffix(')') else {
                return Err(wrong(args, format!("the parameters of `{name}` have no closing parenthesis")));
            };
            (name, Some(inside))
        }
    };
    let Some((_, algorithm)) = ALGORITHMS.iter().find(|(known, _)| *known == name) else {
        let names = ALGORITHMS.iter().map(|(name, _)| *name);
        return Err(wrong(args, format!("unknown congestion control algorithm `{name}`"))
            .did_you_mean(diag::suggest(name, names.clone()))
            .help(format!("one of: {}", names.collect::<Vec<_>>().join(", "))));
    };
    quic.congestion = Some((*algorithm, word));
    quic.max_window = None;
    let Some(parameters) = parameters else { return Ok(()) };
    let (window, more) =
        parameters.split_once(',').map_or((parameters, None), |(one, more)| (one, Some(more)));
    if more.is_some() {
        return Err(wrong(args, format!("`{name}` has only one parameter, the maximum window")));
    }
    if !window.is_empty() {
        let size = parse_size(window).ok().filter(|size| WINDOWS.contains(size));
        quic.max_window = Some(size.ok_or_else(|| {
            wrong(args, format!("the maximum window must be between 10k and 4g, not `{window}`"))
        })?);
    }
    Ok(())
}

fn wrong(args: &Args<'_, '_>, text: String) -> Diagnostic {
    let plain = text.replace('`', "'");
    args.wrong(format!("`quic-cc-algo`: {text}")).haproxy(format!("'quic-cc-algo' : {plain}"))
}
