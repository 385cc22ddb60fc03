//! Writes the lines of `-d` (management manual, 3) to standard error, in HAProxy's format: each request and response head with
//! its headers. The trace points in [`super::events`] call these functions.

use std::fmt::Write;

use http::Head;
use runtime::trace;
use sample::{Endpoint, Sockets as _};

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::sockets::StreamSockets;

/// Appends the beginning of a line: the number of the stream, the proxy and the event.
fn begin(out: &mut String, x: &Exchange, proxy: &str, event: &str) {
    let _ = write!(out, "{:08x}:{proxy}.{event}", x.txn.id as u32);
}

/// Appends the descriptors of both connections. `ffff` stands for a connection that is closed or was never opened.
fn push_descriptors(out: &mut String, client: &Client, x: &Exchange) {
    let [front, back] = StreamSockets::of(client, &x.server_socket).descriptors();
    let of = |descriptor: Option<i32>| descriptor.map_or(0xffff, |number| number & 0xffff);
    let _ = write!(out, "[{:04x}:{:04x}]", of(front), of(back));
}

/// Returns the name of the backend, or of the frontend if no backend is chosen yet.
fn proxy_name<'a>(client: &'a Client, x: &'a Exchange) -> &'a str {
    x.backend.as_ref().map_or(&*client.session.frontend.name, |backend| &*backend.state.name)
}

/// A request was received.
pub(super) fn request(client: &Client, x: &Exchange) {
    if !trace::shows_messages() {
        return;
    }
    let mut out = String::new();
    let frontend = &*client.session.frontend.name;
    if client.session.requests.get() <= 1 {
        begin(&mut out, x, frontend, "accept");
        let [front, _] = StreamSockets::of(client, &x.server_socket).descriptors();
        // HAProxy shows the listener's descriptor in the parentheses. Connections in Weir do not know it.
        let _ = write!(out, "(ffff)={:04x}", front.unwrap_or(0xffff) & 0xffff);
        match client.session.source() {
            Endpoint::Ip(address) => {
                let _ = write!(out, " from [{address}]");
            }
            Endpoint::Local | Endpoint::Absent => out.push_str(" from [unix]"),
        }
        let alpn = client.session.tls().and_then(|tls| tls.alpn.clone());
        let alpn = alpn.map_or_else(|| "<none>".into(), |alpn| String::from_utf8_lossy(&alpn).into_owned());
        let _ = writeln!(out, " ALPN={alpn}");
    }
    push_head(&mut out, client, x, frontend, ["clireq", "clihdr"], &x.txn.request);
    base::output::to_standard_error(&out);
}

/// A response was received from a server.
pub(super) fn response(client: &Client, x: &Exchange) {
    if !trace::shows_messages() {
        return;
    }
    let mut out = String::new();
    push_head(&mut out, client, x, proxy_name(client, x), ["srvrep", "srvhdr"], &x.txn.response);
    base::output::to_standard_error(&out);
}

/// The stream is over.
pub(super) fn over(client: &Client, x: &Exchange) {
    if !trace::shows_messages() {
        return;
    }
    let mut out = String::new();
    let of_server = x.txn.server.as_ref().map(|_| "srvcls");
    for event in of_server.into_iter().chain(["clicls", "closed"]) {
        begin(&mut out, x, proxy_name(client, x), event);
        push_descriptors(&mut out, client, x);
        out.push('\n');
    }
    base::output::to_standard_error(&out);
}

/// Appends the start line and the headers of a message.
fn push_head(
    out: &mut String,
    client: &Client,
    x: &Exchange,
    proxy: &str,
    [start, field]: [&str; 2],
    head: &Head,
) {
    let mut line = |event: &str, bytes: &[u8]| {
        begin(out, x, proxy, event);
        push_descriptors(out, client, x);
        out.push_str(": ");
        let text = String::from_utf8_lossy(bytes);
        out.extend(text.chars().map(|shown| if shown.is_control() { '.' } else { shown }));
        out.push('\n');
    };
    let mut bytes = Vec::new();
    head.write_start_line(&mut bytes);
    line(start, bytes.trim_ascii_end());
    for (name, value) in head.fields() {
        line(field, &[name, b": ", value].concat());
    }
}
