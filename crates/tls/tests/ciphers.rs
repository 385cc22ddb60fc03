//! Compares cipher strings with OpenSSL, if it is installed.

use std::process::Command;

use tls::ciphers::ciphers;

const STRINGS: &[&str] = &[
    "DEFAULT",
    "ALL",
    "HIGH",
    "HIGH:!aNULL:!MD5",
    "HIGH:!aNULL:!kRSA:!SHA1",
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE+AESGCM:ECDHE+CHACHA20",
    "EECDH+AESGCM:EDH+AESGCM:AES256+EECDH:AES256+EDH",
    "ECDH+AESGCM:DH+AESGCM:ECDH+AES256:DH+AES256:ECDH+AES128:DH+AES:RSA+AESGCM:RSA+AES:!aNULL:!MD5:!DSS",
    "ALL:+RSA:-SHA1",
    "ALL:-AES:AES128:+HIGH",
    "kEECDH+aRSA+AES:kRSA+AES:+AES256:!kDHE:!NULL",
    "AES128-SHA:FOO:ECDHE-RSA-AES128-GCM-SHA256",
    "HIGH:@STRENGTH",
    "ALL:!COMPLEMENTOFDEFAULT:+AESCCM",
    "DEFAULT:!CAMELLIA:!ARIA:!aDSS",
    "TLSv1.2:!eNULL:!aNULL",
    "AESGCM:-ECDHE:ECDHE+aRSA:ECDHE",
    "ALL:COMPLEMENTOFALL",
    "SHA256:SHA384:!DSS",
    "aECDSA:aRSA:!eNULL",
    "ECDHE-RSA-AES256-SHA384 ECDHE-RSA-AES256-SHA,AES256-SHA",
];

#[test]
fn cipher_strings_match_openssl() {
    for text in STRINGS {
        let argument = format!("{text}:@SECLEVEL=0");
        let Ok(output) = Command::new("openssl").args(["ciphers", "-V", &argument]).output() else {
            eprintln!("openssl is not installed");
            return;
        };
        let listed = String::from_utf8(output.stdout).expect("names");
        let known = |line: &&str| !line.contains("TLSv1.3") && !line.contains("PSK") && !line.contains("SRP");
        let expected: Vec<u16> = listed
            .lines()
            .filter(known)
            .map(|line| {
                let number = line.split_whitespace().next().expect("a number");
                u16::from_str_radix(&number.replace("0x", "").replace(',', ""), 16).expect("two bytes")
            })
            .collect();
        assert!(!expected.is_empty(), "{text}");
        let found = ciphers(text).expect(text);
        let name = |numbers: &[u16]| numbers.iter().map(|n| format!("{n:04x} ")).collect::<String>();
        assert_eq!(name(&found), name(&expected), "{text}");
    }
    assert!(ciphers("FOO").is_err() && ciphers("").is_err() && ciphers("AES:!ALL").is_err());
}
