//! Compiles routes to rules.

use crate::api::{
    BackendRef, GrpcRoute, HttpBackendRef, HttpFilter, HttpRetry, HttpRoute, HttpTimeouts, RequestMirror,
    ServicePort, SessionPersistence,
};
use crate::objects::Key;
use crate::status::StatusCondition;
use crate::text::{quote, section_name};
use crate::translate::attach::Route;
use crate::translate::backends::{Backend, BackendMember, Backends};
use crate::translate::context::Context;
use crate::translate::resolve::{self, Unresolved};

use super::filters::{self, BadFilter, Filters};
use super::matches::{self, RouteMatch};
use super::{HttpRule, RuleTarget, authorize, settings};
use crate::api::extra::{AuthorizationProtocol, AuthorizationRequest, Extra};

/// The rules of a route, and the conditions of its status.
pub(crate) struct Lowered<'a> {
    pub(crate) rules: Vec<HttpRule<'a>>,
    pub(crate) conditions: Vec<StatusCondition>,
}

/// A rule before it is compiled.
#[derive(Default)]
struct RuleDraft<'r> {
    matches: Vec<RouteMatch>,
    /// Why the matches are not supported.
    problem: Option<String>,
    filters: &'r [HttpFilter],
    backends: &'r [HttpBackendRef],
    timeouts: Option<&'r HttpTimeouts>,
    retry: Option<&'r HttpRetry>,
    persistence: Option<&'r SessionPersistence>,
    extra: Extra,
}

impl RuleDraft<'_> {
    /// A rule with these matches and nothing else.
    fn of(matches: impl Iterator<Item = Result<RouteMatch, String>>) -> Self {
        let all: Result<Vec<RouteMatch>, String> = matches.collect();
        match all {
            Ok(matches) => Self { matches, ..Self::default() },
            Err(problem) => Self { problem: Some(problem), ..Self::default() },
        }
    }
}

/// The gateways to which a route is attached.
#[derive(Clone, Copy)]
pub(crate) struct Parents<'p> {
    pub(crate) gateways: &'p [&'p Key],
    /// The path of the certificate for connections to services.
    pub(crate) certificate: Option<&'p str>,
    /// The number of this group among the route's gateways with other certificates.
    pub(crate) group: usize,
}

/// Compiles an HTTP route.
pub(crate) fn http_route<'a>(
    context: &mut Context<'a>,
    backends: &mut Backends<'a>,
    route: Route<'a>,
    parents: Parents<'_>,
    object: &'a HttpRoute,
) -> Lowered<'a> {
    let drafts = object.spec.rules.iter().map(|rule| RuleDraft {
        filters: &rule.filters,
        backends: &rule.backend_refs,
        timeouts: rule.timeouts.as_ref(),
        retry: rule.retry.as_ref(),
        persistence: rule.session_persistence.as_ref(),
        extra: rule.extra.clone(),
        ..RuleDraft::of(rule.matches.iter().map(matches::of_http))
    });
    compile(context, backends, route, parents, drafts.collect())
}

/// Compiles a gRPC route.
pub(crate) fn grpc_route<'a>(
    context: &mut Context<'a>,
    backends: &mut Backends<'a>,
    route: Route<'a>,
    parents: Parents<'_>,
    object: &'a GrpcRoute,
) -> Lowered<'a> {
    let drafts = object.spec.rules.iter().map(|rule| RuleDraft {
        filters: &rule.filters,
        backends: &rule.backend_refs,
        persistence: rule.session_persistence.as_ref(),
        ..RuleDraft::of(rule.matches.iter().map(matches::of_grpc))
    });
    compile(context, backends, route, parents, drafts.collect())
}

/// The compilation of one route.
struct Compiler<'c, 'a> {
    context: &'c mut Context<'a>,
    backends: &'c mut Backends<'a>,
    route: Route<'a>,
    parents: Parents<'c>,
    unresolved: Option<Unresolved>,
    /// The needs of the rule's servers.
    needs: ServerNeeds,
}

