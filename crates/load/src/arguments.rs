//! The command line.

use std::time::Duration;

use base::units::{DefaultUnit, parse_duration, parse_size};

use crate::options::{HttpVersion, Layout, Options, Statuses, TlsLists, UrlOptions};
use crate::url::{Url, UrlScheme};

/// The text of `--help`.
pub const HELP: &str = include_str!("help.txt");

/// The action to perform.
#[derive(Debug)]
pub enum Command {
    /// Generate load.
    Run(Box<Options>),
    /// `-C`: print the settings as a configuration.
    Dump(Box<Options>),
    /// `-v`.
    Version,
    /// `-h`, `--help`.
    Help,
}

/// The maximum of `-m`.
const STREAMS_MAX: u64 = 10_000;

/// The maximum of `-t`.
const THREADS_MAX: u64 = 1024;

/// The maximum of `-u`.
const USERS_MAX: u64 = 1_000_000;

/// The maximum of `--body`: the longest QUIC stream, in round numbers.
const BODY_MAX: u64 = 1 << 60;

/// Options that apply to the URLs after them.
#[derive(Default)]
struct Positional {
    version: VersionChoice,
    tls: TlsLists,
}

/// `-0`, `-1`, `-2`, `-2c`, `-3`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum VersionChoice {
    #[default]
    None,
    Hq,
    H1,
    H2,
    H2Clear,
    H3,
}

/// Parses the arguments after the command's name.
///
/// # Errors
/// The option that is wrong, why, and what would be valid.
pub fn parse(words: &[String]) -> Result<Command, String> {
    let mut options = Options::default();
    let mut positional = Positional::default();
    let mut words = words.iter().map(String::as_str);
    let mut dumps = false;
    let mut method = None;
    while let Some(word) = words.next() {
        match word {
            "-h" | "--help" => return Ok(Command::Help),
            "-v" | "--version" => return Ok(Command::Version),
            "-C" => dumps = true,
            "-A" => options.skips_first = true,
            "-F" => options.late_ack = true,
            "-I" => method = Some("HEAD"),
            "-e" => options.stops_on_error = true,
            "-l" if options.layout == Layout::Short => options.layout = Layout::Long,
            "-l" | "-ll" => options.layout = Layout::Raw,
            "-hs" => options.statuses = Statuses::All,
            "-hsv" => options.statuses = Statuses::PerVersion,
            "-0" | "-h0" => positional.version = VersionChoice::Hq,
            "-1" | "-h1" => positional.version = VersionChoice::H1,
            "-2" | "-h2" => positional.version = VersionChoice::H2,
            "-2c" | "-h2c" => positional.version = VersionChoice::H2Clear,
            "-3" | "-h3" => positional.version = VersionChoice::H3,
            "--json" => options.json = true,
            "--traces" => options.traces = true,
            "--hold" => {
                let time = next(word, &mut words)?;
                let is_number = time.bytes().all(|byte| byte.is_ascii_digit());
                // With a unit, times may be shorter than a second.
                let unit = if is_number { DefaultUnit::Seconds } else { DefaultUnit::Milliseconds };
                options.hold = parse_duration(time, unit)
                    .map_err(|error| format!("--hold: {error} in '{time}': use a time such as 30 or 2m"))?;
            }
            "--method" => {
                let name = next(word, &mut words)?;
                if !http::is_token(name.as_bytes()) || name == "CONNECT" {
                    return Err(format!(
                        "--method: '{name}' is not the name of a method with a response body"
                    ));
                }
                method = Some(name);
            }
            "--body" => {
                let size = next(word, &mut words)?;
                let wrong = |error: String| {
                    format!("--body: {error} in '{size}': use a size such as 1024, 64k or 1m")
                };
                options.body = parse_size(size).map_err(|error| wrong(error.to_string()))?;
                if options.body > BODY_MAX {
                    return Err(wrong("value too large".into()));
                }
            }
            "--server" => options.words.read_server(next(word, &mut words)?)?,
            "--defaults" => options.words.read_defaults(next(word, &mut words)?)?,
            "--global" => options.words.read_global(next(word, &mut words)?)?,
            "--tls-ciphers" => {
                positional.tls.suites12 = list(word, next(word, &mut words)?, tls::ciphers::ciphers)?;
            }
            "--tls-ciphersuites" => {
                positional.tls.suites13 = list(word, next(word, &mut words)?, tls::ciphers::ciphersuites)?;
            }
            "--tls-curves" => {
                positional.tls.groups = list(word, next(word, &mut words)?, tls::ciphers::curves)?;
            }
            url if !url.starts_with('-') => options.urls.push(place(url, &positional)?),
            _ => with_value(word, &mut words, &mut options)?,
        }
    }
    options.method = method.unwrap_or(if options.body > 0 { "POST" } else { "GET" }).into();
    finish(options, dumps)
}

