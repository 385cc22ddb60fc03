//! The lines that are printed each second.

use crate::clock::{Nanos, SECOND};
use crate::numbers::{short, time};
use crate::options::{HttpVersion, Layout, Options, Statuses};
use crate::tally::LoadTotals;

/// Formats the lines of a run.
pub(crate) struct LineReport {
    layout: Layout,
    statuses: Statuses,
    /// The versions that the run uses, for their columns.
    versions: Vec<HttpVersion>,
    users: u64,
    /// The totals of the previous line, and its time.
    last: LoadTotals,
    last_at: Nanos,
}

impl LineReport {
    /// The report of a run that starts now.
    pub(crate) fn new(options: &Options, start: Nanos) -> Self {
        let is_used = |version: &HttpVersion| options.urls.iter().any(|url| url.version == *version);
        Self {
            layout: options.layout,
            statuses: options.statuses,
            versions: HttpVersion::ALL.into_iter().filter(is_used).collect(),
            users: options.users as u64,
            last: LoadTotals::default(),
            last_at: start,
        }
    }

    /// The line with the names of the columns.
    pub(crate) fn header(&self) -> String {
        let mut line = match self.layout {
            Layout::Short => "#     time conns tot_conn  tot_req      tot_bytes    err  cps  rps  bps   ttfb",
            Layout::Long => {
                "#     time conns tot_conn  tot_req      tot_bytes    err  cps  rps  Bps  bps   ttfb   ttlb"
            }
            Layout::Raw => {
                "#_____time conns tot_conn  tot_req      tot_bytes    err thr cps rps Bps bps ttfb(us) ttlb(us)"
            }
        }
        .to_owned();
        if self.statuses != Statuses::None {
            line.push_str(" 1xx 2xx 3xx 4xx 5xx");
        }
        if self.statuses == Statuses::PerVersion {
            for version in &self.versions {
                line.push_str(&format!("   ({})1xx 2xx 3xx 4xx 5xx", version.label()));
            }
        }
        line
    }

    /// A line for the time since the previous one. `shown` is the value of the first column.
    pub(crate) fn line(&mut self, totals: &LoadTotals, now: Nanos, shown: u64) -> String {
        let seconds = now.saturating_sub(self.last_at).max(1) as f64 / SECOND as f64;
        let rate = |value: u64, before: u64| value.saturating_sub(before) as f64 / seconds;
        let (last, raw) = (&self.last, self.layout == Layout::Raw);
        let number = |value: f64| if raw { format!("{value:.1}") } else { short(value) };
        let bytes = rate(totals.bytes, last.bytes);
        let mut line = format!(
            "{shown:>10} {:>5} {:>8} {:>8} {:>14} {:>6}",
            totals.open,
            totals.connections,
            totals.requests,
            totals.bytes,
            totals.errors()
        );
        if raw {
            line.push_str(&format!(" {:>3}", totals.users * 100 / self.users));
        }
        let rates = [
            (true, rate(totals.connections, last.connections)),
            (true, rate(totals.requests, last.requests)),
            (self.layout != Layout::Short, bytes),
            (true, bytes * 8.0),
        ];
        rates
            .into_iter()
            .filter(|rate| rate.0)
            .for_each(|rate| line.push_str(&format!(" {}", number(rate.1))));
        let count = totals.measured - last.measured;
        let times = [totals.first_byte - last.first_byte, totals.last_byte - last.last_byte];
        for sum in times.iter().take(if self.layout == Layout::Short { 1 } else { 2 }) {
            match (sum.checked_div(count), raw) {
                (None, true) => line.push_str(" -"),
                (None, false) => line.push_str("    -  "),
                (Some(average), true) => line.push_str(&format!(" {:.1}", average as f64 / 1e3)),
                (Some(average), false) => line.push_str(&format!(" {:>6}", time(average))),
            }
        }
        if self.statuses != Statuses::None {
            (0..5).for_each(|class| line.push_str(&format!(" {:>3}", totals.class(class))));
        }
        if self.statuses == Statuses::PerVersion {
            for version in &self.versions {
                let [first, rest @ ..] = totals.statuses[*version as usize];
                line.push_str(&format!(" {first:>9}"));
                rest.iter().for_each(|count| line.push_str(&format!(" {count:>3}")));
            }
        }
        (self.last, self.last_at) = (*totals, now);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    fn report(line: &str) -> LineReport {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Ok(Command::Run(options)) = crate::arguments::parse(&words) else { panic!("{line}") };
        LineReport::new(&options, 0)
    }

    fn totals() -> LoadTotals {
        let mut totals = LoadTotals {
            open: 2,
            connections: 2,
            requests: 94,
            bytes: 11_468,
            measured: 94,
            first_byte: 94 * 515_700,
            last_byte: 94 * 515_800,
            users: 5,
            ..LoadTotals::default()
        };
        totals.failures[2] = 3;
        totals.statuses[1][1] = 90;
        totals.statuses[3][4] = 4;
        totals
    }

    #[test]
    fn lines_have_the_columns_of_haload() {
        let mut short = report("http://h/");
        assert_eq!(
            short.header(),
            "#     time conns tot_conn  tot_req      tot_bytes    err  cps  rps  bps   ttfb"
        );
        assert_eq!(
            short.line(&totals(), SECOND, 1),
            "         1     2        2       94          11468      3 2.00 94.0 91k7 515.7u"
        );
        assert_eq!(
            short.line(&totals(), 2 * SECOND, 2),
            "         2     2        2       94          11468      3 0.00 0.00 0.00    -  "
        );
        let mut long = report("-l http://h/");
        assert!(long.header().ends_with("  cps  rps  Bps  bps   ttfb   ttlb"));
        assert!(long.line(&totals(), SECOND, 1).ends_with("      3 2.00 94.0 11k4 91k7 515.7u 515.8u"));
        let mut raw = report("-ll -u 10 http://h/");
        assert!(raw.header().starts_with("#_____time") && raw.header().ends_with("ttfb(us) ttlb(us)"));
        let line = raw.line(&totals(), SECOND, 1_795_911_237);
        assert_eq!(
            line,
            "1795911237     2        2       94          11468      3  50 2.0 94.0 11468.0 91744.0 515.7 515.8"
        );
        assert!(raw.line(&totals(), 2 * SECOND, 2).ends_with(" 0.0 0.0 0.0 0.0 - -"));
    }

    #[test]
    fn statuses_are_shown_in_all_and_by_version() {
        let mut all = report("-hs http://h/");
        assert!(all.header().ends_with("  ttfb 1xx 2xx 3xx 4xx 5xx"));
        assert!(all.line(&totals(), SECOND, 1).ends_with(" 515.7u   0  90   0   0   4"));
        let mut versions = report("-hsv http://h/ quic://h/");
        assert!(versions.header().ends_with(" 5xx   (h1)1xx 2xx 3xx 4xx 5xx   (h3)1xx 2xx 3xx 4xx 5xx"));
        let line = versions.line(&totals(), SECOND, 1);
        assert!(line.ends_with("   4         0  90   0   0   0         0   0   0   0   4"), "{line}");
        assert_eq!(line.len(), versions.header().len());
    }

    #[test]
    fn rates_are_those_since_the_previous_line() {
        let mut report = report("http://h/");
        report.line(&totals(), SECOND, 1);
        let later = LoadTotals { requests: 194, connections: 3, ..totals() };
        assert!(report.line(&later, 3 * SECOND, 3).contains("      3 500m 50.0 0.00"));
    }
}
