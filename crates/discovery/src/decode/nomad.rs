//! Nomad: the registrations of a service (`/v1/service/<name>`).

use serde_json::Value;
use state::discovery::Instance;

use super::{Decoded, DocumentError, InstanceList, MOST_LABELS, array, json, name, shortened, socket_of};

/// Decodes an answer. The allocations are the instances.
///
/// # Errors
/// The answer is not a list of registrations, or has no valid one.
pub fn decode(bytes: &[u8]) -> Decoded<InstanceList> {
    let document = json(bytes)?;
    let Value::Array(entries) = &document else {
        return Err(DocumentError::new("", "the document is not a list of registrations"));
    };
    let mut list = InstanceList::default();
    for (number, entry) in entries.iter().enumerate() {
        list.take(self::entry(entry), format_args!("entry {}", number + 1))?;
    }
    list.finish()
}

fn entry(entry: &Value) -> Decoded<Instance> {
    let of = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let id = of("AllocID").or(of("ID")).ok_or_else(|| DocumentError::new("", "there is no `AllocID`"))?;
    let within = |error: DocumentError| error.within(format!("allocation `{}`", shortened(id)));
    let place = socket_of(of("Address"), entry.get("Port")).map_err(within)?;
    let mut labels: Vec<(Box<str>, Box<str>)> = Vec::new();
    for tag in array(entry.get("Tags"), "Tags").map_err(within)?.iter().take(MOST_LABELS - 1) {
        labels.push(("tag".into(), name(tag.as_str().unwrap_or_default(), "a tag").map_err(within)?.into()));
    }
    labels.extend(of("JobID").and_then(|job| Some(("job".into(), name(job, "").ok()?.into()))));
    let zone = of("Datacenter").map(|zone| name(zone, "the datacenter")).transpose().map_err(within)?;
    Ok(Instance {
        zone: zone.map(Into::into),
        labels: labels.into(),
        ..place.instance(name(id, "the ID").map_err(within)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registrations_are_instances() {
        let text = r#"[{"ID": "_nomad-task-1", "AllocID": "6bb1", "ServiceName": "web", "Datacenter": "dc1", "JobID": "shop",
            "Tags": ["v2"], "Address": "10.0.0.1", "Port": 24123}]"#;
        let list = decode(text.as_bytes()).expect("it is valid").instances;
        assert_eq!((&*list[0].id, list[0].socket().to_string()), ("6bb1", "10.0.0.1:24123".to_owned()));
        assert!(list[0].has("tag", "v2") && list[0].has("job", "shop") && list[0].is_ready);
        assert_eq!(list[0].zone.as_deref(), Some("dc1"));
        let error = decode(text.replace("24123", "99999").as_bytes()).map_err(|error| error.to_string());
        assert_eq!(error, Err("entry 1, allocation `6bb1`: the port is not between 1 and 65535".to_owned()));
    }
}
