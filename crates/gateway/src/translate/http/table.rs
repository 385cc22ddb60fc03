//! The search for a request's rule: by host, then by path, then by the other conditions.
//!
//! The search is a sequence of jumps in the frontend's rules. A jump to the host's block is a hash lookup. In the block, the path
//! is looked up as a whole and then by its longest prefix in a map. The value is a backend if the rule for the prefix only chooses
//! one, so that such rules are not part of the text, and otherwise the label of a block. Only the few rules for that path are tested
//! one by one. A block ends with a jump to the next candidate: a shorter prefix, or a less specific host. All jumps go forwards.

use std::collections::{BTreeMap, BTreeSet};

use crate::text::{Text, line, literal, quote};
use crate::translate::context::Context;
use crate::translate::hostnames::{covers, specificity, wider_names};

use super::matches::{PathPattern, RouteMatch};

/// The label of the end, if no rule matches.
pub(crate) const NONE: &str = "none";

/// The rank of a rule among those with the same conditions: creation time, name, number.
pub(crate) type Age<'a> = (&'a str, &'a str, &'a str, usize, usize);

/// A candidate in the search.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<'a> {
    /// The label of the rule.
    pub(crate) target: &'a str,
    /// The backend, if the rule only chooses one.
    pub(crate) backend: Option<&'a str>,
    pub(crate) rule: &'a RouteMatch,
    pub(crate) age: Age<'a>,
    /// Whether the rule needs the length of the matched prefix.
    pub(crate) needs_prefix: bool,
}

impl Candidate<'_> {
    fn rank(&self) -> impl Ord + '_ {
        let rule = self.rule;
        (!rule.has_method, usize::MAX - rule.headers, usize::MAX - rule.queries, self.age)
    }
}

/// The candidates of a host.
#[derive(Debug, Default)]
struct Host<'a> {
    /// The listener.
    listener: usize,
    exact: BTreeMap<&'a str, Vec<Candidate<'a>>>,
    regexes: Vec<(&'a str, Candidate<'a>)>,
    prefixes: BTreeMap<&'a str, Vec<Candidate<'a>>>,
    /// The prefixes without a block, with their backends.
    direct: BTreeMap<&'a str, &'a str>,
}

/// The labels of rules to which the search jumps.
pub(crate) type Targets<'a> = BTreeSet<&'a str>;

/// The hosts of a frontend.
#[derive(Debug, Default)]
pub(crate) struct Table<'a> {
    hosts: BTreeMap<String, Host<'a>>,
    /// The hostnames of listeners.
    listeners: Vec<(usize, String)>,
}

impl<'a> Table<'a> {
    /// A table for listeners with these hostnames.
    pub(crate) fn new(mut listeners: Vec<(usize, String)>) -> Self {
        listeners.sort_by(|one, other| specificity(&one.1).cmp(&specificity(&other.1)));
        let mut table = Self { hosts: BTreeMap::new(), listeners };
        for (listener, name) in table.listeners.clone() {
            table.hosts.entry(name).or_insert_with(|| Host { listener, ..Host::default() });
        }
        table
    }

    /// The listener that serves a hostname: the one with the most specific hostname.
    fn listener_of(&self, name: &str) -> Option<usize> {
        self.listeners.iter().find(|(_, own)| covers(own, name)).map(|(listener, _)| *listener)
    }

    /// Adds a candidate for a hostname of a listener. If another listener serves that name, the candidate gets no requests.
    pub(crate) fn add(&mut self, listener: usize, name: &str, candidate: Candidate<'a>) {
        if self.listener_of(name) != Some(listener) {
            return;
        }
        let host = self.hosts.entry(name.into()).or_insert_with(|| Host { listener, ..Host::default() });
        match &candidate.rule.path {
            PathPattern::Exact(path) => host.exact.entry(path).or_default().push(candidate),
            PathPattern::Prefix(path) => host.prefixes.entry(path).or_default().push(candidate),
            PathPattern::Regex(regex) => host.regexes.push((regex, candidate)),
        }
    }

