//! Actions of caches: `cache-use`, `cache-store`, `cache-purge`.

use std::sync::Arc;

use diag::{Diagnostic, suggest};

use sample::format::FormatFor;

use super::wrong;
use crate::action::{Action, PurgeBy};
use crate::context::{Context, Parsed};

pub(crate) fn cache_use(context: &mut Context<'_, '_, '_>) -> Parsed {
    let store = store(context)?;
    let hints = !context.words.take("no-early-hints");
    Ok(Action::UseCache { store, hints })
}

pub(crate) fn cache_store(context: &mut Context<'_, '_, '_>) -> Parsed {
    store(context).map(Action::StoreInCache)
}

pub(crate) fn cache_purge(context: &mut Context<'_, '_, '_>) -> Parsed {
    let store = store(context)?;
    let word = context.need("`key`, `prefix` or `tag`")?;
    let by = match word.text {
        "key" => PurgeBy::Key,
        "prefix" => PurgeBy::Prefix,
        "tag" if store.settings.tags.is_none() => {
            let name = &store.settings.name;
            return Err(Diagnostic::alert(format!("cache `{name}` does not support tags"))
                .at(word.span)
                .help("set the response header that lists them with `purge-tags` in the cache section"));
        }
        "tag" => PurgeBy::Tag,
        _ => return Err(wrong(word, "purge type", &["key", "prefix", "tag"])),
    };
    let what = context.format("a value to purge", FormatFor::Text)?;
    Ok(Action::PurgeCache { store, by, what })
}

fn store(context: &mut Context<'_, '_, '_>) -> Result<Arc<cache::Store>, Diagnostic> {
    let word = context.need("a cache name")?;
    let names = context.scope.names;
    names.cache(word.text).ok_or_else(|| {
        let known = names.cache_names();
        let proxy = context.scope.proxy.map_or("", |proxy| &proxy.name);
        Diagnostic::alert(format!("there is no cache `{}`", word.text))
            .at(word.span)
            .did_you_mean(suggest(word.text, known.iter().map(|name| &**name)))
            .help("define it with a `cache` section")
            .haproxy_whole(format!(
                "config: Proxy '{proxy}': unable to find the cache '{}' referenced by the filter 'cache'.",
                word.text
            ))
    })
}
