//! `option redis-check` and related options (manual, section 4.2): health checks that speak the beginning of a protocol. Each is a
//! script of data to send and expected responses, equivalent to `tcp-check` lines.

use diag::Diagnostic;
use plan::check::{Protocol, Spelling};
use sample::regex::Regex;

use crate::draft::args::Args;
use crate::draft::check::{ActionDraft, ConnectDraft, ExpectDraft, MatcherDraft, RuleDraft};
use crate::draft::keyword::{Keyword, proxy};
use crate::draft::row::Outcome;
use crate::draft::row::places::DLB;
use crate::draft::settings::ProxySettings;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    // name where arguments description setting
    proxy("option redis-check",   DLB, "",                                      "checks servers with a Redis PING",                redis),
    proxy("option smtpchk",       DLB, "[ <hello> <domain> ]",                  "checks servers with an SMTP greeting",            smtp),
    proxy("option ldap-check",    DLB, "",                                      "checks servers with an anonymous LDAPv3 bind",    ldap),
    proxy("option pgsql-check",   DLB, "user <username>",                       "checks servers with a PostgreSQL startup message", pgsql),
    proxy("option mysql-check",   DLB, "[ user <username> [ { post-41 | pre-41 | post-80 } ] ]", "checks servers with a MySQL handshake", mysql),
    proxy("option ssl-hello-chk", DLB, "",                                      "checks servers with a TLS ClientHello",           ssl_hello),
    proxy("option grpc-chk",      DLB, "[ service <name> ]",                    "checks servers with the gRPC health checking protocol; Weir extension", grpc),
    proxy("option spop-check",    DLB, "",                                      "checks servers with an SPOP hello",               spop),
];

/// Makes the script the backend's check.
fn set<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>, steps: Vec<RuleDraft<'a>>) -> Outcome {
    args.finish()?;
    settings.own_check().set_protocol(steps);
    Ok(())
}

/// Connects with the server line's options and closes normally, so that the server does not count an aborted client.
fn connect<'a>() -> RuleDraft<'a> {
    ActionDraft::Connect(ConnectDraft { default: true, linger: true, ..ConnectDraft::default() }).into()
}

fn send<'a>(bytes: impl AsRef<[u8]>) -> RuleDraft<'a> {
    ActionDraft::Send(bytes.as_ref().into()).into()
}

fn expect(draft: ExpectDraft<'_>) -> RuleDraft<'_> {
    ActionDraft::Expect(Box::new(draft)).into()
}

/// Expects `pattern` to match once `least` bytes have arrived. The patterns are constants of this file: an error is a bug that
/// tests find.
fn pattern<'a>(least: usize, pattern: &str) -> Result<ExpectDraft<'a>, Diagnostic> {
    let regex = Regex::new(pattern, false)
        .map_err(|error| Diagnostic::alert(format!("invalid pattern of a check: {error}")))?;
    Ok(ExpectDraft { min_recv: Some(least), ..ExpectDraft::new(MatcherDraft::Regex(regex)) })
}

/// The first line of the received data, for messages.
const LINE: &str = "%[res.payload(0,0),cut_crlf]";

pub(super) fn redis<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let pong = ExpectDraft {
        error_status: Some("L7STS"),
        on_error: Some(LINE.into()),
        on_success: Some("Redis server is ok".into()),
        ..ExpectDraft::new(MatcherDraft::Bytes(b"+PONG\r\n".as_slice().into(), Spelling::Text))
    };
    let connect = ActionDraft::Connect(ConnectDraft { default: true, ..ConnectDraft::default() }).into();
    set(settings, args, vec![connect, send(b"*1\r\n$4\r\nPING\r\n"), expect(pong)])
}

/// Expects an SMTP reply (RFC 5321, 4.2); its code and text are reported in either case.
fn reply<'a>(least: Option<usize>, text: &str) -> Result<RuleDraft<'a>, Diagnostic> {
    const TEXT: &str = "%[res.payload(4,0),ltrim(' '),cut_crlf]";
    Ok(expect(ExpectDraft {
        min_recv: least,
        error_status: Some("L7STS"),
        on_error: Some(TEXT.into()),
        on_success: Some(TEXT.into()),
        code: Some("res.payload(0,3)".into()),
        ..pattern(0, text)?
    }))
}

