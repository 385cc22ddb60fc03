//! Parses log messages from other programs (RFC 3164, RFC 5424). A message in neither format is forwarded as a whole, with an RFC
//! 3164 header.

use plan::log::LogFormat;

use super::header::{LogLine, MessageOrigin, Stamp};

/// The level of a message without a priority. RFC 3164, 4.3.3, assigns "notice" to such messages. As in HAProxy, this level
/// passes the filter of every `log` line instead.
const UNSAID: u8 = 0;

/// Parses a message. The text and the fields of the result borrow from `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> LogLine<'_> {
    let mut line = LogLine { received: LogFormat::Rfc3164, ..whole(bytes) };
    let Some((priority, rest)) = priority(bytes) else { return line };
    (line.level, line.facility, line.text) = ((priority & 7) as u8, Some((priority >> 3) as u8), rest);
    if let Some(rest) = rest.strip_prefix(b"1 ") {
        rfc5424(rest, &mut line);
    } else {
        rfc3164(rest, &mut line);
    }
    line
}

/// Returns a message without header fields.
pub(crate) fn whole(bytes: &[u8]) -> LogLine<'_> {
    LogLine {
        level: UNSAID,
        facility: None,
        stamp: Stamp::Now,
        origin: MessageOrigin::Received { host: None, pid: None },
        tag: b"",
        message_id: b"",
        structured: b"",
        text: bytes,
        received: LogFormat::Raw,
        context: None,
    }
}

/// Splits off the priority, such as `<134>`: up to three digits that encode the facility and the level.
fn priority(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let rest = bytes.strip_prefix(b"<")?;
    let end = rest.iter().take(4).position(|byte| *byte == b'>')?;
    let number = std::str::from_utf8(&rest[..end]).ok()?;
    let value = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()?;
    (value < 24 * 8).then_some((value, &rest[end + 1..]))
}

/// Splits off the next header field, which ends at a space.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b' ', bytes)?;
    (end > 0).then(|| (&bytes[..end], &bytes[end + 1..]))
}

/// Returns the field, or `None` if it is a dash, which stands for a missing value.
fn present(field: &[u8]) -> Option<&[u8]> {
    Some(field).filter(|field| *field != b"-")
}

/// Parses the part after the version: `TIMESTAMP HOSTNAME APP-NAME PROCID MSGID STRUCTURED-DATA MSG`.
fn rfc5424<'a>(bytes: &'a [u8], line: &mut LogLine<'a>) -> Option<()> {
    let (stamp, rest) = field(bytes)?;
    let (host, rest) = field(rest)?;
    let (tag, rest) = field(rest)?;
    let (pid, rest) = field(rest)?;
    let (message_id, rest) = field(rest)?;
    let end = structured_end(rest)?;
    let stamp =
        present(stamp).map_or(Some(Stamp::Nil), |stamp| is_iso(stamp).then_some(Stamp::Iso(stamp)))?;
    line.text = rest[end..].strip_prefix(b" ").unwrap_or_default();
    line.stamp = stamp;
    line.origin = MessageOrigin::Received { host: present(host), pid: present(pid) };
    line.tag = present(tag).unwrap_or_default();
    line.message_id = present(message_id).unwrap_or_default();
    line.structured = present(&rest[..end]).unwrap_or_default();
    line.received = LogFormat::Rfc5424;
    Some(())
}

/// Returns the end of the structured data at the start of `bytes`: either `-`, or elements in brackets with quoted values, in
/// which a backslash escapes the next character.
fn structured_end(bytes: &[u8]) -> Option<usize> {
    let ends = |at: usize| matches!(bytes.get(at), None | Some(b' ')).then_some(at);
    if bytes.first() == Some(&b'-') {
        return ends(1);
    }
    let mut at = 0;
    while bytes.get(at) == Some(&b'[') {
        let mut quoted = false;
        loop {
            at += 1;
            match bytes.get(at)? {
                b'\\' if quoted => at += 1,
                b'"' => quoted = !quoted,
                b']' if !quoted => break,
                _ => {}
            }
        }
        at += 1;
    }
    if at == 0 { None } else { ends(at) }
}

/// Parses `Nov 22 02:51:39 host tag[pid]: text`. As the RFC specifies, the word after the date is taken as the host, even if a
/// sender left the host out.
fn rfc3164<'a>(bytes: &'a [u8], line: &mut LogLine<'a>) -> Option<()> {
    const STAMP: usize = 15;
    let (stamp, rest) = bytes.split_at_checked(STAMP)?;
    let rest = rest.strip_prefix(b" ")?;
    if !is_stamp(stamp) {
        return None;
    }
    line.stamp = Stamp::Rfc3164(stamp);
    line.received = LogFormat::Rfc3164;
    let Some((host, rest)) = field(rest) else {
        line.text = rest;
        return Some(());
    };
    line.text = rest;
    let mut pid = None;
    if let Some((tag, process, text)) = tag(rest) {
        (line.tag, pid, line.text) = (tag, process, text);
    }
    line.origin = MessageOrigin::Received { host: Some(host), pid };
    Some(())
}

/// Whether this is a date like `Nov 22 02:51:39`. The width is the same in all months, and a one-digit day is preceded by a
/// space.
fn is_stamp(stamp: &[u8]) -> bool {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = stamp.get(..3).is_some_and(|month| MONTHS.chunks(3).any(|known| known == month));
    let shape = stamp.iter().zip(b"Mmm  9 99:99:99").skip(3).all(|(byte, shape)| match shape {
        b'9' => byte.is_ascii_digit(),
        // The tens of the day.
        b' ' => byte.is_ascii_digit() || *byte == b' ',
        other => byte == other,
    });
    month && shape && stamp.len() == 15
}

