//! `attach-srv`: turns the client's connection into a server connection (reverse HTTP).

use std::sync::Arc;

use diag::{Diagnostic, suggest};
use sample::Word;
use state::Mode;
use std::sync::atomic::Ordering::Relaxed;

use crate::action::Action;
use crate::context::{Context, Parsed};

/// `attach-srv <backend>/<server> [name <expr>]`.
pub(crate) fn attach_srv(context: &mut Context<'_, '_, '_>) -> Parsed {
    if !context.scope.names.experimental() {
        return Err(Diagnostic::alert("`attach-srv` is experimental")
            .at(context.word.span)
            .help("allow it with `expose-experimental-directives` in the global section")
            .haproxy(
                "'attach-srv' action is experimental, must be allowed via a global 'expose-experimental-directives'",
            ));
    }
    let word = context.need("a backend and its server, `<backend>/<server>`")?;
    let name = match context.words.take("name") {
        true if matches!(context.words.peek_text(), "" | "if" | "unless") => {
            return Err(context.usage("an expression after `name`").haproxy("missing name value"));
        }
        true => Some(Box::new(context.expression()?)),
        false => None,
    };
    let server = find(context, word)?;
    let refused = |text: &str, why: &str, help: &str| {
        let message = Diagnostic::alert(format!("`attach-srv`: {text}")).at(word.span).help(help.to_owned());
        Err(message.haproxy_whole(whole(context, why)))
    };
    if context.scope.mode != Mode::Http {
        let help = "add `mode http` to the frontend";
        return refused("the frontend is not in HTTP mode", "requires HTTP proxy mode.", help);
    }
    match (&name, server.names_connections.load(Relaxed)) {
        (Some(_), false) => {
            let why = format!(
                "has a name argument while server '{}' does not use pool-conn-name; either reconfigure \
                 the server or remove the name argument from this attach-srv rule.",
                word.text
            );
            let help = "set the name that requests ask for with `pool-conn-name` or `sni` on the server line";
            refused(&format!("connections of `{}` have no names", word.text), &why, help)
        }
        (None, true) => {
            let why = format!(
                "has no name argument while server '{}' uses pool-conn-name; either add a name argument \
                 to the attach-srv rule or reconfigure the server.",
                word.text
            );
            let help = "set the name of the connection with `name <expr>`";
            refused(&format!("connections of `{}` need a name", word.text), &why, help)
        }
        _ => {
            // Attached connections keep the server in use.
            server.referenced.store(true, Relaxed);
            Ok(Action::AttachServer { server, name })
        }
    }
}

fn whole(context: &Context<'_, '_, '_>, why: &str) -> String {
    let proxy = context.scope.proxy.map_or("", |proxy| &*proxy.name);
    format!("Proxy '{proxy}': attach-srv rule {why}")
}

/// Resolves a word to a server.
fn find(context: &Context<'_, '_, '_>, word: Word<'_>) -> Result<Arc<state::Server>, Diagnostic> {
    let wrong = |text: String, why: String| {
        let proxy = context.scope.proxy.map_or("", |proxy| &*proxy.name);
        Diagnostic::alert(text)
            .at(word.span)
            .haproxy_whole(format!("Proxy '{proxy}': attach-srv rule: {why} '{}'.", word.text))
    };
    let Some((backend, name)) = word.text.split_once('/') else {
        let text = format!("`{}` is not a server name", word.text);
        return Err(wrong(text, "invalid server name".into()).help(context.usage_line()));
    };
    let Some(backend_state) = context.scope.names.backend(backend) else {
        return Err(wrong(format!("there is no backend `{backend}`"), "no such backend".into()));
    };
    let servers = backend_state.servers.load();
    servers.iter().find(|server| *server.name == *name).cloned().ok_or_else(|| {
        let known: Vec<String> = servers.iter().map(|server| server.name.to_string()).collect();
        wrong(format!("backend `{backend}` has no server `{name}`"), "no such server".into())
            .did_you_mean(suggest(name, known.iter().map(String::as_str)))
    })
}
