//! TLS certificate fetches: for the client's certificate (`ssl_c_…`), the one presented to the client (`ssl_f_…`) and the server's
//! (`ssl_s_…`; manual, 7.3.4). Certificates are parsed on every access.

use ::tls::dn::DistinguishedName;
use ::tls::x509::{self, CertificateFields};

use super::tls::{Back, Front, TlsSide};
use super::{Cursor, Fetch, row};
use crate::args::{Arg, ArgKind, Args, Spec, opt, text_of};
use crate::env::Env;
use crate::place::Columns;
use crate::scope::Scope;
use crate::value::{Bytes, Scratch, Type, Value};

const C: Columns = Columns::CLIENT_SESSION;
const DN: &[Spec] = &[opt(ArgKind::Str), opt(ArgKind::Int), opt(ArgKind::Str)];

/// The table rows.
#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    row("ssl_fc_has_crt",     &[], Type::Bool, C, "whether the client sent a certificate on this connection", ssl_fc_has_crt),
    row("ssl_c_used",         &[], Type::Bool, C, "whether the client has a certificate",            ssl_c_used),
    row("ssl_c_err",          &[], Type::Int,  C, "verification error of the client's certificate",  ssl_c_err),
    row("ssl_c_ca_err",       &[], Type::Int,  C, "verification error of its chain",                 ssl_c_ca_err),
    row("ssl_c_ca_err_depth", &[], Type::Int,  C, "depth of that error in the chain",                ssl_c_ca_err_depth),
    row("ssl_c_verify",       &[], Type::Int,  C, "result of the verification",                      ssl_c_verify),
    row("ssl_c_der",          &[], Type::Bin,  C, "certificate of the client",                       der::<Client>),
    row("ssl_c_chain_der",    &[], Type::Bin,  C, "intermediate certificates sent by the client",    ssl_c_chain_der),
    row("ssl_c_sha1",         &[], Type::Bin,  C, "its SHA-1 fingerprint",                           sha1::<Client>),
    row("ssl_c_serial",       &[], Type::Bin,  C, "its serial number",                               serial::<Client>),
    row("ssl_c_version",      &[], Type::Int,  C, "its version",                                     version::<Client>),
    row("ssl_c_s_dn",         DN,  Type::Str,  C, "its subject, or an attribute of it",              s_dn::<Client>).prepared(prepare_dn),
    row("ssl_c_i_dn",         DN,  Type::Str,  C, "its issuer, or an attribute of it",               i_dn::<Client>).prepared(prepare_dn),
    row("ssl_c_r_dn",         DN,  Type::Str,  C, "subject of the root CA of its chain",             s_dn::<Root>).prepared(prepare_dn),
    row("ssl_c_notbefore",    &[], Type::Str,  C, "start of its validity period",                    notbefore::<Client>),
    row("ssl_c_notafter",     &[], Type::Str,  C, "end of its validity period",                      notafter::<Client>),
    row("ssl_c_key_alg",      &[], Type::Str,  C, "its key algorithm",                               key_alg::<Client>),
    row("ssl_c_sig_alg",      &[], Type::Str,  C, "its signature algorithm",                         sig_alg::<Client>),
    row("ssl_c_san",          &[], Type::Str,  C, "its subject alternative names",                   ssl_c_san),
    row("ssl_c_policies",     &[opt(ArgKind::Str)], Type::Str, C, "its policies, or a single policy if present", ssl_c_policies),
    row("ssl_f_der",          &[], Type::Bin,  C, "certificate presented to the client",             der::<Frontend>),
    row("ssl_f_sha1",         &[], Type::Bin,  C, "its SHA-1 fingerprint",                           sha1::<Frontend>),
    row("ssl_f_serial",       &[], Type::Bin,  C, "its serial number",                               serial::<Frontend>),
    row("ssl_f_version",      &[], Type::Int,  C, "its version",                                     version::<Frontend>),
    row("ssl_f_s_dn",         DN,  Type::Str,  C, "its subject, or an attribute of it",              s_dn::<Frontend>).prepared(prepare_dn),
    row("ssl_f_i_dn",         DN,  Type::Str,  C, "its issuer, or an attribute of it",               i_dn::<Frontend>).prepared(prepare_dn),
    row("ssl_f_notbefore",    &[], Type::Str,  C, "start of its validity period",                    notbefore::<Frontend>),
    row("ssl_f_notafter",     &[], Type::Str,  C, "end of its validity period",                      notafter::<Frontend>),
    row("ssl_f_key_alg",      &[], Type::Str,  C, "its key algorithm",                               key_alg::<Frontend>),
    row("ssl_f_sig_alg",      &[], Type::Str,  C, "its signature algorithm",                         sig_alg::<Frontend>),
    row("ssl_s_der",          &[], Type::Bin,  C, "certificate of the server",                       der::<Server>),
    row("ssl_s_chain_der",    &[], Type::Bin,  C, "certificate of the server with its chain",        ssl_s_chain_der),
    row("ssl_s_sha1",         &[], Type::Bin,  C, "its SHA-1 fingerprint",                           sha1::<Server>),
    row("ssl_s_serial",       &[], Type::Bin,  C, "its serial number",                               serial::<Server>),
    row("ssl_s_version",      &[], Type::Int,  C, "its version",                                     version::<Server>),
    row("ssl_s_s_dn",         DN,  Type::Str,  C, "its subject, or an attribute of it",              s_dn::<Server>).prepared(prepare_dn),
    row("ssl_s_i_dn",         DN,  Type::Str,  C, "its issuer, or an attribute of it",               i_dn::<Server>).prepared(prepare_dn),
    row("ssl_s_notbefore",    &[], Type::Str,  C, "start of its validity period",                    notbefore::<Server>),
    row("ssl_s_notafter",     &[], Type::Str,  C, "end of its validity period",                      notafter::<Server>),
    row("ssl_s_key_alg",      &[], Type::Str,  C, "its key algorithm",                               key_alg::<Server>),
    row("ssl_s_sig_alg",      &[], Type::Str,  C, "its signature algorithm",                         sig_alg::<Server>),
];

