//! Consul: the instances of a service with their checks (`/v1/health/service/<name>`).

use serde_json::Value;
use state::discovery::Instance;

use super::{Decoded, DocumentError, InstanceList, MOST_LABELS, array, json, name, shortened, socket_of};

/// Decodes an answer.
///
/// # Errors
/// The answer is not a list of services with their nodes and checks, or has no valid one.
pub fn decode(bytes: &[u8]) -> Decoded<InstanceList> {
    let document = json(bytes)?;
    let Value::Array(entries) = &document else {
        return Err(DocumentError::new("", "the document is not a list of services"));
    };
    let mut list = InstanceList::default();
    for (number, entry) in entries.iter().enumerate() {
        list.take(self::entry(entry), format_args!("entry {}", number + 1))?;
    }
    list.finish()
}

fn entry(entry: &Value) -> Decoded<Instance> {
    let of = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let id = of("/Service/ID").ok_or_else(|| DocumentError::new("", "there is no `Service.ID`"))?;
    let within = |error: DocumentError| error.within(format!("service `{}`", shortened(id)));
    let address = of("/Service/Address").or(of("/Node/Address"));
    let place = socket_of(address, entry.pointer("/Service/Port")).map_err(within)?;
    let checks = array(entry.get("Checks"), "Checks").map_err(within)?;
    let status = |check: &Value| check.get("Status").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_maintenance = |check: &&Value| {
        let id = check.get("CheckID").and_then(Value::as_str).unwrap_or_default();
        id == "_node_maintenance" || id.starts_with("_service_maintenance:")
    };
    let is_draining = checks.iter().any(|check| is_maintenance(&check));
    let is_ready = !checks.iter().any(|check| !matches!(&*status(check), "passing" | "warning"));
    let weight = match checks.iter().any(|check| status(check) == "warning") {
        true => "/Service/Weights/Warning",
        false => "/Service/Weights/Passing",
    };
    let weight = entry.pointer(weight).and_then(Value::as_u64).map(|weight| weight.min(256) as u32);
    let zone = ["/Service/Locality/Zone", "/Node/Locality/Zone", "/Service/Meta/zone", "/Node/Meta/zone"];
    let zone = zone.iter().find_map(|pointer| of(pointer));
    let mut labels: Vec<(Box<str>, Box<str>)> = Vec::new();
    for tag in array(entry.pointer("/Service/Tags"), "Service.Tags").map_err(within)?.iter().take(MOST_LABELS)
    {
        labels.push(("tag".into(), name(tag.as_str().unwrap_or_default(), "a tag").map_err(within)?.into()));
    }
    for (key, value) in entry.pointer("/Service/Meta").and_then(Value::as_object).into_iter().flatten() {
        // Longer values cannot be selected.
        if let (Ok(key), Ok(value)) = (name(key, ""), name(value.as_str().unwrap_or_default(), "")) {
            labels.push((key.into(), value.into()));
        }
    }
    labels.extend(of("/Node/Node").map(|node| ("node".into(), node.into())));
    labels.truncate(MOST_LABELS);
    Ok(Instance {
        weight,
        zone: zone.map(|zone| name(zone, "the zone")).transpose().map_err(within)?.map(Into::into),
        labels: labels.into(),
        is_ready: is_ready && !is_draining,
        is_draining,
        ..place.instance(name(id, "the ID").map_err(within)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(entries: &str) -> Result<Vec<Instance>, String> {
        let list = decode(format!("[{entries}]").as_bytes()).map_err(|error| error.to_string())?;
        assert_eq!(list.invalid, []);
        Ok(list.instances)
    }

    fn entry(service: &str, checks: &str) -> String {
        format!(
            r#"{{"Node": {{"Node": "n1", "Address": "10.0.0.9", "Meta": {{"zone": "z1"}}}},
                "Service": {{"ID": "web-1", "Port": 80, "Tags": ["v2"], "Meta": {{"team": "a"}},
                    "Weights": {{"Passing": 300, "Warning": 1}}{service}}}, "Checks": [{checks}]}}"#
        )
    }

    #[test]
    fn checks_decide_about_an_instance() {
        let check = |status: &str, id: &str| format!(r#"{{"CheckID": "{id}", "Status": "{status}"}}"#);
        for (checks, ready, draining, weight) in [
            (String::new(), true, false, 256),
            (check("passing", "a"), true, false, 256),
            (check("warning", "a"), true, false, 1),
            (format!("{}, {}", check("passing", "a"), check("critical", "b")), false, false, 256),
            (check("critical", "_node_maintenance"), false, true, 256),
            (check("critical", "_service_maintenance:web-1"), false, true, 256),
        ] {
            let list = decoded(&entry("", &checks)).expect("it is valid");
            let own = &list[0];
            assert_eq!(
                (own.is_ready, own.is_draining, own.weight),
                (ready, draining, Some(weight)),
                "{checks}"
            );
            assert_eq!(
                (&*own.id, own.socket().to_string(), own.zone.as_deref()),
                ("web-1", "10.0.0.9:80".to_owned(), Some("z1"))
            );
            assert!(own.has("tag", "v2") && own.has("team", "a") && own.has("node", "n1"));
        }
        let own = decoded(&entry(r#", "Address": "10.0.0.1""#, "")).expect("it is valid");
        assert_eq!(own[0].socket().to_string(), "10.0.0.1:80", "the service's own address comes first");
    }

    #[test]
    fn errors_name_the_service() {
        for (entries, error) in [
            (
                entry(r#", "Address": "a b""#, ""),
                "entry 1, service `web-1`: `a b` is not an IP address or a host name",
            ),
            (
                entry("", "").replace("80", "0"),
                "entry 1, service `web-1`: the port is not between 1 and 65535",
            ),
            ("{}".to_owned(), "entry 1: there is no `Service.ID`"),
        ] {
            assert_eq!(decoded(&entries), Err(error.to_owned()));
        }
    }
}
