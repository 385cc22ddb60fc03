//! `weir haterm`: an HTTP server for load tests, like HAProxy's program with that name. Its options are converted to a
//! configuration with a frontend in `mode haterm`, which then runs like any other.

use std::fmt::Write;
use std::process::ExitCode;

use crate::args::{CommandLineArgs, ProgramAction};
use crate::{messages, version};

const USAGE: &str = "\
Usage: weir haterm -L [ADDRESS]:PORT[:TLSPORT] [-L ...] [options]

Serves HTTP for load tests: the query of each request describes the response.
`/?` explains how. PORT is for HTTP/1 and HTTP/2 without TLS, and TLSPORT for
both with TLS over TCP, and for HTTP/3 over UDP. The address of IPv6 is in
brackets, and no address stands for all those of IPv4.

  -L [ADDRESS]:PORT[:TLSPORT]  where to listen; repeatable
  -G LINE                  add a line to the section `global`; repeatable
  -F LINE                  add a line to the section `frontend`; repeatable
  -T LINE                  add a line to the section `traces`; repeatable
  --tcp-bind-opts OPTIONS  add parameters to the `bind` lines of TCP
  --quic-bind-opts OPTIONS add parameters to the `bind` lines of QUIC
  -b BITS                  size of the RSA key: 2048, 3072 or 4096
  -c CURVE                 curve of the ECDSA key: P-256, P-384 or P-521
  -d                       trace HTTP and QUIC on standard error
  -dS -dZ                  disable splicing
  -C                       print the configuration and exit
  -D                       run in the background
  -v                       print the version

A LINE may consist of several: \\n in it starts a new line, \\t is a tab.
";

/// The name of the configuration in messages.
pub(crate) const NAME: &str = "haterm";

/// The options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct ServerOptions {
    listen: Vec<ListenAddress>,
    global: Vec<String>,
    frontend: Vec<String>,
    traces: Vec<String>,
    bits: String,
    curve: String,
    tcp: String,
    quic: String,
    daemon: bool,
    no_splice: bool,
    action: ServerAction,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ServerAction {
    #[default]
    Run,
    Print,
    Version,
    Help,
}

/// The value of `-L`.
#[derive(Debug, PartialEq, Eq)]
struct ListenAddress {
    host: String,
    port: String,
    tls: Option<String>,
}

impl ListenAddress {
    fn parse(text: &str) -> Option<Self> {
        let (host, ports) = match text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
            Some((host, ports)) if host.contains(':') => (format!("[{host}]"), ports),
            Some(_) => return None,
            None => text.split_once(':').map(|(host, ports)| (host.to_owned(), ports))?,
        };
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        let (port, tls) = ports.split_once(':').map_or((ports, None), |(port, tls)| (port, Some(tls)));
        let is_sound = is_port(port) && tls.is_none_or(is_port) && !host.contains(char::is_whitespace);
        is_sound.then(|| Self { host, port: port.into(), tls: tls.map(Into::into) })
    }
}

/// Reads the arguments if the program is called by the name `haterm`, or its first argument is. Returns `None` if it is neither.
///
/// # Errors
/// The exit code, if there is nothing to run.
pub(crate) fn args(is_named: bool, words: &[String]) -> Option<Result<CommandLineArgs, ExitCode>> {
    let words = match words {
        [first, rest @ ..] if first == NAME => rest,
        words if is_named => words,
        _ => return None,
    };
    let options = match ServerOptions::parse(words) {
        Ok(options) => options,
        Err(error) => {
            eprint!("weir haterm: {error}\n\n{USAGE}");
            return Some(Err(ExitCode::FAILURE));
        }
    };
    match options.action {
        ServerAction::Run => {
            return Some(Ok(CommandLineArgs {
                action: ProgramAction::Run,
                generated: Some((NAME, options.configuration(net::sys::kernel_has_tls()).into())),
                daemon: options.daemon,
                no_splice: options.no_splice,
                ..CommandLineArgs::default()
            }));
        }
        ServerAction::Print => messages::output(&options.configuration(net::sys::kernel_has_tls())),
        ServerAction::Version => messages::output(&version::short(false)),
        ServerAction::Help => messages::output(USAGE),
    }
    Some(Err(ExitCode::SUCCESS))
}

