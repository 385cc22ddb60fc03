//! HTTP and gRPC routes.

use super::extra::Extra;

use super::{ParentRef, object, part};

object! {
    /// A route of HTTP requests.
    HttpRoute {
        /// The spec.
        spec: HttpRouteSpec,
    }
}

part! {
    /// The spec of a route of HTTP requests.
    HttpRouteSpec {
        /// The parents.
        parent_refs: Vec<ParentRef>,
        /// The hostnames.
        hostnames: Vec<String>,
        /// The rules.
        rules: Vec<HttpRouteRule>,
    }
}

part! {
    /// A rule of an HTTP route.
    HttpRouteRule {
        /// The name.
        name: Option<String>,
        /// The alternative matches; if empty, every request matches.
        matches: Vec<HttpMatch>,
        /// The filters.
        filters: Vec<HttpFilter>,
        /// The backends.
        backend_refs: Vec<HttpBackendRef>,
        /// Timeouts.
        timeouts: Option<HttpTimeouts>,
        /// Retries.
        retry: Option<HttpRetry>,
        /// Session persistence.
        session_persistence: Option<SessionPersistence>,
        /// Settings from annotations of an ingress.
        #[serde(skip)]
        extra: Extra,
    }
}

part! {
    /// The conditions of a match, all of which must be fulfilled.
    HttpMatch {
        /// The path; by default the prefix `/`.
        path: Option<PathMatch>,
        /// The headers.
        headers: Vec<ValueMatch>,
        /// The query parameters.
        query_params: Vec<ValueMatch>,
        /// The method.
        method: Option<String>,
    }
}

part! {
    /// A condition on the path.
    PathMatch {
        /// `Exact`, `PathPrefix` (also if absent) or `RegularExpression`.
        r#type: Option<String>,
        /// The value, by default `/`.
        value: Option<String>,
    }
}

part! {
    /// A condition on a header or query parameter.
    ValueMatch {
        /// `Exact` (also if absent) or `RegularExpression`.
        r#type: Option<String>,
        /// The name.
        name: String,
        /// The value.
        value: String,
    }
}

part! {
    /// A filter.
    HttpFilter {
        /// The type.
        r#type: String,
        /// For `RequestHeaderModifier`.
        request_header_modifier: Option<HeaderModifier>,
        /// For `ResponseHeaderModifier`.
        response_header_modifier: Option<HeaderModifier>,
        /// For `RequestMirror`.
        request_mirror: Option<RequestMirror>,
        /// For `RequestRedirect`.
        request_redirect: Option<RequestRedirect>,
        /// For `URLRewrite`.
        #[serde(rename = "urlRewrite")]
        url_rewrite: Option<UrlRewrite>,
        /// For `CORS`.
        cors: Option<Cors>,
        /// For `ExternalAuth`.
        external_auth: Option<ExternalAuth>,
    }
}

part! {
    /// Changes of headers.
    HeaderModifier {
        /// Headers to set.
        set: Vec<Header>,
        /// Headers to add.
        add: Vec<Header>,
        /// Names of headers to remove.
        remove: Vec<String>,
    }
}

part! {
    /// A header.
    Header {
        /// The name.
        name: String,
        /// The value.
        value: String,
    }
}

part! {
    /// Copies of requests for another backend.
    RequestMirror {
        /// The backend.
        backend_ref: super::BackendRef,
        /// The share of requests in percent.
        percent: Option<i64>,
        /// The share of requests as a fraction.
        fraction: Option<Fraction>,
    }
}

part! {
    /// A fraction.
    Fraction {
        /// The numerator.
        numerator: i64,
        /// The denominator, by default 100.
        denominator: Option<i64>,
    }
}

part! {
    /// A change of the path.
    PathModifier {
        /// `ReplaceFullPath` or `ReplacePrefixMatch`.
        r#type: String,
        /// The new path.
        replace_full_path: Option<String>,
        /// The new prefix.
        replace_prefix_match: Option<String>,
    }
}

part! {
    /// A redirect.
    RequestRedirect {
        /// The scheme.
        scheme: Option<String>,
        /// The hostname.
        hostname: Option<String>,
        /// The path.
        path: Option<PathModifier>,
        /// The port.
        port: Option<i32>,
        /// The status, by default 302.
        status_code: Option<i32>,
    }
}

part! {
    /// A change of the request's URL.
    UrlRewrite {
        /// The hostname.
        hostname: Option<String>,
        /// The path.
        path: Option<PathModifier>,
    }
}

