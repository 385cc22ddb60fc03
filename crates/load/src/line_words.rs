//! Parses the words of `--server`, `--defaults` and `--global` that apply to a client.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::units::{DefaultUnit, parse_duration, parse_size};
use quic::CongestionAlgorithm;

/// Client settings, with the same names and meanings as in the configuration file.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineWords {
    /// `verify required`.
    pub(crate) verifies: bool,
    /// `ca-file`.
    pub(crate) ca_file: Option<Box<str>>,
    /// `crt`.
    pub(crate) certificate: Option<Box<str>>,
    /// `verifyhost`.
    pub(crate) verify_host: Option<Box<str>>,
    /// `sni`.
    pub(crate) server_name: Option<Box<str>>,
    /// `alpn`.
    pub(crate) alpn: Option<Vec<Box<str>>>,
    /// `ssl-min-ver` and `ssl-max-ver`.
    pub(crate) versions: [Option<u16>; 2],
    /// `ciphers`, `ssl-default-server-ciphers`.
    pub(crate) ciphers: Option<Box<str>>,
    /// `ciphersuites`, `ssl-default-server-ciphersuites`.
    pub(crate) ciphersuites: Option<Box<str>>,
    /// `curves`, `ssl-default-server-curves`.
    pub(crate) curves: Option<Box<str>>,
    /// `no-ssl-reuse`.
    pub(crate) no_resumption: bool,
    /// `source`.
    pub(crate) source: Option<SocketAddr>,
    /// `interface` after `source`.
    pub(crate) interface: Option<Box<str>>,
    /// `namespace`.
    pub(crate) namespace: Option<Box<str>>,
    /// `tcp-ut`.
    pub(crate) user_timeout: Option<Duration>,
    /// `tfo`.
    pub(crate) fast_open: bool,
    /// `send-proxy` is version 1, `send-proxy-v2` version 2.
    pub(crate) proxy_header: Option<u8>,
    /// `max-reuse`.
    pub(crate) max_reuse: Option<u64>,
    /// `quic-cc-algo`, with its maximum window.
    pub(crate) congestion: Option<(CongestionAlgorithm, Option<u64>)>,
    /// `timeout connect`.
    pub(crate) connect_timeout: Option<Duration>,
    /// `timeout server`.
    pub(crate) server_timeout: Option<Duration>,
    /// `option tcp-smart-connect`.
    pub(crate) smart_connect: bool,
    /// `nbthread`.
    pub(crate) threads: Option<usize>,
}

/// Parameters of `--server`, for error messages.
const SERVER: &str = "verify, ca-file, crt, verifyhost, sni, alpn, ssl-min-ver, ssl-max-ver, ciphers, \
                      ciphersuites, curves, no-ssl-reuse, source, namespace, tcp-ut, tfo, send-proxy, \
                      send-proxy-v2, max-reuse, quic-cc-algo";

/// Lines of `--defaults`.
const DEFAULTS: &str = "timeout connect, timeout server, default-server, option tcp-smart-connect";

/// Lines of `--global`.
const GLOBAL: &str = "nbthread, ssl-server-verify, ssl-default-server-ciphers, \
                      ssl-default-server-ciphersuites, ssl-default-server-curves";

