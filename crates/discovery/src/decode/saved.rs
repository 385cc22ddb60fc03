//! The lists of an earlier process, as `show discovery json` writes them: one line for each list.

use serde_json::Value;
use state::discovery::Instance;

use super::{Decoded, DocumentError, InstanceList, MOST_LABELS, array, json, name, shortened, socket};

/// A list of an earlier process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedList {
    /// The name of the section.
    pub section: Box<str>,
    /// The subject of the list.
    pub query: Box<str>,
    /// The instances.
    pub instances: Vec<Instance>,
}

/// Decodes a line.
///
/// # Errors
/// The line is not a list as `show discovery json` writes it, or no instance in it is valid.
pub fn decode(line: &[u8]) -> Decoded<SavedList> {
    let document = json(line)?;
    let text = |name: &str| {
        let text = document.get(name).and_then(Value::as_str);
        text.map(Box::from).ok_or_else(|| DocumentError::new("", format!("there is no `{name}`")))
    };
    let mut list = InstanceList::default();
    for (number, value) in array(document.get("instances"), "instances")?.iter().enumerate() {
        list.take(instance(value), format_args!("instance {}", number + 1))?;
    }
    Ok(SavedList { section: text("section")?, query: text("query")?, instances: list.finish()?.instances })
}

fn instance(value: &Value) -> Decoded<Instance> {
    let of = |name: &str| value.get(name).and_then(Value::as_str);
    let place = socket(of("address").unwrap_or_default())?;
    // An earlier process resolved its names.
    if place.host.is_some() {
        return Err(DocumentError::new("", "an address is a host name"));
    }
    let id = of("id").ok_or_else(|| DocumentError::new("", "there is no `id`"))?;
    let flag = |name: &str| value.get(name).and_then(Value::as_bool).unwrap_or(false);
    let mut labels: Vec<(Box<str>, Box<str>)> = Vec::new();
    for pair in array(value.get("labels"), "labels")? {
        match (pair.get(0).and_then(Value::as_str), pair.get(1).and_then(Value::as_str)) {
            (Some(key), Some(text)) => {
                labels.push((name(key, "a label")?.into(), name(text, "a label")?.into()))
            }
            _ => return Err(DocumentError::new("", format!("a label of `{}` is not a pair", shortened(id)))),
        }
    }
    if labels.len() > MOST_LABELS {
        return Err(DocumentError::new("", format!("there are more than {MOST_LABELS} labels")));
    }
    Ok(Instance {
        weight: value.get("weight").and_then(Value::as_u64).map(|weight| weight.min(256) as u32),
        zone: of("zone").map(|zone| name(zone, "the zone")).transpose()?.map(Into::into),
        labels: labels.into(),
        is_ready: flag("ready"),
        is_draining: flag("draining"),
        ..place.instance(name(id, "the ID")?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_list_is_read_again() {
        let line = r#"{"section": "hosts", "source": "targets /x", "query": "", "instances": [{"id": "a", "address": "[::1]:80",
            "weight": 5, "zone": "z", "ready": true, "draining": false, "labels": [["tag", "1"], ["tag", "2"]]}]}"#;
        let saved = decode(line.replace('\n', "").as_bytes()).expect("it is valid");
        assert_eq!((&*saved.section, &*saved.query), ("hosts", ""));
        let own = &saved.instances[0];
        assert!(own.is_ready && own.has("tag", "2") && own.weight == Some(5));
        assert_eq!(own.socket().to_string(), "[::1]:80");
        assert!(decode(b"Unknown command").is_err());
    }
}