/// Checks the options against each other.
fn finish(mut options: Options, dumps: bool) -> Result<Command, String> {
    if options.urls.is_empty() {
        return Err("no URL was given: name at least one, such as http://127.0.0.1:8080/".into());
    }
    if options.body > 0 && options.urls.iter().any(|url| url.version == HttpVersion::Hq) {
        return Err("--body: HTTP/0.9 (-0) has no request bodies".into());
    }
    if options.json && (options.layout != Layout::Short || options.statuses != Statuses::None) {
        return Err("--json prints all figures: it cannot be combined with -l, -hs or -hsv".into());
    }
    if options.threads > options.users {
        return Err(format!(
            "-t {}: each thread needs a user, and there are only {} (-u)",
            options.threads, options.users
        ));
    }
    let words = &options.words;
    let connections = words.max_reuse.map(|max| max.saturating_add(1));
    options.per_connection = options.per_connection.or(connections);
    options.threads = words.threads.filter(|_| options.threads == 1).unwrap_or(options.threads);
    options.threads = options.threads.min(options.users);
    options.io_timeout = words.server_timeout.unwrap_or(options.io_timeout);
    options.late_ack |= words.smart_connect;
    Ok(if dumps { Command::Dump(options.into()) } else { Command::Run(options.into()) })
}

fn next<'a>(option: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<&'a str, String> {
    words.next().ok_or_else(|| format!("{option} needs a value"))
}

/// Parses a list of TLS names.
fn list(
    option: &str,
    text: &str,
    parse: fn(&str) -> Result<Vec<u16>, tls::ciphers::Unsupported>,
) -> Result<Vec<u16>, String> {
    parse(text).map_err(|tls::ciphers::Unsupported(name)| format!("{option}: '{name}' is not supported"))
}

/// Chooses the protocol of a URL.
fn place(text: &str, positional: &Positional) -> Result<UrlOptions, String> {
    use VersionChoice as Choice;
    let url = Url::parse(text)?;
    let version = match (url.scheme, positional.version) {
        (UrlScheme::Http, Choice::H2Clear) | (UrlScheme::Https, Choice::H2) => HttpVersion::H2,
        (UrlScheme::Http | UrlScheme::Https, Choice::H3) => HttpVersion::H3,
        // An option for another scheme does not apply.
        (UrlScheme::Http | UrlScheme::Https, _) => HttpVersion::H1,
        (UrlScheme::Quic, Choice::Hq) => HttpVersion::Hq,
        (UrlScheme::Quic, _) => HttpVersion::H3,
    };
    Ok(UrlOptions { url, version, tls: positional.tls.clone() })
}

