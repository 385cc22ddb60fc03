//! `show resolvers` and the statistics of name servers, `show stat domain resolvers` (management
//! manual, 9.3 and 9.1).

use std::fmt::Write;

use state::resolvers::{NameServer, ResolversSection};

use crate::config_view::ConfigView;
use crate::field::{StatColumn, StatValue};
use crate::info::InfoFormat;

/// The response to `show resolvers`: the section `wanted`, or all of them if that is empty.
///
/// # Errors
/// The message for the client if the section does not exist.
pub fn show(view: &ConfigView, wanted: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut found = false;
    for section in view.resolvers.iter().filter(|section| wanted.is_empty() || *section.name == *wanted) {
        found = true;
        let _ = writeln!(out, "Resolvers section {}", section.name);
        for nameserver in &section.nameservers {
            let _ = writeln!(out, " nameserver {}:", nameserver.name);
            for (name, value) in nameserver.counters.named() {
                let _ = writeln!(out, "  {:12} {value}", format!("{name}:"));
            }
        }
    }
    match found || wanted.is_empty() {
        true => Ok(out),
        false => Err("Can't find that resolvers section".to_owned()),
    }
}

const fn column(name: &'static str, tags: &'static str, text: &'static str) -> StatColumn {
    StatColumn { name, tags, text }
}

/// The columns, in their order; the counters are those of [`state::resolvers::Counters::named`].
#[rustfmt::skip]
const COLUMNS: [StatColumn; 17] = [
    column("id",          "CGP", "Name of the name server"),
    column("pid",         "CGP", "Name of its section"),
    column("sent",        "MGP", "Queries sent"),
    column("send_error",  "MGP", "Queries that could not be sent"),
    column("valid",       "MGP", "Valid responses"),
    column("update",      "MGP", "Responses that changed a server's address"),
    column("cname",       "MGP", "Responses with an alias"),
    column("cname_error", "MGP", "Aliases without an address"),
    column("any_err",     "MGP", "Empty responses"),
    column("nx",          "MGP", "Responses for nonexistent names"),
    column("timeout",     "MGP", "Queries that timed out"),
    column("refused",     "MGP", "Queries refused"),
    column("other",       "MGP", "Other errors"),
    column("invalid",     "MGP", "Invalid responses"),
    column("too_big",     "MGP", "Responses larger than accepted"),
    column("truncated",   "MGP", "Truncated responses"),
    column("outdated",    "MGP", "Late responses"),
];

fn values(section: &ResolversSection, nameserver: &NameServer) -> impl Iterator<Item = StatValue> {
    let names = [StatValue::from(nameserver.name.to_string()), StatValue::from(section.name.to_string())];
    names.into_iter().chain(nameserver.counters.named().map(|(_, value)| StatValue::from(value)))
}

/// The metrics: name and description. The names of the section and the name server are labels.
pub(crate) fn described() -> impl Iterator<Item = (&'static str, &'static str)> {
    COLUMNS.iter().skip(2).map(|column| (column.name, column.text))
}

/// The counters of all name servers as Prometheus metrics, selected by name with `wanted`.
pub(crate) fn metrics(view: &ConfigView, wanted: impl Fn(&str) -> bool) -> String {
    let mut out = String::new();
    let servers =
        || view.resolvers.iter().flat_map(|section| section.nameservers.iter().map(move |ns| (section, ns)));
    if servers().next().is_none() {
        return out;
    }
    // The names precede the counters.
    for (at, column) in COLUMNS.iter().enumerate().skip(2).filter(|(_, column)| wanted(column.name)) {
        let name = column.name;
        let _ = writeln!(out, "# HELP haproxy_resolver_{name} {}", column.text);
        let _ = writeln!(out, "# TYPE haproxy_resolver_{name} gauge");
        for (section, nameserver) in servers() {
            let labels = format!("resolver=\"{}\",nameserver=\"{}\"", section.name, nameserver.name);
            let _ = write!(out, "haproxy_resolver_{name}{{{labels}}} ");
            if let Some(value) = values(section, nameserver).nth(at) {
                value.write(&mut out);
            }
            out.push('\n');
        }
    }
    out
}

/// The response to `show stat domain resolvers`: the counters of all name servers. With `describe`, the typed format includes
/// descriptions.
pub fn statistics(view: &ConfigView, format: InfoFormat, describe: bool) -> String {
    let mut out = String::new();
    match format {
        InfoFormat::Plain => {
            out.push_str("# ");
            COLUMNS.iter().for_each(|column| {
                let _ = write!(out, "{},", column.name);
            });
            out.push('\n');
        }
        InfoFormat::Json => out.push('['),
        InfoFormat::Typed => {}
    }
    let mut separator = "";
    for section in &view.resolvers {
        for nameserver in &section.nameservers {
            let fields = COLUMNS.iter().zip(values(section, nameserver));
            match format {
                InfoFormat::Plain => {
                    for (_, value) in fields {
                        value.write_csv(&mut out);
                        out.push(',');
                    }
                    out.push('\n');
                }
                InfoFormat::Typed => {
                    for (position, (column, value)) in fields.enumerate() {
                        let _ = write!(out, "N.{position}.{}", column.name);
                        column.write_typed(&value, describe, &mut out);
                    }
                }
                InfoFormat::Json => {
                    out.push_str(separator);
                    separator = ",";
                    for (position, (column, value)) in fields.enumerate() {
                        out.push(if position == 0 { '[' } else { ',' });
                        column.write_json("", position, &value, &mut out);
                    }
                    out.push(']');
                }
            }
        }
    }
    if format == InfoFormat::Json {
        out.push_str("]\n");
    }
    out
}
