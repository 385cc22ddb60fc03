//! Actions of caches: `cache-use`, `cache-store`.

use std::sync::Arc;

use diag::{Diagnostic, suggest};

use crate::action::Action;
use crate::context::{Context, Parsed};

pub(crate) fn cache_use(context: &mut Context<'_, '_, '_>) -> Parsed {
    let store = store(context)?;
    let hints = !context.words.take("no-early-hints");
    Ok(Action::UseCache { store, hints })
}

pub(crate) fn cache_store(context: &mut Context<'_, '_, '_>) -> Parsed {
    store(context).map(Action::StoreInCache)
}

fn store(context: &mut Context<'_, '_, '_>) -> Result<Arc<cache::Store>, Diagnostic> {
    let word = context.need("the name of a cache")?;
    let names = context.scope.names;
    names.cache(word.text).ok_or_else(|| {
        let known = names.cache_names();
        let proxy = context.scope.proxy.map_or("", |proxy| &proxy.name);
        Diagnostic::alert(format!("there is no cache `{}`", word.text))
            .at(word.span)
            .did_you_mean(suggest(word.text, known.iter().map(|name| &**name)))
            .help("a section `cache` declares it")
            .haproxy_whole(format!(
                "config: Proxy '{proxy}': unable to find the cache '{}' referenced by the filter 'cache'.",
                word.text
            ))
    })
}
