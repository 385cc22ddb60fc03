//! OpenSSL contexts, for a listener's certificate and for a server line.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::clock::WallTime;
use openssl::bn::BigNum;
use openssl::dh::Dh;
use openssl::error::ErrorStack;
use openssl::pkey::Params;
use openssl::ssl::{
    AlpnError, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslRef,
    SslSessionCacheMode, SslVerifyMode, SslVersion,
};
use openssl::x509::X509;

use super::verify::{self, Decision};
use super::{error, keys};
use crate::engine::key_log;
use crate::engine::side::{ServedCertificate, ServerLineOptions};
use crate::engine::verify::trusted_with;
use crate::error::Error;
use crate::hello::pieces;
use crate::ocsp;
use crate::settings::{Legacy, Parameters, VerifyMode};
use crate::tickets::Resumption;
use crate::verify_policy::Judge;
use crate::{TLS13, names, suites};

/// The default size of the Diffie-Hellman group, as in HAProxy.
const DH_BITS: u16 = 2048;

/// A listener's configuration for one certificate.
#[derive(Clone)]
pub(crate) struct ServerSide(Arc<LegacyServer>);

struct LegacyServer {
    context: SslContext,
    verify: Option<(SslVerifyMode, Arc<Judge>)>,
}

impl fmt::Debug for ServerSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("legacy::ServerSide")
    }
}

impl ServerSide {
    /// # Errors
    /// The reason OpenSSL rejects it.
    pub(crate) fn new(
        parameters: &Parameters,
        served: &ServedCertificate<'_>,
        staple: Option<&ocsp::Response>,
        resumption: &Resumption,
    ) -> Result<Self, String> {
        Self::make(parameters, served, staple, resumption).map_err(|stack| error::text(&stack))
    }

    fn make(
        parameters: &Parameters,
        served: &ServedCertificate<'_>,
        staple: Option<&ocsp::Response>,
        resumption: &Resumption,
    ) -> Result<Self, ErrorStack> {
        let mut context = builder(SslMethod::tls_server(), parameters, &parameters.sigalgs)?;
        show(&mut context, &served.chain, served.key.der())?;
        let dh = dh(parameters.legacy.as_ref())?;
        context.set_tmp_dh(&dh)?;
        if !parameters.prefer_client {
            context.set_options(SslOptions::CIPHER_SERVER_PREFERENCE);
        }
        resume(&mut context, resumption)?;
        let protocols: Box<[Box<[u8]>]> = served.alpn.into();
        context.set_alpn_select_callback(move |_, offered| {
            let agreed = protocols.iter().find_map(|own| pieces(offered).find(|one| **one == **own));
            agreed.ok_or(AlpnError::NOACK)
        });
        if let Some(staple) = staple.cloned() {
            context.set_status_callback(move |ssl: &mut SslRef| {
                let is_current = staple.is_current(WallTime::now().seconds);
                if is_current {
                    ssl.set_ocsp_status(&staple.der)?;
                }
                Ok(is_current)
            })?;
        }
        let mode = match served.verify.mode {
            VerifyMode::None => None,
            VerifyMode::Optional => Some(SslVerifyMode::PEER),
            VerifyMode::Required => Some(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT),
        };
        let verify = mode.map(|mode| {
            for authority in served.verify.trust.authorities.iter().filter(|_| !served.verify.hides_names) {
                // A CA that OpenSSL cannot parse is only missing in the list that is sent to clients.
                let _ = X509::from_der(authority).and_then(|authority| context.add_client_ca(&authority));
            }
            let trusted = trusted_with(&served.verify.trust, verify::check);
            let judge = Judge::of_clients(trusted, served.verify);
            (mode, Arc::new(judge.taking_weak(takes_weak(parameters))))
        });
        Ok(Self(Arc::new(LegacyServer { context: context.build(), verify })))
    }

    /// Starts a connection.
    pub(super) fn begin(&self) -> Result<(Ssl, Arc<Decision>), Error> {
        let mut ssl = Ssl::new(&self.0.context).map_err(|stack| error::of_stack(&stack))?;
        let decision = Decision::new(self.0.verify.is_some());
        if let Some((mode, judge)) = &self.0.verify {
            verify::ask(&mut ssl, *mode, judge.clone(), None, decision.clone());
        }
        Ok((ssl, decision))
    }
}

/// The configuration of a server line.
pub(crate) struct ClientSide {
    context: SslContext,
    judge: Option<Arc<Judge>>,
}

impl fmt::Debug for ClientSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("legacy::ClientSide")
    }
}

impl ClientSide {
    /// # Errors
    /// The reason OpenSSL rejects it.
    pub(crate) fn new(parameters: &Parameters, asked: &ServerLineOptions<'_>) -> Result<Self, String> {
        Self::make(parameters, asked).map_err(|stack| error::text(&stack))
    }

    fn make(parameters: &Parameters, asked: &ServerLineOptions<'_>) -> Result<Self, ErrorStack> {
        let mut context = builder(SslMethod::tls_client(), parameters, &parameters.peer_sigalgs)?;
        if let Some((chain, key)) = asked.own {
            show(&mut context, chain, key.der())?;
        }
        if !asked.alpn.is_empty() {
            let wire: Vec<u8> =
                asked.alpn.iter().flat_map(|name| [&[name.len() as u8], &**name].concat()).collect();
            context.set_alpn_protos(&wire)?;
        }
        context.set_session_cache_mode(SslSessionCacheMode::OFF);
        if asked.no_tickets {
            context.set_options(SslOptions::NO_TICKET);
        }
        let judge = asked.trust.map(|trust| {
            let judge =
                Judge::of_server(Some(trusted_with(trust, verify::check)), (asked.host, asked.alternatives));
            Arc::new(judge.taking_weak(takes_weak(parameters)))
        });
        Ok(Self { context: context.build(), judge })
    }

