//! `docs/metrics-list.md`: the series of the Prometheus exporter, from its tables.

use std::fmt::Write;

use statistics::prometheus::MetricSeries;

/// The objects that share a table, and their letters.
const PROXIES: [(&str, char); 4] = [("frontend", 'F'), ("listener", 'L'), ("backend", 'B'), ("server", 'S')];

/// The whole page.
pub(crate) fn page() -> String {
    let mut out = String::from(
        "# Metrics list\n\nAll series of the Prometheus exporter. [Metrics](metrics.md) shows how to scrape them and which to watch. Made from \
         the tables of the exporter by `cargo run -p xtask -- docs`; do not edit.\n\nThe names are HAProxy's, and `weir_…` are Weir's own, \
         which appear once the feature is used. Series of an object without a value are left out.\n",
    );
    let all = statistics::prometheus::series();
    let of = |object: &str, is_extra: bool| {
        let own = all.iter().filter(|one| one.object == object && one.name.starts_with("haproxy_"));
        own.filter(|one| one.is_extra == is_extra).collect::<Vec<_>>()
    };
    table(&mut out, "Process", &of("process", false));
    shared(&mut out, "Frontends, listeners, backends and servers", &all, false);
    table(&mut out, "Stick tables", &of("sticktable", false));
    table(&mut out, "Name servers", &of("resolver", false));
    let weir: Vec<_> = all.iter().filter(|one| one.name.starts_with("weir_")).collect();
    table(&mut out, "Weir's own", &weir);
    shared(&mut out, "Extra counters (`?extra-counters`)", &all, true);
    out
}

fn table(out: &mut String, title: &str, series: &[&MetricSeries]) {
    let _ = writeln!(out, "\n## {title}\n\n| series | type | labels | meaning |\n| --- | --- | --- | --- |");
    for one in series {
        let labels = one.labels.join(", ");
        let _ = writeln!(out, "| `{}` | {} | {labels} | {} |", one.name, one.kind, one.help);
    }
}

/// A table of metrics that several kinds of objects have.
fn shared(out: &mut String, title: &str, all: &[MetricSeries], is_extra: bool) {
    let _ = writeln!(
        out,
        "\n## {title}\n\n`haproxy_<object>_<metric>`, in which the object is `frontend` (F), `listener` (L), `backend` (B) or `server` (S). All \
         have the label `proxy`, and those of listeners and servers also `listener` or `server`.\n\n\
         | metric | objects | type | more labels | meaning |\n| --- | --- | --- | --- | --- |"
    );
    let mut names: Vec<&str> = Vec::new();
    let metric = |one: &MetricSeries| -> Option<usize> {
        let is_proxy = PROXIES.iter().any(|(object, _)| *object == one.object);
        let start = "haproxy_".len() + one.object.len() + 1;
        (is_proxy && one.name.starts_with("haproxy_") && one.is_extra == is_extra).then_some(start)
    };
    for one in all {
        if let Some(name) = metric(one).map(|start| &one.name[start..])
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    for name in names {
        let has = |object: &str| {
            let full = format!("haproxy_{object}_{name}");
            all.iter().find(|one| one.object == object && one.name == full)
        };
        let letters: Vec<String> = PROXIES
            .iter()
            .filter(|(object, _)| has(object).is_some())
            .map(|(_, letter)| letter.to_string())
            .collect();
        let Some(one) = PROXIES.iter().find_map(|(object, _)| has(object)) else { continue };
        let own = ["proxy", "listener", "server"];
        let more: Vec<&str> = one.labels.iter().copied().filter(|label| !own.contains(label)).collect();
        let _ = writeln!(
            out,
            "| `{name}` | {} | {} | {} | {} |",
            letters.join(" "),
            one.kind,
            more.join(", "),
            one.help
        );
    }
}