    /// Writes the search. `name` is the frontend's name. The rules follow it. With `by_tls`, requests for a host of another
    /// listener than that of the TLS handshake are answered with 421. Returns the labels of the rules that need a block.
    pub(crate) fn write(
        mut self,
        context: &mut Context<'_>,
        text: &mut Text,
        name: &str,
        by_tls: bool,
    ) -> Targets<'a> {
        for host in self.hosts.values_mut() {
            let all = host.exact.values_mut().chain(host.prefixes.values_mut());
            all.for_each(|list| list.sort_by(|one, other| one.rank().cmp(&other.rank())));
            host.regexes.sort_by(|(one_path, one), (other_path, other)| {
                let one = (usize::MAX - one_path.len(), one_path, one.rank());
                one.cmp(&(usize::MAX - other_path.len(), other_path, other.rank()))
            });
            if !is_plain(host) {
                host.direct = direct_prefixes(host);
            }
        }
        text.line("http-request set-var(txn.host) req.hdr(host),host_only,lower");
        let checks_name = by_tls && self.listeners.len() > 1;
        if checks_name {
            self.write_server_name(context, text, name);
        }
        text.line("http-request jump 'host:%[var(txn.host)]'");
        let hosts: Vec<&String> = self.hosts.keys().collect();
        let wildcards = hosts.iter().filter(|host| host.starts_with("*."));
        let wildcards = wildcards.map(|host| (host[1..].to_string(), host_label(host)));
        self.lookup_wildcards(context, text, name, wildcards.collect());
        let catch_all = if self.hosts.contains_key("") { host_label("") } else { NONE.into() };
        line!(text, "http-request jump {}", quote(&catch_all));
        let prefixes = self.write_prefix_map(context, name);
        let mut hosts: Vec<(&String, &Host<'_>)> = self.hosts.iter().collect();
        hosts.sort_by(|one, other| specificity(one.0).cmp(&specificity(other.0)));
        let mut targets = Targets::new();
        for (host, own) in hosts {
            let less_specific = wider_names(host)
                .find(|wider| self.hosts.get(wider).is_some_and(|it| it.listener == own.listener))
                .map_or_else(|| NONE.to_string(), |wider| host_label(&wider));
            line!(text, "http-request label {}", quote(&host_label(host)));
            if checks_name {
                let listener = own.listener;
                let condition = format!("{{ var(txn.tls) -m found }} !{{ var(txn.tls) -m str {listener} }}");
                line!(text, "http-request return status 421 if {condition}");
            }
            write_host(text, host, own, &prefixes, &less_specific);
            targets.extend(own.targets());
        }
        targets
    }

    /// The listener of the server name in the TLS handshake.
    fn write_server_name(&self, context: &mut Context<'_>, text: &mut Text, name: &str) {
        let exact = self.listeners.iter().filter(|(_, host)| !host.is_empty() && !host.starts_with('*'));
        let mut content: Vec<String> = exact.map(|(listener, host)| format!("{host} {listener}\n")).collect();
        content.sort();
        let path = context.add_map(&format!("{name}-names"), content.concat());
        line!(text, "http-request set-var(txn.tls) ssl_fc_sni,lower,map_str({path})");
        let wildcards = self.listeners.iter().filter_map(|(listener, host)| {
            host.strip_prefix('*').map(|suffix| (suffix.to_string(), listener.to_string()))
        });
        let content: Vec<(String, String)> = wildcards.collect();
        if !content.is_empty() {
            let path = context.add_suffix_map(&format!("{name}-name-suffixes"), content);
            let unless = "unless { var(txn.tls) -m found }";
            line!(text, "http-request set-var(txn.tls) ssl_fc_sni,lower,map_end({path}) {unless}");
        }
        if let Some((listener, _)) = self.listeners.iter().find(|(_, host)| host.is_empty()) {
            let unless = "if !{ var(txn.tls) -m found } { ssl_fc_sni -m found }";
            line!(text, "http-request set-var(txn.tls) str({listener}) {unless}");
        }
    }

    fn lookup_wildcards(
        &self,
        context: &mut Context<'_>,
        text: &mut Text,
        name: &str,
        wildcards: Vec<(String, String)>,
    ) {
        if wildcards.is_empty() {
            return;
        }
        let path = context.add_suffix_map(&format!("{name}-wildcards"), wildcards);
        line!(text, "http-request jump '%[var(txn.host),map_end({path})]'");
    }

    /// Writes the map from a host with a path prefix to its backend or the label of its block, and returns the map's path.
    fn write_prefix_map(&self, context: &mut Context<'_>, name: &str) -> String {
        let mut content = String::new();
        for (host, own) in self.hosts.iter().filter(|(_, own)| !is_plain(own)) {
            for prefix in own.prefixes.keys() {
                let value = match own.direct.get(prefix) {
                    Some(backend) => (*backend).to_owned(),
                    None => prefix_label(host, prefix),
                };
                content.push_str(&format!("{host}{prefix}/ {value}\n"));
            }
        }
        if content.is_empty() {
            String::new()
        } else {
            context.add_file(format!("paths/{name}.map"), content)
        }
    }
}

fn host_label(host: &str) -> String {
    if host.is_empty() { "host:*".into() } else { format!("host:{host}") }
}

fn prefix_label(host: &str, prefix: &str) -> String {
    format!("prefix:{host}{prefix}/")
}

