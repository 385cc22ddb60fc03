//! The format of Prometheus' `file_sd` and `http_sd`: groups of targets with labels.
//!
//! The labels `zone`, `weight`, `ready`, `draining` and `id` also describe the instances.

use serde_json::Value;
use state::discovery::{Instance, InstanceLabels};

use super::{
    Decoded, DocumentError, InstanceList, MOST_LABELS, array, json, name, object, reject, shortened, socket,
};

/// Decodes a document.
///
/// # Errors
/// The document is not a list of groups, or no target in it is valid.
pub fn decode(bytes: &[u8]) -> Decoded<InstanceList> {
    let document = json(bytes)?;
    let Value::Array(groups) = &document else {
        return Err(DocumentError::new("", "the document is not a list of groups"));
    };
    let mut list = InstanceList::default();
    for (number, group) in groups.iter().enumerate() {
        let at = |error: DocumentError| error.within(format!("group {}", number + 1));
        let (targets, common) = match self::group(group) {
            Ok(group) => group,
            Err(error) => {
                reject(&mut list.invalid, at(error))?;
                continue;
            }
        };
        for (target, text) in targets.iter().enumerate() {
            let place = format_args!("group {}, target {}", number + 1, target + 1);
            list.take(self::target(text, &common), place)?;
        }
    }
    list.finish()
}

/// The properties that the targets of a group have in common.
struct GroupProperties {
    id: Option<Box<str>>,
    weight: Option<u32>,
    labels: InstanceLabels,
    is_ready: bool,
    is_draining: bool,
}

/// The targets of a group, and their properties.
fn group(group: &Value) -> Decoded<(&[Value], GroupProperties)> {
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
    let (id, labels) = (id.map(Into::into), labels.clone());
    Ok((targets, GroupProperties { id, weight, labels, is_ready, is_draining }))
}

fn target(target: &Value, group: &GroupProperties) -> Decoded<Instance> {
    let text = target.as_str().ok_or_else(|| DocumentError::new("", "the target is not a string"))?;
    let place = socket(text)?;
    let zone = group.labels.iter().find(|(name, value)| &**name == "zone" && !value.is_empty());
    Ok(Instance {
        weight: group.weight,
        zone: zone.map(|(_, zone)| zone.clone()),
        labels: group.labels.clone(),
        is_ready: group.is_ready,
        is_draining: group.is_draining,
        ..place.instance(group.id.as_deref().unwrap_or(text))
    })
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
    use super::super::MOST_INVALID;
    use super::*;

    fn decoded(text: &str) -> Result<Vec<Instance>, String> {
        let list = decode(text.as_bytes()).map_err(|error| error.to_string())?;
        assert_eq!(list.invalid, []);
        Ok(list.instances)
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
            (r#"[{"targets": [5, "10.0.0.1"]}]"#, "group 1, target 1: the target is not a string"),
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

    #[test]
    fn invalid_groups_and_targets_do_not_hide_others() {
        let text = r#"[{"targets": ["10.0.0.1:80", 5, "10.0.0.2:80"]}, {"targets": ["10.0.0.3:80"], "labels": {"weight": "x"}}, 7,
            {"targets": ["10.0.0.4:80"], "labels": {"zone": "a"}}]"#;
        let list = decode(text.as_bytes()).expect("it has valid targets");
        let ids: Vec<&str> = list.instances.iter().map(|own| &*own.id).collect();
        assert_eq!(ids, ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.4:80"]);
        assert_eq!(list.instances[2].zone.as_deref(), Some("a"));
        let errors: Vec<String> = list.invalid.iter().map(ToString::to_string).collect();
        let expected = [
            "group 1, target 2: the target is not a string",
            "group 2, label `weight`: `x` is not a weight from 0 to 256",
            "group 3: the group is not an object",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn the_number_of_errors_is_limited() {
        let text = |count: usize| format!(r#"[{{"targets": ["10.0.0.1:80"]}}{}]"#, ",1".repeat(count));
        let list = decode(text(MOST_INVALID).as_bytes()).expect("it is bounded");
        assert_eq!((list.instances.len(), list.invalid.len()), (1, MOST_INVALID));
        let error = decode(text(MOST_INVALID + 1).as_bytes()).map_err(|error| error.to_string());
        let expected = "group 1002: more than 1000 elements are invalid, the last one because the group is not an object";
        assert_eq!(error, Err(expected.to_owned()));
    }
}
