//! The HTML of the statistics page: one table per proxy, readable on a phone, in the reader's light or dark scheme, without
//! scripts. Generated row by row, so that a farm of ten thousand servers does not block a worker for long.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::column::{C, ObjectKind, ObjectRow};
use crate::info::uptime_text;
use crate::page::request::{PageOptions, PageSettings};
use crate::pieces::StatPieces;
use crate::process::Statistics;

const STYLE: &str = "\
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2530;--dim:#65707c;--line:#dfe3e8;--head:#eef1f4;\
--up:#1d7f4e;--upbg:#e3f5ea;--warn:#9a6200;--warnbg:#fdf1d8;--down:#b3261e;--downbg:#fde5e3;--maint:#6b4ea8;\
--maintbg:#efe9fb;--idle:#5a6570;--idlebg:#eceff2;--link:#1660b0}\
@media(prefers-color-scheme:dark){:root{--bg:#12161b;--card:#1a2027;--ink:#e4e8ec;--dim:#97a2ae;--line:#2c343d;\
--head:#212932;--up:#7ad8a5;--upbg:#163626;--warn:#f0c069;--warnbg:#3a2d10;--down:#ff9a93;--downbg:#43201d;\
--maint:#c4b0f5;--maintbg:#2d2447;--idle:#a9b4bf;--idlebg:#272f38;--link:#7cb7f5}}\
*{box-sizing:border-box}body{margin:0;padding:1rem;background:var(--bg);color:var(--ink);\
font:14px/1.45 system-ui,sans-serif}header{display:flex;flex-wrap:wrap;gap:.4rem 1.5rem;align-items:baseline}\
h1{font-size:1.25rem;margin:0}h2{font-size:1.05rem;margin:0}a{color:var(--link)}.dim{color:var(--dim)}\
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:.5rem;margin:1rem 0}\
dl div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.4rem .7rem}\
dt{color:var(--dim);font-size:.8rem}dd{margin:0;font-variant-numeric:tabular-nums;font-size:1.05rem}\
nav{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:center;margin-bottom:1rem}\
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;margin:0 0 1rem;overflow:hidden}\
section>div.t{display:flex;flex-wrap:wrap;gap:.3rem .8rem;align-items:baseline;padding:.6rem .8rem}\
.s{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;white-space:nowrap}\
th,td{padding:.3rem .55rem;border-top:1px solid var(--line);text-align:right}th{font-weight:500;color:var(--dim);\
background:var(--head);font-size:.82rem}th.g{text-align:center;border-left:1px solid var(--line)}\
td.n,th.n{text-align:left;position:sticky;left:0;background:var(--card);font-weight:500}th.n{background:var(--head)}\
td.l{text-align:left}tr.sum td{background:var(--head);font-weight:500}tr.sum td.n{background:var(--head)}\
.b{display:inline-block;padding:.05rem .5rem;border-radius:1rem;font-size:.82rem;font-weight:600}\
.up{color:var(--up);background:var(--upbg)}.warn{color:var(--warn);background:var(--warnbg)}\
.down{color:var(--down);background:var(--downbg)}.maint{color:var(--maint);background:var(--maintbg)}\
.idle{color:var(--idle);background:var(--idlebg)}.note{padding:.5rem .8rem;border-radius:.5rem;margin-bottom:1rem}\
input,select,button{font:inherit;padding:.2rem .5rem;border:1px solid var(--line);border-radius:.4rem;\
background:var(--card);color:var(--ink)}input[type=checkbox]{width:1.1rem;height:1.1rem;vertical-align:-.2rem}\
.act{padding:.5rem .8rem;border-top:1px solid var(--line)}";

/// The displayed columns: group, title, column.
const SHOWN: &[(&str, &[(&str, C)])] = &[
    ("Queue", &[("Cur", C::qcur), ("Max", C::qmax)]),
    ("Sessions/s", &[("Cur", C::rate), ("Max", C::rate_max), ("Limit", C::rate_lim)]),
    (
        "Sessions",
        &[("Cur", C::scur), ("Max", C::smax), ("Limit", C::slim), ("Total", C::stot), ("Last", C::lastsess)],
    ),
    ("Bytes", &[("In", C::bin), ("Out", C::bout)]),
    ("Denied", &[("Req", C::dreq), ("Resp", C::dresp)]),
    ("Errors", &[("Req", C::ereq), ("Conn", C::econ), ("Resp", C::eresp)]),
    ("Warnings", &[("Retr", C::wretr), ("Redis", C::wredis)]),
    (
        "Checks",
        &[("Fail", C::chkfail), ("Down", C::chkdown), ("Downtime", C::downtime), ("Throttle", C::throttle)],
    ),
];

