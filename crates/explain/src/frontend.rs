//! The rules of a frontend or a backend that apply before a server is chosen.

use base::raw::text_of;
use plan::proxy::Proxy;
use state::Mode;

use crate::report::Explanation;
use crate::scene::Scene;

/// Runs the rules of the frontend. Returns the end of the request, if a rule ends it.
pub(crate) fn rules(scene: &mut Scene<'_>, report: &mut Explanation<'_>) -> Option<String> {
    let proxy = scene.frontend;
    for (name, set) in
        [("tcp-request connection", &proxy.tcp_connection), ("tcp-request session", &proxy.tcp_session)]
    {
        if let Some(end) = scene.run(set, false, &title(name, proxy), report) {
            return Some(end);
        }
    }
    of_request(scene, proxy, report)
}

fn title(name: &str, proxy: &Proxy) -> String {
    format!("{name} rules of {}", proxy.state.name)
}

/// Runs the request rules of a proxy.
pub(crate) fn of_request(
    scene: &mut Scene<'_>,
    proxy: &Proxy,
    report: &mut Explanation<'_>,
) -> Option<String> {
    if let Some(end) = scene.run(&proxy.tcp_request, true, &title("tcp-request content", proxy), report) {
        return Some(end);
    }
    if proxy.mode != Mode::Http {
        return None;
    }
    if let Some(uri) = proxy.monitor_uri.as_deref().filter(|uri| scene.is_target(uri)) {
        return Some(format!("answered here: `monitor-uri {}`", text_of(uri)));
    }
    let http = scene.run(&proxy.http_request, true, &title("http-request", proxy), report);
    let redirected = || scene.run(&proxy.redirects, true, &title("redirect", proxy), report);
    if let Some(end) = http.or_else(redirected) {
        return Some(end);
    }
    let stats = proxy.stats.as_ref()?;
    scene.begins_with(&stats.uri).then(|| format!("answered here: statistics page `{}`", text_of(&stats.uri)))
}
