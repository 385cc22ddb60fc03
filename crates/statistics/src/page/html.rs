//! The HTML of the statistics page, generated in pieces: a survey of all proxies, the head with the verdict, then the lines of
//! the table row by row, so that a farm of ten thousand servers does not block a worker for long. Works without scripts.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use base::raw::bytes_of;
use state::Server;

use crate::config_view::ConfigView;
use crate::page::assets::{SCRIPT, STYLE, VERSION};
use crate::page::attention::{self, Findings, Urgency};
use crate::page::figures::{bytes, count, duration, escape, number, percent, rate, sparkline, time, times};
use crate::page::request::{Detailed, ORDERS, PageOptions, PageOrder, PageSettings};
use crate::page::standing::{Census, Condition, Level, Load};
use crate::page::totals::PageTotals;
use crate::process::Statistics;
use crate::stat::{RowFilter, Show};

/// The number of servers in a piece.
const ROWS: usize = 32;

/// The number of servers looked at in a piece of the survey.
const SURVEYED: usize = 512;

/// The number of problems shown at once; the others are unfolded.
const SHOWN_PROBLEMS: usize = 10;

/// Messages after an action: code, class, text.
const OUTCOMES: &[(&str, &str, &str)] = &[
    ("DONE", "up", "Action processed successfully."),
    ("NONE", "idle", "Nothing was changed: no server or no action was selected."),
    ("PART", "w", "Action partially processed: some servers do not exist."),
    ("ERRP", "d", "Action not processed: unknown action, backend or servers."),
    ("DENY", "d", "Action denied."),
    ("EXCD", "d", "Action not processed: too many servers in one form."),
];

/// One line of the table: one side of a proxy.
pub(super) struct PageLine {
    /// Its place in the view.
    pub(super) place: usize,
    pub(super) is_backend: bool,
    pub(super) urgency: Urgency,
    pub(super) load: Load,
    pub(super) census: Census,
}

/// A page being generated.
pub(crate) struct Page {
    pub(super) statistics: Arc<Statistics>,
    pub(super) view: Arc<ConfigView>,
    pub(super) settings: PageSettings,
    pub(super) options: PageOptions,
    pub(super) filter: RowFilter,
    pub(super) admin: bool,
    pub(super) now: u64,
    /// Whether histories are kept.
    pub(super) recent: bool,
    pub(super) show: Show,
    /// The page's own address for links, without options.
    pub(super) base: String,
    pub(super) findings: Findings,
    pub(super) totals: PageTotals,
    pub(super) lines: Vec<PageLine>,
}

enum PageStep {
    /// Looks at the proxy at this place.
    Survey(usize),
    Head,
    /// Writes the line with this number.
    Line(usize),
    /// Writes servers of that line, from a position.
    Servers(usize, Vec<(Condition, Arc<Server>)>, usize),
    Tail,
    End,
}

impl Page {
    pub(crate) fn new(
        statistics: Arc<Statistics>,
        settings: PageSettings,
        options: PageOptions,
        filter: RowFilter,
        admin: bool,
    ) -> Self {
        let view = statistics.view();
        let show = Show { legends: true, ..Show::now(&statistics, true) };
        let recent = statistics.keeps_history.load(Relaxed);
        let now = now_ms();
        statistics.shown_at.store(now, Relaxed);
        let base = settings.uri.to_string();
        // The wall shows no forms, so that it may be shown in frames.
        let admin = admin && !options.is_wall;
        Self {
            statistics,
            view,
            settings,
            options,
            filter,
            admin,
            now,
            recent,
            show,
            base,
            findings: Findings::default(),
            totals: PageTotals::default(),
            lines: Vec::new(),
        }
    }

    /// Whether addresses, cookies and keys may be shown.
    pub(super) fn shows_addresses(&self) -> bool {
        self.settings.show_legends || self.admin
    }

    /// Whether the page is about the whole process.
    pub(super) fn shows_process(&self) -> bool {
        self.settings.scope.is_empty()
    }