/// Actions of `stats admin`: value and label.
const ACTIONS: &[(&str, &str)] = &[
    ("ready", "Set state to READY"),
    ("drain", "Set state to DRAIN"),
    ("maint", "Set state to MAINT"),
    ("dhlth", "Health: disable checks"),
    ("ehlth", "Health: enable checks"),
    ("hrunn", "Health: force UP"),
    ("hnolb", "Health: force NOLB"),
    ("hdown", "Health: force DOWN"),
    ("dagent", "Agent: disable checks"),
    ("eagent", "Agent: enable checks"),
    ("arunn", "Agent: force UP"),
    ("adown", "Agent: force DOWN"),
    ("shutdown", "Kill sessions"),
];

/// Messages after an action: code, class, text.
const OUTCOMES: &[(&str, &str, &str)] = &[
    ("DONE", "up", "Action processed successfully."),
    ("NONE", "idle", "Nothing was changed: no server or no action was selected."),
    ("PART", "warn", "Action partially processed: some servers do not exist."),
    ("ERRP", "down", "Action not processed: unknown action, backend or servers."),
    ("DENY", "down", "Action denied."),
    ("EXCD", "down", "Action not processed: too many servers in one form."),
];

/// A page being generated.
pub(crate) struct Page {
    statistics: Arc<Statistics>,
    settings: PageSettings,
    options: PageOptions,
    admin: bool,
    /// The proxy with the open table.
    open: Option<u32>,
    /// Whether the open table is inside a form.
    form: bool,
}

impl Page {
    pub(crate) fn new(
        statistics: Arc<Statistics>,
        settings: PageSettings,
        options: PageOptions,
        admin: bool,
    ) -> Self {
        Self { statistics, settings, options, admin, open: None, form: false }
    }