impl LineWords {
    /// Reads `--server`.
    ///
    /// # Errors
    /// The word that is wrong, and why.
    pub(crate) fn read_server(&mut self, text: &str) -> Result<(), String> {
        let text = unescape(text);
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let fail = |error: String| format!("--server: '{word}': {error}");
            self.server_word(word, &mut words).map_err(fail)?;
        }
        Ok(())
    }

    /// Reads the lines of `--defaults`.
    ///
    /// # Errors
    /// The line that is wrong, and why.
    pub(crate) fn read_defaults(&mut self, text: &str) -> Result<(), String> {
        for line in unescape(text).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let fail = |error: String| format!("--defaults '{}': {error}", line.trim());
            match words[..] {
                [] => {}
                ["timeout", "connect", time] => self.connect_timeout = Some(ms(time).map_err(fail)?),
                ["timeout", "server", time] => self.server_timeout = Some(ms(time).map_err(fail)?),
                ["option", "tcp-smart-connect"] => self.smart_connect = true,
                ["default-server", ref rest @ ..] => self.read_server(&rest.join(" ")).map_err(fail)?,
                _ => return Err(fail(format!("not supported: a client has {DEFAULTS}"))),
            }
        }
        Ok(())
    }

    /// Reads the lines of `--global`.
    ///
    /// # Errors
    /// The line that is wrong, and why.
    pub(crate) fn read_global(&mut self, text: &str) -> Result<(), String> {
        for line in unescape(text).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let fail = |error: String| format!("--global '{}': {error}", line.trim());
            match words[..] {
                [] => {}
                ["nbthread", count] => {
                    let parsed = count.parse().ok().filter(|count| (1..=1024).contains(count));
                    self.threads = Some(parsed.ok_or_else(|| fail("needs a number from 1 to 1024".into()))?);
                }
                ["ssl-server-verify", word] => self.verify(word).map_err(fail)?,
                ["ssl-default-server-ciphers", list] => {
                    self.ciphers = Some(checked(list, "ciphers").map_err(fail)?)
                }
                ["ssl-default-server-ciphersuites", list] => {
                    self.ciphersuites = Some(checked(list, "ciphersuites").map_err(fail)?);
                }
                ["ssl-default-server-curves", list] => {
                    self.curves = Some(checked(list, "curves").map_err(fail)?);
                }
                _ => return Err(fail(format!("not supported: a client has {GLOBAL}"))),
            }
        }
        Ok(())
    }

    fn verify(&mut self, word: &str) -> Result<(), String> {
        self.verifies = match word {
            "none" => false,
            "required" => true,
            other => return Err(format!("'{other}' is neither 'none' nor 'required'")),
        };
        Ok(())
    }

    fn server_word<'a>(
        &mut self,
        word: &str,
        words: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        let mut value = || words.next().ok_or_else(|| "needs a value".to_owned());
        match word {
            // The URL determines whether TLS is used; its scheme decides.
            "ssl" => return Err("TLS follows from the URL: use https:// or quic://".into()),
            "verify" => self.verify(value()?)?,
            "ca-file" => self.ca_file = Some(value()?.into()),
            "crt" => self.certificate = Some(value()?.into()),
            "verifyhost" => self.verify_host = Some(value()?.into()),
            "sni" => self.server_name = Some(constant(value()?)?),
            "alpn" => self.alpn = Some(value()?.split(',').map(Box::from).collect()),
            "ssl-min-ver" => self.versions[0] = Some(version(value()?)?),
            "ssl-max-ver" => self.versions[1] = Some(version(value()?)?),
            "ciphers" | "ciphersuites" | "curves" => {
                let list = checked(value()?, word)?;
                match word {
                    "ciphers" => self.ciphers = Some(list),
                    "ciphersuites" => self.ciphersuites = Some(list),
                    _ => self.curves = Some(list),
                }
            }
            "no-ssl-reuse" => self.no_resumption = true,
            "source" => self.source = Some(source(value()?)?),
            "interface" => self.interface = Some(value()?.into()),
            "namespace" => self.namespace = Some(value()?.into()),
            "tcp-ut" => self.user_timeout = Some(ms(value()?)?),
            "tfo" => self.fast_open = true,
            "send-proxy" => self.proxy_header = Some(1),
            "send-proxy-v2" => self.proxy_header = Some(2),
            "max-reuse" => {
                let count = value()?;
                self.max_reuse = match count {
                    "-1" => None,
                    _ => Some(count.parse().map_err(|_| format!("'{count}' is not a number"))?),
                };
            }
            "quic-cc-algo" => self.congestion = Some(congestion(value()?)?),
            _ => return Err(format!("not supported: a client has {SERVER}")),
        }
        Ok(())
    }
}

/// Replaces `\n`, `\t`, `\\` and `\ `.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, false) => out.push(c),
            _ => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
        }
    }
    out
}

fn ms(text: &str) -> Result<Duration, String> {
    let parsed = parse_duration(text, DefaultUnit::Milliseconds).map_err(|error| error.to_string())?;
    if parsed.is_zero() { Err("needs a time above 0".into()) } else { Ok(parsed) }
}

/// The value of `sni`: a constant, because a client has no request to take it from.
fn constant(text: &str) -> Result<Box<str>, String> {
    let plain = text.strip_prefix("str(").and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    match plain.contains(['(', ')', ',']) {
        true => Err(format!("'{text}' is not a constant: use str(NAME)")),
        false => Ok(plain.into()),
    }
}

fn version(text: &str) -> Result<u16, String> {
    let found = tls::names::version(text).filter(|version| (tls::TLS12..=tls::TLS13).contains(version));
    found.ok_or_else(|| format!("'{text}' is neither TLSv1.2 nor TLSv1.3"))
}

