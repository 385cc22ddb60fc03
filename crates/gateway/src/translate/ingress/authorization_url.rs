//! The URLs of authorization services: a Service, a host that another ingress serves, or a host outside the cluster.

use crate::api::BackendRef;
use crate::objects::{Key, Objects};
use crate::text::{is_hostname, is_printable};

use super::external::ExternalHost;

/// The objects of the cluster, and the paths of its ingresses, older ones first.
#[derive(Clone, Copy)]
pub(crate) struct Cluster<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) paths: &'a [ServedPath<'a>],
}

/// A path of an ingress.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServedPath<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) is_exact: bool,
    /// The Service that gets the requests unchanged and unchecked, if there is one, and the parameters of its servers.
    pub(crate) service: Option<(BackendRef, Option<String>)>,
}

impl ServedPath<'_> {
    fn matches(&self, host: &str, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.trim_end_matches('/'));
        let is_prefix = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.host == host && if self.is_exact { self.path == path } else { is_prefix }
    }
}

/// The destination of authorization requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AuthorizationTarget {
    pub(crate) backend: BackendRef,
    /// The parameters of its servers, or nothing for those of the Service.
    pub(crate) server: Option<String>,
    /// The host outside the cluster, if it is one.
    pub(crate) external: Option<ExternalHost>,
    /// The URL of requests, without a port.
    pub(crate) url: String,
}

impl AuthorizationTarget {
    /// Finds the destination for a URL, which may have `$host` as its host.
    ///
    /// # Errors
    /// The value is not a URL, or it has a variable that has no value here.
    pub(crate) fn find(
        url: &str,
        namespace: &str,
        host: Option<&str>,
        cluster: Cluster<'_>,
    ) -> Result<Self, String> {
        let text = with_host(url, host)?;
        let parts = UrlParts::of(&text, namespace).ok_or_else(|| {
            format!("`auth-url` is not a URL such as https://auth.example.com/PATH or http://NAME.NAMESPACE.svc.cluster.local:PORT/PATH: {url}")
        })?;
        Ok(parts
            .service(cluster.objects)
            .or_else(|| parts.served_host(cluster))
            .unwrap_or_else(|| parts.external()))
    }
}

/// Replaces `$host` by the host of the ingress.
fn with_host(url: &str, host: Option<&str>) -> Result<String, String> {
    let Some((before, after)) = ["://$http_host", "://$best_http_host", "://$host"]
        .iter()
        .find_map(|variable| url.split_once(variable))
    else {
        return Ok(url.into());
    };
    match host {
        Some(host) if !host.starts_with('*') => Ok(format!("{before}://{host}{after}")),
        _ => Err(format!("`auth-url` with `$host` needs rules with a host and without `*`: {url}")),
    }
}

struct UrlParts<'u> {
    is_tls: bool,
    host: &'u str,
    port: i32,
    path: String,
    /// The namespace of a Service without one.
    namespace: &'u str,
    /// Whether the URL has the scheme `svc`.
    is_service: bool,
}

impl<'u> UrlParts<'u> {
    fn of(url: &'u str, namespace: &'u str) -> Option<Self> {
        if !is_printable(url) || url.contains(['$', ' ', '#', '%']) {
            return None;
        }
        let (scheme, mut rest) = url.split_once("://")?;
        let mut own = namespace;
        if scheme == "svc"
            && let Some((namespace, service)) = rest.split_once('/')
            && !namespace.contains(':')
        {
            (own, rest) = (namespace, service);
        }
        let default = match scheme {
            "http" | "svc" => 80,
            "https" => 443,
            _ => return None,
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, default),
        };
        if !is_hostname(host) || host.starts_with('*') || !(1..=65_535).contains(&port) {
            return None;
        }
        let path = if path.is_empty() { "/".into() } else { path.into() };
        Some(Self {
            is_tls: scheme == "https",
            host,
            port,
            path,
            namespace: own,
            is_service: scheme == "svc",
        })
    }

    /// The Service whose name the host is: `NAME[.NAMESPACE[.svc[.DOMAIN]]]`.
    fn service(&self, objects: &Objects) -> Option<AuthorizationTarget> {
        let mut labels = self.host.split('.');
        let name = labels.next()?;
        let namespace = labels.next();
        let suffix = labels.next();
        let key = Key::new(namespace.unwrap_or(self.namespace), name);
        let is_name = match (namespace, suffix) {
            (_, Some(suffix)) => suffix == "svc",
            (Some(_), None) => self.is_service || objects.services.contains_key(&key),
            (None, None) => true,
        };
        is_name.then(|| AuthorizationTarget {
            backend: BackendRef {
                name: key.name.clone(),
                namespace: Some(key.namespace.clone()),
                port: Some(self.port),
                ..BackendRef::default()
            },
            server: self.is_tls.then(|| " ssl verify none".into()),
            external: None,
            url: format!("http://{}.{}{}", key.name, key.namespace, self.path),
        })
    }

    /// The Service to which an ingress of the same namespace forwards this host and path unchanged. Its requests need neither DNS nor
    /// a second pass through the proxy. Ingresses of other namespaces do not count, because their authors could permit all
    /// requests by naming the host of the authorization service.
    fn served_host(&self, cluster: Cluster<'_>) -> Option<AuthorizationTarget> {
        let path = self.path.split('?').next().unwrap_or_default();
        let paths = cluster.paths.iter().filter(|own| own.matches(self.host, path));
        // As in the routing: the most specific one, and the oldest of these.
        let found = paths.rev().max_by_key(|own| (own.is_exact, own.path.len()))?;
        let (backend, server) = found.service.clone().filter(|_| found.namespace == self.namespace)?;
        Some(AuthorizationTarget {
            backend,
            server,
            external: None,
            url: format!("http://{}{}", self.host, self.path),
        })
    }

    fn external(&self) -> AuthorizationTarget {
        let host = ExternalHost { name: self.host.into(), port: self.port };
        let tls = format!(" ssl verify required ca-file @system-ca sni str({}) alpn http/1.1", self.host);
        AuthorizationTarget {
            backend: host.reference(),
            server: Some(if self.is_tls { tls } else { String::new() }),
            external: Some(host),
            url: format!("http://{}{}", self.host, self.path),
        }
    }
}
