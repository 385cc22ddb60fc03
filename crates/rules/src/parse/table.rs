//! The arguments of actions on stick tables: `track-sc0` …, `sc-inc-gpc`, `sc-add-gpc`, `sc-set-gpt`.

use std::sync::Arc;

use diag::{Diagnostic, Span};
use sample::track;
use sample::value::Type;
use state::table::Table;

use crate::action::{Action, Number, TableChange, TrackedCounter};
use crate::context::{Context, Parsed};

/// `track-sc<n> <key> [table <table>]`.
pub(crate) fn track(context: &mut Context<'_, '_, '_>) -> Parsed {
    let (word, names) = (context.word, context.scope.names);
    // Without a number, the first counter is used.
    let digits = word.text.strip_prefix("track-sc").filter(|digits| !digits.is_empty()).unwrap_or("0");
    let most = names.stick_counters();
    let counter = digits.parse::<u32>().ok().filter(|number| *number < most).ok_or_else(|| {
        let shown = if most == 0 { "tracking is disabled".into() } else { format!("0 to {}", most - 1) };
        Diagnostic::alert(format!("`{}` is not a valid tracked counter", word.text))
            .at(word.span)
            .label(shown)
            .help("set their number with `tune.stick-counters` in the global section")
            .haproxy(format!(
                "{digits} track-sc number exceeding {} (tune.stick-counters-1) value.",
                i64::from(most) - 1
            ))
    })?;
    let span = context.words.span();
    let key = context.expression()?;
    let table = named_table(context, word.text)?;
    fits(&table, key.gives(), span, word.text)?;
    Ok(Action::Track { counter: counter as u8, key: Box::new(key), table })
}

/// `[table <table>]`: the table with that name, or the proxy's own table.
fn named_table(context: &mut Context<'_, '_, '_>, action: &str) -> Result<Arc<Table>, Diagnostic> {
    let (scope, own) = (context.scope, context.word.span);
    let proxy = scope.proxy.map_or("", |proxy| &proxy.name);
    if context.words.take("table") {
        let word = context.need("a stick table name")?;
        return scope.names.table(word.text).ok_or_else(|| no_table(word.text, word.span, action, proxy));
    }
    if scope.inherited {
        // In `defaults`, the proxy's own table would be ambiguous.
        return Err(Diagnostic::alert(format!(
            "`{action}` in a `defaults` section requires `table <table>`"
        ))
        .at(own)
        .haproxy(format!("'{action}' in a 'defaults' section must name its table.")));
    }
    scope.names.table(proxy).ok_or_else(|| no_table(proxy, own, action, proxy))
}

/// The error for a table that does not exist.
fn no_table(name: &str, span: Span, action: &str, proxy: &str) -> Diagnostic {
    Diagnostic::alert(format!("there is no stick table `{name}`"))
        .at(span)
        .help("`stick-table` in a proxy declares a table with the proxy's name")
        .haproxy_whole(format!("Proxy '{proxy}': unable to find table '{name}' referenced by {action}."))
}

/// Refuses an expression whose values cannot be keys of the table.
fn fits(table: &Table, gives: Type, span: Span, action: &str) -> Result<(), Diagnostic> {
    if gives.casts_to(track::key_type(table.settings.kind)) {
        return Ok(());
    }
    let (name, kind) = (table.name(), table.settings.kind.name());
    Err(Diagnostic::alert(format!(
        "table `{name}` has keys of type {kind}, but the expression is of type {}",
        gives.name()
    ))
    .at(span)
    .haproxy(format!("stick-table '{name}' uses a type incompatible with the '{action}' rule")))
}

/// The numbers in the parentheses: the element, if the action takes one, and the counter.
fn numbers(context: &Context<'_, '_, '_>, named: Option<u8>) -> Result<TrackedCounter, Diagnostic> {
    // Without parentheses, the first counter is used.
    let (inner, span) = match named {
        Some(_) if !context.word.text.contains('(') => ("0", context.word.span),
        _ => context.parenthesised()?,
    };
    let usage = || {
        Diagnostic::alert(format!("invalid arguments in the parentheses of `{}`", context.row.name))
            .at(span)
            .help(context.usage_line())
    };
    let mut parts = inner.split(',').map(|part| part.trim().parse::<u32>());
    let mut next = || parts.next().and_then(Result::ok).ok_or_else(usage);
    let element = match named {
        Some(element) => element,
        None => next()?.try_into().ok().filter(|element| *element < 100).ok_or_else(usage)?,
    };
    let counter = next()?;
    if parts.next().is_some() {
        return Err(usage());
    }
    let most = context.scope.names.stick_counters();
    if counter >= most {
        return Err(Diagnostic::alert(format!("`{counter}` is not a valid tracked counter"))
            .at(span)
            .help("set their number with `tune.stick-counters` in the global section")
            .haproxy(format!(
                "invalid stick table track ID. The max allowed ID is {} (tune.stick-counters).",
                i64::from(most) - 1
            )));
    }
    Ok(TrackedCounter { element, is_named: named.is_some(), counter: counter as u8 })
}

/// `sc-inc-gpc(<idx>,<sc-id>)`, `sc-inc-gpc0(<sc-id>)`, `sc-inc-gpc1(<sc-id>)`.
pub(crate) fn increment_counter(context: &mut Context<'_, '_, '_>) -> Parsed {
    let named = match context.row.name {
        "sc-inc-gpc0" => Some(0),
        "sc-inc-gpc1" => Some(1),
        _ => None,
    };
    let counted = numbers(context, named)?;
    Ok(Action::ChangeEntry { change: TableChange::Add, counted, value: Box::new(Number::Fixed(1)) })
}

/// `sc-add-gpc(<idx>,<sc-id>) { <int> | <expr> }`.
pub(crate) fn add_counter(context: &mut Context<'_, '_, '_>) -> Parsed {
    let counted = numbers(context, None)?;
    let value = Box::new(context.number_or_expression(0, u32::MAX.into())?);
    Ok(Action::ChangeEntry { change: TableChange::Add, counted, value })
}

/// `sc-set-gpt(<idx>,<sc-id>) { <int> | <expr> }`, `sc-set-gpt0(<sc-id>) { <int> | <expr> }`.
pub(crate) fn set_tag(context: &mut Context<'_, '_, '_>) -> Parsed {
    let named = (context.row.name == "sc-set-gpt0").then_some(0);
    let counted = numbers(context, named)?;
    let value = Box::new(context.number_or_expression(0, u32::MAX.into())?);
    Ok(Action::ChangeEntry { change: TableChange::Tag, counted, value })
}
