//! Counters of the controller, and their text for Prometheus.

use std::cell::Cell;
use std::fmt::Write;
use std::time::Duration;

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Tally(Cell<u64>);

impl Tally {
    /// Adds one.
    pub(crate) fn add(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// Returns the count.
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// The sum and the number of durations, with the last one.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    count: Cell<u64>,
    sum: Cell<Duration>,
}

impl Durations {
    /// Adds a duration.
    pub(crate) fn add(&self, duration: Duration) {
        self.count.set(self.count.get() + 1);
        self.sum.set(self.sum.get() + duration);
    }
}

/// The measures of the process, which belong to one thread.
#[derive(Debug, Default)]
pub(crate) struct Measures {
    pub(crate) events_received: Tally,
    pub(crate) watch_failures: Tally,
    pub(crate) reloads: Tally,
    pub(crate) refused: Tally,
    pub(crate) certificates: Tally,
    pub(crate) endpoint_lists: Tally,
    pub(crate) routes: Tally,
    pub(crate) status_writes: Tally,
    pub(crate) status_failures: Tally,
    pub(crate) proxy_starts: Tally,
    pub(crate) translations: Durations,
    pub(crate) applications: Durations,
    pub(crate) objects: Cell<u64>,
    pub(crate) quarantined: Cell<u64>,
    pub(crate) is_leader: Cell<bool>,
    pub(crate) is_ready: Cell<bool>,
    pub(crate) applied_at: Cell<u64>,
}

impl Measures {
    /// Returns the text for Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let counters = [
            ("watch_events_total", &self.events_received, "Events received from the API server."),
            ("watch_failures_total", &self.watch_failures, "Watches and lists that failed."),
            ("reloads_total", &self.reloads, "Reloads of the proxy that succeeded."),
            ("refused_configurations_total", &self.refused, "Configurations that the proxy refused."),
            ("certificate_updates_total", &self.certificates, "Certificates replaced without a reload."),
            (
                "endpoint_list_updates_total",
                &self.endpoint_lists,
                "Lists of endpoints written without a reload.",
            ),
            ("route_updates_total", &self.routes, "Maps of paths changed without a reload."),
            ("status_writes_total", &self.status_writes, "Statuses written."),
            ("status_failures_total", &self.status_failures, "Statuses that could not be written."),
            ("proxy_starts_total", &self.proxy_starts, "Starts of the proxy by `--run`."),
        ];
        for (name, tally, help) in counters {
            series(&mut out, name, "counter", help, &tally.get());
        }
        let flag = |value: &Cell<bool>| u64::from(value.get());
        let gauges = [
            ("objects", self.objects.get(), "Objects of the cluster that are known."),
            (
                "quarantined_objects",
                self.quarantined.get(),
                "Objects left out because the proxy refuses them.",
            ),
            ("leader", flag(&self.is_leader), "Whether this process writes statuses."),
            ("ready", flag(&self.is_ready), "Whether the proxy serves the current configuration."),
            ("last_apply_timestamp_seconds", self.applied_at.get(), "When a configuration was last applied."),
        ];
        for (name, value, help) in gauges {
            series(&mut out, name, "gauge", help, &value);
        }
        let durations = [
            ("translation_seconds", &self.translations, "Time to turn objects into a configuration."),
            ("apply_seconds", &self.applications, "Time to hand a changed configuration to the proxy."),
        ];
        for (name, durations, help) in durations {
            let (count, sum) = (durations.count.get(), durations.sum.get().as_secs_f64());
            let _ = write!(
                out,
                "# HELP weir_gateway_{name} {help}\n# TYPE weir_gateway_{name} summary\n\
                 weir_gateway_{name}_sum {sum}\nweir_gateway_{name}_count {count}\n"
            );
        }
        out
    }
}

fn series(out: &mut String, name: &str, kind: &str, help: &str, value: &u64) {
    let _ = write!(
        out,
        "# HELP weir_gateway_{name} {help}\n# TYPE weir_gateway_{name} {kind}\nweir_gateway_{name} {value}\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_help_type_and_value() {
        let measures = Measures::default();
        measures.reloads.add();
        measures.translations.add(Duration::from_millis(500));
        let text = measures.text();
        assert!(text.contains("\nweir_gateway_reloads_total 1\n"), "{text}");
        assert!(text.contains("\nweir_gateway_translation_seconds_sum 0.5\n"), "{text}");
        let helps = text.lines().filter(|line| line.starts_with("# HELP")).count();
        assert_eq!(helps, text.lines().filter(|line| line.starts_with("# TYPE")).count());
    }
}
