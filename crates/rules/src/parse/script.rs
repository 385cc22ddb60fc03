//! Reading what rules say of scripts: `lua.name` and `use-service lua.name`.

use std::sync::Arc;

use diag::{Diagnostic, suggest};
use sample::Word;
use sample::script::{Function, Use};

use crate::action::Action;
use crate::context::{Context, Parsed, Ruleset};
use crate::rule::intern;
use crate::stage::{ScriptCall, Service};

/// How scripts name rule sets when they register actions.
fn said_by_scripts(set: Ruleset) -> &'static [&'static str] {
    match set {
        Ruleset::TcpRequest => &["tcp-req"],
        Ruleset::TcpResponse => &["tcp-res"],
        Ruleset::HttpRequest => &["http-req"],
        Ruleset::HttpResponse => &["http-res"],
        Ruleset::HttpAfterResponse => &["http-after-res"],
        Ruleset::TcpConnection | Ruleset::TcpSession => &[],
    }
}

fn find(
    context: &Context<'_, '_, '_>,
    used: Use,
    word: Word<'_>,
) -> Result<Arc<dyn Function>, Diagnostic> {
    let name = word.text.strip_prefix("lua.").unwrap_or(word.text);
    let names = context.scope.names;
    names.script(used, name).ok_or_else(|| {
        let what = if used == Use::Action { "action" } else { "service" };
        let known = names.script_names(used);
        let near = suggest(name, known.iter().map(|name| &**name)).map(|near| format!("lua.{near}"));
        Diagnostic::alert(format!("no script has registered {what} `{name}`"))
            .at(word.span)
            .did_you_mean(near.as_deref())
    })
}

/// `lua.name <word>*`: as many words as the action was registered with.
pub(crate) fn action(context: &mut Context<'_, '_, '_>) -> Parsed {
    let function = find(context, Use::Action, context.word)?;
    let facts = function.facts();
    if !said_by_scripts(context.set).iter().any(|set| facts.sets.iter().any(|own| own == set)) {
        return Err(Diagnostic::alert(format!(
            "`{}` is not registered for `{}`",
            context.word.text,
            context.set.name()
        ))
        .at(context.word.span)
        .help(format!("its script registered it for {}", facts.sets.join(", "))));
    }
    let mut words = Vec::with_capacity(facts.words);
    for number in 1..=facts.words {
        words.push(context.need(&format!("argument {number} of {}", facts.words))?.text.into());
    }
    Ok(Action::Script(Arc::new(ScriptCall { function, words, shown: intern(context.word.text.to_owned()) })))
}

/// `use-service lua.name`.
pub(crate) fn service(context: &Context<'_, '_, '_>, word: Word<'_>) -> Parsed {
    let function = find(context, Use::Service, word)?;
    let is_http = context.set == Ruleset::HttpRequest;
    if function.facts().is_http != is_http {
        let (kind, set) = if is_http { ("tcp", "tcp-request content") } else { ("http", "http-request") };
        return Err(Diagnostic::alert(format!("`{}` is a service of mode {kind}", word.text))
            .at(word.span)
            .help(format!("it may stand in `{set}` rules")));
    }
    let shown = intern(format!("<{}>", word.text));
    Ok(Action::UseService(Service::Script(Arc::new(ScriptCall { function, words: Vec::new(), shown }))))
}
