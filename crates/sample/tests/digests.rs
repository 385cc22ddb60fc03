//! Digests and HMACs by OpenSSL's names, and base64 as decoded by HAProxy. The expected values come from HAProxy 3.5 with OpenSSL
//! 3.0.

mod common;

use common::World;

/// A name, the first bytes of the digest of `abc`, and those of the HMAC with a key of 150 `k` bytes, if there is one.
#[rustfmt::skip]
const DIGESTS: &[(&str, &str, &str)] = &[
    ("md5", "900150983CD24FB0D6963F7D", "19A1719D935B6A4D9323177A"),
    ("md5-sha1", "900150983CD24FB0D6963F7D", "CB5C3E23924E6A011DFB38F0"),
    ("SHA-1", "A9993E364706816ABA3E2571", "3888AFD102DECCBD11A148E1"),
    ("sha224", "23097D223405D8228642A477", "4135A5EC20847C0675084667"),
    ("SHA2-256", "BA7816BF8F01CFEA414140DE", "FEEF8B0DA0C1F731F00917D9"),
    ("RSA-SHA384", "CB00753F45A35E8BB5A03D69", "88EB57B1C964890D8BFE910A"),
    ("sha512WithRSAEncryption", "DDAF35A193617ABACC417349", "4205A68DE76E994D20D47649"),
    ("sha512-224", "4634270F707B6A54DAAE7530", "A35112D0846DB79BA4AA467C"),
    ("SHA-512/256", "53048E2681941EF99B2E29B7", "1CAC4664005877312447955C"),
    ("sha3-224", "E642824C3F8CF24AD09234EE", "F1F788D66DD4A83BC4D8477C"),
    ("SHA3-256", "3A985DA74FE225B2045C172D", "291EB30FA1ECA737A9BFA2C9"),
    ("sha3-384", "EC01498288516FC926459F58", "9B4B437EFC73B4BF5F7440CC"),
    ("RSA-SHA3-512", "B751850B1A57168A5693CD92", "E4E1C44E9BDF3090A12894A0"),
    ("shake128", "5881092DD818BF5CF8A3DDB7", ""),
    ("SHAKE-256", "483366601360A8771C686308", ""),
    ("blake2b512", "BA80A53F981C4D0D6A2797B6", "2998E486DBAE25519BFC0C1C"),
    ("BLAKE2S-256", "508C5E8C327C14E2E1A72BA3", "C98A02B5C6BE62C447D50DD2"),
    ("ripemd", "8EB208F7E05D987A9B044A8E", "CC86180611EF66F4D3474975"),
    ("RSA-SM3", "66C7F0F462EEEDD9D1F2D46B", "B16F38EC03B41A095872640B"),
];

#[test]
fn digests_match_openssl() {
    let world = World::new();
    let key = "a2tr".repeat(50);
    for (name, digest, mac) in DIGESTS {
        let eval = |convert: &str| world.eval(&format!("str(abc),{convert},hex,bytes(0,24)"));
        assert_eq!(eval(&format!("digest({name})")), format!("bin:{digest}"), "{name}");
        let found = eval(&format!("hmac({name},{key})"));
        match *mac {
            "" => assert!(found.contains("no HMAC"), "{name}: {found}"),
            mac => assert_eq!(found, format!("bin:{mac}"), "{name}"),
        }
    }
    for (name, says) in [("md4", "obsolete"), ("sha", "unknown digest `sha`"), ("", "unknown digest")] {
        let found = world.eval(&format!("str(abc),digest(\"{name}\")"));
        assert!(found.starts_with("error:") && found.contains(says), "{name}: {found}");
    }
}

#[test]
fn base64_accepts_inner_padding_and_excess_bits() {
    let world = World::new();
    #[rustfmt::skip]
    let cases = [
        ("YQ==YWJj", "bin:aabc"), ("QR==", "bin:A"), ("Q===", "bin:"), ("A===YQ==", "bin:a"), ("====", "none"), ("YQ=", "none"),
        ("YQ=a", "none"), ("=AAA", "none"), ("AA=A", "none"), ("a-_5", "none"), ("!!!!", "none"),
    ];
    for (text, expected) in cases {
        assert_eq!(world.eval(&format!("str({text}),b64dec")), expected, "{text}");
    }
    let keyed = |key: &str| world.eval(&format!("str(data),hmac(sha256,{key}),hex"));
    assert_eq!(keyed("YQ==YWJj"), keyed("YWFiYw=="));
}