    /// The page in pieces: head, some rows at a time, end.
    pub(crate) fn pieces(mut self, mut rows: StatPieces) -> impl Iterator<Item = Vec<u8>> {
        const ROWS: usize = 48;
        let mut started = false;
        let mut ended = false;
        std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let mut out = String::with_capacity(16 * 1024);
            if !started {
                started = true;
                self.write_head(&mut out);
                return Some(out.into_bytes());
            }
            for _ in 0..ROWS {
                match rows.next_row() {
                    Some(row) => self.write_row(&row, &mut out),
                    None => {
                        self.close(&mut out);
                        out.push_str("</body></html>\n");
                        ended = true;
                        break;
                    }
                }
            }
            Some(out.into_bytes())
        })
    }

    /// The page's address with additional options.
    fn link(&self, extra: &str) -> String {
        let mut link = escape(&self.settings.uri);
        if self.options.up {
            link.push_str(";up");
        }
        if let Some(scope) = &self.options.scope {
            let mut encoded = Vec::new();
            http::uri::url_encode(scope.as_bytes(), &mut encoded);
            link.push_str(";scope=");
            link.push_str(&String::from_utf8_lossy(&encoded));
        }
        link + extra
    }

    fn write_head(&self, out: &mut String) {
        let statistics = &self.statistics;
        let process = &statistics.process;
        let node =
            self.settings.node.as_deref().map(|node| format!(" on {}", escape(node))).unwrap_or_default();
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>Statistics{node}</title><style>{STYLE}</style></head><body>\n<header><h1>Statistics{node}</h1>"
        );
        if !self.settings.hide_version {
            let _ = write!(out, "<span class=dim>version {}, {}</span>", statistics.version, statistics.date);
        }
        if let Some(description) = &self.settings.description {
            let _ = write!(out, "<span>{}</span>", escape(description));
        }
        out.push_str("</header>\n<dl>");
        let total =
            |of: fn(&state::process::ProcessCounters) -> u64| process.counters.all().map(of).sum::<u64>();
        let now = base::clock::now_ms();
        let rate: u32 = process.counters.all().map(|c| c.connection_rate.per_second(now)).sum();
        let facts = [
            ("Process", std::process::id().to_string()),
            ("Uptime", uptime_text(statistics.uptime())),
            ("Threads", runtime::shard::workers().to_string()),
            (
                "Connections",
                format!("{} / {}", process.connections.load(Relaxed), process.maxconn.load(Relaxed)),
            ),
            ("Connections/s", rate.to_string()),
            ("Accepted", number(total(|c| c.connections.get()))),
            ("Requests", number(total(|c| c.requests.get()))),
            ("Sent", bytes(total(|c| c.bytes_out.get()))),
        ];
        for (name, value) in facts {
            let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        }
        out.push_str("</dl>\n");
        if let Some(outcome) = &self.options.outcome
            && let Some((_, class, text)) = OUTCOMES.iter().find(|row| row.0 == outcome)
        {
            let link = self.link("");
            let _ = writeln!(out, "<p class=\"note {class}\">{text} <a href=\"{link}\">Dismiss</a></p>");
        }
        self.write_links(out);
    }

    fn write_links(&self, out: &mut String) {
        let scope = self.options.scope.as_deref().map(escape).unwrap_or_default();
        let uri = escape(&self.settings.uri);
        let _ = write!(
            out,
            "<nav><form method=get action=\"{uri}\"><input name=scope maxlength=20 placeholder=\"Proxy name\" \
             aria-label=\"Filter by proxy name\" value=\"{scope}\"> <button>Filter</button></form>"
        );
        let mut links = vec![("Refresh now", self.link(""))];
        if let Some(refresh) = self.settings.refresh {
            if self.options.no_refresh {
                links.push(("Refresh automatically", self.link("")));
            } else {
                let _ = write!(out, "<span class=dim>refreshed every {}s</span>", refresh.as_secs());
                links.push(("Stop refreshing", self.link(";norefresh")));
            }
        }
        if self.options.up {
            links.push(("Show all servers", uri));
        } else {
            links.push(("Hide servers that are down", self.link(";up")));
        }
        links.push(("CSV", self.link(";csv")));
        links.push(("JSON", self.link(";json")));
        for (text, link) in links {
            let _ = write!(out, "<a href=\"{link}\">{text}</a>");
        }
        out.push_str("</nav>\n");
    }

    fn write_row(&mut self, row: &ObjectRow, out: &mut String) {
        if self.open != Some(row.proxy) {
            self.close(out);
            self.open(row, out);
        }
        let sum = matches!(row.kind, ObjectKind::Frontend | ObjectKind::Backend);
        let name = escape(&row.text(C::svname));
        let title = match (self.settings.show_legends, row.text(C::addr)) {
            (true, address) if !address.is_empty() => {
                format!(" title=\"{} cookie: {}\"", escape(&address), escape(&row.text(C::cookie)))
            }
            _ => String::new(),
        };
        let _ = write!(out, "<tr{}><td class=n{title}>", if sum { " class=sum" } else { "" });
        if self.form && row.kind == ObjectKind::Server {
            let _ = write!(out, "<label><input type=checkbox name=s value=\"{name}\"> {name}</label>");
        } else {
            out.push_str(match row.kind {
                ObjectKind::Frontend => "Frontend",
                ObjectKind::Backend => "Backend",
                _ => &name,
            });
        }
        out.push_str("</td>");
        write_status(row, out);
        for (_, columns) in SHOWN {
            for (_, column) in *columns {
                let _ = write!(out, "<td>{}</td>", cell(row, *column));
            }
        }
        out.push_str("</tr>\n");
    }

    fn open(&mut self, row: &ObjectRow, out: &mut String) {
        self.open = Some(row.proxy);
        let view = self.statistics.view();
        let proxy = view.proxies.iter().find(|proxy| proxy.state.id == row.proxy);
        self.form = self.admin && proxy.is_some_and(|proxy| !proxy.state.servers.load().is_empty());
        let name = escape(&row.text(C::pxname));
        let _ = write!(out, "<section id=\"{name}\"><div class=t><h2>{name}</h2>");
        let _ = write!(out, "<span class=dim>{}", row.text(C::mode));
        if let Some(proxy) = proxy {
            if self.settings.show_legends && proxy.state.is_backend {
                let _ = write!(out, ", {}", proxy.algorithm);
            }
            if let Some(description) = &proxy.description {
                let _ = write!(out, " — {}", escape(description));
            }
        }
        out.push_str("</span></div>");
        if self.form {
            let _ = write!(out, "<form method=post action=\"{}\">", self.link(""));
        }
        out.push_str("<div class=s><table><thead><tr><th class=n rowspan=2></th><th rowspan=2>Status</th>");
        out.push_str("<th rowspan=2>Last check</th><th rowspan=2>Weight</th>");
        for (group, columns) in SHOWN {
            let _ = write!(out, "<th class=g colspan={}>{group}</th>", columns.len());
        }
        out.push_str("</tr><tr>");
        for (_, columns) in SHOWN {
            for (title, _) in *columns {
                let _ = write!(out, "<th>{title}</th>");
            }
        }
        out.push_str("</tr></thead><tbody>\n");
    }

    fn close(&mut self, out: &mut String) {
        let Some(proxy) = self.open.take() else { return };
        out.push_str("</tbody></table></div>");
        if self.form {
            let _ = write!(
                out,
                "<div class=act><input type=hidden name=b value=\"#{proxy}\">With the selected servers: "
            );
            out.push_str("<select name=action aria-label=Action><option value=\"\"></option>");
            for (value, label) in ACTIONS {
                let _ = write!(out, "<option value={value}>{label}</option>");
            }
            out.push_str("</select> <button>Apply</button></div></form>");
        }
        out.push_str("</section>\n");
    }
}

