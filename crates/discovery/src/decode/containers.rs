//! Docker and Podman: the running containers (`/containers/json`).
//!
//! The labels `weir.port`, `weir.network`, `weir.weight` and `weir.zone` describe the instances.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;
use state::discovery::Instance;

use super::{Decoded, DocumentError, InstanceList, MOST_LABELS, array, json, name, reject, shortened};

/// Decodes an answer. A container is an instance for each of its TCP ports.
///
/// # Errors
/// The answer is not a list of containers, or there are only invalid ones.
pub fn decode(bytes: &[u8]) -> Decoded<InstanceList> {
    let document = json(bytes)?;
    let Value::Array(containers) = &document else {
        return Err(DocumentError::new("", "the document is not a list of containers"));
    };
    let mut list = InstanceList::default();
    for (number, container) in containers.iter().enumerate() {
        let at = |error: DocumentError| error.within(format!("container {}", number + 1));
        let RunningContainer { common, places } = match self::container(container) {
            Ok(Some(container)) => container,
            Ok(None) => continue,
            Err(error) => {
                reject(&mut list.invalid, at(error))?;
                continue;
            }
        };
        for (address, port) in places {
            let instance = Instance { address, port, ..common.clone() };
            list.add(instance).map_err(|error| at(error.within(format!("`{}`", shortened(&common.id)))))?;
        }
    }
    list.finish()
}

/// The instances of a container.
struct RunningContainer {
    /// Their properties, without an address.
    common: Instance,
    places: Vec<(IpAddr, u16)>,
}

/// The instances of a container; `None` if it does not run.
fn container(value: &Value) -> Decoded<Option<RunningContainer>> {
    let of = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let names = array(value.get("Names"), "Names")?;
    let id = names.first().and_then(Value::as_str).map(|name| name.trim_start_matches('/'));
    let id = id.filter(|id| !id.is_empty()).unwrap_or(of("Id"));
    let id = name(id, "the name")?;
    let within = |error: DocumentError| error.within(format!("`{}`", shortened(id)));
    let own_labels = value.get("Labels").and_then(Value::as_object);
    let label = |name: &str| own_labels?.get(name)?.as_str();
    let number = |name: &str, low: u64, high: u64| match label(name) {
        None => Ok(None),
        Some(text) => match text.parse().ok().filter(|number| (low..=high).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(within(DocumentError::new(
                format!("label `{name}`"),
                format!("`{}` is not a number from {low} to {high}", shortened(text)),
            ))),
        },
    };
    let wanted_port = number("weir.port", 1, 65535)?.map(|port| port as u16);
    let weight = number("weir.weight", 0, 256)?.map(|weight| weight as u32);
    let zone = label("weir.zone").map(|zone| name(zone, "the zone")).transpose().map_err(within)?;
    let state = of("State");
    if !state.is_empty() && !matches!(state, "running" | "paused" | "healthy" | "unhealthy") {
        return Ok(None);
    }
    let status = of("Status");
    let is_sick = status.contains("(unhealthy)")
        || status.contains("(health: starting)")
        || status.contains("(starting)");
    let mut labels: Vec<(Box<str>, Box<str>)> = vec![("name".into(), id.into())];
    for (key, text) in own_labels.into_iter().flatten() {
        // Longer values cannot be selected.
        if let (Ok(key), Ok(text)) = (name(key, ""), name(text.as_str().unwrap_or_default(), "")) {
            labels.push((key.into(), text.into()));
        }
    }
    labels.truncate(MOST_LABELS);
    let places = places(value, label("weir.network"), wanted_port).map_err(within)?;
    let common = Instance {
        weight,
        zone: zone.map(Into::into),
        labels: labels.into(),
        is_ready: state != "paused" && state != "unhealthy" && !is_sick,
        ..Instance::new(id, Ipv4Addr::UNSPECIFIED.into(), 0)
    };
    Ok(Some(RunningContainer { common, places }))
}

