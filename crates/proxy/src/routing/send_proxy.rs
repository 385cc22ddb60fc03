//! The PROXY header, which describes the client to the server (`send-proxy`, `send-proxy-v2`; proxy-protocol.txt, 2.1 and 2.2).

use net::proxy_protocol::{self, tlv};
use plan::ServerSettings;
use plan::server::{ProxyTls, SendProxy};
use sample::{Endpoint, Env};
use tls::Details;
use tls::x509::CertificateFields;

use crate::client::Client;
use crate::exchange::{Exchange, view};

/// Returns the header that must be sent first to this server. Empty if no header is sent.
pub(super) fn proxy_header(client: &Client, x: &Exchange, settings: &ServerSettings) -> Vec<u8> {
    let mut out = Vec::new();
    let addresses = match (x.source(client), x.destination(client)) {
        (Endpoint::Ip(source), Endpoint::Ip(destination)) => Some((source, destination)),
        _ => None,
    };
    match settings.send_proxy {
        SendProxy::None => {}
        SendProxy::V1 => proxy_protocol::write_v1(addresses, &mut out),
        SendProxy::V2 { unique_id, crc32c, authority, tls } => {
            // The fields are in HAProxy's order: those from formats, the checksum, the protocol, the host name, the unique ID,
            // TLS.
            let mut tlvs: Vec<(u8, Vec<u8>)> = Vec::new();
            for (kind, format) in settings.proxy_v2_tlvs.iter() {
                let mut value = Vec::new();
                view::with(client, x, |env: &Env<'_>| format.render(env, &mut value));
                tlvs.push((*kind, value));
            }
            let checksum = crc32c.then_some(tlvs.len());
            let details = client.session.tls().map(|details| &**details);
            if let Some(protocol) = details.and_then(|details| details.alpn.as_deref()) {
                tlvs.push((tlv::ALPN, protocol.to_vec()));
            }
            if authority && let Some(name) = host(client, details) {
                tlvs.push((tlv::AUTHORITY, name));
            }
            if unique_id && let Some(id) = x.txn.kept(x.txn.unique_id) {
                tlvs.push((tlv::UNIQUE_ID, id.to_vec()));
            }
            if let Some(wanted) = tls {
                tlvs.push((tlv::SSL, of_tls(details, wanted)));
            }
            let tlvs = tlvs.iter().map(|(kind, value)| (*kind, value.as_slice()));
            proxy_protocol::write_v2(addresses, tlvs, checksum, &mut out);
        }
    }
    out
}

/// Returns the host name that the client requested, from the PROXY header that was received or from TLS.
fn host(client: &Client, details: Option<&Details>) -> Option<Vec<u8>> {
    let received = client.session.tlvs().iter().find(|one| one.kind == tlv::AUTHORITY);
    match received {
        Some(one) => Some(one.value.to_vec()),
        None => Some(details?.sni.as_deref()?.as_bytes().to_vec()),
    }
}

/// The client uses TLS.
const CLIENT_SSL: u8 = 1;
/// The client presented a certificate on this connection.
const CLIENT_CERT_CONN: u8 = 2;
/// The client presented a certificate when its TLS session began.
const CLIENT_CERT_SESS: u8 = 4;

/// Returns the TLS TLV (proxy-protocol.txt, 2.2.6).
fn of_tls(details: Option<&Details>, wanted: ProxyTls) -> Vec<u8> {
    let Some(details) = details else { return vec![0; 5] };
    let own = details.peer.first();
    let mut flags = CLIENT_SSL;
    if own.is_some() {
        flags |= CLIENT_CERT_SESS;
        if !details.is_resumed {
            flags |= CLIENT_CERT_CONN;
        }
    }
    let mut value = vec![flags];
    value.extend_from_slice(&u32::from(details.verify.last.0).to_be_bytes());
    let mut add = |kind: u8, bytes: &[u8]| proxy_protocol::write_tlv(kind, bytes, &mut value);
    add(tlv::SSL_VERSION, details.version_name().as_bytes());
    if wanted.common_name
        && let Some(facts) = own.and_then(|der| CertificateFields::parse(der).ok())
        && let Some(name) = facts.subject_name().entry("CN", 0)
    {
        add(tlv::SSL_CN, name);
    }
    let served = details.own.as_ref().and_then(|served| CertificateFields::parse(served.chain.first()?).ok());
    if wanted.key
        && let Some(name) = served.as_ref().and_then(CertificateFields::key_kind)
    {
        add(tlv::SSL_KEY_ALG, name.as_bytes());
    }
    if wanted.signature
        && let Some(facts) = &served
    {
        add(tlv::SSL_SIG_ALG, facts.signature_name().as_bytes());
    }
    if wanted.cipher
        && let Some(name) = details.cipher_name()
    {
        add(tlv::SSL_CIPHER, name.as_bytes());
    }
    value
}
