//! The report at the end of a run.

use crate::clock::{Nanos, SECOND};
use crate::histogram::{Latencies, PERCENTILES};
use crate::numbers::{short, time};
use crate::options::HttpVersion;
use crate::tally::{Failure, LoadTotals};

/// The results of a run.
pub(crate) struct Summary {
    pub(crate) totals: LoadTotals,
    pub(crate) latencies: Latencies,
    pub(crate) elapsed: Nanos,
    /// Requests of `-R` that were due and never sent.
    pub(crate) unsent: u64,
}

impl Summary {
    fn rate(&self, count: u64) -> f64 {
        count as f64 * SECOND as f64 / self.elapsed.max(1) as f64
    }

    /// The report as text: comment lines, so that programs that read the lines of `haload` skip them.
    pub(crate) fn text(&self) -> String {
        let totals = &self.totals;
        let mut text = format!(
            "# {} requests in {}, {} requests/s, {} bit/s, {} connections, {} errors\n",
            totals.requests,
            time(self.elapsed),
            short(self.rate(totals.requests)),
            short(self.rate(totals.bytes) * 8.0),
            totals.connections,
            totals.errors()
        );
        if self.latencies.count() > 0 {
            text.push_str(&format!("# latency: min {}", time(self.latencies.min())));
            text.push_str(&format!(", mean {}", time(self.latencies.mean())));
            for (name, share) in PERCENTILES {
                text.push_str(&format!(", {name} {}", time(self.latencies.percentile(share))));
            }
            text.push_str(&format!(", max {}\n", time(self.latencies.max())));
        }
        let failures = Failure::ALL.iter().zip(totals.failures).filter(|(_, count)| *count > 0);
        let failures: Vec<String> = failures.map(|(one, count)| format!("{} {count}", one.text())).collect();
        if !failures.is_empty() {
            text.push_str(&format!("# errors: {}\n", failures.join(", ")));
        }
        if self.unsent > 0 {
            text.push_str(&format!(
                "# {} more requests were due: the rate needs more users (-u) or a faster server\n",
                self.unsent
            ));
        }
        text
    }

    /// The report as one JSON object. Times are in microseconds.
    pub(crate) fn json(&self) -> String {
        let totals = &self.totals;
        let us = |value: Nanos| value as f64 / 1e3;
        let list = |pairs: Vec<String>| pairs.join(",");
        let failures = Failure::ALL.iter().zip(totals.failures);
        let failures = list(failures.map(|(one, count)| format!("\"{}\":{count}", one.text())).collect());
        let classes = |counts: [u64; 5]| {
            list((0..5).map(|class| format!("\"{}xx\":{}", class + 1, counts[class])).collect())
        };
        let all = [0, 1, 2, 3, 4].map(|class| totals.class(class));
        let versions = HttpVersion::ALL.into_iter().zip(totals.statuses);
        let versions = versions.filter(|(_, counts)| counts.iter().any(|count| *count > 0));
        let versions = list(
            versions.map(|(one, counts)| format!("\"{}\":{{{}}}", one.label(), classes(counts))).collect(),
        );
        let latency = match self.latencies.count() {
            0 => "null".to_owned(),
            _ => {
                let percentiles = PERCENTILES.map(|(name, share)| (name, self.latencies.percentile(share)));
                let ends = [("min", self.latencies.min()), ("mean", self.latencies.mean())];
                let all = ends.into_iter().chain(percentiles).chain([("max", self.latencies.max())]);
                format!(
                    "{{{}}}",
                    list(all.map(|(name, value)| format!("\"{name}\":{:.1}", us(value))).collect())
                )
            }
        };
        let first_byte = totals.first_byte.checked_div(totals.measured);
        let first_byte = first_byte.map_or("null".to_owned(), |mean| format!("{:.1}", us(mean)));
        format!(
            "{{\"seconds\":{:.3},\"requests\":{},\"requests_per_second\":{:.1},\"connections\":{},\"bytes\":{},\
             \"bytes_per_second\":{:.1},\"errors\":{},\"errors_by_reason\":{{{failures}}},\"due_not_sent\":{},\
             \"statuses\":{{{}}},\"statuses_by_version\":{{{versions}}},\"first_byte_us\":{{\"mean\":{first_byte}}},\
             \"latency_us\":{latency}}}\n",
            self.elapsed as f64 / SECOND as f64,
            totals.requests,
            self.rate(totals.requests),
            totals.connections,
            totals.bytes,
            self.rate(totals.bytes),
            totals.errors(),
            self.unsent,
            classes(all),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MS;

    fn summary() -> Summary {
        let mut latencies = Latencies::new();
        (1..=100).for_each(|number| latencies.record(number * MS));
        let mut totals = LoadTotals {
            requests: 100,
            connections: 2,
            bytes: 12_200,
            measured: 100,
            ..LoadTotals::default()
        };
        totals.first_byte = 100 * MS;
        totals.statuses[2][1] = 100;
        totals.failures[Failure::Reset as usize] = 4;
        Summary { totals, latencies, elapsed: 2 * SECOND, unsent: 7 }
    }

    #[test]
    fn the_text_consists_of_comments() {
        let text = summary().text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "# 100 requests in 2.000s, 50.0 requests/s, 48k8 bit/s, 2 connections, 4 errors"
        );
        assert!(lines[1].starts_with("# latency: min 1.000m, mean 50.5"), "{text}");
        assert!(lines[1].contains(", p50 50.0") && lines[1].contains(", p99 99.0"), "{text}");
        assert_eq!(lines[2], "# errors: reset 4");
        assert!(lines[3].starts_with("# 7 more requests were due: "));
    }

    #[test]
    fn json_has_all_figures() {
        let json = summary().json();
        for part in [
            "{\"seconds\":2.000,\"requests\":100,\"requests_per_second\":50.0,\"connections\":2,",
            "\"errors\":4,\"errors_by_reason\":{\"connect\":0,",
            "\"reset\":4,",
            "\"due_not_sent\":7,\"statuses\":{\"1xx\":0,\"2xx\":100,",
            "\"statuses_by_version\":{\"h2\":{\"1xx\":0,\"2xx\":100,",
            "\"first_byte_us\":{\"mean\":1000.0},\"latency_us\":{\"min\":",
            "\"p99.9\":",
        ] {
            assert!(json.contains(part), "{part} in {json}");
        }
        let none = Summary { totals: LoadTotals::default(), latencies: Latencies::new(), ..summary() };
        assert!(none.json().contains("\"first_byte_us\":{\"mean\":null},\"latency_us\":null}"));
    }
}