/// Options with a value, which may be attached (`-m3`).
fn with_value<'a>(
    word: &'a str,
    words: &mut impl Iterator<Item = &'a str>,
    options: &mut Options,
) -> Result<(), String> {
    let unknown = || format!("unknown option '{word}': weir load --help lists the options");
    let (Some(option), true) = (word.get(..2), !word.starts_with("--")) else { return Err(unknown()) };
    if !matches!(option, "-d" | "-m" | "-n" | "-r" | "-s" | "-t" | "-u" | "-w" | "-H" | "-R") {
        return Err(unknown());
    }
    let value = match &word[2..] {
        "" => next(option, words)?,
        attached => attached,
    };
    let number = |min: u64, max: u64| -> Result<u64, String> {
        let parsed: Option<u64> = value.parse().ok();
        parsed.filter(|number| (min..=max).contains(number)).ok_or_else(|| match max {
            u64::MAX => format!("{option} needs a number from {min}, not '{value}'"),
            _ => format!("{option} needs a number from {min} to {max}, not '{value}'"),
        })
    };
    // -1 means no limit, as in the defaults of the usage.
    let limit = || if value == "-1" { Ok(None) } else { number(1, u64::MAX).map(Some) };
    let time = |unit| -> Result<Duration, String> {
        parse_duration(value, unit).map_err(|error| format!("{option}: {error} in '{value}'"))
    };
    match option {
        "-d" => options.duration = Some(time(DefaultUnit::Seconds)?).filter(|time| !time.is_zero()),
        "-s" => options.soft_start = time(DefaultUnit::Seconds)?,
        "-w" => {
            options.io_timeout = time(DefaultUnit::Milliseconds)?;
            if options.io_timeout.is_zero() {
                return Err("-w needs a time above 0".into());
            }
        }
        "-m" => options.streams = number(1, STREAMS_MAX)? as u32,
        "-n" => options.requests = limit()?,
        "-r" => options.per_connection = limit()?,
        "-t" => options.threads = number(1, THREADS_MAX)? as usize,
        "-u" => options.users = number(1, USERS_MAX)? as usize,
        "-R" => options.rate = Some(number(0, u32::MAX.into())? as f64).filter(|rate| *rate > 0.0),
        _ => options.headers.push(header(value)?),
    }
    Ok(())
}

/// Fields that the generator sets itself.
const OWN_FIELDS: [&str; 3] = ["content-length", "transfer-encoding", "connection"];

