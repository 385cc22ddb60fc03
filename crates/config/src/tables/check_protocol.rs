//! `option redis-check` and its kin (manual, section 4.2): health checks that speak a little of a protocol. Each is a
//! script of what is sent and what must come back, as `tcp-check` lines would make it.

use diag::Diagnostic;
use regex::bytes::{Regex, RegexBuilder};

use crate::args::Args;
use crate::keyword::places::DLB;
use crate::keyword::{Keyword, Negation, Outcome, proxy};
use crate::plan::server::{CheckStep, ExpectBytes};
use crate::settings::{CheckMode, Settings};

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //    name                   where  arguments                                what it does                                       setting
    proxy("option redis-check",   DLB, "",                                      "checks servers by a PING of Redis",               redis).negatable(),
    proxy("option smtpchk",       DLB, "[ <hello> <domain> ]",                  "checks servers by a greeting of SMTP",            smtp).negatable(),
    proxy("option ldap-check",    DLB, "",                                      "checks servers by an anonymous bind of LDAPv3",   ldap).negatable(),
    proxy("option pgsql-check",   DLB, "user <username>",                       "checks servers by the startup of PostgreSQL",     pgsql).negatable(),
    proxy("option mysql-check",   DLB, "[ user <username> [ { post-41 | pre-41 | post-80 } ] ]", "checks servers by the handshake of MySQL", mysql).negatable(),
    proxy("option ssl-hello-chk", DLB, "",                                      "checks servers by a TLS hello",                   ssl_hello).negatable(),
];

/// Makes the script the backend's check, or the plain check again when negated.
fn set<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>, steps: Vec<CheckStep>) -> Outcome {
    args.finish()?;
    let check = settings.own_check();
    if args.statement.negation == Negation::None {
        (check.mode, check.steps) = (CheckMode::Script, steps);
    } else {
        (check.mode, check.steps) = (CheckMode::Tcp, Vec::new());
    }
    Ok(())
}

fn send(bytes: &[u8]) -> CheckStep {
    CheckStep::Send(bytes.into())
}

fn expect(min_recv: usize, pattern: &str) -> Result<CheckStep, Diagnostic> {
    let what = ExpectBytes::Regex(pattern_of(pattern)?);
    Ok(CheckStep::Expect { negate: false, min_recv: Some(min_recv), what })
}

/// The patterns are those of this file: an error is a mistake in it, which tests find.
fn pattern_of(pattern: &str) -> Result<Regex, Diagnostic> {
    let regex = RegexBuilder::new(pattern).unicode(false).dot_matches_new_line(true).build();
    regex.map_err(|error| Diagnostic::alert(format!("a pattern of a check is wrong: {error}")))
}

/// What a passed check says: a text, or what the groups of `pattern` find (code, then information).
fn report(text: &str, pattern: &str) -> Result<CheckStep, Diagnostic> {
    Ok(CheckStep::Report { pattern: pattern_of(pattern)?, text: text.into() })
}

fn redis<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let pong = ExpectBytes::Bytes(b"+PONG\r\n".as_slice().into());
    let expect = CheckStep::Expect { negate: false, min_recv: None, what: pong };
    set(settings, args, vec![send(b"*1\r\n$4\r\nPING\r\n"), expect, report("Redis server is ok", "")?])
}

/// A whole answer that begins with 2: lines with a dash behind the code are followed by more.
const SMTP_OK: &str = "^(?:2[0-9]{2}-[^\n]*\n)*2[0-9]{2}[ \r][^\n]*\n?";

fn smtp<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let hello = match (args.next(), args.next()) {
        (Some(hello), Some(domain)) if *hello == "EHLO" || *hello == "HELO" => {
            format!("{hello} {domain}\r\n")
        }
        // Whatever else stands there, HAProxy says the same.
        _ => "HELO localhost\r\n".to_owned(),
    };
    let steps = vec![
        expect(4, SMTP_OK)?,
        send(hello.as_bytes()),
        expect(4, SMTP_OK)?,
        send(b"QUIT\r\n"),
        expect(4, SMTP_OK)?,
        report("", "^([0-9]{3})[- ]?([^\r\n]*)")?,
    ];
    set(settings, args, steps)
}

fn ldap<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    // RFC 4511: message 1, bind request, version 3, no name, simple authentication without a password.
    let bind = b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00";
    // A bind response (application 1) whose result is success (0).
    let steps =
        vec![send(bind), expect(14, r"^\x30.*\x02\x01\x01\x61.*\x0a\x01\x00")?, report("Success", "")?];
    set(settings, args, steps)
}

