//! Parses references to scripts in rules: `lua.name` and `use-service lua.name`.

use std::sync::Arc;

use diag::{Diagnostic, suggest};
use sample::Word;
use sample::script::{Function, Use};

use crate::action::Action;
use crate::context::{Context, Parsed, Ruleset};
use crate::intern::intern;
use crate::stage::{ScriptCall, Service};

/// The names of rule sets used by scripts to register actions.
fn said_by_scripts(set: Ruleset) -> Option<&'static str> {
    match set {
        Ruleset::TcpRequest => Some("tcp-req"),
        Ruleset::TcpResponse => Some("tcp-res"),
        Ruleset::HttpRequest => Some("http-req"),
        Ruleset::HttpResponse => Some("http-res"),
        Ruleset::HttpAfterResponse => Some("http-after-res"),
        Ruleset::TcpConnection | Ruleset::TcpSession | Ruleset::QuicInitial | Ruleset::UdpRequest => None,
    }
}

/// The error for an action that no script has registered for this rule set. `others` are the sets for which it is registered.
fn not_registered(context: &Context<'_, '_, '_>, name: &str, others: &[&str]) -> Diagnostic {
    if !others.is_empty() {
        let set = context.set.name();
        return Diagnostic::alert(format!("`{}` is not registered for `{set}`", context.word.text))
            .at(context.word.span)
            .help(format!("its script registered it for {}", others.join(", ")));
    }
    let known = context.scope.names.script_names(Use::Action);
    let bare = known.iter().filter_map(|name| name.split_once('/')).map(|(_, name)| name);
    let near = suggest(name, bare).map(|near| format!("lua.{near}"));
    Diagnostic::alert(format!("no script has registered an action `{name}`"))
        .at(context.word.span)
        .did_you_mean(near.as_deref())
}

/// Resolves a word to a service.
fn find(context: &Context<'_, '_, '_>, word: Word<'_>) -> Result<Arc<dyn Function>, Diagnostic> {
    let name = word.text.strip_prefix("lua.").unwrap_or(word.text);
    let names = context.scope.names;
    names.script(Use::Service, name).ok_or_else(|| {
        let known = names.script_names(Use::Service);
        let near = suggest(name, known.iter().map(|name| &**name)).map(|near| format!("lua.{near}"));
        Diagnostic::alert(format!("no script has registered a service `{name}`"))
            .at(word.span)
            .did_you_mean(near.as_deref())
    })
}

/// `lua.name <word>*`: takes the number of words with which the action was registered.
pub(crate) fn action(context: &mut Context<'_, '_, '_>) -> Parsed {
    let name = context.word.text.strip_prefix("lua.").unwrap_or_default();
    let of = |set: Ruleset| {
        let set = said_by_scripts(set)?;
        context.scope.names.script(Use::Action, &format!("{set}/{name}"))
    };
    let Some(function) = of(context.set) else {
        let others = Ruleset::ALL.into_iter().filter(|set| of(*set).is_some()).map(Ruleset::name);
        return Err(not_registered(context, name, &others.collect::<Vec<_>>()));
    };
    let facts = function.facts();
    let mut words = Vec::with_capacity(facts.words);
    for number in 1..=facts.words {
        words.push(context.need(&format!("argument {number} of {}", facts.words))?.text.into());
    }
    Ok(Action::Script(Arc::new(ScriptCall { function, words, shown: intern(context.word.text.to_owned()) })))
}

/// `use-service lua.name`.
pub(crate) fn service(context: &Context<'_, '_, '_>, word: Word<'_>) -> Parsed {
    let function = find(context, word)?;
    let is_http = context.set == Ruleset::HttpRequest;
    if function.facts().is_http != is_http {
        let (kind, set) = if is_http { ("tcp", "tcp-request content") } else { ("http", "http-request") };
        return Err(Diagnostic::alert(format!("`{}` is a service of mode {kind}", word.text))
            .at(word.span)
            .help(format!("it is only allowed in `{set}` rules")));
    }
    let shown = intern(format!("<{}>", word.text));
    Ok(Action::UseService(Service::Script(Arc::new(ScriptCall { function, words: Vec::new(), shown }))))
}
