//! `-C`: the settings as a configuration.

use std::fmt::Write;

use quic::CongestionAlgorithm;

use crate::options::{HttpVersion, Options, UrlOptions};
use crate::url::UrlScheme;

/// Writes the settings that a configuration can express: a backend with a server for each URL.
pub fn dump(options: &Options) -> String {
    let words = &options.words;
    let streams = options.streams;
    let experimental = match options.urls.iter().any(is_qmux) {
        true => "\texpose-experimental-directives\n",
        false => "",
    };
    let mut text = format!(
        "global\n{experimental}\tnbthread {}\n\ttune.h2.be.max-concurrent-streams {streams}\n\t\
         tune.quic.be.stream.max-concurrent {streams}\n\tssl-server-verify {}\n",
        options.threads,
        if words.verifies { "required" } else { "none" }
    );
    let connect = words.connect_timeout.unwrap_or(options.io_timeout).as_millis();
    text.push_str(&format!("\ndefaults\n\tmode http\n\ttimeout connect {connect}\n"));
    text.push_str(&format!("\ttimeout server {}\n\tretries 0\n", options.io_timeout.as_millis()));
    if options.late_ack {
        text.push_str("\toption tcp-smart-connect\n");
    }
    text.push_str("\nbackend load\n");
    for (number, url) in options.urls.iter().enumerate() {
        text.push_str(&format!("\tserver s{} {}\n", number + 1, server(options, url)));
    }
    text
}

/// Whether HTTP/3 is spoken over TCP or TLS.
fn is_qmux(one: &UrlOptions) -> bool {
    one.version == HttpVersion::H3 && one.url.scheme != UrlScheme::Quic
}

/// The rest of a server line.
fn server(options: &Options, one: &UrlOptions) -> String {
    let words = &options.words;
    let url = &one.url;
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.to_string() };
    let mut line = format!("{host}:{}", url.port);
    if url.scheme == UrlScheme::Quic {
        line.insert_str(0, if url.host.contains(':') { "quic6@" } else { "quic4@" });
    }
    // Writing to a string cannot fail.
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(line, " {name}{}{value}", if value.is_empty() { "" } else { " " });
        }
    };
    let flag = |set: bool| set.then(String::new);
    let text = |value: &Option<Box<str>>| value.as_ref().map(ToString::to_string);
    if url.scheme == UrlScheme::Http {
        add("proto", (one.version == HttpVersion::H2).then(|| "h2".into()));
        add("proto", is_qmux(one).then(|| "qmux".into()));
    } else {
        add("ssl", flag(true));
        let alpn = match one.version {
            HttpVersion::Hq => "hq-interop",
            HttpVersion::H1 => "http/1.1",
            HttpVersion::H2 => "h2",
            HttpVersion::H3 => "h3",
        };
        add("alpn", Some(words.alpn.as_ref().map_or(alpn.into(), |alpn| alpn.join(","))));
        let name = text(&words.server_name).or_else(|| url.server_name().map(str::to_owned));
        add("sni", name.map(|name| format!("str({name})")));
        add("verifyhost", text(&words.verify_host));
        add("ca-file", text(&words.ca_file));
        add("crt", text(&words.certificate));
        for (word, version) in ["ssl-min-ver", "ssl-max-ver"].into_iter().zip(words.versions) {
            add(word, version.map(|version| tls::names::version_name(version).to_owned()));
        }
        let list = |numbers: &[u16], name: fn(u16) -> Option<&'static str>, word: &Option<Box<str>>| {
            let names: Vec<&str> = numbers.iter().filter_map(|number| name(*number)).collect();
            if names.is_empty() { text(word) } else { Some(names.join(":")) }
        };
        add("ciphers", list(&one.tls.suites12, tls::names::suite_name, &words.ciphers));
        add("ciphersuites", list(&one.tls.suites13, tls::names::suite_name, &words.ciphersuites));
        add("curves", list(&one.tls.groups, tls::names::group_name, &words.curves));
        add("no-ssl-reuse", flag(words.no_resumption));
    }
    if url.scheme == UrlScheme::Quic {
        add("quic-cc-algo", words.congestion.map(congestion));
    } else {
        let version = |wanted| flag(words.proxy_header == Some(wanted));
        add("send-proxy", version(1));
        add("send-proxy-v2", version(2));
        add("tfo", flag(words.fast_open));
        add("tcp-ut", words.user_timeout.map(|time| time.as_millis().to_string()));
    }
    add("namespace", text(&words.namespace));
    let interface = words.interface.as_ref().map(|name| format!(" interface {name}")).unwrap_or_default();
    let any = words.interface.as_ref().map(|_| "0.0.0.0".to_owned());
    let source = words.source.map(|source| source.to_string()).or(any);
    add("source", source.map(|source| source + &interface));
    add("max-reuse", options.per_connection.map(|count| (count - 1).to_string()));
    line
}

fn congestion((algorithm, window): (CongestionAlgorithm, Option<u64>)) -> String {
    let name = match algorithm {
        CongestionAlgorithm::Cubic => "cubic",
        CongestionAlgorithm::NewReno => "newreno",
        CongestionAlgorithm::Bbr => "bbr",
        CongestionAlgorithm::None => "nocc",
    };
    window.map_or(name.to_owned(), |window| format!("{name}({window})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    fn dumped(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match crate::arguments::parse(&words) {
            Ok(Command::Dump(options)) => dump(&options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_become_a_configuration() {
        let text =
            dumped(&["-C", "-m3", "-w", "500", "http://h:1/", "-2", "--tls-curves", "P-256", "https://h:2/"]);
        assert!(text.starts_with("global\n\tnbthread 1\n\ttune.h2.be.max-concurrent-streams 3\n"), "{text}");
        assert!(text.contains("\ttimeout server 500\n"), "{text}");
        assert!(text.contains("\tserver s1 h:1\n\tserver s2 h:2 ssl alpn h2 sni str(h) curves "), "{text}");
        let words = "quic-cc-algo newreno(1048576) source 127.0.0.2 crt /c.pem max-reuse 4";
        let text = dumped(&["-C", "--server", words, "quic://[::1]:3/"]);
        let line = "server s1 quic6@[::1]:3 ssl alpn h3 crt /c.pem quic-cc-algo newreno(1048576) source 127.0.0.2:0 max-reuse 4";
        assert!(text.contains(line), "{text}");
        let text = dumped(&["-C", "-3", "http://h:1/", "https://h:2/"]);
        assert!(text.starts_with("global\n\texpose-experimental-directives\n"), "{text}");
        assert!(text.contains("server s1 h:1 proto qmux\n"), "{text}");
        assert!(text.contains("server s2 h:2 ssl alpn h3 sni str(h)\n"), "{text}");
    }
}
