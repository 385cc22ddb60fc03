//! The running state as a configuration (`show config`, `save config`): the configuration as read, with the changes made since
//! then. A process that is started with it has the same state.
//!
//! Disabled frontends and disabled checks become comments, because no keyword expresses them. Changed pattern lists are saved as
//! separate files next to the configuration.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plan::source_text::{SourceLine, SourceSection};
use plan::{Plan, Proxy};
use sample::pattern::{List, PatternSets};
use state::proxy::Admission;
use state::server::ServerAddress;
use state::{Admin, Server};

/// Returns a configuration that includes the changes made at run time. If `beside` is a file, changed pattern lists have the names
/// that [`lists`] returns.
pub(crate) fn configuration(plan: &Plan, patterns: &PatternSets, beside: Option<&Path>) -> String {
    let mut text = String::from("# The configuration, including changes made at run time.\n");
    let changed = changed(patterns);
    if beside.is_none() {
        for (_, list) in &changed {
            let name = list.name();
            let _ = writeln!(text, "# {name} was changed: use `save config` to write its entries too.");
        }
    }
    // The sections of `filter spoe` are in separate files.
    for section in plan.source.iter().filter(|section| !section.kind.starts_with("spoe-")) {
        text.push('\n');
        write_section(section, plan, &mut text);
    }
    for proxy in plan.proxies.iter_added().filter(|proxy| !proxy.state.removed.load(Relaxed)) {
        let Some(added) = &proxy.added else { continue };
        let _ = write!(text, "\n{added}");
        if proxy.state.unpublished.load(Relaxed) {
            text.push_str("    be-unpublished\n");
        }
        write_added(proxy, &mut text);
    }
    if let Some(beside) = beside {
        for (number, list) in changed {
            let new = file_of(beside, number);
            text = text.replace(list.name(), &new.display().to_string());
        }
    }
    text
}

/// Returns the paths and contents of the changed pattern lists, for a configuration saved as `beside`.
pub(crate) fn lists(patterns: &PatternSets, beside: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let content = |list: &Arc<List>| {
        let mut bytes = Vec::new();
        for line in list.lines(&list.ids()) {
            bytes.extend_from_slice(&line.key);
            if let Some(value) = &line.value {
                bytes.push(b' ');
                bytes.extend_from_slice(value);
            }
            bytes.push(b'\n');
        }
        bytes
    };
    changed(patterns).into_iter().map(|(number, list)| (file_of(beside, number), content(&list))).collect()
}

/// Returns the lists that were loaded from files and changed since then, with their numbers.
fn changed(patterns: &PatternSets) -> Vec<(u32, Arc<List>)> {
    let named = |list: &&Arc<List>| list.is_changed() && list.name().starts_with(['/', '.']);
    patterns.lists().iter().filter(named).map(|list| (list.number(), list.clone())).collect()
}

fn file_of(beside: &Path, number: u32) -> std::path::PathBuf {
    let mut name = beside.as_os_str().to_owned();
    name.push(format!(".list{number}"));
    name.into()
}

fn write_section(section: &SourceSection, plan: &Plan, text: &mut String) {
    text.push_str(&section.title());
    if !section.from.is_empty() {
        let _ = write!(text, " from {}", section.from);
    }
    text.push('\n');
    let proxy = match &*section.kind {
        "backend" | "listen" => plan.backend(&section.name),
        "frontend" => plan.frontend(&section.name),
        _ => None,
    };
    let maxconn = proxy.and_then(|proxy| changed_limit(proxy));
    for line in &section.lines {
        match (proxy, line.keyword) {
            (Some(proxy), "server") => write_server(line, proxy, text),
            (Some(proxy), "server-template") => write_template(line, proxy, text),
            (Some(_), "maxconn") if maxconn.is_some() => {}
            (Some(_), "be-unpublished") => {}
            _ => write_line(&line.text, text),
        }
    }
    let Some(proxy) = proxy else { return };
    if let Some(limit) = maxconn {
        write_line(&format!("maxconn {limit}"), text);
    }
    if proxy.state.is_backend && proxy.state.unpublished.load(Relaxed) {
        write_line("be-unpublished", text);
    }
    if proxy.state.is_frontend && proxy.state.admission() == Admission::Paused {
        write_line("# disabled by `disable frontend`", text);
    }
    write_added(proxy, text);
}

/// Returns a frontend's connection limit if an operator has changed it.
fn changed_limit(proxy: &Proxy) -> Option<u32> {
    let now = proxy.state.maxconn.load(Relaxed);
    (proxy.state.is_frontend && now != proxy.state.configured().maxconn).then_some(now)
}

fn write_line(line: &str, text: &mut String) {
    let _ = writeln!(text, "    {line}");
}

/// Writes the servers added at run time.
fn write_added(proxy: &Proxy, text: &mut String) {
    for server in proxy.servers.iter_added().filter(|server| !server.state.removed.load(Relaxed)) {
        if let Some(line) = &server.added {
            write_changed(&words(line), &server.state, text);
        }
    }
}

/// Returns the server that had this name in the configuration.
fn find<'a>(servers: &'a [Arc<Server>], name: &str) -> Option<&'a Arc<Server>> {
    servers.iter().find(|server| *server.name == *name && !server.dynamic.load(Relaxed))
}

