//! A world with TLS on both connections, and the expected values of fetches in it.

use std::sync::Arc;

use tls::capture::{CapturedHandshake, Secret};
use tls::{Certificate, Details, VerifyCode, VerifyOutcome};

use crate::common::World;
use crate::common::rows::usual;

/// A certificate, its issuer and its key.
const PEM: &[u8] = include_bytes!("../testdata/client.pem");

/// Fetches and their expected values.
#[rustfmt::skip]
pub(crate) const SECURED: &[(&str, &str)] = &[
    ("ssl_fc", "bool:1"),
    ("ssl_fc_protocol", "str:TLSv1.3"),
    ("ssl_fc_cipher", "str:TLS_AES_128_GCM_SHA256"),
    ("ssl_fc_alg_keysize", "sint:128"),
    ("ssl_fc_use_keysize", "sint:128"),
    ("ssl_fc_curve", "str:X25519"),
    ("ssl_fc_has_sni", "bool:1"),
    ("ssl_fc_sni", "str:sni.example"),
    ("ssl_fc_alpn", "str:http/1.1"),
    ("ssl_fc_npn", "none"),
    ("ssl_fc_is_resumed", "bool:0"),
    ("ssl_fc_has_early", "bool:0"),
    ("ssl_fc_early_rcvd", "bool:0"),
    ("ssl_fc_err", "sint:0"),
    ("ssl_fc_err_str", "none"),
    ("ssl_fc_crtname", "str:own.pem"),
    ("ssl_fc_has_crt", "bool:1"),
    ("ssl_c_used", "bool:1"),
    ("ssl_c_err", "sint:10"),
    ("ssl_c_ca_err", "sint:20"),
    ("ssl_c_ca_err_depth", "sint:1"),
    ("ssl_c_verify", "sint:10"),
    ("ssl_c_der,hex,length", "sint:992"),
    ("ssl_c_chain_der,hex,length", "sint:848"),
    ("ssl_c_sha1,hex", "str:9754AD46C837FCB38C426726F4957DC795BE9504"),
    ("ssl_c_serial,hex", "str:1234AB"),
    ("ssl_c_version", "sint:3"),
    ("ssl_c_s_dn", "str:/C=FR/O=Weir/OU=One/OU=Two/CN=client"),
    ("ssl_c_s_dn(OU)", "str:One"),
    ("ssl_c_s_dn(OU,-1)", "str:Two"),
    ("ssl_c_s_dn(OU,3)", "none"),
    ("ssl_c_s_dn(,0,rfc2253)", "str:CN=client,OU=Two,OU=One,O=Weir,C=FR"),
    ("ssl_c_i_dn", "str:/C=FR/CN=Test authority"),
    ("ssl_c_r_dn", "str:/C=FR/CN=Test authority"),
    ("ssl_c_notbefore", "str:261124023140Z"),
    ("ssl_c_notafter", "str:250618023140Z"),
    ("ssl_c_key_alg", "str:id-ecPublicKey"),
    ("ssl_c_sig_alg", "str:ecdsa-with-SHA256"),
    ("ssl_c_san", "str:DNS:client.test, IP Address:10.0.0.1"),
    ("ssl_c_policies", "str:1.2.3.4, 0.4.0.1862.1.4"),
    ("ssl_c_policies(1.2.3.4)", "str:1.2.3.4"),
    ("ssl_c_policies(1.2.3)", "none"),
    ("ssl_f_der,hex,length", "sint:992"),
    ("ssl_f_sha1,hex", "str:9754AD46C837FCB38C426726F4957DC795BE9504"),
    ("ssl_f_serial,hex", "str:1234AB"),
    ("ssl_f_version", "sint:3"),
    ("ssl_f_s_dn(CN)", "str:client"),
    ("ssl_f_i_dn(CN)", "str:Test authority"),
    ("ssl_f_notbefore", "str:261124023140Z"),
    ("ssl_f_notafter", "str:250618023140Z"),
    ("ssl_f_key_alg", "str:id-ecPublicKey"),
    ("ssl_f_sig_alg", "str:ecdsa-with-SHA256"),
    ("ssl_s_der,hex,length", "sint:992"),
    ("ssl_s_chain_der,hex,length", "sint:1840"),
    ("ssl_s_sha1,hex", "str:9754AD46C837FCB38C426726F4957DC795BE9504"),
    ("ssl_s_serial,hex", "str:1234AB"),
    ("ssl_s_version", "sint:3"),
    ("ssl_s_s_dn(CN)", "str:client"),
    ("ssl_s_i_dn(CN)", "str:Test authority"),
    ("ssl_s_notbefore", "str:261124023140Z"),
    ("ssl_s_notafter", "str:250618023140Z"),
    ("ssl_s_key_alg", "str:id-ecPublicKey"),
    ("ssl_s_sig_alg", "str:ecdsa-with-SHA256"),
    // No ClientHello or other handshake data was kept.
    ("ssl_fc_protocol_hello_id", "none"),
    ("ssl_fc_cipherlist_bin", "none"),
    ("ssl_fc_cipherlist_hex", "none"),
    ("ssl_fc_cipherlist_str", "none"),
    ("ssl_fc_cipherlist_xxh", "none"),
    ("ssl_fc_extlist_bin", "none"),
    ("ssl_fc_eclist_bin", "none"),
    ("ssl_fc_ecformats_bin", "none"),
    ("ssl_fc_sigalgs_bin", "none"),
    ("ssl_fc_supported_versions_bin", "none"),
    ("ssl_fc_client_random,hex", "str:0101010101010101010101010101010101010101010101010101010101010101"),
    ("ssl_fc_server_random,hex", "str:0202020202020202020202020202020202020202020202020202020202020202"),
    ("ssl_fc_session_id,hex", "str:03"),
    ("ssl_fc_session_key,hex", "str:04"),
    ("ssl_fc_client_early_traffic_secret", "none"),
    ("ssl_fc_client_handshake_traffic_secret", "str:ab01"),
    ("ssl_fc_server_handshake_traffic_secret", "none"),
    ("ssl_fc_client_traffic_secret_0", "none"),
    ("ssl_fc_server_traffic_secret_0", "none"),
    ("ssl_fc_exporter_secret", "none"),
    ("ssl_fc_early_exporter_secret", "none"),
    ("ssl_fc_unique_id,hex", "str:05"),
    ("ssl_bc_unique_id,hex", "str:06"),
    ("ssl_bc_client_random,hex", "str:0101010101010101010101010101010101010101010101010101010101010101"),
    ("ssl_bc_server_random,hex", "str:0202020202020202020202020202020202020202020202020202020202020202"),
    ("ssl_bc_session_id,hex", "str:03"),
    ("ssl_bc_session_key,hex", "str:04"),
    ("ssl_bc_client_early_traffic_secret", "none"),
    ("ssl_bc_client_handshake_traffic_secret", "str:ab01"),
    ("ssl_bc_server_handshake_traffic_secret", "none"),
    ("ssl_bc_client_traffic_secret_0", "none"),
    ("ssl_bc_server_traffic_secret_0", "none"),
    ("ssl_bc_exporter_secret", "none"),
    ("ssl_bc_early_exporter_secret", "none"),
    ("ssl_bc", "bool:1"),
    ("ssl_bc_protocol", "str:TLSv1.3"),
    ("ssl_bc_cipher", "str:TLS_AES_128_GCM_SHA256"),
    ("ssl_bc_alg_keysize", "sint:128"),
    ("ssl_bc_use_keysize", "sint:128"),
    ("ssl_bc_curve", "str:X25519"),
    ("ssl_bc_sni", "str:sni.example"),
    ("ssl_bc_alpn", "str:http/1.1"),
    ("ssl_bc_npn", "none"),
    ("ssl_bc_is_resumed", "bool:0"),
    ("ssl_bc_err", "sint:0"),
    ("ssl_bc_err_str", "none"),
];

