//! The frontends: one for each address and port.

use std::collections::BTreeMap;

use crate::text::{Text, line};

use super::Listeners;
use super::context::Context;
use super::gateways::GatewayState;
use super::http::{self, Attached, Frontend};
use super::listeners::ListenerState;
use super::routes::AllAttached;
use super::streams::{self, ServerNames, StreamDestination};

/// An address and a port.
type Socket = (usize, i32);

/// The listeners of an address and port. HTTP, TLS and TCP exclude each other.
#[derive(Default)]
struct Members {
    /// HTTP and HTTPS.
    http: Vec<usize>,
    /// TLS that ends at the proxy.
    terminated: Vec<usize>,
    /// TLS that ends at the service.
    passed: Vec<usize>,
    tcp: Option<usize>,
    udp: Option<usize>,
}

/// Writes the frontends.
pub(crate) fn write<'a>(
    context: &mut Context<'a>,
    text: &mut Text,
    gateways: &[GatewayState<'a>],
    listeners: &Listeners<'a>,
    attached: &AllAttached<'a>,
) {
    let mut ports: BTreeMap<Socket, Members> = BTreeMap::new();
    for (index, listener) in listeners.list.iter().enumerate().filter(|(_, it)| it.is_served()) {
        for address in &gateways[listener.gateway].addresses {
            let own = ports.entry((*address, listener.spec.port)).or_default();
            match listener.spec.protocol.as_str() {
                "HTTP" | "HTTPS" => own.http.push(index),
                "TLS" if listener.is_passthrough() => own.passed.push(index),
                "TLS" => own.terminated.push(index),
                "TCP" => own.tcp = Some(index),
                _ => own.udp = Some(index),
            }
        }
    }
    for (socket, members) in ports {
        let port = PortContext { socket, members: &members, listeners: &listeners.list, attached };
        write_port(context, text, port);
    }
}

/// An address and port with all that belongs to it.
#[derive(Clone, Copy)]
struct PortContext<'p, 'a> {
    socket: Socket,
    members: &'p Members,
    listeners: &'p [ListenerState<'a>],
    attached: &'p AllAttached<'a>,
}

/// Writes the sections of an address and port.
fn write_port(context: &mut Context<'_>, text: &mut Text, port: PortContext<'_, '_>) {
    let PortContext { socket, members, listeners, attached } = port;
    let address = bind_address(context, socket);
    if let Some(listener) = members.tcp {
        streams::write_tcp(text, &frontend_name("tcp", socket), &address, listener, &attached.tcp);
    }
    if let Some(listener) = members.udp {
        streams::write_udp(text, &frontend_name("udp", socket), &address, listener, &attached.udp);
    }
    let kinds = [&members.http, &members.terminated, &members.passed];
    let is_mixed = kinds.iter().filter(|list| !list.is_empty()).count() > 1;
    // Behind a frontend that only reads the server name, others get the connections through a socket of this process.
    let behind = |name: &str| match is_mixed {
        true => format!("abns@weir-gateway-{name} accept-proxy"),
        false => address.clone(),
    };
    if !members.http.is_empty() {
        let is_tls = members.http.iter().any(|index| listeners[*index].terminates_tls());
        let name = frontend_name(if is_tls { "https" } else { "http" }, socket);
        let mut binds = vec![format!("bind {}", behind(&name))];
        if is_tls {
            let parameters = tls_parameters(context, &name, &members.http, listeners);
            binds[0].push_str(&format!("{parameters} alpn h2,http/1.1"));
            // HTTP/3, unless a UDP listener has the port.
            if members.udp.is_none() {
                let family = if address.starts_with('[') { "quic6" } else { "quic4" };
                binds.push(format!("bind {family}@{}{parameters}", address.trim_start_matches('*')));
                binds.push("option alt-svc".into());
            }
        }
        let rules = attached_to(attached, &members.http);
        let listeners = hostnames(listeners, &members.http);
        let frontend = Frontend { name, binds, is_tls, listeners };
        http::write(context, text, frontend, &rules);
    }
    if !members.terminated.is_empty() {
        let name = frontend_name("tls-end", socket);
        text.section("frontend", &name);
        let parameters = tls_parameters(context, &name, &members.terminated, listeners);
        line!(text, "bind {}{parameters}", behind(&name));
        text.line("mode tcp");
        let mut names = ServerNames::new(hostnames(listeners, &members.terminated));
        members.terminated.iter().for_each(|listener| names.add_routes(*listener, &attached.tls));
        names.write(context, text, &name, "ssl_fc_sni");
    }
    if !members.passed.is_empty() || is_mixed {
        by_server_name(context, text, port);
    }
}