impl ServerOptions {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut own = Self { bits: "2048".into(), curve: "P-384".into(), ..Self::default() };
        let mut is_traced = false;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("'{word}' needs a value"));
            match word.as_str() {
                "-L" => {
                    let text = value()?;
                    let address = ListenAddress::parse(text);
                    own.listen.push(address.ok_or_else(|| {
                        format!("'{text}' is not an address: use [ADDRESS]:PORT or [ADDRESS]:PORT:TLSPORT")
                    })?);
                }
                "-G" => own.global.push(unescaped(value()?)),
                "-F" => own.frontend.push(unescaped(value()?)),
                "-T" => own.traces.push(unescaped(value()?)),
                "-b" => own.bits.clone_from(value()?),
                "-c" => own.curve.clone_from(value()?),
                "--tcp-bind-opts" => own.tcp = format!("{} {}", own.tcp, value()?),
                "--quic-bind-opts" => own.quic = format!("{} {}", own.quic, value()?),
                "-d" => is_traced = true,
                "-dS" | "-dZ" => own.no_splice = true,
                "-D" => own.daemon = true,
                "-C" => own.action = ServerAction::Print,
                "-v" | "--version" => return Ok(Self { action: ServerAction::Version, ..Self::default() }),
                "-h" | "--help" => return Ok(Self { action: ServerAction::Help, ..Self::default() }),
                _ => return Err(format!("unknown option '{word}'")),
            }
        }
        if is_traced {
            let line = |source| format!("trace {source} sink stderr level user start now verbosity minimal");
            own.traces.splice(..0, ["h1", "h2", "h3", "quic"].map(line));
        }
        match own.listen.is_empty() {
            true => Err("there is no address to listen on: use -L".to_owned()),
            false => Ok(own),
        }
    }

    /// Returns the configuration. The user's lines follow those of this program, so that they take precedence.
    fn configuration(&self, kernel_has_tls: bool) -> String {
        let ktls = if kernel_has_tls { " ktls on" } else { "" };
        let has_tls = self.listen.iter().any(|address| address.tls.is_some());
        let mut text = String::from("global\n");
        if has_tls && kernel_has_tls {
            text += "\texpose-experimental-directives\n";
        }
        add(&mut text, &self.global);
        if !self.traces.is_empty() {
            text += "\ntraces\n";
            add(&mut text, &self.traces);
        }
        text += "\ndefaults\n\tmode haterm\n\ttimeout client 25s\n";
        if has_tls {
            let _ = write!(
                text,
                "\ncrt-store\n\
                 \tload generate-dummy on keytype RSA bits {} crt haterm.pem.rsa\n\
                 \tload generate-dummy on keytype ECDSA curves {} crt haterm.pem.ecdsa\n",
                self.bits, self.curve
            );
        }
        text += "\nfrontend ___haterm_frontend___\n\toption accept-unsafe-violations-in-http-request\n";
        let certificates = "ssl crt haterm.pem.rsa crt haterm.pem.ecdsa";
        for ListenAddress { host, port, tls } in &self.listen {
            let Self { tcp, quic, .. } = self;
            let _ = writeln!(text, "\tbind {host}:{port} shards by-thread{tcp}");
            let Some(port) = tls else { continue };
            let family = if host.starts_with('[') { 6 } else { 4 };
            let _ = writeln!(
                text,
                "\tbind {host}:{port} shards by-thread {certificates} alpn h2,http/1.1{ktls}{tcp}\n\
                 \tbind quic{family}@{host}:{port} shards by-thread {certificates} alpn h3{quic}"
            );
        }
        add(&mut text, &self.frontend);
        text
    }
}

fn add(text: &mut String, lines: &[String]) {
    lines.iter().for_each(|line| _ = writeln!(text, "\t{line}"));
}

fn unescaped(line: &str) -> String {
    line.replace("\\n", "\n").replace("\\t", "\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<ServerOptions, String> {
        ServerOptions::parse(&line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn addresses_have_one_or_two_ports() {
        for (text, host, port, tls) in [
            (":80", "", "80", None),
            ("127.0.0.1:80:443", "127.0.0.1", "80", Some("443")),
            ("[::1]:80:443", "[::1]", "80", Some("443")),
            ("localhost:80", "localhost", "80", None),
            ("*:1:2", "*", "1", Some("2")),
        ] {
            let expected = ListenAddress { host: host.into(), port: port.into(), tls: tls.map(Into::into) };
            assert_eq!(ListenAddress::parse(text), Some(expected), "{text}");
        }
        for text in [
            "80",
            "",
            ":",
            "::1:80",
            ":80:",
            ":0",
            ":65536",
            "[::1]",
            "[::1]80",
            ":80:443:1",
            "a b:80",
            "[a]:80",
        ] {
            assert_eq!(ListenAddress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn options_become_a_configuration() {
        let line = [
            "-L",
            ":80:443",
            "-L",
            "[::1]:81",
            "-G",
            "maxconn 9\\n\\tnbthread 2",
            "-F",
            "log global",
            "-T",
            "trace h1 sink x",
            "-d",
            "-b",
            "4096",
            "-c",
            "P-256",
            "--tcp-bind-opts",
            "tfo",
            "--quic-bind-opts",
            "foo",
        ];
        let text = parse(&line).unwrap().configuration(true);
        for line in [
            "\tnbthread 2",
            "\tload generate-dummy on keytype RSA bits 4096 crt haterm.pem.rsa",
            "\tload generate-dummy on keytype ECDSA curves P-256 crt haterm.pem.ecdsa",
            "\tbind :80 shards by-thread tfo",
            "\tbind [::1]:81 shards by-thread tfo",
            "\tlog global",
            "\ttrace h1 sink x",
            "\ttrace quic sink stderr level user start now verbosity minimal",
        ] {
            assert!(text.lines().any(|own| own.trim_end() == line), "{line}\n{text}");
        }
        assert!(
            text.lines().any(|line| line.contains("quic4@:443") && line.ends_with("alpn h3 foo")),
            "{text}"
        );
        assert!(!parse(&["-L", ":80"]).unwrap().configuration(true).contains("crt-store"));
    }

    #[test]
    fn wrong_options_are_named() {
        for (line, wanted) in [
            (&["-L"][..], "'-L' needs a value"),
            (&["-L", "80"], "'80' is not an address"),
            (&["-L", ":80", "x"], "unknown option 'x'"),
            (&[], "use -L"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