    /// The page in pieces. Pieces of the survey are empty.
    pub(crate) fn pieces(mut self) -> impl Iterator<Item = Vec<u8>> {
        let mut stage = PageStep::Survey(0);
        std::iter::from_fn(move || {
            let mut out = String::new();
            if !matches!(stage, PageStep::Survey(_) | PageStep::End) {
                out.reserve(16 * 1024);
            }
            let before = std::mem::replace(&mut stage, PageStep::End);
            stage = match before {
                PageStep::End => return None,
                PageStep::Survey(at) => self.survey(at).map_or(PageStep::Head, PageStep::Survey),
                PageStep::Head => {
                    self.write_head(&mut out);
                    if self.options.is_wall {
                        self.write_wall_begin(&mut out);
                    } else {
                        self.write_attention(&mut out);
                        self.write_table_head(&mut out);
                    }
                    PageStep::Line(0)
                }
                PageStep::Line(at) => self.write_lines(at, &mut out),
                PageStep::Servers(at, servers, from) => {
                    let to = (from + ROWS).min(servers.len());
                    self.write_servers(&self.lines[at], &servers[from..to], &mut out);
                    if to == servers.len() {
                        self.end_servers(&self.lines[at], &mut out);
                        PageStep::Line(at + 1)
                    } else {
                        PageStep::Servers(at, servers, to)
                    }
                }
                PageStep::Tail => {
                    self.write_tail(&mut out);
                    PageStep::End
                }
            };
            Some(bytes_of(&out).into_owned())
        })
    }

    /// Writes lines until servers follow or the piece is long enough.
    fn write_lines(&self, from: usize, out: &mut String) -> PageStep {
        for at in from..self.lines.len() {
            let line = &self.lines[at];
            if at > 0 && self.lines[at - 1].is_backend != line.is_backend && !self.options.is_wall {
                self.write_titles(false, out);
            }
            if self.options.is_wall {
                self.write_wall(line, out);
            } else if let Some(servers) = self.write_line(line, out) {
                return PageStep::Servers(at, servers, 0);
            }
            if out.len() > 16 * 1024 {
                return PageStep::Line(at + 1);
            }
        }
        PageStep::Tail
    }

    /// Looks at proxies from a place on. Returns the next place.
    fn survey(&mut self, from: usize) -> Option<usize> {
        let view = self.view.clone();
        let mut seen = 0;
        for (place, proxy) in view.proxies.iter().enumerate().skip(from) {
            if !self.filter.wants(&proxy.state) {
                continue;
            }
            if seen > SURVEYED {
                return Some(place);
            }
            let servers = proxy.state.servers.load();
            seen += 1 + servers.len();
            if proxy.state.is_backend && !(proxy.state.is_frontend && servers.is_empty()) {
                let load = Load::of_backend(&proxy.state, self.now, self.recent);
                let (mut census, mut bad) = (Census::default(), Vec::new());
                for server in servers.iter().filter(|server| self.filter.wants_server(server)) {
                    let condition = Condition::of(server, self.recent);
                    census.add(condition);
                    if condition.is_problem() {
                        bad.push((condition, server.clone()));
                    }
                }
                self.findings.census.merge(&census);
                if census.total() > 0 && !crate::stat::backend_is_up(&proxy.state) {
                    self.findings.backends_down += 1;
                }
                let urgency =
                    attention::of_backend(proxy, &census, &bad, &load, self.now, &mut self.findings);
                self.totals.add_backend(&proxy.state, &load);
                self.lines.push(PageLine { place, is_backend: true, urgency, load, census });
            }
            if proxy.state.is_frontend {
                let load = Load::of_frontend(&proxy.state, self.now, self.recent, self.show.maxconn);
                let urgency = attention::of_frontend(proxy, &load, &mut self.findings);
                self.totals.add_frontend(&proxy.state, &load);
                self.lines.push(PageLine {
                    place,
                    is_backend: false,
                    urgency,
                    load,
                    census: Census::default(),
                });
            }
        }
        if self.shows_process() && self.filter.scope.is_none() {
            attention::of_process(&self.statistics, &mut self.findings);
        }
        self.findings.is_stopping = self.statistics.process.stopping.load(Relaxed);
        self.findings.finish();
        self.arrange();
        None
    }

