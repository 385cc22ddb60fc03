//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The text of `--help`.
pub(crate) const HELP: &str = include_str!("help.txt");

/// How the proxy is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProxyChoice {
    /// `--run`: the program to run.
    Run(PathBuf),
    /// `--socket`: the runtime socket of a process that was started otherwise.
    Socket(PathBuf),
}

/// The action to perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GatewayAction {
    Run(Box<GatewayArgs>),
    Help,
    Version,
}

/// The parsed options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayArgs {
    pub(crate) proxy: ProxyChoice,
    pub(crate) directory: PathBuf,
    pub(crate) server: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) controller: String,
    /// `None` with `--no-ingress`.
    pub(crate) ingress_controller: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) elects_leader: bool,
    pub(crate) addresses: Vec<String>,
    /// Namespace and name.
    pub(crate) service: Option<(String, String)>,
    pub(crate) address_pool: Vec<String>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) delay: Duration,
    pub(crate) drain: Duration,
    pub(crate) drain_delay: Duration,
}

const DEFAULT_HTTP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 9902);

/// Parses the words after the program's name.
///
/// # Errors
/// A message with the option at fault and the way out.
pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<GatewayAction, String> {
    let mut args = GatewayArgs {
        proxy: ProxyChoice::Socket(PathBuf::new()),
        directory: "/run/weir-gateway".into(),
        server: None,
        ca_file: None,
        insecure: false,
        token_file: None,
        controller: "weir.dev/gateway-controller".to_owned(),
        ingress_controller: Some("weir.dev/ingress-controller".to_owned()),
        namespace: None,
        elects_leader: true,
        addresses: Vec::new(),
        service: None,
        address_pool: Vec::new(),
        http: Some(DEFAULT_HTTP),
        delay: Duration::from_millis(10),
        drain: Duration::from_secs(25),
        drain_delay: Duration::from_secs(5),
    };
    let mut proxy = None;
    let mut words = words
        .map(|word| word.into_string().map_err(|word| format!("the argument {word:?} is not valid UTF-8")));
    while let Some(word) = words.next().transpose()? {
        let mut value = || match words.next() {
            Some(value) => value,
            None => Err(format!("option '{word}' needs a value; `weir-gateway --help` lists the options")),
        };
        match word.as_str() {
            "-h" | "--help" => return Ok(GatewayAction::Help),
            "-v" | "--version" => return Ok(GatewayAction::Version),
            "--run" => set_once(&mut proxy, ProxyChoice::Run(value()?.into()))?,
            "--socket" => set_once(&mut proxy, ProxyChoice::Socket(value()?.into()))?,
            "--directory" => args.directory = value()?.into(),
            "--server" => args.server = Some(value()?),
            "--ca-file" => args.ca_file = Some(value()?.into()),
            "--insecure" => args.insecure = true,
            "--token-file" => args.token_file = Some(value()?.into()),
            "--controller" => args.controller = controller(value()?)?,
            "--ingress-controller" => args.ingress_controller = Some(controller(value()?)?),
            "--no-ingress" => args.ingress_controller = None,
            "--namespace" => args.namespace = Some(value()?),
            "--no-leader-election" => args.elects_leader = false,
            "--address" => args.addresses.push(value()?),
            "--service" => args.service = Some(service(&value()?)?),
            "--address-pool" => args.address_pool = pool(&value()?)?,
            "--http" => args.http = http(&value()?)?,
            "--delay" => args.delay = Duration::from_millis(number(&word, &value()?)?),
            "--drain" => args.drain = Duration::from_secs(number(&word, &value()?)?),
            "--drain-delay" => args.drain_delay = Duration::from_secs(number(&word, &value()?)?),
            _ => return Err(format!("unknown option '{word}'; `weir-gateway --help` lists the options")),
        }
    }
    args.proxy = proxy.ok_or(
        "no proxy is given: use `--run /usr/sbin/weir` to start one, or `--socket SOCKET` for a running one",
    )?;
    Ok(GatewayAction::Run(Box::new(args)))
}

