//! `log otel@<section>`: sends log lines as records to an OpenTelemetry collector.
//!
//! The attributes have the same names as those of the syslog receiver of the OpenTelemetry Collector.

use base::clock::WallTime;
use otlp::LogRecord;
use plan::log::Logger;
use state::telemetry::{Collector, QueuedSignal};

use super::header::{LogLine, MessageOrigin};

/// Queues a line. Returns `false` if it was dropped.
pub(super) fn push(collector: &Collector, logger: &Logger, line: &LogLine<'_>) -> bool {
    let now = WallTime::now();
    let mut body = line.text;
    while let [rest @ .., b'\n'] = body {
        body = rest;
    }
    let record = LogRecord {
        time_ns: (now.seconds.max(0) as u64) * 1_000_000_000 + u64::from(now.nanos),
        level: line.level.max(logger.min_level),
        body: &body[..body.len().min(logger.max_length)],
        context: line.context,
    };
    collector.push(QueuedSignal::Logs, 1, |out| {
        otlp::write_log(out, &record, |attributes| {
            let (host, process) = match line.origin {
                MessageOrigin::Own => (None, None),
                MessageOrigin::Received { host, pid } => (host, pid),
            };
            attributes.number("facility", line.facility.unwrap_or(logger.facility).into());
            let texts = [
                ("appname", Some(line.tag)),
                ("hostname", host),
                ("proc_id", process),
                ("msg_id", Some(line.message_id)),
                ("structured_data", Some(line.structured)),
            ];
            for (name, text) in texts {
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    attributes.text(name, text);
                }
            }
        });
    })
}
