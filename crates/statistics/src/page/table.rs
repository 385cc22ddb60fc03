//! The table of proxies: a line for each side of a proxy, its servers or listeners, and the forms of administrators.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::history::{History, Series};
use state::proxy::Admission;
use state::{Proxy, Server};

use crate::column::{C, ObjectRow};
use crate::config_view::ProxyView;
use crate::page::details;
use crate::page::figures::{bytes, duration, escape, number, percent, rate, sparkline, time, times};
use crate::page::html::{Page, PageLine};
use crate::page::request::{Detailed, PageOptions};
use crate::page::standing::{self, Census, Condition, Load, ResponseTime};
use crate::stat;

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

/// The most squares in a line.
const SQUARES: usize = 60;

/// The number of points of a line's history; each is the sum of two samples.
const POINTS: usize = 30;

impl Page {
    /// The titles of the columns, for backends or frontends.
    pub(super) fn write_titles(&self, backends: bool, out: &mut String) {
        let (first, second) = if backends { ("Backends", "Servers") } else { ("Frontends", "Listeners") };
        let _ = writeln!(
            out,
            "<div class=\"r h\"><h2>{first}</h2><span>{second}</span><span>Requests/s</span><span>Failed</span>\
             <span>p50 · p99</span><span>Queue</span><span>In progress</span><span>Since</span></div>"
        );
    }

    /// Writes a line. Returns the servers that follow, if they are shown.
    pub(super) fn write_line(
        &self,
        line: &PageLine,
        out: &mut String,
    ) -> Option<Vec<(Condition, Arc<Server>)>> {
        let view = &self.view.proxies[line.place];
        let proxy = &view.state;
        // Both sides of a `listen` section have a line, but only one can have its name.
        let anchor =
            if line.is_backend || !self.lines.iter().any(|own| own.place == line.place && own.is_backend) {
                escape(&proxy.name)
            } else {
                format!("/f{}", proxy.id)
            };
        let own = if line.is_backend { proxy.id } else { proxy.id | FRONTEND };
        let listed = self.options.details.iter().any(|detail| match detail {
            Detailed::All => true,
            Detailed::Proxy(id) => *id == own,
            Detailed::Server(id, _) => line.is_backend && *id == proxy.id,
        });
        let searched = self.options.find.is_some()
            && line.is_backend
            && proxy.servers.load().iter().any(|server| self.finds_server(server));
        let is_open = listed || searched;
        let open = if is_open { " open" } else { "" };
        let _ = write!(
            out,
            "<details id=\"{anchor}\" data-p={own}{open}><summary class=r><h3 class=\"{}\" title=\"{}\">{}</h3><span class=q>",
            line.urgency.0.class(),
            escape(&self.tooltip(view, line.is_backend)),
            escape(&proxy.name)
        );
        if line.is_backend {
            self.write_squares(proxy, &line.census, SQUARES, out);
        } else {
            self.write_listeners(proxy, out);
        }
        out.push_str("</span>");
        let history =
            if line.is_backend { proxy.backend_history.get() } else { proxy.frontend_history.get() };
        write_load(&line.load, history.filter(|_| self.recent), "span", out);
        let since = match line.is_backend {
            true => duration(self.now.saturating_sub(proxy.changed_at.load(Relaxed)) / 1000),
            false => String::new(),
        };
        let _ = write!(out, "<span class=dim>{since}</span></summary>");
        // An update does not change closed lines.
        if self.options.is_live && !is_open && !self.options.open.contains(&own) {
            out.push_str("<div class=sv data-k></div></details>\n");
            return None;
        }
        out.push_str("<div class=sv>");
        self.write_summary(view, line, own, out);
        if line.is_backend {
            let servers = proxy.servers.load();
            if self.admin && !servers.is_empty() {
                let _ = write!(out, "<form method=post action=\"{}\">", self.link(|_| {}));
            }
            if !servers.is_empty() {
                out.push_str("<table class=u>");
                let mut servers = standing::ordered(&servers, self.recent);
                servers.retain(|(_, server)| self.filter.wants_server(server));
                if self.options.find.is_some()
                    && !proxy.name.to_lowercase().contains(self.options.find.as_deref().unwrap_or_default())
                {
                    servers.retain(|(_, server)| self.finds_server(server));
                }
                return Some(servers);
            }
        } else if view.listeners {
            out.push_str("<table class=u>");
            for listener in proxy.listeners.load().iter() {
                let row = stat::listener_row(view, listener, self.show);
                self.write_listener(&row, out);
            }
            out.push_str("</table>");
        }
        out.push_str("</div></details>\n");
        None
    }

    /// Ends the servers that follow a line.
    pub(super) fn end_servers(&self, line: &PageLine, out: &mut String) {
        out.push_str("</table>");
        if self.admin {
            let id = self.view.proxies[line.place].state.id;
            let _ = write!(
                out,
                "<div class=act><input type=hidden name=b value=\"#{id}\"><span>With the selected servers:</span> \
                 <select name=action aria-label=Action><option value=\"\"></option>"
            );
            for (value, label) in ACTIONS {
                let _ = write!(out, "<option value={value}>{label}</option>");
            }
            out.push_str("</select> <button>Apply</button></div></form>");
        }
        out.push_str("</div></details>\n");
    }