impl<'a> Host<'a> {
    /// The labels of the rules to which its blocks jump.
    fn targets(&self) -> impl Iterator<Item = &'a str> {
        let with_block = self.prefixes.iter().filter(|(prefix, _)| !self.direct.contains_key(*prefix));
        let lists = self.exact.values().chain(with_block.map(|(_, list)| list));
        let regexes = self.regexes.iter().map(|(_, candidate)| candidate);
        lists.flatten().chain(regexes).map(|candidate| candidate.target)
    }
}

/// The prefixes with a rule that always applies and only chooses a backend. Those to which the block of a longer prefix jumps are
/// not among them.
fn direct_prefixes<'a>(host: &Host<'a>) -> BTreeMap<&'a str, &'a str> {
    let backend = |list: &[Candidate<'a>]| {
        let first = list.first().filter(|first| first.rule.conditions.is_empty())?;
        first.backend
    };
    let mut direct: BTreeMap<&str, &str> =
        host.prefixes.iter().filter_map(|(prefix, list)| Some((*prefix, backend(list)?))).collect();
    for prefix in host.prefixes.keys() {
        let has_block = !direct.contains_key(prefix);
        if has_block && let Some(shorter) = shorter_prefix(host, prefix) {
            direct.remove(shorter);
        }
    }
    direct
}

/// Whether all requests of the host are for the prefix `/`.
fn is_plain(host: &Host<'_>) -> bool {
    host.exact.is_empty() && host.prefixes.keys().all(|prefix| prefix.is_empty())
}

fn write_host(text: &mut Text, host: &str, own: &Host<'_>, prefixes: &str, less_specific: &str) {
    let beyond = format!("path:{host}");
    if !own.exact.is_empty() {
        line!(text, "http-request jump {}", quote(&format!("exact:{host}%[path]")));
        line!(text, "http-request jump {}", quote(&beyond));
        for (path, list) in &own.exact {
            line!(text, "http-request label {}", quote(&format!("exact:{host}{path}")));
            write_candidates(text, list, 0, &beyond);
        }
        line!(text, "http-request label {}", quote(&beyond));
    }
    for (regex, candidate) in &own.regexes {
        let path = format!("{{ path -m reg -- {} }}", quote(regex));
        let conditions = format!("{path} {}", candidate.rule.conditions);
        line!(text, "http-request jump {} if {}", quote(candidate.target), conditions.trim_end());
    }
    if is_plain(own) {
        match own.prefixes.get("") {
            Some(list) => write_candidates(text, list, 0, less_specific),
            None => line!(text, "http-request jump {}", quote(less_specific)),
        }
        return;
    }
    if !own.prefixes.is_empty() {
        line!(text, "http-request set-var-fmt(txn.key) {}", quote(&format!("{host}%[path]/")));
        text.line("http-request unset-var(txn.backend)");
        line!(text, "http-request set-var(txn.backend) var(txn.key),map_beg({prefixes})");
        text.line("http-request jump '%[var(txn.backend)]'");
        text.line("http-request allow if { var(txn.backend) -m found }");
    }
    line!(text, "http-request jump {}", quote(less_specific));
    let mut list: Vec<(&&str, &Vec<Candidate<'_>>)> = own.prefixes.iter().collect();
    list.retain(|(prefix, _)| !own.direct.contains_key(**prefix));
    list.sort_by_key(|(prefix, _)| (usize::MAX - prefix.len(), **prefix));
    for (prefix, candidates) in list {
        let shorter = shorter_prefix(own, prefix);
        let next = shorter.map_or_else(|| less_specific.to_string(), |shorter| prefix_label(host, shorter));
        line!(text, "http-request label {}", quote(&prefix_label(host, prefix)));
        write_candidates(text, candidates, prefix.len(), &next);
    }
}

/// The longest other prefix of a prefix.
fn shorter_prefix<'a>(host: &Host<'a>, prefix: &str) -> Option<&'a str> {
    let mut rest = prefix;
    while let Some(end) = rest.rfind('/') {
        rest = &rest[..end];
        if let Some((found, _)) = host.prefixes.get_key_value(rest) {
            return Some(found);
        }
    }
    None
}

/// Writes the jumps to the rules of a path, and to the next block if none applies.
fn write_candidates(text: &mut Text, list: &[Candidate<'_>], prefix_length: usize, next: &str) {
    if list.iter().any(|candidate| candidate.needs_prefix) {
        line!(text, "http-request set-var(txn.prefix) int({prefix_length})");
    }
    for candidate in list {
        let target = quote(&literal(candidate.target));
        if candidate.rule.conditions.is_empty() {
            line!(text, "http-request jump {target}");
            return;
        }
        line!(text, "http-request jump {target} if {}", candidate.rule.conditions);
    }
    line!(text, "http-request jump {}", quote(&literal(next)));
}