/// The usual world with TLS on both sides.
pub(crate) fn secured() -> World {
    let mut world = usual();
    let own = Arc::new(Certificate::from_pem("own.pem", PEM).expect("a certificate"));
    let mut verify = VerifyOutcome::default();
    (verify.last, verify.own) = (VerifyCode(10), VerifyCode(10));
    (verify.ca, verify.ca_depth) = (VerifyCode(20), 1);
    let mut captured = CapturedHandshake::default();
    (captured.client_random, captured.server_random) = ([1; 32], [2; 32]);
    (captured.session_id, captured.session_key) = ([3][..].into(), [4][..].into());
    captured.finished = [[5][..].into(), [6][..].into()];
    let label = "CLIENT_HANDSHAKE_TRAFFIC_SECRET".into();
    captured.secrets.push(Secret { label, bytes: [0xab, 1][..].into() });
    let details = Arc::new(Details {
        version: 0x0304,
        suite: 0x1301,
        group: 29,
        sni: Some("sni.example".into()),
        alpn: Some(b"http/1.1"[..].into()),
        peer: own.chain.iter().map(|der| Box::from(&**der)).collect(),
        root: own.chain.last().cloned(),
        own: Some(own),
        verify,
        captured: Some(Box::new(captured)),
        ..Details::default()
    });
    world.session.set_tls(details.clone());
    world.transaction.server_tls = Some(details);
    world
}