    fn tooltip(&self, view: &ProxyView, is_backend: bool) -> String {
        let mut parts = vec![format!("{}, mode {}", view.state.name, view.state.mode.name())];
        if self.settings.show_legends && is_backend && view.state.is_backend {
            parts.push(format!("balance {}", view.algorithm));
            parts.extend(view.cookie.as_ref().map(|cookie| format!("cookie {cookie}")));
        }
        parts.extend(view.description.as_ref().map(ToString::to_string));
        parts.join(", ")
    }

    /// A square for each server, or a summary for many of them.
    pub(super) fn write_squares(&self, proxy: &Proxy, census: &Census, most: usize, out: &mut String) {
        let total = census.total();
        if total == 0 {
            out.push_str("<small>no servers</small>");
            return;
        }
        if total > most {
            let class =
                if census.of(Condition::Down) + census.of(Condition::Failing) > 0 { "bad" } else { "" };
            let _ = write!(out, "<span class=\"{class}\">{}</span>", census.text());
            return;
        }
        let _ = write!(out, "<span role=img aria-label=\"{} servers: {}\">", total, census.text());
        for server in proxy.servers.load().iter().filter(|server| self.filter.wants_server(server)) {
            let condition = Condition::of(server, self.recent);
            let (class, text) = condition.square();
            let class = if class.is_empty() { String::new() } else { format!(" class={class}") };
            let _ =
                write!(out, "<i{class} title=\"{}: {}\">{text}</i>", escape(&server.name), condition.name());
        }
        out.push_str("</span>");
    }

    fn write_listeners(&self, proxy: &Proxy, out: &mut String) {
        let class = match proxy.admission() {
            Admission::Open => "up",
            Admission::Paused => "mid",
            Admission::Stopped => "dim",
        };
        let _ = write!(out, "<b class={class}>{}</b>", stat::frontend_status(proxy));
        if self.shows_addresses() {
            let listeners = proxy.listeners.load();
            let addresses: Vec<String> =
                listeners.iter().take(4).map(|listener| escape(&listener.address)).collect();
            let more = if listeners.len() > 4 { ", …" } else { "" };
            let _ = write!(out, " <small>{}{more}</small>", addresses.join(", "));
        }
    }

    /// The most important counters of a line, and on request all of them.
    fn write_summary(&self, view: &ProxyView, line: &PageLine, own: u32, out: &mut String) {
        let row = match line.is_backend {
            true => stat::backend_row(view, self.show),
            false => stat::frontend_row(view, self.show),
        };
        out.push_str("<p>");
        if let Some(description) = &view.description {
            let _ = write!(out, "<span>{}</span>", escape(description));
        }
        let mut fact = |name: &str, value: String| {
            let _ = write!(out, "<span><small>{name}</small> {value}</span>");
        };
        let value = |column| row.text(column).parse::<u64>().unwrap_or_default();
        fact("Mode", view.state.mode.name().to_owned());
        if line.is_backend && self.settings.show_legends {
            fact("Balance", escape(view.algorithm));
        }
        fact(
            "Sessions",
            format!(
                "{} now, {} most, {} in all",
                number(value(C::scur)),
                number(value(C::smax)),
                number(value(C::stot))
            ),
        );
        fact("Bytes", format!("{} in, {} out", bytes(value(C::bin)), bytes(value(C::bout))));
        let denied = value(C::dreq) + value(C::dresp) + value(C::dcon) + value(C::dses);
        fact("Denied", number(denied));
        fact("Errors", number(value(C::ereq) + value(C::econ) + value(C::eresp) + value(C::eint)));
        if line.is_backend {
            fact("Retries", number(value(C::wretr)));
            fact("Redispatches", number(value(C::wredis)));
            fact("Weight", number(value(C::weight)));
        }
        let all = self.options.details_of(Detailed::Proxy(own));
        self.write_toggle(Detailed::Proxy(own), all, out);
        out.push_str("</p>");
        if all {
            out.push_str("<div class=note>");
            details::write(&row, self.shows_addresses(), out);
            out.push_str("</div>");
        }
    }

    fn write_toggle(&self, detail: Detailed, is_on: bool, out: &mut String) {
        let text = if is_on { "Fewer counters" } else { "All counters" };
        let _ = write!(out, "<a class=l href=\"{}\">{text}</a>", self.detail_link(detail));
    }

    /// The address of the page with the details of an object switched.
    fn detail_link(&self, detail: Detailed) -> String {
        self.link(|PageOptions { details, .. }| {
            if details.contains(&detail) {
                details.retain(|own| *own != detail);
            } else {
                details.push(detail);
            }
        })
    }

