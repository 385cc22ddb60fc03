//! Certificates for token verification, changed on the runtime socket.

use crate::running::{expect, start};
use weir_tests::client::exchange_with;
use weir_tests::free_port;

/// Signed with the key of the certificate below.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ0ZXN0In0.RZ0sYoZDp_dienwXxWgVLjmsWd5EmXbdW6Xg4yaURx22N6jWy5-YC4o7lvoPs5meZr7ijD5vJkUWNjQvT6yTQA";

const CERTIFICATE: &str = include_str!("../../../crates/sample/src/keys/testdata/two_names.pem");

const OTHER: &str = include_str!("../../../crates/sample/src/keys/testdata/other.pem");

#[test]
fn token_certificates_are_created_changed_and_deleted() {
    let port = free_port();
    let directory = weir_tests::scratch("certificates");
    let file = directory.join("fixed.pem");
    std::fs::write(&file, CERTIFICATE).expect("a file");
    let fixed = file.display();
    let weir = start(
        &format!(
            "crt-store shop\n  load crt {fixed} alias till jwt on\n  load crt {fixed} alias idle\n\
             frontend f\n  bind 127.0.0.1:{port}\n  http-request set-var(txn.c) req.hdr(x-cert)\n  \
             http-request return status 200 hdr x-named %[req.hdr(x-token),jwt_verify_cert(ES256,txn.c)] \
             hdr x-fixed %[req.hdr(x-token),jwt_verify_cert(ES256,{fixed})]\n"
        ),
        port,
    );
    let verified = |name: &str| {
        let response =
            exchange_with(port, "/", &format!("x-token: {TOKEN}\r\nx-cert: {name}\r\n")).expect("a response");
        [response.header("x-named"), response.header("x-fixed")].map(|value| value.unwrap_or("").to_owned())
    };
    let set = |name: &str, pem: &str| weir.ask(&format!("set ssl cert {name} <<\n{pem}\n"));
    assert_eq!(verified("new"), ["-5", "1"]);
    assert_eq!(verified("@shop/till"), ["1", "1"]);
    assert_eq!(verified("@shop/idle"), ["-7", "1"]);
    let listed = weir.ask("show ssl cert");
    assert_eq!(listed.trim(), format!("# filename\n{fixed}\n@shop/idle\n@shop/till"));
    assert_eq!(weir.ask("show ssl jwt").trim(), format!("# filename\n{fixed}\n@shop/till"));
    for (command, wanted) in [
        ("new ssl cert", "'new ssl cert' expects a filename"),
        ("new ssl cert new", "New empty certificate store 'new'!"),
        ("new ssl cert new", "Certificate 'new' already exists!"),
        ("show ssl cert new", "Filename: new\nOption: ocsp-update off\nOption: jwt off\nStatus: Empty"),
        ("set ssl cert new", "'set ssl cert' expects a filename and a certificate as a payload"),
        ("commit ssl cert new", "No ongoing transaction! !\nCan't commit new!"),
        ("abort ssl cert new", "No ongoing transaction!"),
        ("add ssl jwt zz", "Can't display the certificate: Not found or the certificate is a bundle!"),
        ("del ssl cert zz", "Can't remove the certificate: certificate 'zz' doesn't exist!"),
        ("del ssl cert @shop/till", "certificate '@shop/till' in use for JWT validation, can't be deleted!"),
        ("del ssl cert @shop/idle", "Certificate '@shop/idle' deleted!"),
    ] {
        expect(&weir, command, wanted);
    }
    assert!(set("zz", CERTIFICATE).contains(
        "Can't replace a certificate which is not referenced by the configuration!\nCan't update zz!"
    ));
    assert!(set("new", "nonsense").contains("Can't load the payload\nCan't update new!"));
    assert!(set("new", CERTIFICATE).contains("Transaction created for certificate new!"));
    assert!(set("new", CERTIFICATE).contains("Transaction updated for certificate new!"));
    assert!(
        set("@shop/till", OTHER)
            .contains("The ongoing transaction is about 'new' but you are trying to set '@shop/till'")
    );
    expect(&weir, "show ssl cert", "# transaction\n*new\n# filename\n");
    expect(
        &weir,
        "show ssl cert *new",
        "Filename: *new\nOption: ocsp-update off\nOption: jwt off\nStatus: Uncommitted\nSerial: 3F5F32C8",
    );
    assert_eq!(verified("new"), ["-7", "1"], "not committed, not for tokens");
    expect(&weir, "commit ssl cert new", "Committing new\nSuccess!");
    assert_eq!(weir.ask("add ssl jwt new").trim(), "");
    expect(&weir, "show ssl cert new", "Status: Used for JWT verification\n");
    assert_eq!(verified("new"), ["1", "1"]);
    // A different certificate under this name no longer verifies the token, wherever it is used.
    assert!(set(&fixed.to_string(), OTHER).contains("Transaction created"));
    expect(&weir, &format!("abort ssl cert {fixed}"), "Transaction aborted for certificate");
    assert_eq!(verified("new"), ["1", "1"]);
    assert!(set(&fixed.to_string(), OTHER).contains("Transaction created"));
    expect(&weir, &format!("commit ssl cert {fixed}"), "Success!");
    assert_eq!(verified("new"), ["1", "0"]);
    assert!(weir.ask(&format!("dump ssl cert {fixed}")).contains("-----BEGIN CERTIFICATE-----\n"));
    assert_eq!(weir.ask(&format!("del ssl jwt {fixed}")).trim(), "");
    assert_eq!(verified("new"), ["1", "-7"]);
    assert_eq!(weir.ask("del ssl jwt new").trim(), "");
    expect(&weir, "del ssl cert new", "Certificate 'new' deleted!");
    assert_eq!(verified("new")[0], "-5");
}

#[test]
fn a_listeners_certificate_can_be_used_for_tokens() {
    let (port, other) = (free_port(), free_port());
    let authority = weir_tests::Authority::new();
    let certificate = authority.issue(&["a.test"]);
    let file = certificate.display();
    let text =
        format!("frontend f\n  bind 127.0.0.1:{port}\nfrontend t\n  bind 127.0.0.1:{other} ssl crt {file}\n");
    let weir = start(&text, port);
    assert_eq!(weir.ask("show ssl jwt").trim(), "# filename");
    assert_eq!(weir.ask(&format!("add ssl jwt {file}")).trim(), "");
    assert_eq!(weir.ask("show ssl jwt").trim(), format!("# filename\n{file}"));
    assert_eq!(weir.ask(&format!("del ssl jwt {file}")).trim(), "");
    assert_eq!(weir.ask("show ssl jwt").trim(), "# filename");
    // A list of descriptors has the final name of the runtime socket.
    let sockets = weir.ask("show fd");
    assert!(sockets.contains("path=") && !sockets.contains(".tmp"), "{sockets}");
}