    /// Selects and orders the lines.
    fn arrange(&mut self) {
        let mut lines = std::mem::take(&mut self.lines);
        let only_problems = self.options.only_problems;
        lines.retain(|line| (!only_problems || line.urgency.0 > Level::Notice) && self.finds(line));
        let name = |line: &PageLine| self.view.proxies[line.place].state.name.clone();
        match self.options.order {
            PageOrder::Config => {}
            PageOrder::Worst => lines.sort_by_key(|line| std::cmp::Reverse(line.urgency)),
            PageOrder::Name => lines.sort_by_cached_key(name),
            PageOrder::Rate => lines.sort_by(|a, b| b.load.rate.total_cmp(&a.load.rate)),
            PageOrder::Errors => lines.sort_by(|a, b| b.load.failed.total_cmp(&a.load.failed)),
        }
        lines.sort_by_key(|line| !line.is_backend);
        self.lines = lines;
    }

    /// Whether the line, or one of its servers or listeners, has the text that is searched for.
    fn finds(&self, line: &PageLine) -> bool {
        let Some(text) = &self.options.find else { return true };
        let proxy = &self.view.proxies[line.place].state;
        if proxy.name.to_lowercase().contains(text) {
            return true;
        }
        if line.is_backend {
            return proxy.servers.load().iter().any(|server| self.finds_server(server));
        }
        self.shows_addresses()
            && proxy.listeners.load().iter().any(|listener| listener.address.to_lowercase().contains(text))
    }

    /// Whether a server itself has the text that is searched for.
    pub(super) fn finds_server(&self, server: &Server) -> bool {
        let Some(text) = &self.options.find else { return false };
        server.name.to_lowercase().contains(text)
            || self.shows_addresses() && crate::stat::address_text(&server.address.load()).contains(text)
    }

    /// The page's address with other options, escaped.
    pub(super) fn link(&self, change: impl FnOnce(&mut PageOptions)) -> String {
        let mut options = self.options.clone();
        change(&mut options);
        escape(&format!("{}{}", self.base, options.words()))
    }

