//! External authorization: `externalAuth` filters, and `auth-url` annotations of ingresses.
//!
//! A script sends an authorization request to a socket of the same process. The frontend of that socket forwards it to the service's
//! backend, so that it is balanced, retried and encrypted like any other request.

use crate::api::ExternalAuth;
use crate::api::extra::{AuthorizationProtocol, AuthorizationRequest};
use crate::text::{Text, is_token, line, quote};
use crate::translate::context::Context;

use super::matches::literal_path;

/// The script.
const SCRIPT: &str = concat!(
    include_str!("authorize/common.lua"),
    include_str!("authorize/http.lua"),
    include_str!("authorize/grpc.lua")
);

/// The socket, relative to the directory.
const SOCKET: &str = "authorize.sock";

/// The largest body that can be sent. The proxy's buffer has to contain it.
const LARGEST_BODY: u32 = 15_000;

/// Compiles a filter.
///
/// # Errors
/// A value is not supported.
pub(crate) fn of_filter(own: &ExternalAuth) -> Result<AuthorizationRequest, String> {
    let body = own.forward_body.as_ref().map_or(0, |own| own.max_size);
    if body > LARGEST_BODY {
        return Err(format!("forwardBody.maxSize is limited to {LARGEST_BODY} bytes"));
    }
    let request =
        AuthorizationRequest { backend: own.backend_ref.clone(), body, ..AuthorizationRequest::default() };
    match own.protocol.as_str() {
        "HTTP" => {
            let http = own.http.clone().unwrap_or_default();
            let path = match http.path.as_str() {
                "" => String::new(),
                path => literal_path(path)?.trim_end_matches('/').into(),
            };
            let copied = http.allowed_response_headers;
            Ok(AuthorizationRequest {
                url: format!("http://authorize{path}"),
                sent: Some(http.allowed_headers),
                copied: (!copied.is_empty()).then_some(copied),
                ..request
            })
        }
        "GRPC" => {
            let sent = own.grpc.clone().unwrap_or_default().allowed_headers;
            Ok(AuthorizationRequest {
                protocol: AuthorizationProtocol::Grpc,
                sent: (!sent.is_empty()).then_some(sent),
                ..request
            })
        }
        other => Err(format!("external authorization with protocol `{other}` is not supported")),
    }
}

/// The lines of `http-request` that send an authorization request to a backend.
///
/// # Errors
/// A value is not supported.
pub(crate) fn lines(own: &AuthorizationRequest, backend: &str) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    if own.body > 0 {
        lines.push("wait-for-body time 10s".into());
        lines.push(format!("return status 413 if {{ req.body_size gt {} }}", own.body));
    }
    lines.push("unset-var(txn.authorization)".into());
    let body = if own.body > 0 { "yes" } else { "no" };
    let sent = list(own.sent.as_deref())?;
    lines.push(match own.protocol {
        AuthorizationProtocol::Http => {
            let method = own.method.as_deref().unwrap_or("-");
            let copied = list(own.copied.as_deref())?;
            let left = if own.sign_in.is_some() { "401" } else { "-" };
            let words = [backend, method, &own.url, &sent, &copied, left, body].map(quote);
            format!("lua.authorize {}", words.join(" "))
        }
        AuthorizationProtocol::Grpc => {
            format!("lua.authorize_grpc {}", [backend, &sent, body].map(quote).join(" "))
        }
    });
    if let Some(sign_in) = &own.sign_in {
        lines.push(format!(
            "redirect location {} code 302 if {{ var(txn.authorization) -m str 401 }}",
            quote(sign_in)
        ));
    }
    // Without a response, or after an error of the script.
    lines.push("return status 503 if !{ var(txn.authorization) -m found }".into());
    Ok(lines)
}

/// Names of headers as a word.
fn list(names: Option<&[String]>) -> Result<String, String> {
    let Some(names) = names else { return Ok("*".into()) };
    match names.iter().find(|name| !is_token(name) || name.contains('%')) {
        Some(name) => Err(format!("`{name}` is not the name of a header")),
        None if names.is_empty() => Ok("-".into()),
        None => Ok(names.join(",")),
    }
}

/// Writes the lines of the `global` section.
pub(crate) fn write_global(context: &mut Context<'_>, text: &mut Text) {
    if !context.authorizes {
        return;
    }
    let script = context.add_file("scripts/authorize.lua".into(), SCRIPT.into());
    let socket = format!("unix@{}", context.path(SOCKET));
    text.line("tune.lua.bool-sample-conversion normal");
    line!(text, "lua-load-per-thread {} {}", quote(&script), quote(&socket));
}

/// Writes the frontend of the socket.
pub(crate) fn write_frontend(context: &Context<'_>, text: &mut Text) {
    if !context.authorizes {
        return;
    }
    text.section("frontend", "authorize");
    line!(text, "bind {} mode 600", quote(&format!("unix@{}", context.path(SOCKET))));
    text.line("http-request set-var(txn.backend) req.hdr(weir-backend)");
    text.line("http-request set-method '%[req.hdr(weir-method)]'");
    text.line("http-request del-header weir-backend");
    text.line("http-request del-header weir-method");
    text.line("use_backend %[var(txn.backend)]");
}