    fn write_listener(&self, row: &ObjectRow, out: &mut String) {
        let value = |column| row.text(column).parse::<u64>().unwrap_or_default();
        let address = match self.shows_addresses() {
            true => format!(" <small>{}</small>", escape(&row.text(C::addr))),
            false => String::new(),
        };
        let _ = writeln!(
            out,
            "<tr id=\"/{}.l{}\"><td>{}{address}<td>{}<td>{} sessions<td>{} denied<td>{} in<td>{} out<td>{} / {}<td>",
            row.proxy,
            row.id,
            escape(&row.text(C::svname)),
            row.text(C::status),
            number(value(C::stot)),
            number(value(C::dreq) + value(C::dcon) + value(C::dses)),
            bytes(value(C::bin)),
            bytes(value(C::bout)),
            number(value(C::scur)),
            number(value(C::slim)),
        );
    }

    /// Writes rows of servers.
    pub(super) fn write_servers(
        &self,
        line: &PageLine,
        servers: &[(Condition, Arc<Server>)],
        out: &mut String,
    ) {
        let view = &self.view.proxies[line.place];
        let http = view.state.mode == state::Mode::Http;
        let base = self.link(|options| options.details.retain(|own| *own != Detailed::All));
        for (condition, server) in servers {
            let detail = Detailed::Server(view.state.id, server.id);
            let name = escape(&server.name);
            let _ = write!(out, "<tr id=/{}.{}><td", view.state.id, server.id);
            let cookie = view.server(server.id).and_then(|own| own.cookie.as_ref());
            if let Some(cookie) = cookie.filter(|_| self.settings.show_legends) {
                let _ = write!(out, " title=\"cookie {}\"", escape(cookie));
            }
            out.push('>');
            if self.admin {
                let _ = write!(out, "<input type=checkbox name=s value=\"{name}\" aria-label=\"{name}\">");
            }
            let link = match self.options.details.contains(&detail) {
                true => self.detail_link(detail),
                false => format!("{base};detail={}.{}", view.state.id, server.id),
            };
            let _ = write!(out, "<a class=l href=\"{link}\">{name}</a>");
            if self.shows_addresses() {
                let _ =
                    write!(out, " <small>{}</small>", escape(&stat::address_text(&server.address.load())));
            }
            let class = match condition {
                Condition::Down | Condition::Failing => "d",
                Condition::Changing => "w",
                Condition::Maintenance => "m",
                Condition::Draining => "g",
                Condition::Up | Condition::Spare => "up",
            };
            let status = standing::status_text(server, *condition);
            let _ = write!(out, "<td><b class={class}>{}</b>", escape(&status));
            let check = match *condition == Condition::Maintenance {
                true => String::new(),
                false => standing::check_text(server),
            };
            if !check.is_empty() || server.backup {
                let backup = if server.backup { " backup" } else { "" };
                let _ = write!(out, " <small>{check}{backup}</small>");
            }
            let load = Load::of_server(server, http, self.now, self.recent);
            write_load(&load, server.history.get().filter(|_| self.recent), "td", out);
            let since = server.changed.age(self.now) / 1000;
            let _ = writeln!(out, "<td class=dim>{}", duration(since));
            if self.options.details_of(detail) {
                let row = stat::server_row(view, server, self.show);
                let _ = write!(out, "<tr id=/{}.{}d><td class=x colspan=8>", view.state.id, server.id);
                details::write(&row, self.shows_addresses(), out);
            }
        }
    }
}

/// Set in the ids of the frontend's side, which distinguishes the two sides of a `listen` section.
const FRONTEND: u32 = 1 << 31;

/// The columns from the rate to the current sessions.
fn write_load<const N: usize>(load: &Load, history: Option<&History<N>>, tag: &str, out: &mut String) {
    let end = if tag == "span" { "</span>" } else { "" };
    match tag {
        "span" => out.push_str("<span class=n>"),
        _ => out.push_str("<td><span class=n>"),
    }
    if let Some(history) = history {
        let samples: Vec<u64> = history.samples(Series::Requests).collect();
        // Counted from the end, so that a new sample moves the line.
        let pairs: Vec<u64> = samples.rchunks(2).rev().map(|pair| pair.iter().sum()).collect();
        let first = usize::from(samples.len() % 2 == 1 && pairs.len() > 1);
        sparkline(&pairs[first..], POINTS, false, out);
    }
    let class = match load.failed {
        share if share >= 5.0 => "bad",
        share if share > 0.0 => "mid",
        _ => "dim",
    };
    let _ = write!(out, "{}</span><{tag} class={class}>{}{end}", rate(load.rate), percent(load.failed));
    let response = match load.response {
        Some(ResponseTime { quantiles: Some(quantiles), .. }) => times(quantiles),
        Some(ResponseTime { average, .. }) if average > 0 => {
            format!("<small>average</small> {}", time(average))
        }
        _ => "–".to_owned(),
    };
    let queued = if load.queued > 0 { "mid" } else { "dim" };
    let _ = write!(
        out,
        "<{tag}>{response}{end}<{tag} class={queued}>{}{end}<{tag}>{}",
        number(load.queued.into()),
        number(load.current.into())
    );
    if load.limit > 0 {
        let _ = write!(out, "<small> / {}</small>", number(load.limit.into()));
    }
    out.push_str(end);
}