pub(super) fn smtp<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let hello = match (args.next(), args.next()) {
        (Some(hello), Some(domain)) if *hello == "EHLO" || *hello == "HELO" => {
            [&hello.bytes()[..], b" ", &domain.bytes(), b"\r\n"].concat()
        }
        // Anything else results in HAProxy's default greeting.
        _ => b"HELO localhost\r\n".to_vec(),
    };
    let greeting = ExpectDraft {
        error_status: Some("L7RSP"),
        on_error: Some(LINE.into()),
        ..pattern(4, "^[0-9]{3}[ \r]")?
    };
    let steps = vec![
        connect(),
        expect(greeting),
        reply(Some(4), "^2[0-9]{2}[ \r]")?,
        send(hello),
        // Lines with a dash after the code are continued; any other line is the last.
        hello_reply()?,
        send("QUIT\r\n"),
        reply(Some(4), "^2[0-9]{2}[- \r]")?,
    ];
    set(settings, args, steps)
}

/// Expects any positive reply to the hello. Without `min-recv`, so that the check waits for the rest of a truncated line. A refusal
/// is recognized first, because nothing follows it.
fn hello_reply<'a>() -> Result<RuleDraft<'a>, Diagnostic> {
    reply(None, "^(?:2[0-9]{2}-[^\r]*\r\n)*2[0-9]{2}[ \r]")
}

pub(super) fn ldap<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    // RFC 4511: message 1, bind request, version 3, empty name, simple authentication without a password.
    let bind = b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00";
    let message = ExpectDraft { on_error: Some("Not LDAPv3 protocol".into()), ..pattern(14, r"^\x30")? };
    let steps = vec![
        ActionDraft::Connect(ConnectDraft { default: true, linger: true, ..ConnectDraft::default() }).into(),
        send(bind),
        expect(message),
        expect(ExpectDraft::new(MatcherDraft::LdapBind)),
    ];
    set(settings, args, steps)
}

/// The exact bytes of the user name.
fn user(args: &mut Args<'_, '_>) -> Result<Option<Vec<u8>>, Diagnostic> {
    let keyword = args.keyword();
    match args.next() {
        None => Ok(None),
        Some(word) if *word == "user" => Ok(Some(args.required("a user name")?.bytes().into_owned())),
        Some(word) => Err(args
            .wrong(format!("unknown argument `{word}` for `{keyword}`"))
            .did_you_mean(diag::suggest(word, ["user"]))
            .haproxy(format!("'{keyword}' only supports optional values: 'user'."))),
    }
}

pub(super) fn pgsql<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = match user(args)? {
        Some(name) => name,
        None => {
            args.required("'user <username>'")?;
            Vec::new()
        }
    };
    // A startup message of version 3: its length, the version, the user.
    let mut startup = b"\0\0\0\0\0\x03\0\0user\0".to_vec();
    startup.extend_from_slice(&name);
    startup.extend_from_slice(b"\0\0");
    let length = startup.len() as u32;
    startup[..4].copy_from_slice(&length.to_be_bytes());
    let no_error = ExpectDraft {
        negate: true,
        error_status: Some("L7RSP"),
        on_error: Some("%[res.payload(6,0)]".into()),
        ..pattern(5, "^E")?
    };
    // Any request for authentication shows that the server is running and knows the user.
    let authentication = ExpectDraft {
        error_status: Some("L7STS"),
        on_success: Some("PostgreSQL server is ok".into()),
        on_error: Some("PostgreSQL unknown error".into()),
        ..pattern(9, r"^R\x00\x00\x00[\s\S]\x00\x00\x00[\x00\x02-\x0a]")?
    };
    set(settings, args, vec![connect(), send(startup), expect(no_error), expect(authentication)])
}

pub(super) fn mysql<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let name = user(args)?;
    let kind = match args.next() {
        None => Login::Post41,
        Some(word) => args.choice(
            word,
            &[("post-41", Login::Post41), ("pre-41", Login::Pre41), ("post-80", Login::Post80)],
        )?,
    };
    let answer = |after_greeting| expect(ExpectDraft::new(MatcherDraft::Mysql { after_greeting }));
    let Some(name) = name else { return set(settings, args, vec![connect(), answer(false)]) };
    // Neither the login nor the final COM_QUIT waits for the server's response (after a COM_QUIT, the server does not count an
    // aborted connection).
    let mut bytes = login(&name, kind);
    bytes.extend_from_slice(b"\x01\0\0\0\x01");
    set(settings, args, vec![connect(), send(bytes), answer(false), answer(true)])
}

