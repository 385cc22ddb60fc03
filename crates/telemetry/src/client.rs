//! Requests to a collector, over HTTP or gRPC.

use std::rc::Rc;

use base::clock::WallTime;
use httpclient::{ClientSettings, GrpcRequest, KeptConnection, Names, Request, Secure, Url};
use net::Target;
use otlp::{ExportOutcome, GrpcStatus, Signal};
use plan::telemetry::TelemetrySection;
use resolvers::Sections;

use crate::ExportTarget;

/// The largest response that is read, in bytes.
const LARGEST_RESPONSE: usize = 64 << 10;

/// Returns the settings for requests to the collector of a section.
pub(crate) fn client_settings(section: &TelemetrySection, sections: &Sections) -> ClientSettings {
    let endpoint = &section.endpoint;
    let secure = section.connector.as_ref();
    let names = section.resolvers.as_ref().map(|own| Names::new(sections.clone(), own.clone(), None));
    ClientSettings {
        connect_timeout: section.connect_timeout,
        idle_timeout: section.server_timeout,
        total_timeout: section.connect_timeout + section.server_timeout,
        // The exporter decides about retries.
        retries: 0,
        secure: secure.map(|connector| Secure { connector: connector.clone(), verifies: section.verifies }),
        connect_to: endpoint.address.map(|address| Target::Ip((address, endpoint.port).into())),
        names: names.unwrap_or_default(),
        max_body: LARGEST_RESPONSE,
        ..ClientSettings::default()
    }
}

/// The connection to a collector that a task keeps from one request to the next.
#[derive(Default)]
pub(crate) struct CollectorLink {
    /// The settings of the connection; a reload may replace them.
    target: Option<Rc<ExportTarget>>,
    kept: KeptConnection,
}

impl CollectorLink {
    /// Sends a request with the outcome, and the reason unless it was accepted. `message` is compressed if the section requires it.
    pub(crate) async fn send(
        &mut self,
        target: &Rc<ExportTarget>,
        signal: Signal,
        message: &[u8],
    ) -> (ExportOutcome, String) {
        if !self.target.as_ref().is_some_and(|own| Rc::ptr_eq(own, target)) {
            *self = Self { target: Some(target.clone()), kept: KeptConnection::default() };
        }
        let sent = match target.section.endpoint.is_grpc {
            true => grpc(target, signal, message, &mut self.kept).await,
            false => http(target, signal, message, &mut self.kept).await,
        };
        sent.unwrap_or_else(|error| (ExportOutcome::Retry(None), error))
    }
}

fn url(section: &TelemetrySection, path: &str) -> Result<Url, String> {
    Url::parse(&section.endpoint.url(path)).map_err(|error| error.to_string())
}

async fn http(
    target: &ExportTarget,
    signal: Signal,
    message: &[u8],
    kept: &mut KeptConnection,
) -> Result<(ExportOutcome, String), String> {
    let section = &target.section;
    let url = url(section, &format!("/v1/{}", signal.name()))?;
    let mut request = Request::new("POST", url)
        .body("application/x-protobuf", message.to_vec())
        .header("Connection", "keep-alive");
    if section.gzip {
        request = request.header("Content-Encoding", "gzip");
    }
    for (name, value) in &section.headers {
        request = request.header(name, &**value);
    }
    let response = kept.send(&target.settings, &request).await.map_err(|error| error.to_string())?;
    let after = response.header("retry-after");
    let outcome = ExportOutcome::of_http(response.status, after, &response.body, WallTime::now().seconds);
    Ok((outcome, format!("it answers with status {}", response.status)))
}

async fn grpc(
    target: &ExportTarget,
    signal: Signal,
    message: &[u8],
    kept: &mut KeptConnection,
) -> Result<(ExportOutcome, String), String> {
    let section = &target.section;
    let metadata = section.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()));
    let request = GrpcRequest {
        url: url(section, signal.grpc_path())?,
        metadata: metadata.collect(),
        message: message.to_vec(),
        is_gzip: section.gzip,
    };
    let reply = kept.call(&target.settings, &request).await.map_err(|error| error.to_string())?;
    let status = GrpcStatus { code: reply.status, details: reply.details.as_deref() };
    let outcome = ExportOutcome::of_grpc(status, &reply.body);
    let text: String = reply.message.chars().filter(|one| !one.is_control()).take(100).collect();
    let said = if text.is_empty() { String::new() } else { format!(" ({text})") };
    Ok((outcome, format!("it answers with gRPC status {}{said}", reply.status)))
}
