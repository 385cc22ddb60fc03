//! Ingresses as routes of a gateway that exists only during the translation.

mod annotations;
mod auth;
mod authorization_url;
mod canary;
mod external;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::api::*;
use crate::objects::{Key, Objects};
use crate::output::{ObjectEvent, Output, StatusUpdate};
use crate::settings::Settings;

use annotations::Understood;
use authorization_url::{Cluster, ServedPath};
use canary::Canary;

/// The name of the gateway and of its class. Names of real objects have no colons.
const NAME: &str = "ingress:";

/// The objects with a gateway and routes for the ingresses of the controller's classes, or nothing without such ingresses.
pub(crate) fn expand(objects: &Objects, settings: &Settings) -> Option<Objects> {
    let own = of_controller(objects, settings);
    if own.is_empty() {
        return None;
    }
    let mut expanded = objects.clone();
    let class = Key::new("", NAME);
    let mut meta = Meta { name: NAME.into(), ..Meta::default() };
    expanded.gateway_classes.insert(
        class.clone(),
        GatewayClass {
            metadata: meta.clone(),
            spec: GatewayClassSpec {
                controller_name: settings.controller_name.clone(),
                parameters_ref: None,
            },
        },
    );
    // After all gateways with a time, so that a gateway wins if both use the same port.
    meta.creation_timestamp = "~".into();
    let spec = GatewaySpec {
        gateway_class_name: NAME.into(),
        listeners: listeners(objects, &own),
        ..GatewaySpec::default()
    };
    expanded.gateways.insert(class, Gateway { metadata: meta, spec, status: GatewayStatus::default() });
    external::add_services(
        objects,
        &mut expanded,
        own.iter().flat_map(|(key, ingress)| services(key, ingress)),
    );
    let paths = served_paths(objects, &own);
    let (canaries, own) = understood(Cluster { objects, paths: &paths }, own);
    for (key, ingress, understood) in own {
        understood.external.iter().for_each(|host| host.add_to(&mut expanded));
        for (number, route) in routes(objects, key, ingress, &understood, &canaries).into_iter().enumerate() {
            let name = format!("{NAME}{}:{number}", key.name);
            expanded.http_routes.insert(Key::new(&key.namespace, &name), route);
        }
    }
    Some(expanded)
}

/// The canary ingresses, and the others with their annotations.
fn understood<'a>(
    cluster: Cluster<'_>,
    own: Vec<(&'a Key, &'a Ingress)>,
) -> (Vec<Canary<'a>>, Vec<(&'a Key, &'a Ingress, Understood)>) {
    let (mut canaries, mut others) = (Vec::new(), Vec::new());
    for (key, ingress) in own {
        let mut understood = annotations::read(&ingress.metadata.annotations);
        if understood.canary.is_canary {
            canaries.push(Canary { key, ingress, annotations: understood.canary });
        } else {
            understood.resolve(cluster, &key.namespace, &ingress.spec);
            others.push((key, ingress, understood));
        }
    }
    (canaries, others)
}

/// The ingresses of the controller's classes.
fn of_controller<'a>(objects: &'a Objects, settings: &Settings) -> Vec<(&'a Key, &'a Ingress)> {
    let classes = objects.ingress_classes.iter();
    let classes: BTreeMap<&str, bool> = classes
        .filter(|(_, class)| class.spec.controller == settings.ingress_controller)
        .map(|(key, class)| {
            let annotation = class.metadata.annotations.get("ingressclass.kubernetes.io/is-default-class");
            (&*key.name, annotation.is_some_and(|value| value == "true"))
        })
        .collect();
    let is_default = classes.values().any(|is_default| *is_default);
    let mut own: Vec<_> = objects
        .ingresses
        .iter()
        .filter(|(_, ingress)| {
            let annotation = ingress.metadata.annotations.get("kubernetes.io/ingress.class");
            match ingress.spec.ingress_class_name.as_ref().or(annotation) {
                Some(class) => classes.contains_key(class.as_str()),
                None => is_default,
            }
        })
        .collect();
    own.sort_by_key(|(key, ingress)| (&ingress.metadata.creation_timestamp, *key));
    own
}