/// Whether this is a date like `2003-10-11T22:14:15.003Z`, with or without a fraction, in any time zone (RFC 5424, 6.2.3).
fn is_iso(stamp: &[u8]) -> bool {
    let fits = |text: &[u8], shape: &[u8]| {
        let one =
            |(byte, shape): (&u8, &u8)| if *shape == b'9' { byte.is_ascii_digit() } else { byte == shape };
        text.len() == shape.len() && text.iter().zip(shape).all(one)
    };
    let Some((date, rest)) = stamp.split_at_checked(19) else { return false };
    let digits = rest.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
    let zone = match rest.first() {
        Some(b'.') if (1..=6).contains(&digits) => &rest[1 + digits..],
        _ => rest,
    };
    let zoned = zone == b"Z" || fits(zone, b"+99:99") || fits(zone, b"-99:99");
    fits(date, b"9999-99-99T99:99:99") && zoned
}

type Tag<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

/// Splits off `tag[pid]: ` or `tag: `.
fn tag(bytes: &[u8]) -> Option<Tag<'_>> {
    let end = bytes.iter().position(|byte| !byte.is_ascii_graphic() || matches!(byte, b'[' | b':'))?;
    let (tag, mut rest) = bytes.split_at(end);
    let mut pid = None;
    if let Some(inside) = rest.strip_prefix(b"[") {
        let close = memchr::memchr(b']', inside)?;
        pid = Some(&inside[..close]);
        rest = &inside[close + 1..];
    }
    let text = rest.strip_prefix(b": ").or_else(|| Some(&[][..]).filter(|_| rest == b":"))?;
    (!tag.is_empty()).then_some((tag, pid, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(bytes: &[u8]) -> String {
        let line = parse(bytes);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (host, pid) = match line.origin {
            MessageOrigin::Received { host, pid } => {
                (host.map_or("?".into(), text), pid.map_or("?".into(), text))
            }
            MessageOrigin::Own => ("own".into(), "own".into()),
        };
        let stamp = match line.stamp {
            Stamp::Now => "now".into(),
            Stamp::Nil => "nil".into(),
            Stamp::Rfc3164(stamp) => text(stamp),
            Stamp::Iso(stamp) => text(stamp),
        };
        let (tag, id, data) = (text(line.tag), text(line.message_id), text(line.structured));
        let facility = line.facility.map_or("?".into(), |facility| facility.to_string());
        let end = text(line.text);
        format!(
            "{:?} {facility}.{} {stamp} {host} {tag} {pid} {id} {data} | {end}",
            line.received, line.level
        )
    }

    #[test]
    fn both_formats_are_parsed_and_others_pass_whole() {
        let cases: &[(&[u8], &str)] = &[
            (
                b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su 12 ID47 [a@1 x=\"\\]\"][b] 'su root' failed",
                "Rfc5424 4.2 2003-10-11T22:14:15.003Z mymachine.example.com su 12 ID47 [a@1 x=\"\\]\"][b] | 'su root' failed",
            ),
            (b"<165>1 - - - - - - text", "Rfc5424 20.5 nil ?  ?   | text"),
            (b"<165>1 - - - - - -", "Rfc5424 20.5 nil ?  ?   | "),
            (b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed", "Rfc3164 4.2 Oct 11 22:14:15 mymachine su ?   | 'su root' failed"),
            (b"<13>Feb  5 17:32:18 10.0.0.99 cron[77]: go", "Rfc3164 1.5 Feb  5 17:32:18 10.0.0.99 cron 77   | go"),
            (b"<13>Feb  5 17:32:18 host no tag here", "Rfc3164 1.5 Feb  5 17:32:18 host  ?   | no tag here"),
            (b"<13>Fxb  5 17:32:18 host x: y", "Rfc3164 1.5 now ?  ?   | Fxb  5 17:32:18 host x: y"),
            (b"<13>free text", "Rfc3164 1.5 now ?  ?   | free text"),
            (b"<13>1 yesterday h a p m - text", "Rfc3164 1.5 now ?  ?   | 1 yesterday h a p m - text"),
            (b"<13>1 broken", "Rfc3164 1.5 now ?  ?   | 1 broken"),
            (b"<192>too high", "Rfc3164 ?.0 now ?  ?   | <192>too high"),
            (b"<1x>text", "Rfc3164 ?.0 now ?  ?   | <1x>text"),
            (b"no priority", "Rfc3164 ?.0 now ?  ?   | no priority"),
            (b"", "Rfc3164 ?.0 now ?  ?   | "),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(show(bytes), *wanted, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn the_text_is_always_the_end_of_the_message() {
        let seeds: [&[u8]; 3] = [
            b"<34>1 2003-10-11T22:14:15.003Z host su 12 ID47 [a@1 x=\"\\]\"][b] 'su root' failed",
            b"<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed",
            b"<13>x",
        ];
        let telling = b"<>[]\"\\ :-1\0\xff";
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes = seeds[random.usize(..seeds.len())].to_vec();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                match random.u8(..3) {
                    0 => bytes[at] = telling[random.usize(..telling.len())],
                    1 => bytes.insert(at, telling[random.usize(..telling.len())]),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let line = parse(&bytes);
            assert!(bytes.ends_with(line.text), "{}", bytes.escape_ascii());
            assert!(line.level < 8 && line.facility.is_none_or(|facility| facility < 24));
        }
    }

    #[test]
    fn unterminated_structured_data_is_not_a_header() {
        assert!(matches!(parse(b"<13>1 - h t p m [a \"b] c").received, LogFormat::Rfc3164));
        assert!(matches!(parse(b"<13>1 - h t p m [a]x c").received, LogFormat::Rfc3164));
    }
}
