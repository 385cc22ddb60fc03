//! `docs/faults.md`: the causes of abnormal ends, from their table.

use std::fmt::Write;

use statistics::faults::FaultCause;

/// The whole page.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "# Faults\n\nEvery request, stream or connection that ends abnormally has a named cause. `%[fault]` in a log format is \
         this name, or empty after a normal end. The metric `weir_faults_total` counts the causes, with the labels `proxy` (the \
         backend if one was chosen, otherwise the frontend) and `fault`. Traces of `stream` errors show the name as `fault=`, \
         spans have it as the attribute `weir.fault`, and `show errors` shows it too. HAProxy has neither the fetch nor the \
         metric. Causes are finer than the [termination states](logs.md#termination-states): several causes can share one \
         state. The states are the same as in HAProxy.\n\n\
         ```haproxy fragment in=frontend\nlog 127.0.0.1 local0\nlog-format \"${HAPROXY_HTTP_LOG_FMT} fault=%[fault]\"\n\
         error-log-format \"%ci:%cp [%t] %f %ST fault=%[fault]\"\n```\n\n\
         `error-log-format` is used for requests that could not be read and for connections that failed before their first request. \
         [Troubleshooting](troubleshooting.md) has longer explanations. Made from the table of the causes by `cargo run -p xtask -- \
         docs`; do not edit.\n\n| name | what happened | what to do |\n| --- | --- | --- |\n",
    );
    for cause in FaultCause::ALL {
        let _ = writeln!(out, "| `{}` | {} | {} |", cause.name(), cause.happened(), cause.remedy());
    }
    out
}
