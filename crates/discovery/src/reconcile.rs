//! Decides which servers a list of instances makes: pure functions, which the binary applies.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use plan::discovery::{InstanceFilter, InstancePhase};
use state::discovery::Instance;

/// The requirements of a line.
#[derive(Debug, Clone, Copy)]
pub struct LineDemand<'a> {
    /// The conditions for instances.
    pub filter: &'a InstanceFilter,
    /// The maximum number of servers.
    pub max: usize,
    /// The zone that is preferred.
    pub prefer_zone: Option<&'a str>,
    /// Whether all servers of the line are backup servers.
    pub all_backup: bool,
}

/// A server that an earlier list has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownServer<'a> {
    /// The name of the instance.
    pub id: &'a str,
    /// Its address.
    pub address: (IpAddr, u16),
    /// Whether it is a backup server, which cannot change.
    pub is_backup: bool,
    /// Its phase according to the last list.
    pub phase: InstancePhase,
}

/// The changes that a list demands. Servers and instances are given by their positions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steps {
    /// Servers that remain, with their instances.
    pub keep: Vec<(usize, usize)>,
    /// Servers that leave because their instances are not listed any more.
    pub leave: Vec<usize>,
    /// Instances that become servers, and whether these are backup servers.
    pub add: Vec<(usize, bool)>,
    /// The number of instances that are left out because there would be too many servers.
    pub excess: usize,
}

/// Compares a list with the servers of a line.
///
/// A server stands for one instance at one address: an instance with a new address gets a new server. Servers that are leaving do
/// not count towards the limit, but with them there are never more than twice as many.
pub fn steps(list: &[Instance], line: LineDemand<'_>, known: &[KnownServer<'_>]) -> Steps {
    let is_backup = |instance: &Instance| {
        let elsewhere = |zone: &str| instance.zone.as_deref().is_some_and(|own| own != zone);
        line.all_backup || line.prefer_zone.is_some_and(elsewhere)
    };
    let mut by_key: HashMap<(&str, (IpAddr, u16), bool), usize> = known
        .iter()
        .enumerate()
        .map(|(at, server)| ((server.id, server.address, server.is_backup), at))
        .collect();
    let mut steps = Steps::default();
    let mut fresh = Vec::new();
    let mut seen = HashSet::new();
    for (at, instance) in list.iter().enumerate().filter(|(_, instance)| line.filter.accepts(instance)) {
        let address = (instance.address, instance.port);
        if !seen.insert((&*instance.id, address)) {
            continue;
        }
        match by_key.remove(&(&*instance.id, address, is_backup(instance))) {
            Some(server) => steps.keep.push((server, at)),
            // There is nothing to drain.
            None if instance.is_draining => {}
            None => fresh.push((at, is_backup(instance))),
        }
    }
    // If the limit is lower than before, the last ones leave.
    steps.excess = steps.keep.len().saturating_sub(line.max);
    let dropped: Vec<usize> =
        steps.keep.drain(steps.keep.len() - steps.excess..).map(|(server, _)| server).collect();
    let mut leaving: Vec<usize> = by_key.into_values().chain(dropped).collect();
    leaving.sort_unstable();
    let room =
        (line.max - steps.keep.len()).min((2 * line.max).saturating_sub(steps.keep.len() + leaving.len()));
    steps.excess += fresh.len().saturating_sub(room);
    fresh.truncate(room);
    steps.add = fresh;
    steps.leave = leaving.into_iter().filter(|server| known[*server].phase != InstancePhase::Gone).collect();
    steps
}

/// The longest name of a discovered server before a number is appended, in bytes.
const LONGEST_NAME: usize = 128;

/// The names that the servers of a backend have.
#[derive(Debug, Default)]
pub struct ServerNames {
    taken: HashSet<Box<str>>,
    /// For names that several instances want, a number below which all are taken.
    free_from: HashMap<Box<str>, usize>,
}

impl ServerNames {
    /// Whether a server has the name.
    pub fn contains(&self, name: &str) -> bool {
        self.taken.contains(name)
    }