/// A listener for HTTP, and one for each host with a certificate.
fn listeners(objects: &Objects, own: &[(&Key, &Ingress)]) -> Vec<Listener> {
    let routes = Some(AllowedRoutes {
        namespaces: Some(FromNamespaces { from: Some("All".into()), selector: None }),
        kinds: Vec::new(),
    });
    let mut list = vec![Listener {
        name: "http".into(),
        port: 80,
        protocol: "HTTP".into(),
        allowed_routes: routes.clone(),
        ..Listener::default()
    }];
    let mut seen = BTreeSet::new();
    for (key, ingress) in own {
        for tls in &ingress.spec.tls {
            let Some(secret) = &tls.secret_name else { continue };
            if !objects.secrets.contains_key(&Key::new(&key.namespace, secret)) {
                continue;
            }
            let hosts: Vec<Option<String>> = match tls.hosts.is_empty() {
                true => vec![None],
                false => tls.hosts.iter().map(|host| Some(host.to_ascii_lowercase())).collect(),
            };
            for hostname in hosts.into_iter().filter(|host| seen.insert(host.clone())) {
                let reference = ObjectRef {
                    name: secret.clone(),
                    namespace: Some(key.namespace.clone()),
                    ..ObjectRef::default()
                };
                list.push(Listener {
                    name: format!("https-{}", hostname.as_deref().unwrap_or_default()),
                    hostname,
                    port: 443,
                    protocol: "HTTPS".into(),
                    tls: Some(ListenerTls { mode: None, certificate_refs: vec![reference] }),
                    allowed_routes: routes.clone(),
                });
            }
        }
    }
    list
}

/// The routes of an ingress: one for each rule, and one for the default backend.
fn routes(
    objects: &Objects,
    key: &Key,
    ingress: &Ingress,
    understood: &Understood,
    canaries: &[Canary<'_>],
) -> Vec<HttpRoute> {
    let has_tls = |host: Option<&str>| {
        let mut list = ingress.spec.tls.iter();
        list.any(|tls| {
            tls.hosts.is_empty() || host.is_some_and(|host| tls.hosts.iter().any(|own| own == host))
        })
    };
    let mut list = Vec::new();
    let parents =
        vec![ParentRef { namespace: Some(String::new()), name: NAME.into(), ..ParentRef::default() }];
    let mut add = |host: Option<&str>, rules: Vec<HttpRouteRule>| {
        let mut hostnames: Vec<String> = host.iter().map(|host| host.to_string()).collect();
        if !hostnames.is_empty() {
            hostnames.extend(understood.aliases.iter().cloned());
        }
        let spec = HttpRouteSpec { parent_refs: parents.clone(), hostnames, rules };
        list.push(HttpRoute { metadata: ingress.metadata.clone(), spec });
    };
    for rule in &ingress.spec.rules {
        let host = rule.host.as_deref();
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        let mut rules: Vec<HttpRouteRule> = Vec::new();
        if let Some(root) = &understood.app_root {
            rules.push(annotations::app_root(root));
        }
        rules.extend(paths.flat_map(|path| {
            let mut own = HttpRouteRule {
                matches: vec![HttpMatch { path: Some(understood.path(path)), ..HttpMatch::default() }],
                backend_refs: backend(objects, key, &path.backend).into_iter().collect(),
                ..HttpRouteRule::default()
            };
            understood.apply(&mut own, host, path, has_tls(host));
            canary::split(canaries, &key.namespace, host, path, own, |key, own| backend(objects, key, own))
        }));
        add(host, rules);
    }
    if let Some(default) = &ingress.spec.default_backend {
        let mut own = HttpRouteRule {
            backend_refs: backend(objects, key, default).into_iter().collect(),
            ..HttpRouteRule::default()
        };
        understood.apply(&mut own, None, &IngressPath::default(), has_tls(None));
        add(None, vec![own]);
    }
    list
}

/// The paths of all ingresses, if one of them has an authorization service.
fn served_paths<'a>(objects: &Objects, all: &[(&'a Key, &'a Ingress)]) -> Vec<ServedPath<'a>> {
    let mut list = Vec::new();
    let annotations = |ingress: &'a Ingress| &ingress.metadata.annotations;
    if !all.iter().any(|(_, own)| annotations(own).keys().any(|key| key.ends_with("/auth-url"))) {
        return list;
    }
    for &(key, ingress) in all {
        let servers = annotations::read(annotations(ingress)).servers_of_unchanged_requests();
        for rule in &ingress.spec.rules {
            let Some(host) = rule.host.as_deref() else { continue };
            list.extend(rule.http.iter().flat_map(|http| &http.paths).map(|own| ServedPath {
                namespace: &key.namespace,
                host,
                path: own.path.as_deref().unwrap_or("/"),
                is_exact: own.path_type == "Exact",
                service: servers.clone().and_then(|servers| {
                    let mut service = backend(objects, key, &own.backend)?.service;
                    service.namespace = Some(key.namespace.clone());
                    Some((service, servers))
                }),
            }));
        }
    }
    list
}

/// The services of an ingress, with their namespace.
fn services<'a>(key: &'a Key, ingress: &'a Ingress) -> impl Iterator<Item = (&'a str, &'a IngressService)> {
    let paths = ingress.spec.rules.iter().flat_map(|rule| &rule.http).flat_map(|http| &http.paths);
    let backends = paths.map(|path| &path.backend).chain(&ingress.spec.default_backend);
    backends.filter_map(|backend| Some((&*key.namespace, backend.service.as_ref()?)))
}

