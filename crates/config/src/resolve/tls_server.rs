//! Resolves the TLS parameters of `server` lines (manual, section 5.2).

use std::sync::Arc;

use diag::Diagnostic;
use plan::check::{CheckAction, CheckKind, CheckSettings, Connect};
use plan::server::{ServerName, ServerTls, StepConnector, Ws};
use sample::Scope;
use sample::expression::Expression;
use state::Mode;
use tls::{AlternativeName, Certificate, Connecting, Connector, Keep, VerifyMode};

use crate::draft::Statement;
use crate::draft::tls as draft;
use crate::resolve::ResolveContext;
use crate::resolve::legacy::LegacyNeeds;
use crate::resolve::tls::{check_key, parameters, warn_of_early};
use crate::resolve::tls_files::{certificate, protocols, trust};
use crate::resolve::{ktls, quic};

/// The `connect` steps of a check with TLS parameters.
fn secure_steps(kind: &CheckKind) -> Vec<&Connect> {
    let CheckKind::Script(script) = kind else { return Vec::new() };
    let connects = script.steps.iter().filter_map(|step| match &step.action {
        CheckAction::Connect(connect) if connect.secure || connect.alpn.is_some() => Some(connect),
        _ => None,
    });
    connects.collect()
}

/// The names of `verifysan`.
///
/// # Errors
/// A name has no known type.
fn alternative_names(value: draft::TlsValue<'_>) -> Result<Vec<AlternativeName>, Diagnostic> {
    let name = |text: &str| match text.split_once(':') {
        Some(("dns", name)) if !name.is_empty() => Ok(AlternativeName::Dns(name.into())),
        Some(("uri", name)) if !name.is_empty() => Ok(AlternativeName::Uri(name.into())),
        _ => Err(Diagnostic::alert(format!("`{text}` is not an alternative name"))
            .at(value.span)
            .help("use `dns:<host>` or `uri:<uri>`")),
    };
    value.text.split(',').map(name).collect()
}