    /// Chooses and takes the name of the server of an instance, which is different from all others. The time does not depend on how
    /// many instances have names that become the same.
    pub fn choose(&mut self, id: &str) -> Box<str> {
        let fits =
            |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | ':');
        let mut name: String =
            id.chars().map(|own| if fits(own) { own } else { '-' }).take(LONGEST_NAME).collect();
        if name.is_empty() {
            name.push('-');
        }
        if self.taken.contains(&*name) {
            let from = self.free_from.entry(name.as_str().into()).or_insert(2);
            let numbered = |number: usize| format!("{name}.{number}");
            while self.taken.contains(&*numbered(*from)) {
                *from += 1;
            }
            name = numbered(*from);
        }
        self.taken.insert(name.as_str().into());
        name.into()
    }
}

impl Extend<Box<str>> for ServerNames {
    fn extend<T: IntoIterator<Item = Box<str>>>(&mut self, names: T) {
        self.taken.extend(names);
    }
}

/// The first ID of discovered servers, which leaves room for the servers of the configuration.
const FIRST_NUMBER: u32 = 1 << 20;

/// The largest ID.
const LAST_NUMBER: u32 = i32::MAX as u32;

/// The numeric IDs that the servers of a backend have.
#[derive(Debug, Default)]
pub struct ServerNumbers {
    /// For each ID that is taken, a later one; all between them are taken.
    later: HashMap<u32, u32>,
}

impl ServerNumbers {
    /// Chooses and takes the ID of the server of an instance, which is different from all others.
    ///
    /// It is derived from the instance, so that consistent hashing places it identically in every process, and an entry of a stick
    /// table never leads to another instance that has the number by chance. The time hardly depends on how many instances want the
    /// same number.
    pub fn choose(&mut self, id: &str, address: (IpAddr, u16)) -> u32 {
        let key = format!("{id} {} {}", address.0, address.1);
        let hash = base::hash::xxh64(key.as_bytes(), 0) as u32;
        let number = self.free_from(FIRST_NUMBER + hash % (LAST_NUMBER - FIRST_NUMBER));
        self.take(number);
        number
    }

    /// Takes an ID.
    pub fn take(&mut self, number: u32) {
        let next = if number == LAST_NUMBER { FIRST_NUMBER } else { number + 1 };
        self.later.entry(number).or_insert(next);
    }

    /// Returns the first free ID from `from` on, and shortens the way to it.
    fn free_from(&mut self, from: u32) -> u32 {
        let (mut free, mut before) = (from, None);
        while let Some(next) = self.later.get(&free).copied() {
            // Each ID on the way then skips the next one.
            if let Some(before) = before {
                self.later.insert(before, next);
            }
            before = Some(free);
            free = next;
        }
        free
    }
}

impl Extend<u32> for ServerNumbers {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, numbers: T) {
        numbers.into_iter().for_each(|number| self.take(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(id: &str, last: u8) -> Instance {
        Instance::new(id, IpAddr::from([10, 0, 0, last]), 80)
    }

    fn known(id: &str, last: u8) -> KnownServer<'_> {
        let address = (IpAddr::from([10, 0, 0, last]), 80);
        KnownServer { id, address, is_backup: false, phase: InstancePhase::Ready }
    }

    fn demand(filter: &InstanceFilter, max: usize) -> LineDemand<'_> {
        LineDemand { filter, max, prefer_zone: None, all_backup: false }
    }

    #[test]
    fn servers_follow_the_list() {
        let (filter, list) = (InstanceFilter::default(), [instance("a", 1), instance("c", 3)]);
        let steps = steps(&list, demand(&filter, 9), &[known("a", 1), known("b", 2)]);
        assert_eq!(steps, Steps { keep: vec![(0, 0)], leave: vec![1], add: vec![(1, false)], excess: 0 });
    }

    #[test]
    fn another_address_is_another_server() {
        let (filter, list) = (InstanceFilter::default(), [instance("a", 2)]);
        let steps = steps(&list, demand(&filter, 9), &[known("a", 1)]);
        assert_eq!((steps.keep, steps.leave, steps.add), (vec![], vec![0], vec![(0, false)]));
    }

    #[test]
    fn an_instance_that_comes_back_keeps_its_server() {
        let (filter, list) = (InstanceFilter::default(), [instance("a", 1)]);
        let gone = KnownServer { phase: InstancePhase::Gone, ..known("a", 1) };
        assert_eq!(steps(&list, demand(&filter, 9), &[gone]).keep, [(0, 0)]);
        assert_eq!(steps(&[], demand(&filter, 9), &[gone]), Steps::default(), "it leaves only once");
    }