/// The addresses of a container: in its network, or published on this machine if it has none.
fn places(value: &Value, network: Option<&str>, wanted: Option<u16>) -> Decoded<Vec<(IpAddr, u16)>> {
    let networks = value.pointer("/NetworkSettings/Networks").and_then(Value::as_object);
    let address_in = |network: &Value| {
        let of = |name: &str| network.get(name).and_then(Value::as_str)?.parse::<IpAddr>().ok();
        let of = |name: &str| of(name).filter(|address| !address.is_unspecified());
        of("IPAddress").or(of("GlobalIPv6Address"))
    };
    let mut candidates =
        networks.into_iter().flatten().filter(|(name, _)| network.is_none_or(|own| *name == own));
    let own = candidates.find_map(|(_, network)| address_in(network));
    let (mut places, mut seen) = (Vec::new(), HashSet::new());
    let number =
        |value: Option<&Value>| value.and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    for port in array(value.get("Ports"), "Ports")? {
        if port.get("Type").and_then(Value::as_str).unwrap_or("tcp") != "tcp" {
            continue;
        }
        let inside = number(port.get("PrivatePort")).filter(|port| *port > 0);
        let published = number(port.get("PublicPort")).filter(|port| *port > 0);
        if wanted.is_some() && inside != wanted {
            continue;
        }
        let place = match (own, inside, published) {
            (Some(address), Some(inside), _) => (address, inside),
            (None, _, Some(published)) => {
                let host = port.get("IP").and_then(Value::as_str).and_then(|ip| ip.parse::<IpAddr>().ok());
                let host = host.filter(|ip| !ip.is_unspecified()).unwrap_or(Ipv4Addr::LOCALHOST.into());
                (host, published)
            }
            _ => continue,
        };
        if seen.insert(place) {
            places.push(place);
        }
    }
    // The port need not be exposed. A container in the network of the machine has the machine's address.
    if let (Some(wanted), true) = (wanted, places.is_empty()) {
        // Docker names that network, Podman lists none.
        let is_host = networks.is_none_or(|all| all.is_empty() || all.contains_key("host"));
        let address = own.or_else(|| is_host.then_some(Ipv4Addr::LOCALHOST.into()));
        places.extend(address.map(|address| (address, wanted)));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(container: &str) -> Result<Vec<String>, String> {
        let list = decode(format!("[{container}]").as_bytes()).map_err(|error| error.to_string())?;
        assert_eq!(list.invalid, []);
        Ok(list.instances.iter().map(|own| format!("{} {} {}", own.id, own.socket(), own.is_ready)).collect())
    }

    #[test]
    fn containers_are_reached_in_their_network_or_through_published_ports() {
        let network = r#""NetworkSettings": {"Networks": {"front": {"IPAddress": "172.18.0.2"}, "back": {"IPAddress": "172.19.0.2"}}}"#;
        let ports = r#""Ports": [{"PrivatePort": 80, "PublicPort": 8080, "IP": "0.0.0.0", "Type": "tcp"},
            {"PrivatePort": 80, "PublicPort": 8080, "IP": "::", "Type": "tcp"}, {"PrivatePort": 53, "Type": "udp"}]"#;
        let base = r#""Names": ["/web"], "State": "running""#;
        for (container, expected) in [
            (format!("{{{base}, {network}, {ports}}}"), vec!["web 172.19.0.2:80 true"]),
            (
                format!(r#"{{{base}, {network}, {ports}, "Labels": {{"weir.network": "front"}}}}"#),
                vec!["web 172.18.0.2:80 true"],
            ),
            (format!("{{{base}, {ports}}}"), vec!["web 127.0.0.1:8080 true"]),
            (
                format!(r#"{{{base}, {network}, "Labels": {{"weir.port": "81"}}}}"#),
                vec!["web 172.19.0.2:81 true"],
            ),
            (
                format!(
                    r#"{{{base}, "NetworkSettings": {{"Networks": {{"host": {{"IPAddress": ""}}}}}}, "Labels": {{"weir.port": "81"}}}}"#
                ),
                vec!["web 127.0.0.1:81 true"],
            ),
            (
                format!(
                    r#"{{{base}, "NetworkSettings": {{"Networks": null}}, "Labels": {{"weir.port": "81"}}}}"#
                ),
                vec!["web 127.0.0.1:81 true"],
            ),
            (format!("{{{base}, {network}}}"), vec![]),
            (
                format!(r#"{{{base}, {network}, {ports}, "Status": "Up 3 minutes (unhealthy)"}}"#),
                vec!["web 172.19.0.2:80 false"],
            ),
            (format!("{{{}, {network}, {ports}}}", base.replace("running", "exited")), vec![]),
        ] {
            assert_eq!(
                decoded(&container),
                Ok(expected.into_iter().map(str::to_owned).collect()),
                "{container}"
            );
        }
    }

    #[test]
    fn a_document_cannot_have_more_instances_than_a_list() {
        let ports: Vec<String> = (1..=50_001).map(|port| format!(r#"{{"PrivatePort": {port}}}"#)).collect();
        let container = |name: &str| {
            let networks = r#"{"n": {"IPAddress": "10.0.0.1"}}"#;
            format!(
                r#"{{"Names": ["/{name}"], "NetworkSettings": {{"Networks": {networks}}}, "Ports": [{}]}}"#,
                ports.join(", ")
            )
        };
        assert_eq!(decoded(&container("a")).map(|list| list.len()), Ok(50_001));
        let error = "container 2, `b`: the list has more than 100000 instances";
        assert_eq!(decoded(&format!("{}, {}", container("a"), container("b"))), Err(error.to_owned()));
    }

    #[test]
    fn invalid_labels_are_errors() {
        let container = r#"{"Names": ["/web"], "Labels": {"weir.port": "http"}}"#;
        let error = "container 1, `web`, label `weir.port`: `http` is not a number from 1 to 65535";
        assert_eq!(decoded(container), Err(error.to_owned()));
    }
}