    fn write_head(&self, out: &mut String) {
        let (verdict, details) = self.findings.verdict();
        let level = self.findings.level();
        let (mark, color) = match level {
            Level::Critical => ("✕ ", "bb2118"),
            Level::Warning => ("! ", "d79a1b"),
            _ => ("", "1f8f58"),
        };
        let name = match (&self.settings.node, &self.settings.description) {
            (Some(node), _) => node.to_string(),
            (None, Some(description)) => description.to_string(),
            (None, None) => "Statistics".to_owned(),
        };
        let (name, title) = (escape(&name), escape(&verdict.join(", ")));
        let (first, others) = verdict.split_first().map_or(("", &[][..]), |(first, others)| (first, others));
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("<strong>{}</strong>", escape(&others.join(", "))),
        };
        // Writing into a String cannot fail.
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>\
             <meta name=viewport content=\"width=device-width,initial-scale=1\"><title>{mark}{title} · {name}</title>\
             <link rel=icon href=\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E\
             %3Ccircle cx='4' cy='4' r='4' fill='%23{color}'/%3E%3C/svg%3E\">"
        );
        if !self.options.is_live {
            let _ = write!(out, "<style>{}</style>", STYLE.text);
        }
        let wall = if self.options.is_wall { " class=wall" } else { "" };
        let _ =
            write!(out, "</head><body data-v=\"{}\"{wall}>\n<header><h1>{name}</h1><p class=dim>", *VERSION);
        self.write_facts(out);
        out.push_str("</p><button id=live type=button hidden></button></header>\n<main>");
        self.write_outcome(out);
        let _ = write!(
            out,
            "<div class=k><div class=\"v {}\"><b>{}</b>{others}<small>{}</small></div>",
            level.class(),
            escape(first),
            escape(&details)
        );
        self.write_tiles(out);
        out.push_str("</div>\n");
    }

    /// The facts next to the title.
    fn write_facts(&self, out: &mut String) {
        let statistics = &self.statistics;
        let mut facts = Vec::new();
        if let (Some(_), Some(description)) = (&self.settings.node, &self.settings.description) {
            facts.push(escape(description));
        }
        if !self.settings.hide_version {
            facts.push(format!("version {}, {}", statistics.version, statistics.date));
        }
        facts.push(format!("up {}", duration(statistics.uptime())));
        if let Some(refresh) = self.settings.refresh.filter(|_| !self.options.no_refresh) {
            facts.push(format!("refreshed every {}s", refresh.as_secs().max(1)));
        }
        out.push_str(&facts.join(" · "));
    }

    fn write_outcome(&self, out: &mut String) {
        if let Some(outcome) = &self.options.outcome
            && let Some((_, class, text)) = OUTCOMES.iter().find(|row| row.0 == outcome)
        {
            let link = self.link(|_| {});
            let _ = writeln!(out, "<p class=\"p note {class}\">{text} <a href=\"{link}\">Dismiss</a></p>");
        }
    }

    fn write_tiles(&self, out: &mut String) {
        let totals = &self.totals;
        let points = state::history::SAMPLES;
        let mut tile = |title: &str, class: &str, value: String, values: &[u64]| {
            let _ = write!(out, "<div{class}><small>{title}</small><b>{value}</b>");
            sparkline(values, points, true, out);
            out.push_str("</div>");
        };
        tile("Requests/s", "", rate(totals.rate), &totals.requests());
        let share = totals.failed_share();
        let class = match share {
            share if share >= 1.0 => " class=\"e bad\"",
            share if share > 0.0 => " class=\"e\"",
            _ => "",
        };
        tile("Answered 5xx", class, percent(share), &totals.failures());
        match totals.quantiles() {
            Some(quantiles) => tile("Response p50 · p99", "", times(quantiles), &totals.responses()),
            None => tile("Response, average", "", time(totals.response), &totals.responses()),
        }
        let queued = if totals.queued > 0 { " class=mid" } else { "" };
        tile("Queued", queued, number(totals.queued), &totals.queue());
        let limit = u64::from(self.statistics.process.maxconn.load(Relaxed));
        let current = match self.shows_process() && limit > 0 {
            true => format!("{}<small> / {}</small>", number(totals.current), number(limit)),
            false => number(totals.current),
        };
        tile("Connections", "", current, &totals.sessions());
    }

    fn write_attention(&self, out: &mut String) {
        let problems = &self.findings.problems;
        if problems.is_empty() {
            return;
        }
        out.push_str("<section class=\"p a\"><h2>Needs attention</h2><ol>");
        for (at, problem) in problems.iter().enumerate() {
            if at == SHOWN_PROBLEMS {
                let more = count(problems.len() - at + self.findings.dropped, "more problem")
                    .replace("more problem", "more");
                let _ = write!(out, "</ol><details class=more id=more><summary>{more}</summary><ol>");
            }
            let mark = match problem.level {
                Level::Critical => "✕",
                Level::Warning => "!",
                _ => "·",
            };
            let href = problem.link.as_deref().map_or_else(String::new, |name| {
                let mut encoded = Vec::new();
                http::uri::url_encode(name.as_bytes(), &mut encoded);
                format!(" href=\"#{}\"", escape(&String::from_utf8_lossy(&encoded)))
            });
            let _ = write!(
                out,
                "<li class={}><a{href}><i>{mark}</i><b>{}</b><span>{}</span><span class=dim>{}</span></a>",
                problem.level.class(),
                escape(&problem.subject),
                escape(&problem.what),
                escape(&problem.why)
            );
        }
        out.push_str("</ol>");
        if problems.len() > SHOWN_PROBLEMS {
            out.push_str("</details>");
        }
        out.push_str("</section>\n");
    }

    fn write_table_head(&self, out: &mut String) {
        out.push_str("<section class=\"p t\" id=\"/table\"><nav>");
        self.write_search(out);
        let mut link = |text: &str, is_on: bool, href: String| {
            let class = if is_on { "l on" } else { "l" };
            let _ = write!(out, "<a class=\"{class}\" href=\"{href}\">{text}</a>");
        };
        let only = self.options.only_problems;
        link("Only problems", only, self.link(|options| options.only_problems = !only));
        for (_, order, text) in ORDERS {
            link(text, *order == self.options.order, self.link(|options| options.order = *order));
        }
        out.push_str("<span class=to>");
        self.write_links(out);
        out.push_str("</span></nav>\n");
        match self.lines.first() {
            Some(line) => self.write_titles(line.is_backend, out),
            None => out.push_str("<p class=note>No proxy matches.</p>"),
        }
    }

    fn write_search(&self, out: &mut String) {
        // A browser replaces the query of a form's address, so that of the page becomes hidden fields.
        let (path, query) = self.settings.uri.split_once('?').unwrap_or((&self.settings.uri, ""));
        let _ = write!(
            out,
            "<form method=get action=\"{}\" data-u=\"{}\">",
            escape(path),
            escape(&self.settings.uri)
        );
        let hidden = |name: &str, value: &str, out: &mut String| {
            let _ = write!(out, "<input type=hidden name=\"{}\" value=\"{}\">", escape(name), escape(value));
        };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            hidden(name, value, out);
        }
        if let Some(scope) = &self.options.scope {
            hidden("scope", scope, out);
        }
        if self.options.only_problems {
            hidden("problems", "1", out);
        }
        if let Some((word, ..)) = ORDERS.iter().find(|(_, order, _)| *order == self.options.order)
            && self.options.order != PageOrder::default()
        {
            hidden("sort", word, out);
        }
        let find = self.options.find.as_deref().map(escape).unwrap_or_default();
        let what =
            if self.shows_addresses() { "Find a proxy, server or address" } else { "Find a proxy or server" };
        let _ = write!(
            out,
            "<input type=search name=find maxlength=100 placeholder=\"{what}\" aria-label=\"{what}\" value=\"{find}\">\
             <button>Find</button></form>"
        );
    }

    fn write_links(&self, out: &mut String) {
        let mut links = vec![("Refresh now", self.link(|_| {}))];
        if self.settings.refresh.is_some() {
            match self.options.no_refresh {
                true => {
                    links.push(("Refresh automatically", self.link(|options| options.no_refresh = false)))
                }
                false => links.push(("Stop refreshing", self.link(|options| options.no_refresh = true))),
            }
        }
        match self.options.up {
            true => links.push(("Show all servers", self.link(|options| options.up = false))),
            false => links.push(("Hide servers that are down", self.link(|options| options.up = true))),
        }
        let all = self.options.details.contains(&Detailed::All);
        links.push((
            if all { "Fewer counters" } else { "All counters" },
            self.link(|options| {
                options.details = if all { Vec::new() } else { vec![Detailed::All] };
            }),
        ));
        links.push(("Wall", self.link(|options| options.is_wall = true)));
        let plain =
            PageOptions { up: self.options.up, scope: self.options.scope.clone(), ..PageOptions::default() };
        let data = escape(&format!("{}{}", self.base, plain.words()));
        links.push(("CSV", format!("{data};csv")));
        links.push(("JSON", format!("{data};json")));
        for (text, link) in links {
            let _ = write!(out, "<a href=\"{link}\">{text}</a>");
        }
    }

    fn write_tail(&self, out: &mut String) {
        if self.options.is_wall {
            out.push_str("</div>\n");
        } else {
            out.push_str("</section>\n");
            self.write_extras(out);
        }
        out.push_str("</main>\n<footer>");
        let process = &self.statistics.process;
        let mut fact = |name: &str, value: String| {
            let _ = write!(out, "<span>{name} {value}</span>");
        };
        fact("Process", std::process::id().to_string());
        fact("Threads", runtime::shard::workers().to_string());
        if self.shows_process() {
            let total =
                |of: fn(&state::process::ProcessCounters) -> u64| process.counters.all().map(of).sum::<u64>();
            let per_second: u32 =
                process.counters.all().map(|c| c.connection_rate.per_second(self.now)).sum();
            fact("Connections/s", number(per_second.into()));
            fact("Accepted", number(total(|c| c.connections.get())));
            fact("Requests", number(total(|c| c.requests.get())));
            fact("Sent", bytes(total(|c| c.bytes_out.get())));
        }
        out.push_str("</footer>\n");
        if !self.options.is_live {
            let _ = write!(out, "<script>{}</script>", SCRIPT.text);
        }
        out.push_str("</body></html>\n");
    }
}