/// Status, last check and weight.
fn write_status(row: &ObjectRow, out: &mut String) {
    let status = row.text(C::status);
    let class = match status.as_str() {
        "UP" | "UP (UNPUB)" | "OPEN" => "up",
        "no check" => "idle",
        s if s.starts_with("UP") || s.starts_with("DRAIN") || s.starts_with("NOLB") || s == "FULL" => "warn",
        s if s.starts_with("MAINT") || s == "STOP" => "maint",
        // The server is on the way up.
        s if s.starts_with("DOWN ") => "warn",
        _ => "down",
    };
    let since = match row.text(C::lastchg).parse::<u64>() {
        Ok(seconds) if row.kind != ObjectKind::Frontend => {
            format!(" <span class=dim>{}</span>", duration(seconds))
        }
        _ => String::new(),
    };
    let _ = write!(out, "<td class=l><span class=\"b {class}\">{}</span>{since}</td>", escape(&status));
    let check = row.text(C::check_status);
    if check.is_empty() {
        out.push_str("<td></td>");
    } else {
        let code = row.text(C::check_code);
        let code = if code.is_empty() { code } else { format!("/{code}") };
        let took = row.text(C::check_duration);
        let took = if took.is_empty() { took } else { format!(" in {took}ms") };
        let title = format!("{}: {}", row.text(C::check_desc), row.text(C::last_chk));
        let _ = write!(out, "<td class=l title=\"{}\">{check}{code}{took}</td>", escape(&title));
    }
    let role = match (row.kind, row.text(C::act).as_str(), row.text(C::bck).as_str()) {
        (ObjectKind::Server, "1", _) => " <span class=dim>active</span>".to_owned(),
        (ObjectKind::Server, ..) => " <span class=dim>backup</span>".to_owned(),
        (ObjectKind::Backend, act, bck) => format!(" <span class=dim>{act} act, {bck} bck</span>"),
        _ => String::new(),
    };
    let _ = write!(out, "<td>{}{role}</td>", row.text(C::weight));
}

fn cell(row: &ObjectRow, column: C) -> String {
    let text = row.text(column);
    let value = text.parse::<u64>();
    match (column, value) {
        (C::bin | C::bout, Ok(value)) => bytes(value),
        (C::stot, Ok(value)) => number(value),
        (C::lastsess, Ok(value)) => duration(value),
        (C::lastsess, _) => {
            if text.is_empty() {
                String::new()
            } else {
                "never".to_owned()
            }
        }
        (C::downtime, Ok(value)) => duration(value),
        (C::slim | C::rate_lim, Ok(0)) => "–".to_owned(),
        (C::throttle, Ok(value)) => format!("{value}%"),
        _ => escape(&text),
    }
}

/// Formats a number with thin spaces between thousands.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// `1.5 MiB`.
fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// Formats a duration as its two largest parts: `2d3h`, `5m7s`.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// Escapes text for HTML, including attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_human_readable() {
        assert_eq!(number(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!((bytes(512), bytes(1_572_864)), ("512 B".into(), "1.5 MiB".into()));
        assert_eq!(
            (duration(59), duration(3_700), duration(90_000)),
            ("59s".into(), "1h1m".into(), "1d1h".into())
        );
        assert_eq!(escape("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