/// Writes a server's line in its current form, or nothing if the server was removed.
fn write_server(line: &SourceLine, proxy: &Proxy, text: &mut String) {
    let words = words(&line.text);
    let servers = proxy.state.servers.load();
    match words.get(1).map(|name| find(&servers, name)) {
        Some(Some(server)) if is_unchanged(server) => write_line(&line.text, text),
        Some(Some(server)) => write_changed(&words, server, text),
        _ => {}
    }
}

/// Writes the servers of a template: as one line if none was changed, otherwise one line each.
fn write_template(line: &SourceLine, proxy: &Proxy, text: &mut String) {
    let words = words(&line.text);
    let (Some(prefix), Some(range)) = (words.get(1), words.get(2)) else { return };
    let (low, high) = range.split_once('-').unwrap_or(("1", range));
    let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>()) else { return };
    let servers = proxy.state.servers.load();
    let all: Vec<_> = (low..=high).map(|number| find(&servers, &format!("{prefix}{number}"))).collect();
    if all.iter().all(|server| server.is_some_and(|server| is_unchanged(server))) {
        return write_line(&line.text, text);
    }
    for server in all.into_iter().flatten() {
        let mut own = vec!["server".to_owned(), server.name.to_string()];
        own.extend_from_slice(words.get(3..).unwrap_or_default());
        write_changed(&own, server, text);
    }
}

/// Returns whether nothing that a server line can express was changed.
fn is_unchanged(server: &Server) -> bool {
    let original = server.configured();
    let forced = server.admin().0 & (Admin::FORCED_MAINT | Admin::FORCED_DRAIN);
    server.user_weight() == original.weight
        && server.maxconn.load(Relaxed) == original.maxconn
        && new_address(server).is_none()
        && forced == if original.disabled { Admin::FORCED_MAINT } else { 0 }
}

/// Returns the address that an operator has set.
fn new_address(server: &Server) -> Option<String> {
    if server.admin().0 & Admin::FQDN_SET != 0
        && let Some(name) = server.fqdn.load_full()
    {
        return Some(format!("{name}:{}", server.port()));
    }
    let named = server.fqdn.load().is_some() || server.srv_record.get().is_some();
    let now = server.address.load();
    if named || **now == server.configured().address {
        return None;
    }
    match &**now {
        ServerAddress::Ip(address) => Some(address.to_string()),
        ServerAddress::Unix(path) => Some(format!("unix@{}", path.display())),
        _ => None,
    }
}

/// Writes a line with the changes of its server.
fn write_changed(original: &[String], server: &Server, text: &mut String) {
    let configured = server.configured();
    let mut words = original.to_vec();
    if let (Some(address), Some(word)) = (new_address(server), words.get_mut(2)) {
        *word = address;
    }
    let admin = server.admin().0;
    let drains = admin & Admin::FORCED_DRAIN != 0;
    // A draining server is written with the weight 0.
    let weight = if drains { 0 } else { server.user_weight() };
    if weight != configured.weight {
        set(&mut words, "weight", &weight.to_string());
    }
    let maxconn = server.maxconn.load(Relaxed);
    if maxconn != configured.maxconn {
        set(&mut words, "maxconn", &maxconn.to_string());
    }
    let mut place = 0;
    words.retain(|word| {
        place += 1;
        place <= 3 || (word != "disabled" && word != "enabled")
    });
    match (admin & Admin::FORCED_MAINT != 0, configured.disabled) {
        (true, _) => words.push("disabled".to_owned()),
        (false, true) => words.push("enabled".to_owned()),
        (false, false) => {}
    }
    let shown: Vec<String> = words.iter().map(|word| config::shown(word)).collect();
    write_line(&shown.join(" "), text);
}

/// Replaces the value of a parameter, or adds the parameter.
fn set(words: &mut Vec<String>, name: &str, value: &str) {
    match words.iter().skip(3).position(|word| word == name).map(|at| at + 4) {
        Some(at) if at < words.len() => words[at] = value.to_owned(),
        _ => words.extend([name.to_owned(), value.to_owned()]),
    }
}

/// Splits a line that was written with quotes where these are needed.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut begun, mut quoted) = (Vec::new(), String::new(), false, false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                quoted = !quoted;
                begun = true;
            }
            '\\' if !quoted => word.extend(characters.next()),
            ' ' if !quoted => {
                if std::mem::take(&mut begun) {
                    all.push(std::mem::take(&mut word));
                }
            }
            other => {
                word.push(other);
                begun = true;
            }
        }
    }
    if begun {
        all.push(word);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        assert_eq!(words("server s 'a b' 'it'\\''s' ''"), ["server", "s", "a b", "it's", ""]);
        for word in ["plain", "two words", "it's", "#", ""] {
            assert_eq!(words(&config::shown(word)), [word]);
        }
    }

    #[test]
    fn parameters_are_replaced_or_added() {
        let mut line = words("server weight 127.0.0.1:1 weight 5 check");
        set(&mut line, "weight", "7");
        set(&mut line, "maxconn", "3");
        assert_eq!(line.join(" "), "server weight 127.0.0.1:1 weight 7 check maxconn 3");
    }
}
