//! The parameters of a request as HAProxy sends them (configuration manual, 10.2; RFC 3875, 4.1).
//!
//! Names and values set by rules are passed as results. The caller evaluates the expressions, and matches the regular expression
//! that finds the script name.

use std::io::Write;
use std::net::SocketAddr;

use http::{Head, KnownName};

use crate::parameters::{Parameters, TooLong, variable};

/// Header fields that applications do not see unless they are passed explicitly (manual, 10.1.1 `pass-header`): hop-by-hop fields,
/// credentials, and `Proxy`, whose variable programs trust.
const HIDDEN: [&[u8]; 9] = [
    b"authorization",
    b"connection",
    b"expect",
    b"keep-alive",
    b"proxy",
    b"proxy-authorization",
    b"te",
    b"transfer-encoding",
    b"upgrade",
];

/// Returns whether a field of this name is hidden from applications.
#[must_use]
pub fn hides(name: &[u8]) -> bool {
    HIDDEN.iter().any(|hidden| hidden.eq_ignore_ascii_case(name))
}

/// A parameter set by a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamValue {
    /// The name, in the spelling of variables.
    pub name: Box<[u8]>,
    /// The value; not empty.
    pub value: Vec<u8>,
}

impl ParamValue {
    /// Returns a parameter with its name converted to the spelling of variables.
    #[must_use]
    pub fn new(name: &[u8], value: Vec<u8>) -> ParamValue {
        ParamValue { name: name.iter().map(|byte| variable(*byte)).collect(), value }
    }
}

/// The path, split into the script name and the path info.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptPath {
    /// The path up to and including the script's name.
    pub name: Vec<u8>,
    /// The rest of the path.
    pub path_info: Vec<u8>,
}

/// The data from which the parameters are built.
#[derive(Debug, Clone)]
pub struct FcgiRequest<'a> {
    /// The request head.
    pub head: &'a Head,
    /// The target as the client wrote it.
    pub target: &'a [u8],
    /// `docroot`.
    pub docroot: &'a [u8],
    /// The split path.
    pub script: &'a ScriptPath,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// The local address of the client's connection.
    pub local: Option<SocketAddr>,
    /// Whether the client connection uses TLS.
    pub is_tls: bool,
    /// The length of the body, used if there is no Content-Length.
    pub length: u64,
    /// Hidden fields that are passed nevertheless.
    pub passed: &'a [Box<[u8]>],
    /// Parameters set by rules, with distinct names.
    pub set: &'a [ParamValue],
    /// The value of `SERVER_SOFTWARE`.
    pub software: &'a str,
}

