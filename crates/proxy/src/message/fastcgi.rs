//! Converts a request for a FastCGI application (configuration manual, chapter 10): the parameters and fields that its rules set,
//! the interpretation of the path, and the parameters to send.
//!
//! The rules run before a server is chosen, regardless of its protocol; parameters are written only for FastCGI servers. Called
//! by `serve::http` and by `upload`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fcgi::{FcgiRequest, ParamValue, Parameters};
use http::{BodyLength, Head, Name};
use plan::fcgi::{App, Effect, SOFTWARE};

use crate::client::Client;
use crate::exchange::{Exchange, FcgiParams, view};
use crate::server::NotExpressible;

/// Runs the rules of the backend's application.
#[cold]
pub(crate) fn of_request(client: &Client, x: &mut Exchange, app: &App) {
    let mut told = Box::<FcgiParams>::default();
    if let Some(user) = user(&x.txn.request) {
        told.set(ParamValue::new(b"AUTH_TYPE", b"Basic".to_vec()));
        told.set(ParamValue::new(b"REMOTE_USER", user));
    }
    view::with(client, x, |env| {
        let holds = |rule: &&plan::fcgi::Rule| view::holds(rule.condition.as_ref(), env);
        for rule in app.rules.iter().filter(holds) {
            match &rule.effect {
                Effect::Pass(name) => told.passed.push(name.clone()),
                Effect::Set(name, format) => {
                    let mut value = Vec::new();
                    format.render(env, &mut value);
                    if !value.is_empty() {
                        told.set(ParamValue::new(name, value));
                    }
                }
            }
        }
    });
    for name in [&b"authorization"[..], b"proxy-authorization", b"proxy"] {
        if !told.passed.iter().any(|passed| passed.eq_ignore_ascii_case(name)) {
            x.txn.request.remove_all(&Name::new(name));
        }
    }
    x.fastcgi = Some(told);
}

/// Returns the user name in the `Authorization` field, if its scheme is Basic.
fn user(head: &Head) -> Option<Vec<u8>> {
    let value = head.get(&Name::new(b"authorization"))?;
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut decoded = STANDARD.decode(rest.trim_ascii()).ok()?;
    let end = decoded.iter().position(|byte| *byte == b':')?;
    decoded.truncate(end);
    Some(decoded)
}

/// Returns the parameters of a request.
///
/// # Errors
/// The request cannot be expressed in FastCGI.
pub(crate) fn parameters(client: &Client, x: &Exchange, app: &App) -> Result<Parameters, NotExpressible> {
    let head = &x.txn.request;
    let target = head.plain_target();
    let script = app.script(target).ok_or(NotExpressible::Head)?;
    let length = match x.request_body.length {
        BodyLength::Length(length) => length,
        BodyLength::None | BodyLength::UntilClose => 0,
        BodyLength::Chunked if x.request_body.is_complete || !x.has_body() => {
            x.request_body.seen.len() as u64
        }
        BodyLength::Chunked => return Err(NotExpressible::Body),
    };
    let none = FcgiParams::default();
    let told = x.fastcgi.as_deref().unwrap_or(&none);
    let request = FcgiRequest {
        head,
        target,
        docroot: &app.docroot,
        script: &script,
        client: x.source(client).address(),
        local: x.destination(client).address(),
        is_tls: client.session.tls().is_some(),
        length,
        passed: &told.passed,
        set: &told.set,
        software: SOFTWARE,
    };
    let mut parameters =
        Parameters::new(client.worker.shared.plan.global.tune.bufsize.min(fcgi::record::MOST));
    request.write(&mut parameters).map_err(|_| NotExpressible::Head)?;
    Ok(parameters)
}