fn backend(objects: &Objects, key: &Key, backend: &IngressBackend) -> Option<HttpBackendRef> {
    let service = backend.service.as_ref()?;
    let found = Key::new(&key.namespace, &service.name);
    let own = objects.services.get(&found);
    let by_name = |name: &String| {
        let ports = &own?.spec.ports;
        ports.iter().find(|port| port.name == *name).map(|port| port.port)
    };
    let port = service.port.number.or_else(|| service.port.name.as_ref().and_then(by_name));
    let name = external::service_name(objects, &found);
    let service = BackendRef { name, port, ..BackendRef::default() };
    Some(HttpBackendRef { service, filters: Vec::new() })
}

/// Replaces the statuses and events of the added objects by those of the ingresses.
pub(crate) fn contract(objects: &Objects, settings: &Settings, output: &mut Output) {
    let is_added = |key: &Key| key.name.starts_with(NAME);
    let gateway = output.statuses.iter().find(|it| it.kind == "Gateway" && is_added(&it.key));
    let addresses = gateway.and_then(|it| it.status.get("addresses").and_then(Value::as_array).cloned());
    let addresses: Vec<Value> = addresses
        .unwrap_or_default()
        .iter()
        .map(|own| match own["type"].as_str() {
            Some("Hostname") => json!({ "hostname": own["value"] }),
            _ => json!({ "ip": own["value"] }),
        })
        .collect();
    output.statuses.retain(|it| !is_added(&it.key));
    let mut events: BTreeSet<ObjectEvent> = BTreeSet::new();
    for mut event in std::mem::take(&mut output.events) {
        if let Some(rest) = event.key.name.strip_prefix(NAME) {
            let Some((name, _)) = rest.rsplit_once(':') else { continue };
            (event.kind, event.key) = ("Ingress", Key::new(&event.key.namespace, name));
        }
        events.insert(event);
    }
    let own = of_controller(objects, settings);
    let paths = served_paths(objects, &own);
    for &(key, ingress) in &own {
        let status = json!({ "loadBalancer": { "ingress": addresses } });
        let generation = ingress.metadata.generation;
        output.statuses.push(StatusUpdate { kind: "Ingress", key: key.clone(), generation, status });
        for problem in problems(Cluster { objects, paths: &paths }, &own, key, ingress) {
            let (key, reason) = (key.clone(), "AnnotationIgnored".to_string());
            events.insert(ObjectEvent { kind: "Ingress", key, is_warning: true, reason, message: problem });
        }
    }
    output.events = events.into_iter().collect();
}

/// The reasons why annotations of an ingress have no effect.
fn problems(cluster: Cluster<'_>, all: &[(&Key, &Ingress)], key: &Key, ingress: &Ingress) -> Vec<String> {
    let mut understood = annotations::read(&ingress.metadata.annotations);
    if !understood.canary.is_canary {
        understood.resolve(cluster, &key.namespace, &ingress.spec);
        return understood.problems;
    }
    let is_stable = |other: &Ingress| !annotations::read(&other.metadata.annotations).canary.is_canary;
    let mut others = all.iter().filter(|(own, _)| own.namespace == key.namespace);
    if !others.any(|(_, other)| canary::has_common_path(ingress, other) && is_stable(other)) {
        understood.problems.push("annotation `canary`: no other Ingress has this host and path".into());
    }
    understood.problems
}