    /// Starts a connection. `name` is sent as SNI if present; an address is never sent.
    pub(super) fn begin(&self, name: Option<&str>) -> Result<(Ssl, Arc<Decision>), Error> {
        let failed = |stack: ErrorStack| error::of_stack(&stack);
        let mut ssl = Ssl::new(&self.context).map_err(failed)?;
        let name = name.filter(|name| !name.is_empty() && name.parse::<std::net::IpAddr>().is_err());
        if let Some(name) = name {
            ssl.set_hostname(name).map_err(failed)?;
        }
        let decision = Decision::new(self.judge.is_some());
        if let Some(judge) = &self.judge {
            verify::ask(&mut ssl, SslVerifyMode::PEER, judge.clone(), name.map(Box::from), decision.clone());
        }
        Ok((ssl, decision))
    }
}

/// Returns a builder with the settings common to both sides.
fn builder(
    method: SslMethod,
    parameters: &Parameters,
    sigalgs: &[u16],
) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContextBuilder::new(method)?;
    if !parameters.legacy.as_ref().is_some_and(|legacy| legacy.renegotiates) {
        context.set_options(SslOptions::NO_RENEGOTIATION);
    }
    context.set_options(SslOptions::NO_COMPRESSION | SslOptions::SINGLE_DH_USE | SslOptions::SINGLE_ECDH_USE);
    context.set_mode(SslMode::RELEASE_BUFFERS | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    context.set_verify(SslVerifyMode::NONE);
    if let Some(level) = level(parameters) {
        context.set_security_level(level.into());
    }
    context.set_min_proto_version(version(parameters.min))?;
    context.set_max_proto_version(version(parameters.max))?;
    let all = |numbers: &[u16], name: fn(u16) -> Option<&'static str>| {
        numbers.iter().filter_map(|number| name(*number)).collect::<Vec<_>>().join(":")
    };
    context.set_cipher_list(&all(&parameters.suites12, suites::name))?;
    if parameters.max >= TLS13 {
        context.set_ciphersuites(&all(&parameters.suites13, names::suite_name))?;
    }
    // OpenSSL 3.0 has no ML-KEM groups, and an unknown name in the list would be an error.
    context.set_groups_list(&all(&parameters.groups, names::classic_group_name))?;
    if !sigalgs.is_empty() {
        context.set_sigalgs_list(&all(sigalgs, names::signature_name))?;
    }
    context.set_keylog_callback(|_, line| key_log::keep(line));
    Ok(context)
}

/// The security level of a line. OpenSSL 3 only supports TLS 1.0 and 1.1 at level 0, so a line that enables them implies this
/// level.
fn level(parameters: &Parameters) -> Option<u8> {
    let configured = parameters.legacy.as_ref().and_then(|legacy| legacy.security_level);
    configured.or((parameters.min < crate::TLS12).then_some(0))
}

/// Whether the line explicitly allows keys that are weaker than OpenSSL's default level allows. Enabling an old version does not
/// count.
fn takes_weak(parameters: &Parameters) -> bool {
    parameters.legacy.as_ref().and_then(|legacy| legacy.security_level).is_some_and(|level| level < 2)
}

fn version(number: u16) -> Option<SslVersion> {
    match number {
        0x0300 => Some(SslVersion::SSL3),
        0x0301 => Some(SslVersion::TLS1),
        0x0302 => Some(SslVersion::TLS1_1),
        0x0303 => Some(SslVersion::TLS1_2),
        TLS13 => Some(SslVersion::TLS1_3),
        _ => None,
    }
}

/// Sets the certificate of this side.
fn show(context: &mut SslContextBuilder, chain: &[Arc<[u8]>], key: &[u8]) -> Result<(), ErrorStack> {
    for (place, der) in chain.iter().enumerate() {
        let certificate = X509::from_der(der)?;
        if place == 0 {
            context.set_certificate(&certificate)?;
        } else {
            context.add_extra_chain_cert(certificate)?;
        }
    }
    if let Some(key) = keys::private(key) {
        context.set_private_key(&key)?;
    }
    context.check_private_key()
}

/// Configures resumption. OpenSSL stores sessions for this certificate only, and encrypts tickets with its own keys.
fn resume(context: &mut SslContextBuilder, resumption: &Resumption) -> Result<(), ErrorStack> {
    /// The number of contexts created so far. Written for each new one.
    static MADE: AtomicU64 = AtomicU64::new(0);
    context.set_session_id_context(&MADE.fetch_add(1, Relaxed).to_ne_bytes())?;
    if resumption.tickets.is_none() {
        context.set_options(SslOptions::NO_TICKET);
    }
    match &resumption.sessions {
        None => drop(context.set_session_cache_mode(SslSessionCacheMode::OFF)),
        Some(cache) => {
            context.set_session_cache_mode(SslSessionCacheMode::SERVER);
            context.set_session_cache_size(i32::try_from(cache.blocks()).unwrap_or(i32::MAX));
        }
    }
    Ok(())
}

/// Returns the Diffie-Hellman group.
fn dh(legacy: Option<&Legacy>) -> Result<Dh<Params>, ErrorStack> {
    if let Some(pem) = legacy.and_then(|legacy| legacy.dh.as_deref()) {
        return Dh::params_from_pem(pem);
    }
    let prime = match legacy.map_or(DH_BITS, |legacy| legacy.dh_bits) {
        0..=2048 => BigNum::get_rfc3526_prime_2048()?,
        2049..=3072 => BigNum::get_rfc3526_prime_3072()?,
        _ => BigNum::get_rfc3526_prime_4096()?,
    };
    Dh::from_pqg(prime, None, BigNum::from_u32(2)?)
}