part! {
    /// Cross-origin resource sharing.
    Cors {
        /// The allowed origins.
        allow_origins: Vec<String>,
        /// Whether credentials are allowed.
        allow_credentials: Option<bool>,
        /// The allowed methods.
        allow_methods: Vec<String>,
        /// The allowed request headers.
        allow_headers: Vec<String>,
        /// The response headers that scripts may read.
        expose_headers: Vec<String>,
        /// The lifetime of a preflight response in seconds, by default 5.
        max_age: Option<i64>,
    }
}

part! {
    /// Authorization of requests by another service.
    ExternalAuth {
        /// `HTTP` or `GRPC`.
        protocol: String,
        /// The service.
        backend_ref: super::BackendRef,
        /// Settings for `GRPC`.
        grpc: Option<GrpcAuth>,
        /// Settings for `HTTP`.
        http: Option<HttpAuth>,
        /// The forwarding of the body.
        forward_body: Option<ForwardBody>,
    }
}

part! {
    /// Settings of authorization over gRPC.
    GrpcAuth {
        /// The request headers that the service gets, or nothing for all.
        allowed_headers: Vec<String>,
    }
}

part! {
    /// Settings of authorization over HTTP.
    HttpAuth {
        /// The prefix of the path.
        path: String,
        /// The request headers that the service gets in addition.
        allowed_headers: Vec<String>,
        /// The response headers that are copied to the request.
        allowed_response_headers: Vec<String>,
    }
}

part! {
    /// The forwarding of the body to an authorization service.
    ForwardBody {
        /// The largest size in bytes.
        max_size: u32,
    }
}

part! {
    /// A service with a weight and filters.
    HttpBackendRef {
        /// The service.
        #[serde(flatten)]
        service: super::BackendRef,
        /// The filters of requests for this backend.
        filters: Vec<HttpFilter>,
    }
}

part! {
    /// Timeouts of requests, as durations such as `500ms`.
    HttpTimeouts {
        /// For the whole request.
        request: Option<String>,
        /// For each attempt at a backend.
        backend_request: Option<String>,
    }
}

part! {
    /// Retries.
    HttpRetry {
        /// The statuses that cause a retry.
        codes: Vec<i32>,
        /// The largest number of retries.
        attempts: Option<i64>,
        /// The delay before a retry.
        backoff: Option<String>,
    }
}

part! {
    /// Session persistence.
    SessionPersistence {
        /// The name of the cookie or header.
        session_name: Option<String>,
        /// The lifetime of a session.
        absolute_timeout: Option<String>,
        /// The longest time without a request.
        idle_timeout: Option<String>,
        /// `Cookie` (also if absent) or `Header`.
        r#type: Option<String>,
        /// Settings of the cookie.
        cookie_config: Option<CookieConfig>,
    }
}

part! {
    /// Settings of a persistence cookie.
    CookieConfig {
        /// `Session` (also if absent) or `Permanent`.
        lifetime_type: Option<String>,
    }
}

object! {
    /// A route of gRPC calls.
    GrpcRoute {
        /// The spec.
        spec: GrpcRouteSpec,
    }
}

part! {
    /// The spec of a route of gRPC calls.
    GrpcRouteSpec {
        /// The parents.
        parent_refs: Vec<ParentRef>,
        /// The hostnames.
        hostnames: Vec<String>,
        /// The rules.
        rules: Vec<GrpcRouteRule>,
    }
}

part! {
    /// A rule of a gRPC route.
    GrpcRouteRule {
        /// The name.
        name: Option<String>,
        /// The alternative matches; if empty, every call matches.
        matches: Vec<GrpcMatch>,
        /// The filters.
        filters: Vec<HttpFilter>,
        /// The backends.
        backend_refs: Vec<HttpBackendRef>,
        /// Session persistence.
        session_persistence: Option<SessionPersistence>,
    }
}

part! {
    /// The conditions of a match, all of which must be fulfilled.
    GrpcMatch {
        /// The service and method.
        method: Option<GrpcMethodMatch>,
        /// The headers.
        headers: Vec<ValueMatch>,
    }
}

part! {
    /// A condition on the service and method of a call.
    GrpcMethodMatch {
        /// `Exact` (also if absent) or `RegularExpression`.
        r#type: Option<String>,
        /// The service.
        service: Option<String>,
        /// The method.
        method: Option<String>,
    }
}
