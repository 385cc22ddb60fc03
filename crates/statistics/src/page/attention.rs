//! The problems of all shown proxies, worst first, and the verdict.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::history::{OptionalHistory, Series};
use state::proxy::Admission;
use state::{Proxy, Server};

use crate::collected::CertificateTerm;
use crate::config_view::ProxyView;
use crate::page::figures::{count, duration, number, percent, rate};
use crate::page::standing::{self, Census, Condition, Level, Load};
use crate::process::Statistics;
use crate::sampling;
use crate::stat;

/// The maximum number of problems kept. The others are only counted.
const MOST: usize = 200;

/// The maximum number of separate lines for servers of a backend.
const SERVERS: usize = 3;

/// A backend or frontend that fails this share of its requests is listed, in percent.
const SHARE: f64 = 5.0;

/// Certificates are listed if they end within this many days, or within fewer if they are renewed automatically.
const DAYS: [i64; 2] = [14, 5];

/// A stick table is listed if this share of it is used, in percent.
const TABLE_USED: u64 = 95;

/// Something that needs attention.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Concern {
    pub(super) level: Level,
    /// The affected object: the name of a proxy, of a table …
    pub(super) subject: String,
    /// The name of the proxy's line, if it has one.
    pub(super) link: Option<Box<str>>,
    /// The problem.
    pub(super) what: String,
    /// Its cause and extent.
    pub(super) why: String,
    /// Orders problems of the same level.
    pub(super) weight: f64,
}

/// How urgent the worst problem of a line is: its level and weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Urgency(pub(super) Level, u64);

/// Everything found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Concern>,
    /// Problems that were dropped because there are too many.
    pub(super) dropped: usize,
    pub(super) census: Census,
    pub(super) backends_down: usize,
    /// Frontends that fail requests, which is only worth a line if no backend explains it.
    failing_frontends: Vec<Concern>,
    /// Whether a soft stop is in progress.
    pub(super) is_stopping: bool,
}

impl Findings {
    pub(super) fn push(&mut self, problem: Concern) {
        self.problems.push(problem);
        if self.problems.len() >= 2 * MOST {
            self.settle();
        }
    }

    /// Adds problems that no other problem explains.
    pub(super) fn finish(&mut self) {
        let frontends = std::mem::take(&mut self.failing_frontends);
        if self.level() < Level::Warning {
            frontends.into_iter().for_each(|problem| self.push(problem));
        }
        self.settle();
    }

    /// Orders the problems and drops the least urgent ones if there are too many.
    fn settle(&mut self) {
        let order = |a: &Concern, b: &Concern| b.level.cmp(&a.level).then(b.weight.total_cmp(&a.weight));
        self.problems.sort_by(order);
        self.dropped += self.problems.len().saturating_sub(MOST);
        self.problems.truncate(MOST);
    }

    pub(super) fn level(&self) -> Level {
        self.problems.iter().map(|problem| problem.level).max().unwrap_or_default()
    }

    /// The verdict in parts, the most important one first, and details.
    pub(super) fn verdict(&self) -> (Vec<String>, String) {
        let (census, all) = (&self.census, self.census.total());
        let down = census.of(Condition::Down);
        let mut parts = Vec::new();
        if self.backends_down > 0 {
            parts.push(format!("{} down", count(self.backends_down, "backend")));
        }
        let failing = census.of(Condition::Failing);
        if failing > 0 {
            parts.push(format!("{} failing", count(failing, "server")));
        }
        if down > 0 {
            parts.push(format!("{} of {} down", number(down as u64), count(all, "server")));
        }
        let urgent = self.problems.iter().filter(|problem| problem.level > Level::Notice).count();
        if parts.is_empty() {
            parts.push(match urgent {
                0 if self.is_stopping => "Stopping".to_owned(),
                0 => "All is well".to_owned(),
                1 => self
                    .problems
                    .first()
                    .map_or_else(String::new, |own| format!("{}: {}", own.subject, own.what)),
                many => format!("{many} things need attention"),
            });
        }
        let mut details = vec![match all {
            0 => "no servers".to_owned(),
            all => format!("{}: {}", count(all, "server"), census.text()),
        }];
        if self.is_stopping && urgent > 0 {
            details.push("stopping".to_owned());
        }
        (parts, details.join(" · "))
    }
}

