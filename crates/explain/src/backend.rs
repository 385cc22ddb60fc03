//! The choice of the backend (`use_backend`, `default_backend`).

use std::sync::atomic::Ordering::Relaxed;

use plan::proxy::{BackendTarget, UseBackend};
use runtime::Local;
use sample::Test;

use crate::report::Explanation;
use crate::scene::Scene;

/// The chosen backend, or the reason for its absence.
pub(crate) enum Backend {
    Chosen(usize),
    None(String),
}

/// Chooses the backend and reports each `use_backend`.
pub(crate) fn choose(scene: &mut Scene<'_>, report: &mut Explanation<'_>) -> Backend {
    let (plan, frontend) = (scene.plan, scene.frontend);
    let forced =
        frontend.force_be_switch.iter().any(|when| when.explain(&scene.env(), false).test == Test::Yes);
    let refusal = |index: usize| {
        let proxy = &plan.proxies[index];
        match (proxy.disabled, proxy.state.unpublished.load(Relaxed)) {
            _ if forced || index == frontend.index => None,
            (true, _) => Some(format!("backend {} is disabled", proxy.state.name)),
            (_, true) => Some(format!("backend {} is not published", proxy.state.name)),
            (false, false) => None,
        }
    };
    if !frontend.use_backends.is_empty() || frontend.default_backend.is_some() {
        report.heading("backend");
    }
    let lines = report.lines("frontend", &frontend.state.name, "use_backend");
    let mut chosen = None;
    for (number, rule) in frontend.use_backends.iter().enumerate() {
        if let Some((section, line)) = lines.get(number) {
            report.heading_of_line(section, line);
        }
        match target(scene, rule, report) {
            RuleTarget::Skip => continue,
            RuleTarget::Unknown(name) => {
                report.detail("ends", &format!("there is no backend `{name}`: the search ends"));
                break;
            }
            RuleTarget::Backend(index) => match refusal(index) {
                Some(reason) => report.detail("skip", &reason),
                None => {
                    report.detail("uses", &plan.proxies[index].state.name);
                    chosen = Some(index);
                    break;
                }
            },
        }
    }
    if chosen.is_none() {
        if let Some((section, line)) =
            report.lines("frontend", &frontend.state.name, "default_backend").first()
        {
            report.heading_of_line(section, line);
        }
        chosen = frontend.default_backend.filter(|index| match refusal(*index) {
            Some(reason) => {
                report.detail("skip", &reason);
                false
            }
            None => true,
        });
    }
    let Some(index) = chosen else { return Backend::None("status 503: no backend is chosen".into()) };
    let proxy = &plan.proxies[index];
    scene.transaction.backend = Some(Local::new(proxy.state.clone()));
    report.heading(&format!("backend   {}", report.place_of("backend", &proxy.state.name)));
    Backend::Chosen(index)
}

enum RuleTarget {
    Skip,
    Unknown(String),
    Backend(usize),
}

/// Evaluates a `use_backend`.
fn target(scene: &Scene<'_>, rule: &UseBackend, report: &mut Explanation<'_>) -> RuleTarget {
    let env = scene.env();
    if let Some(condition) = &rule.condition {
        let explained = condition.explain(&env, false);
        report.condition(&explained);
        if explained.test != Test::Yes {
            return RuleTarget::Skip;
        }
    }
    match &rule.target {
        BackendTarget::Fixed(index) => RuleTarget::Backend(*index),
        BackendTarget::Named(format) if format.has_side_effects() => {
            report.detail("skip", "the name has side effects and is not evaluated");
            RuleTarget::Skip
        }
        BackendTarget::Named(format) => {
            let mut name = Vec::new();
            format.render(&env, &mut name);
            let name = String::from_utf8_lossy(&name).into_owned();
            report.detail("finds", &format!("the name `{name}`"));
            scene.plan.backends.get(&name).map_or(RuleTarget::Unknown(name), RuleTarget::Backend)
        }
    }
}