fn set_once(proxy: &mut Option<ProxyChoice>, choice: ProxyChoice) -> Result<(), String> {
    match proxy.replace(choice) {
        None => Ok(()),
        Some(_) => Err("only one of --run and --socket can be used, once".to_owned()),
    }
}

/// The longest value of an option in seconds or milliseconds.
const LONGEST: u64 = 3_600_000;

fn number(option: &str, text: &str) -> Result<u64, String> {
    let parsed = text.parse().ok().filter(|number| *number <= LONGEST);
    parsed.ok_or_else(|| format!("option '{option}' needs a number up to {LONGEST}, not '{text}'"))
}

fn controller(name: String) -> Result<String, String> {
    // A domain, a slash, a path (GatewayController of the Gateway API).
    let is_valid = name.split_once('/').is_some_and(|(domain, path)| !domain.is_empty() && !path.is_empty());
    match is_valid {
        true => Ok(name),
        false => Err(format!(
            "'{name}' is not a controller's name: use a domain and a path, such as weir.dev/gateway-controller"
        )),
    }
}

fn service(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("option '--service' needs NAMESPACE/NAME, not '{text}'")),
    }
}

fn pool(text: &str) -> Result<Vec<String>, String> {
    let all: Vec<String> = text.split(',').map(|one| one.trim().to_owned()).collect();
    match all.iter().find(|one| one.parse::<std::net::IpAddr>().is_err()) {
        None => Ok(all),
        Some(wrong) => Err(format!("option '--address-pool' needs addresses, but '{wrong}' is not one")),
    }
}

fn http(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "none" {
        return Ok(None);
    }
    let parsed = text.parse().map_err(|_| {
        format!("option '--http' needs an address with a port, such as 0.0.0.0:9902, or `none`, not '{text}'")
    });
    parsed.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<GatewayAction, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn options_have_their_documented_defaults() {
        let Ok(GatewayAction::Run(args)) = read(&["--run", "/usr/sbin/weir"]) else {
            panic!("the arguments are right")
        };
        assert_eq!(args.proxy, ProxyChoice::Run("/usr/sbin/weir".into()));
        for default in [
            args.directory.display().to_string(),
            args.controller.clone(),
            args.ingress_controller.clone().unwrap_or_default(),
            args.http.map(|http| http.to_string()).unwrap_or_default(),
            args.delay.as_millis().to_string(),
            args.drain.as_secs().to_string(),
            args.drain_delay.as_secs().to_string(),
        ] {
            assert!(HELP.contains(&format!("default {default}")), "{default}");
        }
    }

    #[test]
    fn invalid_options_are_reported_with_the_way_out() {
        for (words, cause) in [
            (&["--socket"][..], "needs a value"),
            (&[][..], "no proxy is given"),
            (&["--run", "a", "--socket", "b"][..], "only one of"),
            (&["--run", "a", "--delay", "x"][..], "needs a number"),
            (&["--run", "a", "--service", "x"][..], "NAMESPACE/NAME"),
            (&["--run", "a", "--address-pool", "1.2.3.4,x"][..], "'x' is not one"),
            (&["--run", "a", "--http", "x"][..], "0.0.0.0:9902"),
            (&["--run", "a", "--controller", "x"][..], "a domain and a path"),
            (&["--frobnicate"][..], "unknown option"),
        ] {
            let error = read(words).expect_err("it is invalid");
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn help_describes_every_option() {
        let source = include_str!("args.rs");
        let options = source.lines().filter_map(|line| line.trim().strip_prefix("\"--"));
        let options = options.filter_map(|rest| rest.split_once("\" =>")).map(|(name, _)| name);
        let options: Vec<&str> = options.collect();
        assert!(options.len() > 15);
        for option in options {
            assert!(HELP.contains(&format!("--{option}")), "{option}");
        }
    }
}