fn user<'a>(args: &mut Args<'a, '_>) -> Result<Option<&'a str>, Diagnostic> {
    let keyword = args.keyword();
    match args.next() {
        None => Ok(None),
        Some(word) if *word == "user" => Ok(Some(args.required("a name of a user")?)),
        Some(word) => Err(args
            .wrong(format!("`{keyword}` does not know `{word}`"))
            .did_you_mean(diag::suggest(word, ["user"]))
            .haproxy(format!("'{keyword}' only supports optional values: 'user'."))),
    }
}

fn pgsql<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let negated = args.statement.negation != Negation::None;
    let name = match user(args)? {
        Some(name) => name,
        None if negated => "",
        None => {
            args.required("'user <username>'")?;
            ""
        }
    };
    let mut startup = b"\0\0\0\0\0\x03\0\0user\0".to_vec();
    startup.extend_from_slice(name.as_bytes());
    startup.extend_from_slice(b"\0\0");
    let length = startup.len() as u32;
    startup[..4].copy_from_slice(&length.to_be_bytes());
    // An authentication request of any kind says that the server is alive and knows the user.
    let steps = vec![
        send(&startup),
        expect(9, r"^R\x00\x00\x00.\x00\x00\x00[\x00\x02-\x06\x0a]")?,
        report("PostgreSQL server is ok", "")?,
    ];
    set(settings, args, steps)
}

fn mysql<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = user(args)?;
    let kind = match args.next() {
        None => Login::Post41,
        Some(word) => args.choice(
            word,
            &[("post-41", Login::Post41), ("pre-41", Login::Pre41), ("post-80", Login::Post80)],
        )?,
    };
    // The greeting: three bytes of length, number 0, then anything but an error (0xff).
    let mut steps = vec![expect(5, r"^...\x00[^\xff]")?, report("", r"^...\x00.()([^\x00]*)")?];
    if let Some(name) = name {
        steps.push(send(&login(name, kind)));
        steps.push(expect(5, r"^...\x02[^\xff]")?);
        // COM_QUIT, so that the server counts no aborted connection.
        steps.push(send(b"\x01\0\0\0\x01"));
    }
    set(settings, args, steps)
}

/// How a client of MySQL logs in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Login {
    Pre41,
    Post41,
    /// With the name of the plugin that checks the password.
    Post80,
}

/// The login of a user without a password.
fn login(name: &str, kind: Login) -> Vec<u8> {
    let mut body = Vec::new();
    if kind == Login::Pre41 {
        body.extend_from_slice(b"\x00\x80\x00\x00\x01");
    } else {
        // CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION and maybe CLIENT_PLUGIN_AUTH, 16 MB packets, utf8, 23 bytes of
        // nothing.
        body.extend_from_slice(&[0, 0x82, if kind == Login::Post80 { 8 } else { 0 }, 0]);
        body.extend_from_slice(b"\x00\x00\x00\x01\x21");
        body.extend_from_slice(&[0; 23]);
    }
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(b"\0\0");
    if kind == Login::Post80 {
        body.extend_from_slice(b"mysql_native_password\0");
    }
    let mut packet = (body.len() as u32).to_le_bytes()[..3].to_vec();
    packet.push(1);
    packet.extend_from_slice(&body);
    packet
}

fn ssl_hello<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    // A hello of TLS 1.2 (RFC 5246 section 7.4.1.2) with a fixed random, common suites, no compression.
    const SUITES: &[u8] =
        b"\xc0\x2f\xc0\x30\xc0\x2b\xc0\x2c\xc0\x13\xc0\x14\x00\x9c\x00\x9d\x00\x2f\x00\x35\x00\x0a";
    let mut hello = b"\x03\x03".to_vec();
    hello.extend_from_slice(b"weir looks whether you live here");
    hello.extend_from_slice(&[0, 0, SUITES.len() as u8]);
    hello.extend_from_slice(SUITES);
    hello.extend_from_slice(&[1, 0]);
    let mut record = vec![0x16, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    record.extend_from_slice(&hello);
    // A handshake or an alert: either way somebody speaks TLS.
    set(settings, args, vec![send(&record), expect(1, r"^[\x15\x16]")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_of_mysql_tells_its_own_length() {
        let packet = login("check", Login::Post41);
        assert_eq!(packet.len(), 4 + usize::from(packet[0]));
        assert_eq!(packet[3], 1);
        assert!(packet.ends_with(b"check\0\0"));
    }
}
