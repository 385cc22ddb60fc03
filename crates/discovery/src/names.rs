//! Host names in lists. The system's resolver looks them up, on threads that may block.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use runtime::timer;
use state::discovery::Instance;

use crate::fetch::plain;

/// How often the names of a list are looked up again.
pub(crate) const AGAIN: Duration = Duration::from_secs(30);

/// The most names of a list. Instances with other names get no server.
const MOST_NAMES: usize = 1000;

/// The most names that are looked up at the same time.
const AT_ONCE: usize = 8;

/// The longest time for a name.
const LOOKUP: Duration = Duration::from_secs(5);

/// The longest time for all names before the process serves requests.
const LOOKUPS_AT_START: Duration = Duration::from_secs(5);

/// The addresses of a name, or the cause of a failure.
pub(crate) type Lookup = Result<Vec<IpAddr>, String>;

/// The names of a list with their addresses.
#[derive(Debug, Default)]
pub(crate) struct HostNames {
    addresses: HashMap<Box<str>, IpAddr>,
    /// The names with a failed last lookup.
    failed: BTreeSet<Box<str>>,
}

impl HostNames {
    /// Records lookups. A name keeps its address while its lookups still return it, and if they fail. Returns reports about the names
    /// that fail for the first time.
    pub(crate) fn note(&mut self, found: Vec<(Box<str>, Lookup)>) -> Vec<String> {
        let mut reports = Vec::new();
        for (name, lookup) in found {
            match lookup {
                Ok(addresses) if !addresses.is_empty() => {
                    let known = self.addresses.get(&name).filter(|known| addresses.contains(known));
                    let address = known.copied().unwrap_or(addresses[0]);
                    self.failed.remove(&name);
                    self.addresses.insert(name, address);
                }
                outcome => {
                    let cause = outcome.err().unwrap_or_else(|| "it has no address".to_owned());
                    let kept = match self.addresses.get(&name) {
                        Some(address) => format!("its last address {address} is kept"),
                        None => "it gets no server".to_owned(),
                    };
                    if self.failed.insert(name.clone()) {
                        reports.push(format!("the host name `{name}` cannot be resolved: {cause}; {kept}"));
                    }
                }
            }
        }
        reports
    }

    /// Returns the instances that have addresses, with these, and forgets names that the list does not have.
    pub(crate) fn applied(&mut self, list: &[Instance]) -> Vec<Instance> {
        let names = names(list);
        self.addresses.retain(|name, _| names.contains(name));
        self.failed.retain(|name| names.contains(name));
        let with_address = |own: &Instance| match &own.host {
            None => Some(own.clone()),
            Some(host) => Some(Instance { address: *self.addresses.get(host)?, ..own.clone() }),
        };
        list.iter().filter_map(with_address).collect()
    }

    /// Returns the names of a list that have no address yet.
    pub(crate) fn unknown(&self, list: &[Instance]) -> Vec<Box<str>> {
        names(list).into_iter().filter(|name| !self.addresses.contains_key(name)).collect()
    }
}

/// Returns the names of a list.
pub(crate) fn names(list: &[Instance]) -> BTreeSet<Box<str>> {
    let all: BTreeSet<&str> = list.iter().filter_map(|own| own.host.as_deref()).collect();
    all.into_iter().take(MOST_NAMES).map(Box::from).collect()
}

/// Looks names up.
pub(crate) async fn look_up(names: Vec<Box<str>>) -> Vec<(Box<str>, Lookup)> {
    let mut all = Vec::with_capacity(names.len());
    for some in names.chunks(AT_ONCE) {
        let running: Vec<_> = some
            .iter()
            .map(|name| {
                let asked = name.clone();
                (name.clone(), tokio::task::spawn_blocking(move || system(&asked)))
            })
            .collect();
        for (name, lookup) in running {
            let found = match timer::timeout(LOOKUP, lookup).await {
                Ok(Ok(found)) => found,
                Ok(Err(_)) => Err("the lookup was cancelled".to_owned()),
                Err(_) => Err("the resolver does not answer".to_owned()),
            };
            all.push((name, found));
        }
    }
    all
}

/// Looks a name up, IPv4 addresses first. Blocks.
fn system(name: &str) -> Lookup {
    // The port does not matter.
    let found = (name, 1).to_socket_addrs().map_err(|error| plain(&error))?;
    let mut addresses: Vec<IpAddr> =
        found.map(|socket| socket.ip()).filter(|ip| !ip.is_unspecified()).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    Ok(addresses)
}

/// Returns the list with addresses, for the start of the process. Blocks, but not for long: names that take too long are left to the
/// task of the list.
pub(crate) fn resolve_now(list: &[Instance]) -> Vec<Instance> {
    let begun = Instant::now();
    let in_time = || begun.elapsed() < LOOKUPS_AT_START;
    let mut hosts = HostNames::default();
    let found = names(list).into_iter().take_while(|_| in_time()).map(|name| {
        let found = system(&name);
        (name, found)
    });
    // The task of the list reports failures.
    hosts.note(found.collect());
    hosts.applied(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str, host: &str) -> Instance {
        Instance { host: Some(host.into()), ..Instance::new(id, [0, 0, 0, 0].into(), 80) }
    }

    fn found(name: &str, last: &[u8]) -> (Box<str>, Lookup) {
        (name.into(), Ok(last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()))
    }

    fn shown(hosts: &mut HostNames, list: &[Instance]) -> Vec<String> {
        hosts.applied(list).iter().map(|own| format!("{} {}", own.id, own.socket())).collect()
    }

    #[test]
    fn a_name_keeps_its_address_as_long_as_it_has_it() {
        let list = [named("a", "a.test"), Instance::new("b", [10, 0, 0, 9].into(), 81)];
        let mut hosts = HostNames::default();
        assert_eq!(shown(&mut hosts, &list), ["b 10.0.0.9:81"]);
        assert_eq!(hosts.unknown(&list), ["a.test".into()]);
        for (addresses, expected) in
            [(&[1, 2][..], "a 10.0.0.1:80"), (&[2, 1], "a 10.0.0.1:80"), (&[2, 3], "a 10.0.0.2:80")]
        {
            assert_eq!(hosts.note(vec![found("a.test", addresses)]), Vec::<String>::new());
            assert_eq!(shown(&mut hosts, &list), [expected, "b 10.0.0.9:81"]);
        }
        assert!(hosts.unknown(&list).is_empty());
        assert!(hosts.applied(&[]).is_empty() && hosts.addresses.is_empty(), "other names are forgotten");
    }

    #[test]
    fn failures_are_reported_once_and_keep_the_address() {
        let list = [named("a", "a.test")];
        let mut hosts = HostNames::default();
        let fail = || vec![(Box::from("a.test"), Err("no answer".to_owned()))];
        let report = "the host name `a.test` cannot be resolved: no answer; it gets no server";
        assert_eq!(hosts.note(fail()), [report]);
        assert!(hosts.note(fail()).is_empty() && hosts.applied(&list).is_empty());
        hosts.note(vec![found("a.test", &[1])]);
        let report =
            "the host name `a.test` cannot be resolved: no answer; its last address 10.0.0.1 is kept";
        assert_eq!(hosts.note(fail()), [report]);
        assert_eq!(hosts.note(vec![found("a.test", &[])]), Vec::<String>::new());
        assert_eq!(shown(&mut hosts, &list), ["a 10.0.0.1:80"]);
    }
}