/// Checks a list of TLS names.
fn checked(list: &str, kind: &str) -> Result<Box<str>, String> {
    let parsed = match kind {
        "ciphers" => tls::ciphers::ciphers(list),
        "ciphersuites" => tls::ciphers::ciphersuites(list),
        _ => tls::ciphers::curves(list),
    };
    parsed
        .map(|_| list.into())
        .map_err(|tls::ciphers::Unsupported(name)| format!("'{name}' is not supported"))
}

/// Parses `address[:port]`.
fn source(text: &str) -> Result<SocketAddr, String> {
    let alone = text.trim_start_matches('[').trim_end_matches(']');
    let address = alone.parse::<IpAddr>().map(|address| SocketAddr::new(address, 0));
    address.or_else(|_| text.parse()).map_err(|_| format!("'{text}' is not an IP address"))
}

/// Parses `cubic`, `newreno(1m)` and so on.
fn congestion(text: &str) -> Result<(CongestionAlgorithm, Option<u64>), String> {
    let (name, window) = match text.split_once('(') {
        Some((name, rest)) => {
            let size = rest.strip_suffix(')').ok_or_else(|| format!("'{text}' lacks a ')'"))?;
            (name, Some(parse_size(size).map_err(|error| format!("{error} in '{text}'"))?))
        }
        None => (text, None),
    };
    let algorithm = match name {
        "cubic" => CongestionAlgorithm::Cubic,
        "newreno" => CongestionAlgorithm::NewReno,
        "bbr" => CongestionAlgorithm::Bbr,
        "nocc" => CongestionAlgorithm::None,
        _ => return Err(format!("'{name}' is none of cubic, newreno, bbr and nocc")),
    };
    if window.is_some_and(|window| window < 10_240) {
        return Err(format!("the window in '{text}' is below 10k"));
    }
    Ok((algorithm, window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_client_are_read() {
        let mut words = LineWords::default();
        words
            .read_server("verify required ca-file /ca.pem sni str(a.test) alpn h2,http/1.1 source 127.0.0.2:5 max-reuse 4")
            .unwrap();
        words.read_server("quic-cc-algo newreno(1m) ssl-min-ver TLSv1.3 send-proxy-v2").unwrap();
        assert!(words.verifies && words.server_name.as_deref() == Some("a.test"));
        assert_eq!(words.alpn.as_ref().map(Vec::len), Some(2));
        assert_eq!((words.source, words.max_reuse), (Some(([127, 0, 0, 2], 5).into()), Some(4)));
        assert_eq!(words.congestion, Some((CongestionAlgorithm::NewReno, Some(1 << 20))));
        assert_eq!((words.versions[0], words.proxy_header), (Some(tls::TLS13), Some(2)));
        words.read_defaults(r"timeout connect 5s\n timeout server 300\ndefault-server tfo").unwrap();
        assert_eq!(words.connect_timeout, Some(Duration::from_secs(5)));
        assert_eq!((words.server_timeout, words.fast_open), (Some(Duration::from_millis(300)), true));
        words.read_global("nbthread 2\n\tssl-server-verify none").unwrap();
        assert_eq!((words.threads, words.verifies), (Some(2), false));
    }

    #[test]
    fn words_without_a_meaning_for_a_client_are_errors() {
        let error = |read: fn(&mut LineWords, &str) -> Result<(), String>, text: &str| {
            read(&mut LineWords::default(), text).unwrap_err()
        };
        for (text, start) in [
            ("weight 10", "--server: 'weight': not supported: a client has verify, ca-file"),
            ("ssl", "--server: 'ssl': TLS follows from the URL"),
            ("verify", "--server: 'verify': needs a value"),
            ("verify maybe", "--server: 'verify': 'maybe' is neither 'none' nor 'required'"),
            ("sni req.hdr(host)", "--server: 'sni': 'req.hdr(host)' is not a constant"),
            ("quic-cc-algo vegas", "--server: 'quic-cc-algo': 'vegas' is none of"),
            ("ciphersuites x", "--server: 'ciphersuites': 'x' is not supported"),
        ] {
            let found = error(LineWords::read_server, text);
            assert!(found.starts_with(start), "{found}");
        }
        let found = error(LineWords::read_defaults, "timeout client 5s");
        assert!(found.starts_with("--defaults 'timeout client 5s': not supported: a client has timeout"));
        let found = error(LineWords::read_global, "maxconn 5");
        assert!(found.starts_with("--global 'maxconn 5': not supported: a client has nbthread"));
    }
}
