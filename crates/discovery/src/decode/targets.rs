//! The format of Prometheus' `file_sd` and `http_sd`: groups of targets with labels.
//!
//! The labels `zone`, `weight`, `ready`, `draining` and `id` also describe the instances.

use serde_json::Value;
use state::discovery::{Instance, InstanceLabels};

use super::{Decoded, DocumentError, MOST_LABELS, add, array, json, list, name, object, shortened, socket};

/// Decodes a document.
///
/// # Errors
/// The document is not a list of groups, or a group has an invalid target or label.
pub fn decode(bytes: &[u8]) -> Decoded<Vec<Instance>> {
    let document = json(bytes)?;
    let Value::Array(groups) = &document else {
        return Err(DocumentError::new("", "the document is not a list of groups"));
    };
    let mut instances = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        self::group(group, &mut instances).map_err(|error| error.within(format!("group {}", number + 1)))?;
    }
    list(instances)
}

fn group(group: &Value, instances: &mut Vec<Instance>) -> Decoded<()> {
    let members = object(group, "the group")?;
    let labels = labels(members.get("labels"))?;
    let of = |wanted: &str| labels.iter().find(|(name, _)| &**name == wanted).map(|(_, value)| &**value);
    let weight = of("weight").map(weight).transpose()?;
    let flag = |name: &str, default: bool| match of(name) {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(DocumentError::new(
            format!("label `{name}`"),
            format!("`{}` is not `true` or `false`", shortened(other)),
        )),
    };
    let (is_ready, is_draining) = (flag("ready", true)?, flag("draining", false)?);
    let targets = array(members.get("targets"), "targets")?;
    let id = of("id");
    if id.is_some() && targets.len() > 1 {
        return Err(DocumentError::new("label `id`", "it belongs to one target, but the group has several"));
    }
    for (number, target) in targets.iter().enumerate() {
        let at = |error: DocumentError| error.within(format!("target {}", number + 1));
        let text = target.as_str().ok_or_else(|| at(DocumentError::new("", "the target is not a string")))?;
        let place = socket(text).map_err(at)?;
        let instance = Instance {
            weight,
            zone: of("zone").filter(|zone| !zone.is_empty()).map(Into::into),
            labels: labels.clone(),
            is_ready,
            is_draining,
            ..place.instance(id.unwrap_or(text))
        };
        add(instances, instance).map_err(at)?;
    }
    Ok(())
}

fn labels(value: Option<&Value>) -> Decoded<InstanceLabels> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(InstanceLabels::default()) };
    let members = value.as_object().ok_or_else(|| DocumentError::new("", "`labels` is not an object"))?;
    if members.len() > MOST_LABELS {
        return Err(DocumentError::new("", format!("the group has more than {MOST_LABELS} labels")));
    }
    let label = |(label, value): (&String, &Value)| {
        let at = |error: DocumentError| error.within(format!("label `{}`", shortened(label)));
        let text = value.as_str().ok_or_else(|| at(DocumentError::new("", "the value is not a string")))?;
        Ok((name(label, "the name of a label")?.into(), name(text, "the value").map_err(at)?.into()))
    };
    members.iter().map(label).collect()
}

fn weight(text: &str) -> Decoded<u32> {
    let weight = text.parse().ok().filter(|weight| *weight <= 256);
    weight.ok_or_else(|| {
        DocumentError::new("label `weight`", format!("`{}` is not a weight from 0 to 256", shortened(text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Result<Vec<Instance>, String> {
        decode(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn groups_give_their_labels_to_their_targets() {
        let text = r#"[{"targets": ["10.0.0.2:80", "10.0.0.1:80"], "labels": {"env": "prod", "zone": "a", "weight": "7"}},
            {"targets": ["[::1]:81"], "labels": {"id": "six", "draining": "true"}}, {"targets": []}]"#;
        let list = decoded(text).expect("it is valid");
        let ids: Vec<&str> = list.iter().map(|own| &*own.id).collect();
        assert_eq!(ids, ["10.0.0.1:80", "10.0.0.2:80", "six"], "sorted");
        assert_eq!(
            (list[0].weight, list[0].zone.as_deref(), list[0].has("env", "prod")),
            (Some(7), Some("a"), true)
        );
        assert!(list[2].is_draining && !list[1].is_draining);
        assert_eq!(list[2].socket().to_string(), "[::1]:81");
    }

    #[test]
    fn the_targets_of_a_group_share_its_labels() {
        let labels: Vec<String> =
            (0..64).map(|number| format!(r#""l{number}": "{}""#, "x".repeat(253))).collect();
        let targets: Vec<String> = (0..100_000)
            .map(|number| format!(r#""10.{}.{}.{}:80""#, number >> 16, number >> 8 & 255, number & 255))
            .collect();
        let group = |targets: &[String]| {
            format!(r#"[{{"targets": [{}], "labels": {{{}}}}}]"#, targets.join(","), labels.join(","))
        };
        let list = decoded(&group(&targets)).expect("it is valid");
        assert!(list.iter().all(|own| std::sync::Arc::ptr_eq(&own.labels, &list[0].labels)));
        let more = [&targets[..], &targets[..1]].concat();
        let error = "group 1, target 100001: the list has more than 100000 instances";
        assert_eq!(decoded(&group(&more)), Err(error.to_owned()));
    }

    #[test]
    fn errors_have_a_place_and_a_cause() {
        for (text, error) in [
            ("", "line 1, column 0: EOF while parsing a value"),
            (r#"[{"targets": ["10.0.0.1:80""#, "line 1, column 27: EOF while parsing a list"),
            ("{}", "the document is not a list of groups"),
            ("[3]", "group 1: the group is not an object"),
            (
                r#"[{}, {"targets": ["a.test"]}]"#,
                "group 2, target 1: `a.test` is not an IP address or host name with a port",
            ),
            (r#"[{"targets": ["10.0.0.1:80", 5]}]"#, "group 1, target 2: the target is not a string"),
            (
                r#"[{"targets": ["0.0.0.0:80"]}]"#,
                "group 1, target 1: `0.0.0.0:80` is not an IP address or host name with a port",
            ),
            (
                r#"[{"labels": {"weight": "300"}}]"#,
                "group 1, label `weight`: `300` is not a weight from 0 to 256",
            ),
            (r#"[{"labels": {"a": 1}}]"#, "group 1, label `a`: the value is not a string"),
            (r#"[{"labels": {"ready": "no"}}]"#, "group 1, label `ready`: `no` is not `true` or `false`"),
            (
                r#"[{"labels": {"a": "\u0000"}}]"#,
                "group 1, label `a`: the value contains a control character",
            ),
        ] {
            assert_eq!(decoded(text), Err(error.to_owned()), "{text}");
        }
    }
}