/// Parses `name: value`.
fn header(text: &str) -> Result<(Box<str>, Box<str>), String> {
    let (name, value) =
        text.split_once(':').ok_or_else(|| format!("-H needs 'name: value', not '{text}'"))?;
    let value = value.trim_matches([' ', '\t']);
    if !http::is_token(name.as_bytes()) || value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
        return Err(format!("-H '{text}': not a valid header field"));
    }
    if OWN_FIELDS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return Err(format!("-H '{text}': this field follows from -r, --method and --body"));
    }
    Ok((name.into(), value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn options(line: &str) -> Options {
        match read(line) {
            Ok(Command::Run(options)) => *options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_may_stand_anywhere_and_have_attached_values() {
        let read = options("http://h/ -d 30 -n10 -m3 -r 2 -u20 -t 4 -w 500 -s 2 -R 100 -I -e -l -hsv");
        assert_eq!((read.duration, read.requests), (Some(Duration::from_secs(30)), Some(10)));
        assert_eq!((read.streams, read.per_connection, read.users, read.threads), (3, Some(2), 20, 4));
        assert_eq!(
            (read.io_timeout.as_millis(), read.soft_start.as_secs(), read.rate),
            (500, 2, Some(100.0))
        );
        assert!(&*read.method == "HEAD" && read.stops_on_error);
        assert_eq!((read.layout, read.statuses), (Layout::Long, Statuses::PerVersion));
        assert_eq!(options("-l -l http://h/").layout, Layout::Raw);
        assert_eq!(options("-ll http://h/ -hs").layout, Layout::Raw);
        let read = options("-d 0 -n -1 -r -1 -R 0 http://h/");
        assert!(read.duration.is_none() && read.requests.is_none() && read.rate.is_none());
        assert_eq!(options("-d 2m -w 1s http://h/").duration, Some(Duration::from_secs(120)));
        assert_eq!(options("--hold 3 http://h/").hold, Duration::from_secs(3));
        assert_eq!(options("--hold 200ms http://h/").hold, Duration::from_millis(200));
    }

    #[test]
    fn versions_and_tls_lists_apply_to_the_urls_after_them() {
        let read = options(
            "http://a/ -2c http://b/ -2 https://c/ http://d/ --tls-curves P-256 https://e/ quic://f/ -0 quic://g/ -3 http://i/ https://j/",
        );
        let found: Vec<_> = read.urls.iter().map(|one| (&*one.url.host, one.version)).collect();
        use HttpVersion::*;
        let over_quic = [("f", H3), ("g", Hq)];
        assert_eq!(found[..5], [("a", H1), ("b", H2), ("c", H2), ("d", H1), ("e", H2)]);
        assert_eq!((&found[5..7], &found[7..]), (&over_quic[..], &[("i", H3), ("j", H3)][..]));
        assert!(read.urls[2].tls.groups.is_empty() && read.urls[4].tls.groups == [0x17]);
    }

    #[test]
    fn bodies_choose_the_method_unless_it_is_named() {
        assert_eq!(&*options("http://h/").method, "GET");
        let read = options("--body 64k http://h/");
        assert_eq!((&*read.method, read.body), ("POST", 65_536));
        assert_eq!(&*options("--body 1 --method PUT http://h/").method, "PUT");
    }

    #[test]
    fn headers_are_split_and_checked() {
        let words = ["-H", "a:b", "-H", "Host:  x:1 ", "http://h/"].map(str::to_owned);
        let Ok(Command::Run(read)) = parse(&words) else { panic!() };
        let fields: Vec<(&str, &str)> =
            read.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(fields, [("a", "b"), ("Host", "x:1")]);
        for wrong in ["a", "a b:c", ":c", "a:b\nc", "Content-Length: 3"] {
            assert!(header(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_name_the_option_and_a_valid_value() {
        for (line, error) in [
            ("", "no URL was given: name at least one, such as http://127.0.0.1:8080/"),
            ("-d", "-d needs a value"),
            ("-d x http://h/", "-d: unexpected character 'x' in 'x'"),
            ("-m 0 http://h/", "-m needs a number from 1 to 10000, not '0'"),
            ("-n 0 http://h/", "-n needs a number from 1, not '0'"),
            ("-w 0 http://h/", "-w needs a time above 0"),
            ("-x http://h/", "unknown option '-x': weir load --help lists the options"),
            ("--nonsense http://h/", "unknown option '--nonsense': weir load --help lists the options"),
            ("-t 2 http://h/", "-t 2: each thread needs a user, and there are only 1 (-u)"),
            (
                "--body x http://h/",
                "--body: unexpected character 'x' in 'x': use a size such as 1024, 64k or 1m",
            ),
            (
                "--body 9223372036854775807 http://h/",
                "--body: value too large in '9223372036854775807': use a size such as 1024, 64k or 1m",
            ),
            ("--tls-curves nope https://h/", "--tls-curves: 'nope' is not supported"),
            ("--hold x http://h/", "--hold: unexpected character 'x' in 'x': use a time such as 30 or 2m"),
            ("--json -l http://h/", "--json prints all figures: it cannot be combined with -l, -hs or -hsv"),
            (
                "--method CONNECT http://h/",
                "--method: 'CONNECT' is not the name of a method with a response body",
            ),
        ] {
            assert_eq!(read(line).map(drop).unwrap_err(), error, "{line}");
        }
    }

    #[test]
    fn other_actions_are_recognized() {
        assert!(matches!(read("-v"), Ok(Command::Version)));
        assert!(matches!(read("--help -x"), Ok(Command::Help)));
        assert!(matches!(read("-C http://h/ -m3"), Ok(Command::Dump(options)) if options.streams == 3));
    }
}