    #[test]
    fn the_limit_holds_and_the_rest_is_counted() {
        let filter = InstanceFilter::default();
        let list: Vec<Instance> = (0..5).map(|last| instance(&format!("i{last}"), last)).collect();
        let first = steps(&list, demand(&filter, 3), &[known("i4", 4)]);
        assert_eq!((first.keep.len(), first.add.len(), first.excess), (1, 2, 2), "known servers come first");
        let all: Vec<KnownServer<'_>> = list
            .iter()
            .map(|own| {
                known(
                    &own.id,
                    match own.address {
                        IpAddr::V4(ip) => ip.octets()[3],
                        IpAddr::V6(_) => 0,
                    },
                )
            })
            .collect();
        let lowered = steps(&list, demand(&filter, 2), &all);
        assert_eq!((lowered.keep.len(), lowered.leave.len(), lowered.excess), (2, 3, 3));
        let gone: Vec<KnownServer<'_>> =
            (10..14).map(|last| KnownServer { phase: InstancePhase::Gone, ..known("old", last) }).collect();
        let waits = steps(&list[..2], demand(&filter, 2), &gone);
        assert_eq!((waits.add.len(), waits.excess), (0, 2), "four that are leaving take the room");
    }

    #[test]
    fn other_zones_are_backups_and_draining_instances_get_no_server() {
        let filter = InstanceFilter::default();
        let zoned = |id: &str, zone: Option<&str>| Instance { zone: zone.map(Into::into), ..instance(id, 1) };
        let draining = Instance { is_draining: true, ..instance("d", 1) };
        let list = [zoned("a", Some("z1")), zoned("b", Some("z2")), zoned("c", None), draining];
        let line = LineDemand { prefer_zone: Some("z1"), ..demand(&filter, 9) };
        assert_eq!(steps(&list, line, &[]).add, [(0, false), (1, true), (2, false)]);
    }

    #[test]
    fn names_are_usable_and_unique() {
        let mut names = ServerNames::default();
        for (id, name) in [
            ("web-0", "web-0"),
            ("a/b c", "a-b-c"),
            ("a b/c", "a-b-c.2"),
            ("a-b-c.3", "a-b-c.3"),
            ("a/b/c", "a-b-c.4"),
            ("", "-"),
            ("[::1]:80", "-::1-:80"),
        ] {
            assert_eq!(&*names.choose(id), name);
            assert!(names.contains(name));
        }
        assert_eq!(names.choose(&"x".repeat(1000)).len(), LONGEST_NAME);
    }

    #[test]
    fn many_names_that_become_the_same_cost_no_more_than_others() {
        let mut names = ServerNames::default();
        // Trying all numbers for each of them would take 2 * 10^10 lookups.
        let last = (0..200_000).map(|_| names.choose("/")).last();
        assert_eq!(last.as_deref(), Some("-.200000"));
    }

    #[test]
    fn numbers_depend_on_the_instance_alone_unless_they_collide() {
        let at = (IpAddr::from([10, 0, 0, 1]), 80);
        let chosen = |taken: &[u32], id: &str, address| {
            let mut numbers = ServerNumbers::default();
            numbers.extend(taken.iter().copied());
            numbers.choose(id, address)
        };
        let first = chosen(&[], "a", at);
        assert_eq!(first, chosen(&[1, 2], "a", at));
        assert_ne!(first, chosen(&[], "a", (at.0, 81)));
        assert_eq!(chosen(&[first], "a", at), first + 1);
        assert_eq!(chosen(&[first + 1, first + 2, first], "a", at), first + 3);
    }

    #[test]
    fn the_last_number_is_followed_by_the_first() {
        let mut numbers = ServerNumbers::default();
        numbers.extend([LAST_NUMBER, FIRST_NUMBER, LAST_NUMBER - 1]);
        assert_eq!(numbers.free_from(LAST_NUMBER - 1), FIRST_NUMBER + 1);
    }

    #[test]
    fn many_instances_that_want_the_same_number_cost_no_more_than_others() {
        let at = (IpAddr::from([10, 0, 0, 1]), 80);
        let mut numbers = ServerNumbers::default();
        let first = numbers.choose("a", at);
        // Trying all numbers for each of them would take 2 * 10^10 lookups.
        let last = (0..200_000).map(|_| numbers.choose("a", at)).last();
        assert_eq!(last, Some(first + 200_000));
    }
}