impl FcgiRequest<'_> {
    /// Writes all parameters.
    ///
    /// # Errors
    /// The parameters exceed the limit.
    pub fn write(&self, out: &mut Parameters) -> Result<(), TooLong> {
        let mut has_length = false;
        for (name, value) in self.head.fields() {
            if name.eq_ignore_ascii_case(b"content-length") {
                has_length = true;
                out.add(b"CONTENT_LENGTH", value)?;
            } else if name.eq_ignore_ascii_case(b"content-type") {
                out.add(b"CONTENT_TYPE", value)?;
            } else if !hides(name) || self.passed.iter().any(|passed| passed.eq_ignore_ascii_case(name)) {
                out.add_field(name, value)?;
            }
        }
        for ParamValue { name, value } in self.set {
            out.add(name, value)?;
        }
        self.write_defaults(has_length, out)
    }

    /// Returns the value that a rule set for a name, or the default.
    fn value_or<'s>(&'s self, name: &[u8], otherwise: &'s [u8]) -> &'s [u8] {
        let own = self.set.iter().find(|value| *value.name == *name);
        own.map_or(otherwise, |own| &own.value)
    }

    fn write_defaults(&self, has_length: bool, out: &mut Parameters) -> Result<(), TooLong> {
        let mut text = Vec::with_capacity(48);
        let mut number = |value: &dyn std::fmt::Display| {
            text.clear();
            // Writing to a Vec cannot fail.
            let _ = write!(text, "{value}");
            text.clone()
        };
        let mut add = |name: &[u8], value: &[&[u8]]| {
            let is_set = self.set.iter().any(|set| *set.name == *name);
            if is_set { Ok(()) } else { out.add_parts(name, value) }
        };
        let docroot = self.value_or(b"DOCUMENT_ROOT", self.docroot);
        let script = self.value_or(b"SCRIPT_NAME", &self.script.name);
        let path_info = self.value_or(b"PATH_INFO", &self.script.path_info);
        add(b"GATEWAY_INTERFACE", &[b"CGI/1.1"])?;
        add(b"DOCUMENT_ROOT", &[docroot])?;
        add(b"SCRIPT_NAME", &[script])?;
        if !path_info.is_empty() {
            add(b"PATH_INFO", &[path_info])?;
        }
        add(b"REQUEST_URI", &[self.target])?;
        add(b"REQUEST_METHOD", &[self.head.method()])?;
        if let Some(query) = http::uri::split(self.target).query().filter(|query| !query.is_empty()) {
            add(b"QUERY_STRING", &[query])?;
        }
        match (self.head.get_known(KnownName::Host), self.local) {
            (Some(host), _) => add(b"SERVER_NAME", &[host])?,
            (None, Some(local)) => add(b"SERVER_NAME", &[&number(&local.ip())])?,
            (None, None) => {}
        }
        if let Some(local) = self.local {
            add(b"SERVER_PORT", &[&number(&local.port())])?;
        }
        let (major, minor) = self.head.version().numbers();
        add(b"SERVER_PROTOCOL", &[b"HTTP/", &number(&major), b".", &number(&minor)])?;
        if let Some(client) = self.client {
            add(b"REMOTE_ADDR", &[&number(&client.ip())])?;
        }
        // HAProxy sends port 0 for clients without a port.
        add(b"REMOTE_PORT", &[&number(&self.client.map_or(0, |client| client.port()))])?;
        add(b"SCRIPT_FILENAME", &[docroot, script])?;
        if !path_info.is_empty() {
            add(b"PATH_TRANSLATED", &[docroot, path_info])?;
        }
        if self.is_tls {
            add(b"HTTPS", &[b"on"])?;
        }
        if !has_length {
            add(b"CONTENT_LENGTH", &[&number(&self.length)])?;
        }
        add(b"SERVER_SOFTWARE", &[self.software.as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pairs;
    use http::{ParseOptions, parse_request};

    fn parameters(text: &str, passed: &[Box<[u8]>], set: &[ParamValue]) -> Vec<String> {
        let mut head = Head::new();
        parse_request(text.as_bytes(), &mut head, &ParseOptions::default()).unwrap();
        let script = ScriptPath { name: b"/a.php".to_vec(), path_info: b"/b c".to_vec() };
        let request = FcgiRequest {
            head: &head,
            target: head.target(),
            docroot: b"/srv",
            script: &script,
            client: "10.0.0.1:1234".parse().ok(),
            local: "[::1]:80".parse().ok(),
            is_tls: true,
            length: 0,
            passed,
            set,
            software: "Weir",
        };
        let mut out = Parameters::new(usize::MAX);
        request.write(&mut out).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Pairs::new(out.bytes()).map(|(name, value)| format!("{}={}", text(name), text(value))).collect()
    }

    #[test]
    fn hop_by_hop_and_secret_fields_are_hidden_unless_passed() {
        let text = "GET /a.php/b%20c?d=e HTTP/1.1\r\nHost: h:8\r\nX-A.b: 1\r\nAuthorization: Basic x\r\nProxy: evil\r\n\
                    Connection: keep-alive\r\nTE: trailers\r\n\r\n";
        let all = parameters(text, &[], &[]);
        let fields: Vec<&String> = all.iter().filter(|pair| pair.starts_with("HTTP_")).collect();
        assert_eq!(fields, ["HTTP_HOST=h:8", "HTTP_X_A_B=1"]);
        let all = parameters(text, &[Box::from(&b"Authorization"[..])], &[]);
        assert!(all.contains(&"HTTP_AUTHORIZATION=Basic x".to_owned()), "{all:?}");
    }

    #[test]
    fn rules_override_default_parameters() {
        let text = "GET /a.php/b%20c?d=e HTTP/1.0\r\n\r\n";
        let all = parameters(text, &[], &[]);
        assert_eq!(
            all,
            [
                "GATEWAY_INTERFACE=CGI/1.1",
                "DOCUMENT_ROOT=/srv",
                "SCRIPT_NAME=/a.php",
                "PATH_INFO=/b c",
                "REQUEST_URI=/a.php/b%20c?d=e",
                "REQUEST_METHOD=GET",
                "QUERY_STRING=d=e",
                "SERVER_NAME=::1",
                "SERVER_PORT=80",
                "SERVER_PROTOCOL=HTTP/1.0",
                "REMOTE_ADDR=10.0.0.1",
                "REMOTE_PORT=1234",
                "SCRIPT_FILENAME=/srv/a.php",
                "PATH_TRANSLATED=/srv/b c",
                "HTTPS=on",
                "CONTENT_LENGTH=0",
                "SERVER_SOFTWARE=Weir",
            ]
        );
        let set =
            [ParamValue::new(b"document-root", b"/x".to_vec()), ParamValue::new(b"HTTPS", b"no".to_vec())];
        let all = parameters(text, &[], &set);
        for wanted in ["DOCUMENT_ROOT=/x", "SCRIPT_FILENAME=/x/a.php", "PATH_TRANSLATED=/x/b c", "HTTPS=no"] {
            assert_eq!(all.iter().filter(|pair| *pair == wanted).count(), 1, "{wanted}: {all:?}");
        }
        assert!(!all.contains(&"HTTPS=on".to_owned()) && !all.contains(&"DOCUMENT_ROOT=/srv".to_owned()));
    }
}