/// The form of a MySQL login.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Login {
    Pre41,
    Post41,
    /// Includes the name of the authentication plugin.
    Post80,
}

/// The login of a user without a password.
fn login(name: &[u8], kind: Login) -> Vec<u8> {
    let mut body = Vec::new();
    if kind == Login::Pre41 {
        body.extend_from_slice(b"\x00\x80\x00\x00\x01");
    } else {
        // CLIENT_PROTOCOL_41, CLIENT_SECURE_CONNECTION and optionally CLIENT_PLUGIN_AUTH, 16 MB packets, utf8, 23 reserved bytes.
        body.extend_from_slice(&[0, 0x82, if kind == Login::Post80 { 8 } else { 0 }, 0]);
        body.extend_from_slice(b"\x00\x80\x00\x01\x21");
        body.extend_from_slice(&[0; 23]);
    }
    body.extend_from_slice(name);
    body.extend_from_slice(b"\0\0");
    if kind == Login::Post80 {
        body.extend_from_slice(b"mysql_native_password\0");
    }
    let mut packet = (body.len() as u32).to_le_bytes()[..3].to_vec();
    packet.push(1);
    packet.extend_from_slice(&body);
    packet
}

pub(super) fn ssl_hello<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    // A TLS 1.2 ClientHello (RFC 5246 section 7.4.1.2) with a fixed random, common suites and no compression.
    const SUITES: &[u8] =
        b"\xc0\x2f\xc0\x30\xc0\x2b\xc0\x2c\xc0\x13\xc0\x14\x00\x9c\x00\x9d\x00\x2f\x00\x35\x00\x0a";
    let mut hello = b"\x03\x03".to_vec();
    hello.extend_from_slice(b"weir looks whether you live here");
    hello.extend_from_slice(&[0, 0, SUITES.len() as u8]);
    hello.extend_from_slice(SUITES);
    hello.extend_from_slice(&[1, 0]);
    let mut record = vec![0x16, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    record.extend_from_slice(&hello);
    // A handshake record or an alert: both show a TLS server.
    let answer = ExpectDraft {
        ok_status: Some("L6OK"),
        error_status: Some("L6RSP"),
        timeout_status: Some("L6TOUT"),
        ..pattern(5, r"^[\x15\x16]")?
    };
    set(settings, args, vec![send(record), expect(answer)])
}

/// The maximum frame size that a check offers to an agent; only the handshake is sent.
const CHECK_FRAME: u32 = 16380;

pub(super) fn spop<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let offer = spop::Offer { frame_size: CHECK_FRAME, pipelining: false, engine: "", is_check: true };
    let mut bytes = Vec::new();
    offer.write(&mut bytes);
    let connect = ActionDraft::Connect(ConnectDraft { default: true, ..ConnectDraft::default() }).into();
    let hello = expect(ExpectDraft::new(MatcherDraft::SpopHello));
    set(settings, args, vec![connect, send(bytes), hello])
}

pub(super) fn grpc<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let service = match args.next() {
        None => "",
        Some(word) if *word == "service" => args.required("the name of a service")?.as_str(),
        Some(word) => {
            return Err(args
                .wrong(format!("unknown argument `{word}` for `option grpc-chk`"))
                .did_you_mean(diag::suggest(word, ["service"]))
                .haproxy("'option grpc-chk' only supports optional values: 'service'."));
        }
    };
    // gRPC requires HTTP/2, and a TLS server expects that this is negotiated.
    let connect = ConnectDraft {
        default: true,
        protocol: Some(Protocol::Http2),
        alpn: Some(vec![Box::from(*b"h2")]),
        ..ConnectDraft::default()
    };
    let serving = ExpectDraft::new(MatcherDraft::GrpcServing);
    set(
        settings,
        args,
        vec![ActionDraft::Connect(connect).into(), ActionDraft::Grpc(service).into(), expect(serving)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mysql_logins_begin_with_their_length() {
        for (kind, length) in [(Login::Pre41, 16), (Login::Post41, 43), (Login::Post80, 65)] {
            let packet = login(b"check", kind);
            assert_eq!((packet.len(), packet[3]), (length, 1));
            assert_eq!(packet.len(), 4 + usize::from(packet[0]));
        }
    }
}
