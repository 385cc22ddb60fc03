//! The causes of abnormal ends in the exporter (docs/faults.md). HAProxy has no equivalent.

use std::fmt::Write;

pub use state::FaultCause;

use crate::config_view::ConfigView;
use crate::field::DescribedMetric;

const NAME: &str = "weir_faults_total";
const HELP: &str = "Total number of requests, streams and connections that ended abnormally.";

/// The metrics: object, name, type, description, labels.
pub(crate) fn described() -> impl Iterator<Item = DescribedMetric> {
    [("faults", "total".to_owned(), "counter", HELP, &["proxy", "fault"][..])].into_iter()
}

/// The metrics of causes that have occurred.
pub(crate) fn metrics(view: &ConfigView) -> String {
    let mut out = String::new();
    for proxy in view.states() {
        for (cause, count) in proxy.faults.counts() {
            if out.is_empty() {
                let _ = writeln!(out, "# HELP {NAME} {HELP}\n# TYPE {NAME} counter");
            }
            let _ = writeln!(out, "{NAME}{{proxy=\"{}\",fault=\"{}\"}} {count}", proxy.name, cause.name());
        }
    }
    out
}

/// Whether the metrics are selected by their name, and the proxies by their scope.
pub(crate) fn is_wanted(scope: impl Fn(&str) -> bool, named: impl Fn(&str) -> bool) -> bool {
    (scope("frontend") || scope("backend")) && named(NAME)
}