/// Writes the frontend that reads the server name of TLS connections and passes them on.
fn by_server_name(context: &mut Context<'_>, text: &mut Text, port: PortContext<'_, '_>) {
    let PortContext { socket, members, listeners, attached } = port;
    let name = frontend_name("tls", socket);
    let all = [&members.http[..], &members.terminated, &members.passed].concat();
    let mut names = ServerNames::new(hostnames(listeners, &all));
    members.passed.iter().for_each(|listener| names.add_routes(*listener, &attached.tls));
    let mut loops = Text::default();
    for (kind, list) in [("https", &members.http), ("tls-end", &members.terminated)] {
        let target = frontend_name(kind, socket);
        let backend = Some(format!("to-{target}"));
        for listener in list {
            let destination = StreamDestination { backend: backend.clone(), refused: (0, 0) };
            names.add(*listener, &listeners[*listener].hostname, destination);
        }
        if !list.is_empty() {
            loops.section("backend", &format!("to-{target}"));
            loops.line("mode tcp");
            line!(loops, "server own abns@weir-gateway-{target} send-proxy-v2");
        }
    }
    text.verbatim(&loops.finish());
    text.section("frontend", &name);
    line!(text, "bind {}", bind_address(context, socket));
    text.line("mode tcp");
    text.line("tcp-request inspect-delay 5s");
    text.line("tcp-request content reject if !{ req.ssl_hello_type 1 }");
    names.write(context, text, &name, "req.ssl_sni");
}

fn hostnames(listeners: &[ListenerState<'_>], members: &[usize]) -> Vec<(usize, String)> {
    members.iter().map(|index| (*index, listeners[*index].hostname.clone())).collect()
}

/// The rules that are attached to some of these listeners.
fn attached_to<'r, 'a>(attached: &'r AllAttached<'a>, members: &[usize]) -> Vec<Attached<'r, 'a>> {
    let mut rules = Vec::new();
    for route in &attached.http {
        let own = route.attachments.iter().filter(|it| members.contains(&it.listener));
        let hosts: Vec<(usize, Vec<String>)> = own.map(|it| (it.listener, it.hostnames.clone())).collect();
        if !hosts.is_empty() {
            rules.extend(route.rules.iter().map(|rule| Attached { rule, hosts: hosts.clone() }));
        }
    }
    rules
}

/// The name of a frontend.
pub(crate) fn frontend_name(protocol: &str, (address, port): Socket) -> String {
    match address {
        0 => format!("{protocol}-{port}"),
        _ => format!("{protocol}-{port}-{address}"),
    }
}

/// The address of a `bind` line.
pub(crate) fn bind_address(context: &Context<'_>, (address, port): Socket) -> String {
    let bind = context.addresses.get(address).map_or("*", |own| own.bind.as_str());
    if bind.contains(':') {
        format!("[{}]:{port}", bind.trim_matches(['[', ']']))
    } else {
        format!("{bind}:{port}")
    }
}

/// The TLS parameters of a `bind` line.
fn tls_parameters(
    context: &mut Context<'_>,
    name: &str,
    members: &[usize],
    listeners: &[ListenerState<'_>],
) -> String {
    let mut list = String::new();
    // The first certificate is for clients that send no known name.
    let mut sorted: Vec<&ListenerState<'_>> = members.iter().map(|index| &listeners[*index]).collect();
    sorted.sort_by_key(|listener| !listener.hostname.is_empty());
    for listener in sorted {
        for certificate in &listener.certificates {
            let filter = match (&*listener.hostname, listener.certificates.len()) {
                ("", _) => String::new(),
                (host, _) => format!(" {host}"),
            };
            list.push_str(&format!("{certificate}{filter}\n"));
        }
    }
    let path = context.add_map(&format!("{name}-certificates"), list);
    let mut text = format!(" ssl crt-list {path}");
    if members.iter().all(|index| !listeners[*index].hostname.is_empty()) {
        text.push_str(" strict-sni");
    }
    let verification = members.iter().find_map(|index| listeners[*index].client_verification.as_ref());
    if let Some(own) = verification {
        let verify = if own.is_optional { "optional" } else { "required" };
        text.push_str(&format!(" ca-file {} verify {verify}", own.authorities));
        if own.is_optional {
            text.push_str(" crt-ignore-err all ca-ignore-err all");
        }
    }
    text
}
