//! The address of the API server, the trust in its certificate, and the token.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use httpclient::{ClientSettings, Request, Secure, Url, UrlHost};
use net::Target;
use tls::{Connecting, Connector, Trust, load};

use crate::args::GatewayArgs;

/// The directory that Kubernetes mounts into a pod.
const POD_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The longest token, in bytes.
const LONGEST_TOKEN: usize = 64 << 10;

/// The largest response, in bytes. Lists are obtained in pages.
const LARGEST_RESPONSE: usize = 128 << 20;

/// The access to an API server.
#[derive(Clone)]
pub(crate) struct ServerAccess {
    /// The URL without a path.
    base: String,
    url: Url,
    secure: Option<Secure>,
    token_file: Option<PathBuf>,
    /// The namespace of the Lease.
    pub(crate) namespace: String,
}

impl ServerAccess {
    /// Finds the API server from the options, or from the environment of a pod.
    ///
    /// # Errors
    /// The cause and the way out.
    pub(crate) fn new(args: &GatewayArgs) -> Result<Self, String> {
        let pod = Path::new(POD_DIRECTORY);
        let (base, is_pod) = match &args.server {
            Some(server) => (server.trim_end_matches('/').to_owned(), false),
            None => (pod_server()?, true),
        };
        let url = Url::parse(&base).map_err(|error| format!("--server {base}: {error}"))?;
        let in_pod = |name: &str| is_pod.then(|| pod.join(name));
        let token_file = args.token_file.clone().or_else(|| in_pod("token"));
        let authorities = args.ca_file.clone().or_else(|| in_pod("ca.crt"));
        let secure = if url.is_tls { Some(secure(authorities.as_deref(), args.insecure)?) } else { None };
        let own = || std::fs::read_to_string(pod.join("namespace")).ok();
        let namespace = args.namespace.clone().or_else(own).unwrap_or_else(|| "default".to_owned());
        Ok(Self { base, url, secure, token_file, namespace: namespace.trim().to_owned() })
    }

    /// The URL without a path.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns the settings for requests, with the current address of the server. `idle` is the longest time without a byte.
    ///
    /// # Errors
    /// The name of the server cannot be resolved.
    pub(crate) async fn settings(&self, idle: Duration) -> Result<ClientSettings, String> {
        Ok(ClientSettings {
            connect_timeout: Duration::from_secs(5),
            idle_timeout: idle,
            total_timeout: idle.saturating_add(Duration::from_secs(5)),
            retries: 0,
            secure: self.secure.clone(),
            connect_to: Some(Target::Ip(self.address().await?)),
            max_body: LARGEST_RESPONSE,
            ..ClientSettings::default()
        })
    }

    async fn address(&self) -> Result<SocketAddr, String> {
        let (name, port) = match &self.url.host {
            UrlHost::Ip(address) => return Ok(SocketAddr::new(*address, self.url.port)),
            UrlHost::Name(name) => (name.clone(), self.url.port),
        };
        let shown = name.clone();
        let found = tokio::task::spawn_blocking(move || {
            (&*name, port).to_socket_addrs().map(|mut found| found.next())
        });
        match found.await {
            Ok(Ok(Some(address))) => Ok(address),
            Ok(Err(error)) => Err(format!("cannot resolve {shown}: {error}")),
            _ => Err(format!("cannot resolve {shown}")),
        }
    }

    /// Returns a request for a path, with the token.
    ///
    /// # Errors
    /// The token cannot be read.
    pub(crate) fn request(&self, method: &str, path: &str) -> Result<Request, String> {
        let url = Url::parse(&format!("{}{path}", self.base)).map_err(|error| error.to_string())?;
        let request = Request::new(method, url)
            .header("Accept", "application/json")
            .header("User-Agent", concat!("weir-gateway/", env!("CARGO_PKG_VERSION")))
            .header("Connection", "keep-alive");
        let Some(path) = &self.token_file else { return Ok(request) };
        // Kubernetes replaces the file before the token expires.
        let token = base::file::read_to_string(path)
            .map_err(|error| format!("cannot read the token in {}: {error}", path.display()))?;
        let token = token.trim();
        if token.is_empty()
            || token.len() > LONGEST_TOKEN
            || !token.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(format!("{} does not contain a token", path.display()));
        }
        Ok(request.header("Authorization", format!("Bearer {token}")))
    }
}

fn pod_server() -> Result<String, String> {
    let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (value("KUBERNETES_SERVICE_HOST"), value("KUBERNETES_SERVICE_PORT")) {
        (Some(host), Some(port)) if host.contains(':') => Ok(format!("https://[{host}]:{port}")),
        (Some(host), Some(port)) => Ok(format!("https://{host}:{port}")),
        _ => Err("the process does not run in a pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set): \
                  use `--server URL`"
            .to_owned()),
    }
}

fn secure(authorities: Option<&Path>, insecure: bool) -> Result<Secure, String> {
    let trust = if insecure {
        None
    } else {
        let file = authorities.map_or_else(|| "@system-ca".to_owned(), |path| path.display().to_string());
        let parts = load::authorities(&file).map_err(|error| {
            format!("cannot verify the certificate of the API server: {error}; use `--ca-file FILE`")
        })?;
        Some(Arc::new(Trust { authorities: parts.certificates, crls: parts.crls, ..Trust::default() }))
    };
    let connecting = Connecting { trust, sessions: 8, ..Connecting::default() };
    let connector = Connector::new(&connecting)?;
    Ok(Secure { connector: Arc::new(connector), verifies: !insecure })
}
