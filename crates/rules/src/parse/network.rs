//! Actions for names and bandwidth: `do-resolve`, `set-bandwidth-limit`.

use base::address::Family;
use diag::{Diagnostic, suggest};
use sample::expression::Expression;

use super::check_scope;
use crate::action::Action;
use crate::context::{Context, Parsed};

pub(crate) fn set_bandwidth_limit(context: &mut Context<'_, '_, '_>) -> Parsed {
    let name = context.need("a bandwidth filter name")?;
    let filter = context.scope.names.bandwidth(name.text).ok_or_else(|| {
        Diagnostic::alert(format!("there is no bandwidth filter `{}` here", name.text))
            .at(name.span)
            .help("declare one in the same proxy with `filter bwlim-in` or `filter bwlim-out`")
            .haproxy_whole(format!(
                "Proxy '{}': unable to find bwlim filter '{}' referenced by set-bandwidth-limit rule.",
                context.scope.proxy.map_or("", |proxy| &proxy.name),
                name.text
            ))
    })?;
    let (mut limit, mut period) = (None, None);
    loop {
        if context.words.take("limit") {
            limit = Some(Box::new(context.size_or_expression()?));
        } else if context.words.take("period") {
            period = Some(Box::new(context.time_or_expression()?));
        } else {
            if filter.shared.is_some() && (limit.is_some() || period.is_some()) {
                let what = if limit.is_some() { "limit" } else { "period" };
                let proxy = context.scope.proxy.map_or("", |proxy| &proxy.name);
                return Err(Diagnostic::alert(format!("filter `{}` has a shared {what}, which rules cannot set", name.text))
                    .at(name.span)
                    .haproxy_whole(format!(
                        "Proxy '{proxy}': set-bandwidth-limit rule cannot define a {what} for a shared bwlim filter."
                    )));
            }
            let shared = match &filter.shared {
                Some(by) => {
                    let key = Expression::compile_str(&by.key, name.span, context.scope)?;
                    Some(Box::new((key, by.table.clone())))
                }
                None => None,
            };
            return Ok(Action::LimitBandwidth { filter, limit, period, shared });
        }
    }
}

pub(crate) fn send_spoe_group(context: &mut Context<'_, '_, '_>) -> Parsed {
    let arity = "expects 2 arguments: <engine-id> <group-id>.";
    let engine = context.need("an engine name").map_err(|error| error.haproxy(arity))?;
    let group = context.need("a group name").map_err(|error| error.haproxy(arity))?;
    let scope = context.scope;
    scope.names.spoe_group(engine, group, scope.place).map(Action::SendSpoeGroup)
}

pub(crate) fn do_resolve(context: &mut Context<'_, '_, '_>) -> Parsed {
    let (inner, span) = context.parenthesised()?;
    let at = |message: String| Diagnostic::alert(message).at(span);
    let usage = "`do-resolve` requires a variable and a resolvers section in parentheses";
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    let (name, section, prefer) = match parts[..] {
        [name, section] => (name, section, None),
        [name, section, "ipv4"] => (name, section, Some(Family::V4)),
        [name, section, "ipv6"] => (name, section, Some(Family::V6)),
        [_, _, other] => {
            return Err(at(format!("unknown address family `{other}`"))
                .did_you_mean(suggest(other, ["ipv4", "ipv6"]))
                .help("use `ipv4` or `ipv6`"));
        }
        _ => return Err(at(usage.to_owned())),
    };
    let var = context.scope.variables.borrow_mut().resolve(name).map_err(at)?;
    check_scope(context, &var, name, span)?;
    let names = context.scope.names;
    let section = names.resolvers(section).ok_or_else(|| {
        let known = names.resolvers_names();
        at(format!("there is no resolvers section `{section}`"))
            .did_you_mean(suggest(section, known.iter().map(|name| &**name)))
            .haproxy_whole(format!(
                "Proxy '{}': Can't find resolvers section '{section}' for do-resolve action.",
                context.scope.proxy.map_or("", |proxy| &proxy.name)
            ))
    })?;
    Ok(Action::Resolve { section, prefer, var, name: Box::new(context.expression()?) })
}
