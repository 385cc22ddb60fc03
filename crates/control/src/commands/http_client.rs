//! `httpclient` (management manual, 9.3): a single request, sent by the worker of the operator's connection; the response is
//! printed as received. [`crate::Keeper`] sends it.

use std::fmt::Write as _;

use crate::invocation::{Call, CommandReply, error};
use crate::runtime_edit::OwnResponse;

pub(crate) fn send(call: &mut Call<'_>) -> CommandReply {
    let (as_blocks, words) = match call.args.split_first() {
        Some((first, rest)) if first == "--htx" => (true, rest),
        _ => (false, call.args),
    };
    let [method, url] = words else {
        return error("Can't start the HTTP client: not enough parameters.\n");
    };
    let Some(keeper) = call.runtime.keeper() else { return error("Can't start the HTTP client.\n") };
    match keeper.send(method, url) {
        Ok(receiving) => CommandReply::Later(Box::pin(async move {
            CommandReply::Bytes(match receiving.await {
                Ok(response) if as_blocks => blocks(&response).into_bytes(),
                Ok(response) => shown(&response),
                // As in HAProxy, a missing response is shown as status 0.
                Err(why) => format!("HTTP/1.1 0 Service Unavailable\n\r\n{why}\n").into_bytes(),
            })
        })),
        Err(why) => error(format!("Can't start the HTTP client: '{url}': {why}.\n")),
    }
}

/// Formats the response, with header names in lower case.
fn shown(response: &OwnResponse) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {} {}\n", response.status, response.reason);
    for (name, value) in &response.headers {
        let _ = write!(out, "{}: {value}\r\n", name.to_ascii_lowercase());
    }
    out.push_str("\r\n");
    let mut out = out.into_bytes();
    out.extend_from_slice(&response.body);
    out
}

/// Lists the parts of the response with their lengths, one per line (`--htx`).
fn blocks(response: &OwnResponse) -> String {
    let line = format!("HTTP/1.1 {} {}", response.status, response.reason);
    let fields = response.headers.iter().map(|(name, value)| {
        ("HDR", name.len() + value.len(), format!("{}: {value}", name.to_ascii_lowercase()))
    });
    let body = (!response.body.is_empty()).then(|| ("DATA", response.body.len(), String::new()));
    let parts =
        [("RES_SL", line.len(), line)].into_iter().chain(fields).chain([("EOH", 1, "<empty>".to_owned())]);
    let parts: Vec<_> = parts.chain(body).collect();
    let data: usize = parts.iter().map(|(_, size, _)| size).sum();
    let mut out = format!(" htx=(nil)(data={data},used={})\n", parts.len());
    let mut at = 0;
    for (number, (kind, size, text)) in parts.iter().enumerate() {
        let kind = format!("HTX_BLK_{kind}");
        let _ = writeln!(out, "\t\t[{number}] type={kind:<17} - size={size:<6} - addr={at:<6}\t{text}");
        at += size;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_shown_raw_or_by_parts() {
        let response = OwnResponse {
            status: 200,
            reason: "OK".to_owned(),
            headers: vec![("A".to_owned(), "b c".to_owned())],
            body: vec![0, 255, b'\n'],
        };
        assert_eq!(shown(&response), b"HTTP/1.1 200 OK\na: b c\r\n\r\n\0\xff\n");
        let kinds: Vec<String> = blocks(&response)
            .lines()
            .filter_map(|line| line.split("] type=").nth(1)?.split(' ').next().map(str::to_owned))
            .collect();
        assert_eq!(kinds, ["HTX_BLK_RES_SL", "HTX_BLK_HDR", "HTX_BLK_EOH", "HTX_BLK_DATA"]);
    }
}
