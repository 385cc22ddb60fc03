//! The metrics that OpenTelemetry's conventions define for HTTP: the durations of requests at frontends and servers.

use std::sync::Arc;

use otlp::{Attributes, DurationMetric, HistogramPoints};
use state::http_durations::{HTTP_BOUNDS_US, HttpAttributes, HttpHistogram};
use state::server::ServerAddress;
use state::{Proxy, Server};

/// The least status that is an error: only of the server in responses of a frontend, any in those of a server.
const SERVER_ERROR: u16 = 500;
const CLIENT_ERROR: u16 = 400;

/// Appends the metrics of which there are data points.
pub(crate) fn write(out: &mut Vec<u8>, proxies: &[Arc<Proxy>], start_ns: u64, now_ns: u64) {
    let bounds = HTTP_BOUNDS_US.map(|us| us as f64 / 1e6);
    let frontends: Vec<_> = proxies
        .iter()
        .map(|proxy| (proxy, proxy.durations.by_attributes.read()))
        .filter(|(_, series)| !series.is_empty())
        .collect();
    if !frontends.is_empty() {
        let metric = DurationMetric {
            name: "http.server.request.duration",
            help: "Duration of HTTP server requests.",
            bounds: &bounds,
            start_ns,
            now_ns,
        };
        otlp::write_durations(out, &metric, |points| {
            for (proxy, series) in &frontends {
                for (of, histogram) in series {
                    point(points, of, histogram, |attributes| {
                        if *of != HttpAttributes::OVERFLOW {
                            common(attributes, of, SERVER_ERROR);
                            attributes.text("url.scheme", if of.is_tls { "https" } else { "http" });
                        }
                        attributes.text("weir.frontend", &*proxy.name);
                    });
                }
            }
        });
    }
    let mut servers = Vec::new();
    for proxy in proxies.iter().filter(|proxy| proxy.is_backend) {
        for server in proxy.servers.load().iter() {
            let series = server.durations_by_attributes.read();
            if !series.is_empty() {
                servers.push((server.clone(), series));
            }
        }
    }
    if !servers.is_empty() {
        let metric = DurationMetric {
            name: "http.client.request.duration",
            help: "Duration of HTTP client requests.",
            bounds: &bounds,
            start_ns,
            now_ns,
        };
        otlp::write_durations(out, &metric, |points| {
            for (server, series) in &servers {
                for (of, histogram) in series {
                    point(points, of, histogram, |attributes| {
                        if *of != HttpAttributes::OVERFLOW {
                            common(attributes, of, CLIENT_ERROR);
                        }
                        address(attributes, server);
                        attributes.text("weir.backend", &*server.proxy);
                        attributes.text("weir.server", server.name.to_string());
                    });
                }
            }
        });
    }
}

fn point(
    points: &mut HistogramPoints<'_>,
    of: &HttpAttributes,
    histogram: &HttpHistogram,
    attributes: impl FnOnce(&mut Attributes<'_>),
) {
    points.point(&histogram.counts, histogram.sum_us as f64 / 1e6, |out| {
        if *of == HttpAttributes::OVERFLOW {
            out.flag("otel.metric.overflow");
        }
        attributes(out);
    });
}

/// The attributes of both sides. A status from `least_error` is the type of an error.
fn common(attributes: &mut Attributes<'_>, of: &HttpAttributes, least_error: u16) {
    attributes.text("http.request.method", of.method);
    if of.status > 0 {
        attributes.number("http.response.status_code", of.status.into());
    }
    if !of.error.is_empty() {
        attributes.text("error.type", of.error);
    } else if of.status >= least_error {
        attributes.text("error.type", of.status.to_string());
    }
    if !of.version.is_empty() {
        attributes.text("network.protocol.version", of.version);
    }
}

/// The address of a server.
fn address(attributes: &mut Attributes<'_>, server: &Server) {
    match &**server.address.load() {
        ServerAddress::Ip(address) => {
            attributes.text("server.address", address.ip().to_canonical().to_string());
            attributes.number("server.port", address.port().into());
        }
        ServerAddress::Unix(path) => {
            attributes.text("server.address", path.as_os_str().as_encoded_bytes());
        }
        _ => {}
    }
}
