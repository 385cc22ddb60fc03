//! Test certificates created with the machine's `openssl`: a CA and the certificates that it signs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Scratch, scratch};

/// A CA with a directory for its files.
pub struct Authority {
    directory: Scratch,
}

/// Runs `openssl` and panics if it fails.
fn openssl(directory: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").current_dir(directory).args(arguments).output();
    let output = output.expect("openssl runs: `make tools` installs it");
    assert!(
        output.status.success(),
        "openssl {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Key types.
const EC: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const RSA: &[&str] = &["-newkey", "rsa:2048"];

impl Authority {
    /// Creates a CA with an elliptic-curve key.
    pub fn new() -> Self {
        Self::with(EC)
    }

    /// Creates a CA with an RSA key.
    pub fn rsa() -> Self {
        Self::with(RSA)
    }

    fn with(key: &[&str]) -> Self {
        let directory = scratch("authority");
        let mut arguments = vec!["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=Test authority"];
        arguments.extend(key);
        arguments.extend(["-keyout", "ca.key", "-out", "ca.pem"]);
        openssl(&directory, &arguments);
        Self { directory }
    }

    /// Returns the path of the CA certificate.
    pub fn own(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// Signs a certificate with an elliptic-curve key for these names; the file includes the key.
    pub fn issue(&self, names: &[&str]) -> PathBuf {
        self.sign(names, EC, "30")
    }

    /// Signs a certificate with an RSA key.
    pub fn issue_rsa(&self, names: &[&str]) -> PathBuf {
        self.sign(names, RSA, "30")
    }

    /// Signs a certificate with a key of the type given to `openssl req` by `key`, for example `-newkey rsa:1024`.
    pub fn issue_with(&self, names: &[&str], key: &[&str]) -> PathBuf {
        self.sign(names, key, "30")
    }

    /// Signs an expired certificate.
    pub fn issue_expired(&self, names: &[&str]) -> PathBuf {
        self.sign(names, EC, "-1")
    }

    /// Signs a certificate that expires at `end`, in seconds since the Unix epoch.
    pub fn issue_until(&self, names: &[&str], end: u64) -> PathBuf {
        let valid = self.sign(names, EC, "30");
        let file = |end: &str| valid.with_extension(end).display().to_string();
        let settings = "[ca]\ndefault_ca = own\n[own]\ndatabase = short.txt\nserial = short.serial\n\
                        new_certs_dir = .\ndefault_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n";
        for (name, text) in [("short.txt", ""), ("short.serial", "1000\n"), ("short.cnf", settings)] {
            std::fs::write(self.directory.join(name), text).expect("the directory takes files");
        }
        let date = Command::new("date").args(["-u", "-d", &format!("@{end}"), "+%Y%m%d%H%M%SZ"]).output();
        let end = String::from_utf8(date.expect("date runs").stdout).expect("digits");
        let own =
            ["ca", "-config", "short.cnf", "-keyfile", "ca.key", "-cert", "ca.pem", "-batch", "-notext"];
        let dates = ["-startdate", "20200101000000Z", "-enddate", end.trim()];
        let files = ["-in", &file("csr"), "-extfile", &file("ext"), "-out", &file("short")];
        openssl(&self.directory, &[&own[..], &dates, &files].concat());
        let part = |end: &str| std::fs::read(file(end)).expect("openssl wrote it");
        std::fs::write(&valid, [part("short"), part("key")].concat()).expect("the directory takes files");
        valid
    }

    /// Signs a certificate that names its OCSP responder.
    pub fn issue_asking(&self, names: &[&str], responder: &str) -> PathBuf {
        self.sign_with(names, EC, "30", &format!("authorityInfoAccess=OCSP;URI:{responder}\n"))
    }

    /// Signs a certificate for an OCSP responder.
    pub fn issue_responder(&self, name: &str) -> PathBuf {
        self.sign_with(&[name], EC, "30", "extendedKeyUsage=critical,OCSPSigning\n")
    }

    /// Signs a request (PKCS #10, as DER) with the names in it: returns the certificate and the CA's certificate as PEM.
    pub fn sign_request(&self, request: &[u8], days: &str) -> String {
        let directory = scratch("request");
        let file = |name: &str| directory.join(name).display().to_string();
        std::fs::write(file("csr"), request).expect("the directory takes files");
        let (request, signed) = (file("csr"), file("crt"));
        let own = ["x509", "-req", "-inform", "DER", "-in", &request, "-CA", "ca.pem", "-CAkey", "ca.key"];
        let rest =
            ["-set_serial", &fastrand::u32(1..).to_string(), "-days", days, "-copy_extensions", "copy"];
        openssl(&self.directory, &[&own[..], &rest, &["-out", &signed]].concat());
        let text = |path: &Path| std::fs::read_to_string(path).expect("the authority wrote it");
        format!("{}{}", text(Path::new(&signed)), text(&self.own()))
    }

    /// Creates a CRL with these certificates.
    pub fn revoke(&self, certificates: &[&Path]) -> PathBuf {
        self.revoke_by("sha256", certificates)
    }

    /// Creates a CRL signed with that digest.
    pub fn revoke_by(&self, digest: &str, certificates: &[&Path]) -> PathBuf {
        let file = |name: &str| self.directory.join(name);
        std::fs::write(file("revoked.txt"), "").expect("the directory takes files");
        let settings = format!(
            "[ca]\ndefault_ca = own\n[own]\ndatabase = revoked.txt\ndefault_md = {digest}\ndefault_crl_days = 30\n"
        );
        std::fs::write(file("revoked.cnf"), settings).expect("the directory takes files");
        let own = ["ca", "-config", "revoked.cnf", "-keyfile", "ca.key", "-cert", "ca.pem"];
        for certificate in certificates {
            let path = certificate.display().to_string();
            openssl(&self.directory, &[&own[..], &["-revoke", &path]].concat());
        }
        let name = format!("revoked-{}.crl", certificates.len());
        openssl(&self.directory, &[&own[..], &["-gencrl", "-out", &name]].concat());
        file(&name)
    }

    /// Creates the OCSP response for a certificate: good or revoked.
    pub fn answer(&self, certificate: &Path, is_good: bool) -> PathBuf {
        let file = |name: &str| self.directory.join(name);
        let serial = Command::new("openssl")
            .args(["x509", "-noout", "-serial", "-in"])
            .arg(certificate)
            .output()
            .expect("openssl runs: `make tools` installs it");
        let serial = String::from_utf8_lossy(&serial.stdout).trim().replace("serial=", "");
        let state = if is_good { "V\t310101000000Z\t" } else { "R\t310101000000Z\t200101000000Z" };
        std::fs::write(file("answers.txt"), format!("{state}\t{serial}\tunknown\t/CN=x\n"))
            .expect("the directory takes files");
        let (path, answer) = (certificate.display().to_string(), format!("{serial}-{is_good}.ocsp"));
        let request = ["ocsp", "-issuer", "ca.pem", "-cert", &path, "-reqout", "request.der"];
        openssl(&self.directory, &request);
        let own = ["ocsp", "-index", "answers.txt", "-CA", "ca.pem", "-rsigner", "ca.pem", "-rkey", "ca.key"];
        let rest = ["-reqin", "request.der", "-ndays", "3", "-respout", &answer];
        openssl(&self.directory, &[&own[..], &rest].concat());
        file(&answer)
    }

    /// Creates an OCSP response "good" for a certificate, signed by a delegated responder.
    pub fn answer_by(&self, signer: &Path, certificate: &Path) -> PathBuf {
        let answer = self.answer(certificate, true).with_extension("delegated");
        let (signer, answer_name) = (signer.display().to_string(), answer.display().to_string());
        let own = ["ocsp", "-index", "answers.txt", "-CA", "ca.pem", "-rsigner", &signer];
        let rest = ["-reqin", "request.der", "-ndays", "3", "-respout", &answer_name];
        openssl(&self.directory, &[&own[..], &rest].concat());
        answer
    }

    /// Signs bytes.
    pub fn sign_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let file = |name: &str| self.directory.join(name);
        std::fs::write(file("bytes"), bytes).expect("the directory takes files");
        openssl(&self.directory, &["dgst", "-sha256", "-sign", "ca.key", "-out", "signature", "bytes"]);
        std::fs::read(file("signature")).expect("openssl wrote it")
    }

    fn sign(&self, names: &[&str], key: &[&str], days: &str) -> PathBuf {
        self.sign_with(names, key, days, "")
    }

    fn sign_with(&self, names: &[&str], key: &[&str], days: &str, more: &str) -> PathBuf {
        let stem = format!("{}-{}", names[0].replace('*', "any"), key[1].replace([':', '/'], ""));
        let stem = if days == "30" { stem } else { format!("{stem}-expired") };
        let file = |end: &str| format!("{stem}.{end}");
        let subject = format!("/O=Weir/CN={}", names[0]);
        let mut arguments = vec!["req", "-nodes", "-subj", &subject];
        arguments.extend(key);
        let (key_file, request) = (file("key"), file("csr"));
        arguments.extend(["-keyout", &key_file, "-out", &request]);
        openssl(&self.directory, &arguments);
        let alternatives: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let extensions =
            format!("basicConstraints=CA:FALSE\nsubjectAltName={}\n{more}", alternatives.join(","));
        let extension_file = file("ext");
        std::fs::write(self.directory.join(&extension_file), extensions).expect("the directory takes files");
        let certificate = file("crt");
        openssl(
            &self.directory,
            &[
                "x509",
                "-req",
                "-in",
                &request,
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                days,
                "-extfile",
                &extension_file,
                "-out",
                &certificate,
            ],
        );
        let part = |name: &str| std::fs::read(self.directory.join(name)).expect("openssl wrote it");
        let path = self.directory.join(file("pem"));
        std::fs::write(&path, [part(&certificate), part(&key_file)].concat())
            .expect("the directory takes files");
        path
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