/// What determines the parameters of a backend's servers, besides the port of the Service.
#[derive(Debug, Clone, Default)]
struct ServerNeeds {
    /// The parameters, if an annotation sets them.
    parameters: Option<String>,
    /// Whether the servers must use HTTP/2.
    is_grpc: bool,
}

fn compile<'a>(
    context: &mut Context<'a>,
    backends: &mut Backends<'a>,
    route: Route<'a>,
    parents: Parents<'_>,
    drafts: Vec<RuleDraft<'_>>,
) -> Lowered<'a> {
    let needs = ServerNeeds { parameters: None, is_grpc: route.kind == "GRPCRoute" };
    let mut compiler = Compiler { context, backends, route, parents, unresolved: None, needs };
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    let count = drafts.len();
    for (number, draft) in drafts.into_iter().enumerate() {
        let is_restricted = draft.filters.iter().any(|filter| filter.r#type == "ExternalAuth");
        let refused = (is_restricted && draft.problem.is_none()).then(|| draft.matches.clone());
        let error = match compiler.rule(number, draft) {
            Ok(rule) => {
                rules.push(rule);
                continue;
            }
            Err(error) => error,
        };
        if let Some(matches) = refused {
            // Its requests must not be served unchecked by a less specific rule.
            rules.push(compiler.refusal(number, matches));
        }
        errors.push(match error {
            BadFilter::Incompatible(text) => BadFilter::Incompatible(format!("rule {number}: {text}")),
            BadFilter::Unsupported(text) => BadFilter::Unsupported(format!("rule {number}: {text}")),
        });
    }
    let mut conditions = Vec::new();
    if let Some(error) = errors.first() {
        let (reason, message) = match error {
            BadFilter::Incompatible(message) => ("IncompatibleFilters", message),
            BadFilter::Unsupported(message) => ("UnsupportedValue", message),
        };
        if errors.len() == count {
            conditions.push(StatusCondition::no("Accepted", reason, message.clone()));
        } else {
            let message = format!("Dropped Rule: {message}");
            conditions.push(StatusCondition::yes("PartiallyInvalid", "UnsupportedValue").with(message));
        }
    }
    let unresolved = compiler.unresolved.take();
    match unresolved {
        Some(error) => {
            context.warn(route.kind, route.key, error.reason, error.message.clone());
            conditions.push(error.condition());
        }
        None => conditions.push(StatusCondition::yes("ResolvedRefs", "ResolvedRefs")),
    }
    Lowered { rules, conditions }
}

/// A resolved reference.
struct Resolved<'a> {
    member: BackendMember<'a>,
    server: String,
}

