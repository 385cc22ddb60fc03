//! The choice of a server's address among those of its name (manual, 5.2 `resolve-prefer`, `resolve-net`, `resolve-opts`).

use std::net::IpAddr;

use base::address::Family;
use plan::resolvers::Wishes;

/// The result of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The server's current address is still the best.
    Keep,
    /// Another address is better.
    Take(IpAddr),
    /// No address is available for the server.
    Nothing,
}

/// Ranks an address, whichever servers use it. The preferred family has more weight than the preferred networks.
pub(crate) fn class(address: IpAddr, wishes: &Wishes) -> u8 {
    let preferred = address.is_ipv4() == (wishes.prefer.unwrap_or(Family::V6) == Family::V4);
    let near = wishes.networks.iter().any(|network| network.contains(address));
    u8::from(preferred) << 1 | u8::from(near)
}

/// Chooses among `addresses`. The preferred family decides first, then the preferred networks, then whether no other server uses
/// the address, then whether it is the server's current one. Among equal addresses the first is chosen.
pub(crate) fn choose(
    addresses: impl Iterator<Item = IpAddr>,
    wishes: &Wishes,
    own: Option<IpAddr>,
    taken: impl Fn(IpAddr) -> bool,
) -> Choice {
    let mut best: Option<(u8, IpAddr)> = None;
    for address in addresses {
        let taken = taken(address);
        if taken && !wishes.duplicates {
            continue;
        }
        let score = class(address, wishes) << 2 | u8::from(!taken) << 1 | u8::from(own == Some(address));
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, address));
        }
    }
    match best {
        None => Choice::Nothing,
        Some((_, address)) if own == Some(address) => Choice::Keep,
        Some((_, address)) => Choice::Take(address),
    }
}

#[cfg(test)]
mod tests {
    use base::network::Network;

    use super::*;

    #[test]
    fn choice_ranks_family_network_free_and_current_address() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let v4 = Wishes { prefer: Some(Family::V4), ..Wishes::default() };
        let near = Wishes { networks: vec![Network::parse("10.0.0.0/8").unwrap()], ..v4.clone() };
        let shared = Wishes { duplicates: true, ..v4.clone() };
        let take = |text: &str| Choice::Take(ip(text));
        #[rustfmt::skip]
        let cases: &[(&str, &Wishes, &str, &str, Choice)] = &[
            // found                  wishes              own          taken        choice
            ("192.0.2.1 ::1",         &Wishes::default(), "",          "",          take("::1")),
            ("192.0.2.1 ::1",         &v4,                "",          "",          take("192.0.2.1")),
            ("::1",                   &v4,                "",          "",          take("::1")),
            ("192.0.2.1 192.0.2.2",   &v4,                "192.0.2.2", "",          Choice::Keep),
            ("192.0.2.1 10.0.0.1",    &near,              "192.0.2.1", "",          take("10.0.0.1")),
            ("192.0.2.1 192.0.2.2",   &near,              "",          "",          take("192.0.2.1")),
            ("192.0.2.1 192.0.2.2",   &v4,                "",          "192.0.2.1", take("192.0.2.2")),
            ("192.0.2.1",             &v4,                "",          "192.0.2.1", Choice::Nothing),
            ("192.0.2.1 192.0.2.2",   &shared,            "",          "192.0.2.1", take("192.0.2.2")),
            ("192.0.2.1",             &shared,            "",          "192.0.2.1", take("192.0.2.1")),
            ("",                      &v4,                "192.0.2.1", "",          Choice::Nothing),
        ];
        for (found, wishes, own, taken, choice) in cases {
            let addresses = found.split_ascii_whitespace().map(ip);
            let own = own.parse().ok();
            assert_eq!(
                choose(addresses, wishes, own, |address| address.to_string() == *taken),
                *choice,
                "{found}"
            );
        }
    }
}
