//! `stick` lines (manual, 4.2): the keys by which requests are kept on one server.

use diag::Diagnostic;
use plan::proxy::{StickRule, StickRules};
use sample::condition::Condition;
use sample::expression::Expression;
use sample::{Place, Words, track};

use crate::draft::Statement;
use crate::draft::row::Outcome;
use crate::resolve::lines::{arguments, scope};
use crate::resolve::rule_sets::CompiledRules;
use crate::resolve::{PendingProxy, ResolveContext};

/// Compiles a line and adds it to its rule list.
pub(crate) fn stick(
    rules: &mut CompiledRules,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
) -> Outcome {
    let of_response = statement.keyword.name == "stick store-response";
    let place = if of_response { Place::HttpResponse } else { Place::BackendRequest };
    let list = arguments(statement);
    let mut words = Words::new(&list, statement.end());
    let scope = scope(context, &rules.acls, Some(&proxy.state), proxy.settings.mode, place);
    if words.peek().is_none() {
        return Err(Diagnostic::alert(format!(
            "`{}` expects an expression for the key",
            statement.keyword.name
        ))
        .at(statement.end())
        .haproxy("'stick' expects a fetch method."));
    }
    let span = words.span();
    let key = Expression::compile(&mut words, &scope).map_err(|error| error.wrap_line("'stick': ", ""))?;
    let named = if words.take("table") {
        Some(words.next().ok_or_else(|| {
            Diagnostic::alert("`table` expects the name of a stick table")
                .at(statement.end())
                .haproxy("'stick': expects stick table name.")
        })?)
    } else {
        None
    };
    let name = named.map_or(proxy.settings.name, |word| word.text);
    if let Some(extra) = words.peek().filter(|word| !matches!(word.text, "if" | "unless")) {
        let text = extra.text;
        return Err(Diagnostic::alert(format!(
            "unexpected argument `{text}` for `{}`",
            statement.keyword.name
        ))
        .at(extra.span)
        .label("only `table`, `if` or `unless` may follow")
        .haproxy(format!("'stick': unknown keyword '{text}'.")));
    }
    let condition = Condition::compile_optional(&mut words, &scope).map_err(|error| {
        error.wrap_line("'stick': error detected while parsing sticking condition : ", ".")
    })?;
    let Some(table) = context.names.tables.get(name) else {
        let known = context.names.tables.keys().map(|name| &**name);
        return Err(Diagnostic::alert(format!("there is no stick table `{name}`"))
            .at(named.map_or(statement.keyword_span(), |word| word.span))
            .did_you_mean(diag::suggest(name, known))
            .haproxy_whole(format!(
                "Proxy '{}': unable to find stick-table '{name}'.",
                proxy.settings.name
            )));
    };
    if !key.gives().casts_to(track::key_type(table.settings.kind)) {
        let kind = table.settings.kind.name();
        return Err(Diagnostic::alert(format!(
            "table `{name}` has keys of type {kind}, but the expression is of type {}",
            key.gives().name()
        ))
        .at(span)
        .haproxy_whole(format!(
            "Proxy '{}': type of fetch not usable with type of stick-table '{name}'.",
            proxy.settings.name
        )));
    }
    let table = table.clone();
    let rule = StickRule {
        key,
        table,
        condition,
        matches: matches!(statement.keyword.name, "stick match" | "stick on"),
        stores: statement.keyword.name != "stick match",
    };
    let StickRules { of_request, of_response: responses } = rules.stick.get_or_insert_default().as_mut();
    if of_response {
        responses.push(rule)
    } else {
        of_request.push(rule)
    }
    Ok(())
}