/// A problem of a proxy.
fn of(proxy: &Proxy, level: Level, what: String, why: String, weight: f64) -> Concern {
    Concern { level, subject: proxy.name.to_string(), link: Some(proxy.name.clone()), what, why, weight }
}

/// `api-01, api-02 and 3 more`.
fn names(servers: &[&Arc<Server>]) -> String {
    let shown: Vec<&str> = servers.iter().take(SERVERS).map(|server| &*server.name).collect();
    match servers.len().saturating_sub(SERVERS) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The reasons of servers that are down, each with its servers.
fn reasons(down: &[&Arc<Server>]) -> String {
    let mut groups: Vec<(String, Vec<&Arc<Server>>)> = Vec::new();
    for server in down.iter().take(100) {
        let reason = standing::reason(server);
        match groups.iter_mut().find(|(own, _)| *own == reason) {
            Some((_, servers)) => servers.push(server),
            None => groups.push((reason, vec![server])),
        }
    }
    let more = groups.len().saturating_sub(SERVERS);
    let mut parts: Vec<String> = groups
        .iter()
        .take(SERVERS)
        .map(|(reason, servers)| format!("{reason} ({})", names(servers)))
        .collect();
    if more > 0 {
        parts.push(format!("{more} other reasons"));
    }
    parts.join("; ")
}

/// Finds the problems of a backend. `servers` are those in a bad condition.
pub(super) fn of_backend(
    view: &ProxyView,
    census: &Census,
    servers: &[(Condition, Arc<Server>)],
    load: &Load,
    now: u64,
    findings: &mut Findings,
) -> Urgency {
    let proxy = &*view.state;
    let mut worst = Urgency::default();
    let mut add = |problem: Concern| {
        worst = worst.max(Urgency(problem.level, problem.weight as u64));
        findings.push(problem);
    };
    let lost = |share: f64| {
        if share > 0.0 && load.rate > 0.0 {
            format!("{} of {} requests/s fail · ", percent(share), rate(load.rate))
        } else {
            String::new()
        }
    };
    let those = |wanted| {
        servers.iter().filter(move |(own, _)| *own == wanted).map(|(_, server)| server).collect::<Vec<_>>()
    };
    let down = those(Condition::Down);
    let total = census.total();
    let is_down = total > 0 && !stat::backend_is_up(proxy);
    if is_down {
        let why = match down.is_empty() {
            true => census.text(),
            false => reasons(&down),
        };
        let time = duration(now.saturating_sub(proxy.changed_at.load(Relaxed)) / 1000);
        let what = if down.len() == total { "no server is up" } else { "no server takes requests" };
        add(of(
            proxy,
            Level::Critical,
            format!("{what}, for {time}"),
            lost(load.failed) + &why,
            1e9 + load.rate,
        ));
    } else if !down.is_empty() {
        let shortest = down.iter().map(|server| server.changed.age(now)).min().unwrap_or(0);
        let what = match total {
            1 => "its server is down".to_owned(),
            all => format!("{} of {} down", down.len(), count(all, "server")),
        };
        let why = format!("for {} · {}", duration(shortest / 1000), reasons(&down));
        add(of(proxy, Level::Warning, what, why, down.len() as f64 * 1e3 / total as f64));
    }
    let failing = those(Condition::Failing);
    for server in failing.iter().take(SERVERS) {
        let share = standing::failing(server).unwrap_or_default();
        let level = if share >= 50.0 { Level::Critical } else { Level::Warning };
        let checks = match server.checked.load(Relaxed) {
            true => format!("its checks pass ({})", standing::check_text(server)),
            false => "it has no checks".to_owned(),
        };
        let what = format!("{} fails {} of its requests", server.name, percent(share));
        let requests = server.history.get().map_or(0, |history| history.sum(Series::Requests, 15));
        let why = format!("{checks} · {} requests in 30 s", number(requests));
        add(of(proxy, level, what, why, share * requests as f64));
    }
    if failing.len() > SERVERS {
        let what = format!("{} more fail requests", count(failing.len() - SERVERS, "server"));
        add(of(proxy, Level::Critical, what, names(&failing[SERVERS..]), 0.0));
    }
    if load.failed >= SHARE && !is_down && failing.is_empty() && is_busy(&proxy.backend_history) {
        let what = format!("{} of its requests fail", percent(load.failed));
        let why = format!("5xx responses · {} requests/s", rate(load.rate));
        add(of(proxy, Level::Warning, what, why, load.failed * load.rate));
    }
    let changing = those(Condition::Changing);
    if let Some(first) = changing.first() {
        let what = format!("{} with changing checks", count(changing.len(), "server"));
        let why = format!("{} · {}", names(&changing), stat::server_status(first));
        add(of(proxy, Level::Notice, what, why, 0.0));
    }
    let usable = |spare| census.of(if spare { Condition::Spare } else { Condition::Up });
    if !is_down && usable(false) + census.of(Condition::Changing) + failing.len() == 0 && usable(true) > 0 {
        let what = "runs on backup servers".to_owned();
        add(of(proxy, Level::Warning, what, count(usable(true), "backup server"), 1.0));
    }
    queues(proxy, load, &mut add);
    if total == 0 && !proxy.is_frontend && load.rate > 0.0 {
        let what = "has no servers".to_owned();
        add(of(proxy, Level::Warning, what, format!("{} requests/s", rate(load.rate)), load.rate));
    } else if total == 0 && !proxy.is_frontend {
        add(of(proxy, Level::Notice, "has no servers".to_owned(), String::new(), 0.0));
    }
    worst
}

fn is_busy<const N: usize>(history: &OptionalHistory<N>) -> bool {
    history.get().is_some_and(|history| standing::recent_failures(history).0 >= 20)
}

fn queues(proxy: &Proxy, load: &Load, add: &mut impl FnMut(Concern)) {
    let servers = proxy.servers.load();
    let mut full = servers.iter().filter(|server| sampling::queue_is_full(server));
    if let Some(first) = full.next() {
        let others = full.count();
        let ms = first.history.get().map_or(0, |history| history.full_ms());
        let what = format!("queue full for {}", duration(ms / 1000));
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        let why = format!(
            "{}{more}: {} wait, `maxqueue` is {}, `maxconn` {}",
            first.name,
            first.queue.len(),
            first.maxqueue,
            first.maxconn.load(Relaxed)
        );
        add(of(proxy, Level::Critical, what, why, load.queued.into()));
    } else if load.queued > 0 {
        let what = format!("{} wait", count(load.queued as usize, "request"));
        let busy = servers.iter().filter(|server| {
            let limit = server.maxconn.load(Relaxed);
            limit > 0 && server.serving() >= limit
        });
        let why = format!("{} at `maxconn`", count(busy.count(), "server"));
        add(of(proxy, Level::Warning, what, why, load.queued.into()));
    }
}

/// Finds the problems of a frontend.
pub(super) fn of_frontend(view: &ProxyView, load: &Load, findings: &mut Findings) -> Urgency {
    let proxy = &*view.state;
    let mut worst = Urgency::default();
    let mut add = |problem: Concern| {
        worst = worst.max(Urgency(problem.level, problem.weight as u64));
        findings.push(problem);
    };
    let own_limit = proxy.maxconn.load(Relaxed);
    if own_limit > 0 && load.current >= own_limit {
        let ms = proxy.frontend_history.get().map_or(0, |history| history.full_ms());
        let what = format!("at its limit of {} connections", number(own_limit.into()));
        let why = format!("for {} · new connections wait; raise `maxconn`", duration(ms / 1000));
        add(of(proxy, Level::Critical, what, why, load.rate));
    }
    let rates = proxy.session_limit.load(Relaxed);
    if rates > 0 && load.rate >= f64::from(rates) {
        let what = format!("at its limit of {} sessions/s", number(rates.into()));
        add(of(proxy, Level::Warning, what, "`rate-limit sessions`".to_owned(), load.rate));
    }
    match proxy.admission() {
        Admission::Open => {}
        Admission::Paused => {
            add(of(proxy, Level::Warning, "paused".to_owned(), "`disable frontend`".to_owned(), 0.0));
        }
        Admission::Stopped => add(of(proxy, Level::Notice, "stopped".to_owned(), String::new(), 0.0)),
    }
    if load.failed >= SHARE && is_busy(&proxy.frontend_history) && findings.failing_frontends.len() < MOST {
        let what = format!("{} of its requests fail", percent(load.failed));
        let why = format!("5xx responses · {} requests/s", rate(load.rate));
        findings.failing_frontends.push(of(proxy, Level::Warning, what, why, load.failed * load.rate));
    }
    worst
}

/// Finds the problems of the process, its certificates and tables. Only for pages that show everything.
pub(super) fn of_process(statistics: &Statistics, findings: &mut Findings) {
    let process = &statistics.process;
    let mut add = |level, subject: &str, what: String, why: String| {
        findings.push(Concern { level, subject: subject.to_owned(), link: None, what, why, weight: 1e6 });
    };
    let (current, limit) = (process.connections.load(Relaxed), process.maxconn.load(Relaxed));
    if limit > 0 && current >= limit {
        let what = format!("at the limit of {} connections", number(limit.into()));
        add(Level::Critical, "process", what, "new connections wait; raise `maxconn` in `global`".to_owned());
    } else if limit > 0 && u64::from(current) * 10 >= u64::from(limit) * 9 {
        let what = format!("{} of {} connections", number(current.into()), number(limit.into()));
        add(Level::Warning, "process", what, "close to `maxconn` in `global`".to_owned());
    }
    if base::memory::is_short() {
        let why = "connections are refused until memory is free; see `-m`".to_owned();
        add(Level::Critical, "process", "memory is short".to_owned(), why);
    }
    if process.uses(&process.crowded_from_fds) {
        let why = "idle connections are closed; raise the limit of open files".to_owned();
        add(Level::Warning, "process", "few file descriptors are left".to_owned(), why);
    }
    let view = statistics.view();
    for table in view.tables.iter().filter(|table| table.settings.size > 0) {
        let (used, size) = (u64::from(table.used()), u64::from(table.settings.size));
        if used * 100 >= size * TABLE_USED {
            let (level, why) = match table.settings.nopurge {
                true => (Level::Warning, "new keys are not stored (`nopurge`)"),
                false => (Level::Notice, "old entries are removed early; raise `size` or shorten `expire`"),
            };
            let what = format!("{} of {} entries used", number(used), number(size));
            add(level, &format!("table {}", table.name()), what, why.to_owned());
        }
    }
    let collected = statistics.collected.load();
    let certificates = collected.certificates.iter().filter(|term| term.is_used);
    certificates.filter_map(of_certificate).for_each(|problem| findings.push(problem));
}

fn of_certificate(term: &CertificateTerm) -> Option<Concern> {
    let days = term.days();
    if days >= DAYS[usize::from(term.is_ordered)] {
        return None;
    }
    let name = certificate_name(term);
    let (level, what) = match days {
        ..0 => (Level::Critical, format!("{name} expired {} ago", count(-days as usize, "day"))),
        0 => (Level::Critical, format!("{name} expires today")),
        _ => (Level::Warning, format!("{name} expires in {}", count(days as usize, "day"))),
    };
    let renewed = match term.is_ordered {
        true => "its renewal by an `acme` section is overdue",
        false => "no `acme` section renews it",
    };
    Some(Concern {
        level,
        subject: "certificate".to_owned(),
        link: None,
        what,
        why: format!("{} · {renewed}", term.file),
        weight: 1e6 - days as f64,
    })
}

/// The name of a certificate: its first host name, or its file.
pub(super) fn certificate_name(term: &CertificateTerm) -> &str {
    if term.name.is_empty() { &term.file } else { &term.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(level: Level, weight: f64) -> Concern {
        let (subject, what, why) = (format!("{level:?} {weight}"), String::new(), String::new());
        Concern { level, subject, link: None, what, why, weight }
    }

    #[test]
    fn problems_are_ordered_by_level_then_weight_and_bounded() {
        let mut findings = Findings::default();
        for (level, weight) in [
            (Level::Notice, 9.0),
            (Level::Warning, 1.0),
            (Level::Critical, 2.0),
            (Level::Warning, 5.0),
            (Level::Critical, 3.0),
        ] {
            findings.push(problem(level, weight));
        }
        findings.finish();
        let order: Vec<&str> = findings.problems.iter().map(|own| &*own.subject).collect();
        assert_eq!(order, ["Critical 3", "Critical 2", "Warning 5", "Warning 1", "Notice 9"]);
        for _ in 0..3_000 {
            findings.push(problem(Level::Warning, 7.0));
            assert!(findings.problems.len() < 2 * MOST);
        }
        findings.finish();
        assert_eq!((findings.problems.len(), findings.dropped), (MOST, 3_005 - MOST));
        assert_eq!(findings.problems[0].subject, "Critical 3", "the worst ones are kept");
    }

    #[test]
    fn a_verdict_begins_with_the_worst() {
        let mut findings = Findings::default();
        let verdict = |findings: &Findings| findings.verdict().0.join(", ");
        assert_eq!(verdict(&findings), "All is well");
        assert_eq!(findings.verdict().1, "no servers");
        findings.census.0[Condition::Up as usize] = 50;
        findings.push(Concern { what: "9 requests wait".into(), ..problem(Level::Warning, 1.0) });
        assert_eq!(verdict(&findings), "Warning 1: 9 requests wait");
        findings.push(problem(Level::Critical, 1.0));
        assert_eq!(verdict(&findings), "2 things need attention");
        findings.census.0[Condition::Down as usize] = 9;
        findings.census.0[Condition::Failing as usize] = 1;
        assert_eq!(verdict(&findings), "1 server failing, 9 of 60 servers down");
        findings.backends_down = 2;
        assert_eq!(verdict(&findings), "2 backends down, 1 server failing, 9 of 60 servers down");
        assert_eq!(findings.verdict().1, "60 servers: 9 down, 1 failing, 50 up");
    }

    #[test]
    fn frontends_are_only_blamed_if_nothing_else_is() {
        for (other, shown) in [(Level::Notice, 2), (Level::Warning, 1)] {
            let mut findings = Findings::default();
            findings.failing_frontends.push(problem(Level::Warning, 3.0));
            findings.push(problem(other, 1.0));
            findings.finish();
            assert_eq!(findings.problems.len(), shown);
        }
    }

    #[test]
    fn certificates_are_listed_before_they_end() {
        let now = base::clock::WallTime::now().seconds;
        let term = |days: i64, is_ordered| CertificateTerm {
            file: "site.pem".into(),
            name: "shop.example.com".into(),
            ends: now + days * 86_400 + 3_600,
            is_used: true,
            is_ordered,
        };
        let listed = |days, is_ordered| {
            of_certificate(&term(days, is_ordered)).map(|problem| (problem.level, problem.what))
        };
        assert_eq!(listed(14, false), None);
        assert_eq!(listed(8, true), None, "renewal is due later");
        assert_eq!(listed(8, false), Some((Level::Warning, "shop.example.com expires in 8 days".into())));
        assert_eq!(listed(0, true), Some((Level::Critical, "shop.example.com expires today".into())));
        assert_eq!(listed(-2, false), Some((Level::Critical, "shop.example.com expired 2 days ago".into())));
    }
}