/// The owner of a certificate.
trait CertificateOwner {
    /// The owner's certificate in DER.
    fn own<'a>(env: &Env<'a>) -> Option<&'a [u8]>;
}

struct Client;
struct Root;
struct Frontend;
struct Server;

impl CertificateOwner for Client {
    fn own<'a>(env: &Env<'a>) -> Option<&'a [u8]> {
        Front::details(env)?.peer.first().map(|der| &**der)
    }
}

impl CertificateOwner for Root {
    fn own<'a>(env: &Env<'a>) -> Option<&'a [u8]> {
        Front::details(env)?.root.as_deref()
    }
}

impl CertificateOwner for Frontend {
    fn own<'a>(env: &Env<'a>) -> Option<&'a [u8]> {
        let certificate = Front::details(env)?.own.as_ref()?;
        certificate.chain.first().map(|der| &**der)
    }
}

impl CertificateOwner for Server {
    fn own<'a>(env: &Env<'a>) -> Option<&'a [u8]> {
        Back::details(env)?.peer.first().map(|der| &**der)
    }
}

fn facts<'a, W: CertificateOwner>(env: &Env<'a>) -> Option<CertificateFields<'a>> {
    CertificateFields::parse(W::own(env)?).ok()
}

fn made_text<'a>(text: impl AsRef<[u8]>) -> Option<Value<'a>> {
    Some(Value::Str(Bytes::Made(Scratch::copy(text.as_ref()))))
}

fn made<'a>(bytes: &[u8]) -> Option<Value<'a>> {
    Some(Value::Bin(Bytes::Made(Scratch::copy(bytes))))
}

fn ssl_fc_has_crt<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let details = Front::details(env)?;
    Some(Value::Bool(!details.peer.is_empty() && !details.is_resumed))
}

fn ssl_c_used<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(!Front::details(env)?.peer.is_empty()))
}

fn ssl_c_err<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(Front::details(env)?.verify.own.0.into()))
}

fn ssl_c_ca_err<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(Front::details(env)?.verify.ca.0.into()))
}

fn ssl_c_ca_err_depth<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(Front::details(env)?.verify.ca_depth.into()))
}

fn ssl_c_verify<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(Front::details(env)?.verify.last.0.into()))
}

fn der<'a, W: CertificateOwner>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::bin(W::own(env)?))
}

/// The chain without the client's own certificate, as in OpenSSL on the server side. It is not stored with sessions.
fn ssl_c_chain_der<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let details = Front::details(env).filter(|details| !details.is_resumed)?;
    chain_der(details.peer.get(1..)?)
}

/// The chain including the server's own certificate.
fn ssl_s_chain_der<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    chain_der(&Back::details(env).filter(|details| !details.is_resumed)?.peer)
}

fn chain_der<'a>(chain: &[Box<[u8]>]) -> Option<Value<'a>> {
    if chain.is_empty() { None } else { made(&chain.concat()) }
}

fn sha1<'a, W: CertificateOwner>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    made(&x509::sha1(W::own(env)?))
}

fn serial<'a, W: CertificateOwner>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    made(facts::<W>(env)?.serial_number())
}

fn version<'a, W: CertificateOwner>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Int(facts::<W>(env)?.version().into()))
}

fn notbefore<'a, W: CertificateOwner>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    made_text(facts::<W>(env)?.not_before_text())
}

fn notafter<'a, W: CertificateOwner>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    made_text(facts::<W>(env)?.not_after_text())
}

fn key_alg<'a, W: CertificateOwner>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    made_text(facts::<W>(env)?.key_name())
}

fn sig_alg<'a, W: CertificateOwner>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    made_text(facts::<W>(env)?.signature_name())
}

fn s_dn<'a, W: CertificateOwner>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    show(&facts::<W>(env)?.subject_name(), args)
}

fn i_dn<'a, W: CertificateOwner>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    show(&facts::<W>(env)?.issuer_name(), args)
}

/// A distinguished name, or the part that the arguments select: an entry by occurrence, or a format.
fn show<'a>(name: &DistinguishedName<'_>, args: &Args) -> Option<Value<'a>> {
    match args.bytes(0).filter(|entry| !entry.is_empty()) {
        Some(entry) => made_text(name.entry(str::from_utf8(entry).ok()?, args.int(1).unwrap_or(0))?),
        None if args.bytes(2).is_some() => made_text(name.rfc2253()?),
        None => made_text(name.oneline()?),
    }
}

fn prepare_dn(args: &mut Vec<Arg>, _: &Scope<'_>) -> Result<(), String> {
    match args.get(2).map(text_of) {
        None | Some(b"" | b"rfc2253") => Ok(()),
        Some(other) => {
            Err(format!("unknown name format `{}`: use `rfc2253`", String::from_utf8_lossy(other)))
        }
    }
}

fn ssl_c_san<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    made_text(facts::<Client>(env)?.alternative_names()?)
}

fn ssl_c_policies<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let policies = facts::<Client>(env)?.policies();
    match args.bytes(0).filter(|wanted| !wanted.is_empty()) {
        Some(wanted) => policies.iter().find(|one| one.as_bytes() == wanted).and_then(made_text),
        None if policies.is_empty() => None,
        None => made_text(policies.join(", ")),
    }
}
