//! `aggregate`: tables that add up what all members of a `peers` section count.

use std::sync::Arc;

use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use state::table::{Aggregate, Column, MOST_MEMBERS, Table};
use syntax::Word;

use super::{TableLine, milliseconds};
use crate::draft::SectionKind;
use crate::draft::args::Args;
use crate::resolve::{PendingProxy, ResolveContext, peers};

/// How often changes are sent by default, in milliseconds.
const EVERY_MS: u32 = 20;

/// The limits of `every`, in milliseconds.
const EVERY: std::ops::RangeInclusive<u32> = 1..=10_000;

/// The parsed argument.
#[derive(Debug)]
pub(super) struct AggregateLine<'a> {
    word: &'a Word,
    every_ms: u32,
}

/// Parses the arguments after `aggregate`.
pub(super) fn read<'a>(word: &'a Word, args: &mut Args<'a, '_>) -> Result<AggregateLine<'a>, Diagnostic> {
    if !args.take("every") {
        return Ok(AggregateLine { word, every_ms: EVERY_MS });
    }
    let time = args.value()?;
    let every_ms =
        milliseconds(time, Milliseconds).filter(|every| EVERY.contains(every)).ok_or_else(|| {
            args.wrong(format!("invalid interval `{time}`"))
                .label("use a time from 1ms to 10s")
                .help("without `every`, changes are sent every 20ms")
        })?;
    Ok(AggregateLine { word, every_ms })
}

/// Returns the settings of a table with this argument, or `None` for other tables. Without other members, if the section shares
/// nothing.
pub(super) fn settings(
    line: &TableLine<'_>,
    of_section: bool,
    pending: &[PendingProxy<'_>],
    context: &ResolveContext<'_>,
) -> Result<Option<Aggregate>, Diagnostic> {
    let Some(AggregateLine { word, every_ms }) = &line.aggregate else { return Ok(None) };
    let wrong = |text: &str| Diagnostic::alert(text).at(word.span());
    let own = &line.settings;
    if !of_section && line.peers.is_none() {
        return Err(wrong(
            "`aggregate` adds up the counts of the members of a peers section, but there is none",
        )
        .help("add `peers <section>`"));
    }
    if own.expire_ms == 0 {
        return Err(wrong("`aggregate` needs `expire`").help(
            "add `expire <time>`: it also limits how long the counts of a member that is gone are included",
        ));
    }
    if own.recv_only {
        return Err(wrong("`aggregate` cannot be combined with `recv-only`").help(
            "remove `recv-only`: the table has what this process counts, and the parts of the others",
        ));
    }
    if let Some(target) = line.write_to {
        return Err(wrong("`aggregate` cannot be combined with `write-to`")
            .related(target.span(), "`write-to` is here")
            .help("remove one of them: the sums are in this table"));
    }
    if !own.columns.iter().any(|column: &Column| column.data.is_summed()) {
        return Err(wrong("`aggregate` has nothing to add up: the table stores no counter and no rate")
            .help("remove `aggregate`, or store a counter such as `http_req_cnt`"));
    }
    let alone = Ok(Some(Aggregate { every_ms: *every_ms, members: Box::default() }));
    let Some(name) = &own.peers else { return alone };
    let section = pending
        .iter()
        .find(|proxy| proxy.settings.kind == SectionKind::Peers && *proxy.settings.name == **name);
    let Some(section) = section else { return alone };
    if section.settings.peers.shards > 0 {
        return Err(wrong("`aggregate` cannot be used in a peers section with `shards`").help(format!(
            "remove `shards` from `peers {name}`: every member needs the parts of all others"
        )));
    }
    let members = peers::others(&section.settings, context);
    if members.len() >= MOST_MEMBERS {
        let count = members.len() + 1;
        return Err(wrong(&format!(
            "`aggregate` supports up to {MOST_MEMBERS} members, and `peers {name}` has {count}"
        ))
        .help("divide the members into several peers sections"));
    }
    Ok(Some(Aggregate { every_ms: *every_ms, members: members.into() }))
}

/// Checks that no other table has the name of a part among the peers.
pub(super) fn check_names(
    tables: &[Arc<Table>],
    pending: &[PendingProxy<'_>],
    context: &mut ResolveContext<'_>,
) {
    for table in tables {
        let Some(section) = &table.settings.peers else { continue };
        let Some((whole, member)) = table.name().rsplit_once('@') else { continue };
        let is_part = tables.iter().any(|other| {
            other.name() == whole
                && other.settings.peers.as_ref() == Some(section)
                && other.aggregate().is_some()
        });
        let is_member = pending.iter().any(|proxy| {
            let settings = &proxy.settings;
            settings.kind == SectionKind::Peers
                && *settings.name == **section
                && settings
                    .servers
                    .iter()
                    .any(|(line, _)| line.arguments().first().is_some_and(|name| name.as_str() == member))
        });
        if is_part && is_member {
            let name = table.name();
            context.diagnostics.push(
                Diagnostic::alert(format!(
                    "table `{name}` has the name of a part of the aggregate table `{whole}`"
                ))
                .help(format!("rename it: `{whole}` has the part of member `{member}`")),
            );
        }
    }
}