/// Builds the TLS connector of a `server` line, or `None` without `ssl` and `check-ssl`. The SNI is set later ([`server_name`]).
///
/// # Errors
/// A file or a name is invalid.
pub(crate) fn server(
    own: &draft::ServerTls<'_>,
    checks_elsewhere: bool,
    check: Option<&CheckSettings>,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<Option<ServerTls>, Diagnostic> {
    ktls::check(own.kernel, "", context)?;
    let steps = check.map_or_else(Vec::new, |check| secure_steps(&check.kind));
    let is_wanted = steps.iter().any(|step| step.secure);
    if !own.enabled && !own.is_set && own.check != Some(true) && !is_wanted {
        return Ok(None);
    }
    let defaults = context.tls.clone();
    let verify = own.words.verify.unwrap_or(defaults.server_verify);
    let trust = match (verify, own.words.ca_file) {
        (VerifyMode::None, file) => {
            // The file must be valid, because runtime commands can refer to it.
            if file.is_some() {
                trust(&own.words, &defaults, context)?;
            }
            None
        }
        (_, Some(_)) => Some(trust(&own.words, &defaults, context)?),
        (_, None) => {
            return Err(Diagnostic::alert("the server's certificate is to be verified, but no CA is trusted")
                .at(statement.keyword_span())
                .help("use `ca-file <file>` or `ca-file @system-ca` to set the trusted CAs; `verify none` disables verification")
                .haproxy("verify is enabled by default but no CA file specified. If you're running on a LAN where you're certain to trust the server's certificate, please set an explicit 'verify none' statement on the 'server' line, or use 'ssl-server-verify none' in the global section to disable server-side verifications by default."));
        }
    };
    let files = context.tls_files.all.clone();
    let (own_words, default) = (&own.words, &defaults.server);
    let is_quic = own.is_quic;
    let wanted = LegacyNeeds { own: own_words, default, defaults: &defaults, is_bind: false, is_quic };
    let parameters = parameters(&wanted, statement, context)?;
    warn_of_early(own.early, &parameters, context);
    let alternative_names = own.verify_names.map_or(Ok(Vec::new()), alternative_names)?;
    let connecting = |alpn: Vec<Box<[u8]>>, certificate: Option<Arc<Certificate>>| -> Result<_, Diagnostic> {
        let connecting = Connecting {
            parameters: parameters.clone(),
            alpn,
            trust: trust.clone(),
            verify_host: own.verify_host.map(|host| host.text.into()),
            alternative_names: alternative_names.clone(),
            certificate,
            sessions: if own.no_reuse { 0 } else { SESSIONS },
            no_tickets: own.words.tickets.or(defaults.server.tickets) == Some(false),
            early_data: own.early.is_some(),
            limits: defaults.limits(),
            keep: Keep { secrets: defaults.key_log, ..Keep::default() },
        };
        let connector = Connector::new(&connecting);
        let failed = |error: String| Diagnostic::alert(error).at(statement.keyword_span());
        let connector = Arc::new(connector.map_err(failed)?);
        files.add_server(&connector);
        Ok(connector)
    };
    let certificate = match own.certificate {
        Some(word) => Some(certificate(word, &defaults, context)?),
        None => None,
    };
    if let Some(certificate) = &certificate {
        match is_quic {
            true => quic::check_key(certificate, statement)?,
            false => check_key(certificate, statement, &defaults)?,
        }
    }
    let alpn = protocols(own.words.alpn.filter(|_| !own.words.no_alpn))?;
    let check_alpn = match own.check_alpn {
        Some(word) => Some(protocols(Some(word))?),
        None => None,
    };
    let mut of_steps: Vec<StepConnector> = Vec::new();
    for alpn in steps.iter().filter_map(|step| step.alpn.as_ref()) {
        if of_steps.iter().all(|(known, _)| known != alpn) {
            of_steps.push((alpn.clone(), connecting(alpn.clone(), certificate.clone())?));
        }
    }
    let without = |left_out: &[u8]| -> Vec<Box<[u8]>> {
        alpn.iter().filter(|name| &***name != left_out).cloned().collect()
    };
    let speaks = |name: &[u8]| without(name).len() < alpn.len();
    let of_upgrades = match own.ws {
        Ws::Auto if !((speaks(b"h2") || speaks(b"h3")) && speaks(b"http/1.1")) => None,
        Ws::Auto | Ws::Http1 => Some(vec![Box::from(*b"http/1.1")]),
        Ws::Http2 => Some(vec![Box::from(*b"h2")]),
    };
    let of_upgrades = match of_upgrades.filter(|_| !alpn.is_empty()) {
        Some(own) => Some(connecting(own, certificate.clone())?),
        None => None,
    };
    let connector = connecting(alpn.clone(), certificate.clone())?;
    // A check of another port has its own TLS setting.
    let checks = own.check.unwrap_or(own.enabled && !checks_elsewhere);
    Ok(Some(ServerTls {
        early: own.early.is_some(),
        check: match check_alpn {
            _ if !checks => None,
            Some(alpn) => Some(connecting(alpn, certificate)?),
            // Checks over QUIC use the connector of requests.
            None if is_quic => Some(connecting(Vec::new(), certificate)?),
            None => Some(connector.clone()),
        },
        check_name: own.check_sni.map(|name| name.text.into()),
        name: ServerName::None,
        steps: of_steps,
        of_upgrades,
        connector,
    }))
}

/// The number of names for which a server's sessions are kept.
const SESSIONS: usize = 64;

/// Sets the SNI sent to a server: `sni`, or the host of the request.
///
/// # Errors
/// The expression is invalid.
pub(crate) fn server_name(
    own: &draft::ServerTls<'_>,
    mode: Mode,
    scope: &Scope<'_>,
    statement: &Statement,
) -> Result<ServerName, Diagnostic> {
    Ok(match own.sni {
        Some(word) => ServerName::Expression(Expression::compile_str(&word, word.span, scope)?),
        None if own.no_sni_auto || mode != Mode::Http => ServerName::None,
        None => ServerName::Expression(Expression::compile_str(
            "req.hdr(host),field(1,:)",
            statement.keyword_span(),
            scope,
        )?),
    })
}