impl<'a> Compiler<'_, 'a> {
    fn rule(&mut self, number: usize, draft: RuleDraft<'_>) -> Result<HttpRule<'a>, BadFilter> {
        if let Some(problem) = draft.problem {
            return Err(BadFilter::Unsupported(problem));
        }
        let mut rule = self.empty(number, draft.matches);
        let mut filters = filters::compile(draft.filters)?;
        filters.redirect.extend(draft.extra.redirect.map(|target| format!("redirect location {target}")));
        let mirrors = self.mirrors(&filters)?;
        let limits = settings::limits(draft.timeouts, draft.retry).map_err(BadFilter::Unsupported)?;
        let mut lines = limits.backend;
        lines.extend(draft.extra.backend);
        self.needs.parameters = draft.extra.server;
        let mut settings = draft.extra.request;
        if let Some(users) = draft.extra.users {
            settings.push(format!(
                "auth realm {} unless {{ http_auth({}) }}",
                quote(&users.realm),
                users.name
            ));
            self.context.users.insert(users.name, users.lines);
        }
        for own in draft.extra.authorization.iter().chain(&filters.authorizations) {
            settings.extend(self.authorization(own)?);
        }
        settings.extend(draft.extra.changes);
        settings.extend(limits.request);
        if let Some(persistence) = draft.persistence {
            let meta = self.route.meta;
            let secret = if meta.uid.is_empty() { &rule.label } else { &meta.uid };
            let own = settings::persistence(persistence, &rule.label, secret);
            lines.extend(own.map_err(BadFilter::Unsupported)?);
        }
        let targets = if draft.persistence.is_some() && draft.backends.len() > 1 {
            vec![self.common_target(draft.backends, lines)?]
        } else {
            let targets = draft.backends.iter().map(|reference| self.target(reference, &lines));
            targets.collect::<Result<_, _>>()?
        };
        (rule.filters, rule.settings, rule.mirrors, rule.targets) = (filters, settings, mirrors, targets);
        Ok(rule)
    }

    /// A rule without effect.
    fn empty(&self, number: usize, mut matches: Vec<RouteMatch>) -> HttpRule<'a> {
        if matches.is_empty() {
            matches.push(RouteMatch::all());
        }
        let Route { key: Key { namespace, name }, kind, meta, .. } = self.route;
        let group = match self.parents.group {
            0 => String::new(),
            group => format!("~{group}"),
        };
        HttpRule {
            label: format!("rule:{}{group}", section_name(&format!("{kind}:{namespace}:{name}:{number}"))),
            age: (&meta.creation_timestamp, namespace, name, usize::from(kind != "HTTPRoute"), number),
            matches,
            filters: Filters::default(),
            settings: Vec::new(),
            mirrors: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// A rule that refuses all requests.
    fn refusal(&self, number: usize, matches: Vec<RouteMatch>) -> HttpRule<'a> {
        HttpRule { settings: vec!["return status 500".into()], ..self.empty(number, matches) }
    }

    fn target(&mut self, reference: &HttpBackendRef, lines: &[String]) -> Result<RuleTarget, BadFilter> {
        let weight = weight(reference);
        let filters = filters::compile(&reference.filters)?;
        if !filters.authorizations.is_empty() {
            let message = "ExternalAuth is a filter of rules; it is not supported in backendRefs";
            return Err(BadFilter::Unsupported(message.into()));
        }
        let mirrors = self.mirrors(&filters)?;
        let backend = self.backend(&reference.service, lines);
        Ok(RuleTarget { weight, backend, filters, mirrors })
    }

    /// One backend with the servers of several services, so that a session stays at its server whatever the weights.
    fn common_target(
        &mut self,
        references: &[HttpBackendRef],
        lines: Vec<String>,
    ) -> Result<RuleTarget, BadFilter> {
        if references.iter().any(|reference| !reference.filters.is_empty()) {
            let message = "session persistence with several backends cannot be combined with their filters";
            return Err(BadFilter::Incompatible(message.into()));
        }
        let (mut members, mut server) = (Vec::new(), None);
        for reference in references {
            let Some(resolved) = self.resolve(&reference.service) else { continue };
            if server.get_or_insert_with(|| resolved.server.clone()) != &resolved.server {
                let message = "session persistence needs backends with the same protocol and TLS settings";
                return Err(BadFilter::Incompatible(message.into()));
            }
            members.push(BackendMember { weight: weight(reference), ..resolved.member });
        }
        let is_used = members.iter().any(|member| member.weight > 0);
        let server = server.unwrap_or_default();
        let backend = is_used.then(|| self.backends.add(Backend { is_http: true, members, server, lines }));
        Ok(RuleTarget { weight: 1, backend, filters: Filters::default(), mirrors: Vec::new() })
    }

    /// The backend of a reference, or nothing if it is unresolved.
    fn backend(&mut self, reference: &BackendRef, lines: &[String]) -> Option<String> {
        let resolved = self.resolve(reference)?;
        Some(self.add(resolved, lines))
    }

    fn add(&mut self, resolved: Resolved<'a>, lines: &[String]) -> String {
        let Resolved { member, server } = resolved;
        let (members, lines) = (vec![member], lines.to_vec());
        self.backends.add(Backend { is_http: true, members, server, lines })
    }

    fn resolve(&mut self, reference: &BackendRef) -> Option<Resolved<'a>> {
        self.resolve_from(self.route, reference, &self.needs.clone())
    }

    /// Resolves a reference as if it were in a route, to servers with these needs.
    fn resolve_from(
        &mut self,
        route: Route<'_>,
        reference: &BackendRef,
        needs: &ServerNeeds,
    ) -> Option<Resolved<'a>> {
        let found = resolve::service(self.context, route, reference);
        let found =
            found.and_then(|(service, port)| Ok((self.server(&service.key, port, needs)?, service, port)));
        match found {
            Ok((server, service, port)) => {
                Some(Resolved { server: server?, member: BackendMember { service, port, weight: 1 } })
            }
            Err(error) => {
                self.unresolved.get_or_insert(error);
                None
            }
        }
    }

    /// The parameters of the backend's servers: nothing if a policy is invalid.
    fn server(
        &mut self,
        service: &Key,
        port: &ServicePort,
        needs: &ServerNeeds,
    ) -> Result<Option<String>, Unresolved> {
        for gateway in self.parents.gateways {
            self.context.policies.note_user(service, gateway);
        }
        if let Some(own) = &needs.parameters {
            return Ok(Some(own.clone()));
        }
        let is_grpc = needs.is_grpc;
        let protocol = port.app_protocol.as_deref().unwrap_or_default();
        let unsupported = |message| Unresolved { reason: "UnsupportedProtocol", message };
        let is_h2 = match protocol {
            "kubernetes.io/h2c" => true,
            "kubernetes.io/ws" | "kubernetes.io/wss" if is_grpc => {
                return Err(unsupported(format!("port {} has protocol {protocol}, not gRPC", port.port)));
            }
            _ => is_grpc,
        };
        let Ok(tls) = self.context.policies.server(service, &port.name) else { return Ok(None) };
        Ok(Some(match tls {
            None if protocol == "kubernetes.io/wss" => {
                let message =
                    format!("port {} has protocol {protocol}, which needs a BackendTLSPolicy", port.port);
                return Err(unsupported(message));
            }
            None if is_h2 => " proto h2".into(),
            None => String::new(),
            Some(tls) => {
                let own =
                    self.parents.certificate.map_or(String::new(), |path| format!(" crt {}", quote(path)));
                let alpn = if is_h2 { "h2" } else { "http/1.1" };
                format!("{tls}{own} alpn {alpn}")
            }
        }))
    }

    /// The lines for an authorization service. If it cannot be used, all requests are refused.
    fn authorization(&mut self, own: &AuthorizationRequest) -> Result<Vec<String>, BadFilter> {
        let mut key = self.route.key.clone();
        if own.is_granted
            && let Some(namespace) = &own.backend.namespace
        {
            key.namespace.clone_from(namespace);
        }
        let route = self.route;
        // The parameters of the rule's servers do not apply to the service.
        let needs = ServerNeeds {
            parameters: own.server.clone(),
            is_grpc: own.protocol == AuthorizationProtocol::Grpc,
        };
        let found = self.resolve_from(Route { key: &key, ..route }, &own.backend, &needs);
        let Some(found) = found else { return Ok(vec!["return status 500".into()]) };
        let backend = self.add(found, &[]);
        self.context.authorizes = true;
        authorize::lines(own, &backend).map_err(BadFilter::Unsupported)
    }

    fn mirrors(&mut self, filters: &Filters) -> Result<Vec<String>, BadFilter> {
        let mut lines = Vec::new();
        for mirror in &filters.mirrors {
            let share = share(mirror)?;
            if let Some(backend) = self.backend(&mirror.backend_ref, &[]) {
                lines.push(format!("mirror {backend}{share}"));
            }
        }
        Ok(lines)
    }
}

fn weight(reference: &HttpBackendRef) -> u64 {
    u64::try_from(reference.service.weight.unwrap_or(1)).unwrap_or_default().min(1_000_000)
}

/// The condition for a share of requests.
fn share(mirror: &RequestMirror) -> Result<String, BadFilter> {
    let (part, whole) = match (&mirror.fraction, mirror.percent) {
        (Some(fraction), _) => (fraction.numerator, fraction.denominator.unwrap_or(100)),
        (None, Some(percent)) => (percent, 100),
        (None, None) => return Ok(String::new()),
    };
    if whole <= 0 || part < 0 || whole > 1_000_000_000 {
        return Err(BadFilter::Unsupported(format!("{part}/{whole} is not a share of requests")));
    }
    Ok(if part >= whole { String::new() } else { format!(" if {{ rand({whole}) lt {part} }}") })
}
