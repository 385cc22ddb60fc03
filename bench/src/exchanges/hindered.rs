//! Makes a case harder: clients and servers that pause reading while more data is in flight than the kernel's buffers hold, and
//! clients that begin with a PROXY header.

use fastrand::Rng;

use crate::exchanges::case::{Answer, Case, Step, When};
use crate::exchanges::random::{pick, seldom};

/// More bytes than the kernel buffers for one connection.
const LARGE: usize = 12 << 20;

/// Makes a client read a large response slowly, or a server a large request.
///
/// The reader resumes either before any timeout, or long after all of them. In between, the result would depend on the kernel's
/// buffers.
pub(crate) fn read_slowly(random: &mut Rng, case: &mut Case) {
    let idle = Step::Idle(if random.bool() { 150 } else { 3000 });
    case.clients.truncate(1);
    let (Some(client), Some(server)) = (case.clients.first_mut(), case.servers.first_mut()) else { return };
    let body = |head: String| [head.as_bytes(), &vec![b'z'; LARGE]].concat();
    let length = format!("Content-Length: {LARGE}\r\n\r\n");
    if random.bool() {
        *client =
            vec![Step::Send(b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec()), idle, Step::Await(1)];
        let response = Step::Send(body(format!("HTTP/1.1 200 OK\r\n{length}")));
        server.answers = vec![Answer { when: When::Body, steps: vec![response] }];
    } else {
        *client = vec![
            Step::Send(body(format!("POST /large HTTP/1.1\r\nHost: a.test\r\n{length}"))),
            Step::Await(1),
        ];
        let response = Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec());
        server.answers = vec![
            Answer { when: When::Head, steps: vec![idle] },
            Answer { when: When::Body, steps: vec![response] },
        ];
    }
}

/// Returns a version 2 PROXY header with a command and a family.
fn binary(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, family]);
    header.extend((addresses.len() as u16).to_be_bytes());
    header.extend(addresses);
    header
}

fn header(random: &mut Rng) -> Vec<u8> {
    let ip4 = [192, 0, 2, 7, 192, 0, 2, 8, 0x12, 0x34, 0, 80];
    match random.usize(..10) {
        0..=2 => b"PROXY TCP4 192.0.2.7 192.0.2.8 4660 80\r\n".to_vec(),
        3 => b"PROXY TCP6 2001:db8::7 2001:db8::8 4660 80\r\n".to_vec(),
        4 => b"PROXY UNKNOWN\r\n".to_vec(),
        5 => binary(0, 0, &[]),
        6..=7 => binary(1, 0x11, &ip4),
        // With the authority TLV (type 2).
        _ => binary(1, 0x11, &[&ip4[..], b"\x02\x00\x06a.test"].concat()),
    }
}

fn bad_header(random: &mut Rng) -> Vec<u8> {
    let bad: &[&[u8]] = &[
        b"PROXY TCP4 192.0.2.7 192.0.2.8 4660\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.8 4660 80\n",
        b"PROXY TCP5 192.0.2.7 192.0.2.8 4660 80\r\n",
        b"PROXY\r\n",
        b"PROXX TCP4 192.0.2.7 192.0.2.8 4660 80\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        b"",
    ];
    bad[random.usize(..bad.len())].to_vec()
}

/// Makes clients send a PROXY header, together with the following data, before it, or in parts.
pub(crate) fn introduce(random: &mut Rng, case: &mut Case) {
    let rule = pick(random, &["", "", " if { src 127.0.0.0/8 }", " unless { src 127.0.0.0/8 }"]);
    case.front.push(format!("tcp-request connection expect-proxy layer4{rule}"));
    for steps in &mut case.clients {
        let header = if seldom(random, 5) { bad_header(random) } else { header(random) };
        let Some(place) = steps.iter().position(|step| matches!(step, Step::Send(_))) else { continue };
        match (&mut steps[place], random.usize(..4)) {
            (Step::Send(bytes), 0..=1) => drop(bytes.splice(0..0, header)),
            (_, 2) => drop(steps.splice(place..place, [Step::Send(header), Step::Pause(300)])),
            _ => {
                let (one, other) = header.split_at(random.usize(..=header.len()));
                let parts = [Step::Send(one.to_vec()), Step::Pause(300), Step::Send(other.to_vec())];
                steps.splice(place..place, parts);
            }
        }
    }
}

/// Returns whether these bytes begin with a complete PROXY header.
pub(crate) fn is_introduced(bytes: &[u8]) -> bool {
    if bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n") {
        let length = bytes.get(14..16).map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])));
        return bytes.get(12).is_some_and(|byte| byte >> 4 == 2)
            && length.is_some_and(|length| bytes.len() >= 16 + length);
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return false };
    let text = &bytes[..end];
    let words = text.strip_suffix(b"\r").unwrap_or_default().split(|byte| *byte == b' ').count();
    bytes.starts_with(b"PROXY UNKNOWN\r\n")
        || (bytes.starts_with(b"PROXY TCP4 ") || bytes.starts_with(b"PROXY TCP6 ")) && words == 6
}
