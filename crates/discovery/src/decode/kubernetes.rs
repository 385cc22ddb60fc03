//! Kubernetes: EndpointSlices of a service, as a list and as the events of a watch.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use plan::discovery::PORT_LABEL;
use serde_json::Value;
use state::discovery::Instance;

use super::{
    Decoded, DocumentError, InstanceList, MOST_INSTANCES, array, json, list, name, object, reject, shortened,
};

/// The slices of a service, which together are its instances.
#[derive(Debug, Default)]
pub struct SliceStore {
    slices: BTreeMap<Box<str>, Vec<Instance>>,
    version: Box<str>,
}

/// The consequence of an event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEvent {
    /// The slices have changed.
    Changed,
    /// Only the version has changed, as after an invalid slice.
    Bookmark,
    /// The version is too old: the list must be obtained again.
    Expired,
}

impl SliceStore {
    /// Returns the version from which a watch continues.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Replaces all slices with the valid ones of a list. Returns the errors of invalid slices and invalid parts of slices.
    ///
    /// # Errors
    /// The document is not a list of slices, or all are invalid. The store is unchanged.
    pub fn replace(&mut self, bytes: &[u8]) -> Decoded<Vec<DocumentError>> {
        let document = json(bytes)?;
        let members = object(&document, "the document")?;
        let version = version_of(&document)?.into();
        let (mut slices, mut invalid, mut size) = (BTreeMap::new(), Vec::new(), 0);
        for (number, item) in array(members.get("items"), "items")?.iter().enumerate() {
            let at = |error: DocumentError| error.within(format!("item {}", number + 1));
            match slice(item) {
                Ok((name, list)) => {
                    list.invalid.into_iter().try_for_each(|error| reject(&mut invalid, at(error)))?;
                    size += list.instances.len() + 1;
                    slices.insert(name, list.instances);
                }
                Err(error) => reject(&mut invalid, at(error))?,
            }
            bounded(size)?;
        }
        if slices.is_empty() && !invalid.is_empty() {
            return Err(invalid.swap_remove(0));
        }
        (self.slices, self.version) = (slices, version);
        Ok(invalid)
    }

    /// Applies an event of a watch, which is one line. Returns the errors of invalid parts of a slice too. A slice without valid parts
    /// does not replace the last one.
    ///
    /// # Errors
    /// The line is not an event, or the server reports an error. The store is unchanged.
    pub fn apply(&mut self, line: &[u8]) -> Decoded<(WatchEvent, Vec<DocumentError>)> {
        let event = json(line)?;
        let members = object(&event, "the event")?;
        let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
        let object = members.get("object").unwrap_or(&Value::Null);
        match kind {
            "ADDED" | "MODIFIED" => {
                let decoded = slice(object);
                let version: Box<str> = match version_of(object) {
                    Ok(version) => version.into(),
                    Err(error) => return Err(decoded.err().unwrap_or(error)),
                };
                let (name, list) = match decoded {
                    Ok(slice) => slice,
                    Err(error) => {
                        self.version = version;
                        return Ok((WatchEvent::Bookmark, vec![error]));
                    }
                };
                // Slices without endpoints cost memory too.
                let others = self.slices.iter().filter(|(own, _)| **own != name);
                let others: usize = others.map(|(_, slice)| slice.len() + 1).sum();
                bounded(others + list.instances.len() + 1)?;
                self.slices.insert(name, list.instances);
                self.version = version;
                Ok((WatchEvent::Changed, list.invalid))
            }
            "DELETED" => {
                let (name, version) = (name_of(object)?, version_of(object)?.into());
                self.slices.remove(name);
                self.version = version;
                Ok((WatchEvent::Changed, Vec::new()))
            }
            "BOOKMARK" => {
                self.version = version_of(object)?.into();
                Ok((WatchEvent::Bookmark, Vec::new()))
            }
            "ERROR" if object.get("code").and_then(Value::as_u64) == Some(410) => {
                Ok((WatchEvent::Expired, Vec::new()))
            }
            "ERROR" => {
                let text = object.get("message").and_then(Value::as_str).unwrap_or("no message");
                Err(DocumentError::new("", format!("the server reports an error: {}", shortened(text))))
            }
            other => Err(DocumentError::new("", format!("unknown type of event `{}`", shortened(other)))),
        }
    }

    /// Returns the instances of all slices. A pod with addresses of both families is one instance, with its IPv4 address.
    ///
    /// # Errors
    /// There are too many.
    pub fn instances(&self) -> Decoded<Vec<Instance>> {
        let all = || self.slices.values().flatten();
        let key = |own: &Instance| (own.id.clone(), own.labels.clone());
        let of_v4: HashSet<_> = all().filter(|own| own.address.is_ipv4()).map(key).collect();
        let is_wanted = |own: &&Instance| own.address.is_ipv4() || !of_v4.contains(&key(own));
        list(all().filter(is_wanted).cloned().collect())
    }
}

/// Checks the number of slices and instances together.
fn bounded(total: usize) -> Decoded<()> {
    match total > 2 * MOST_INSTANCES {
        true => Err(DocumentError::new("", format!("the service has more than {MOST_INSTANCES} endpoints"))),
        false => Ok(()),
    }
}

fn version_of(value: &Value) -> Decoded<&str> {
    let version = value.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    // It becomes part of a URL.
    version
        .filter(|text| text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .ok_or_else(|| DocumentError::new("", "there is no valid `metadata.resourceVersion`"))
}

fn name_of(value: &Value) -> Decoded<&str> {
    let text = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    match text {
        "" => Err(DocumentError::new("", "the slice has no `metadata.name`")),
        text => name(text, "the name of the slice"),
    }
}

/// The name and the instances of a slice. Invalid ports and endpoints are left out.
fn slice(value: &Value) -> Decoded<(Box<str>, InstanceList)> {
    let own = name_of(value)?;
    let instances = instances(value).map_err(|error| error.within(format!("slice `{own}`")))?;
    let within = |error: DocumentError| error.within(format!("slice `{own}`"));
    let invalid = instances.invalid.into_iter().map(within).collect();
    Ok((own.into(), InstanceList { invalid, ..instances }))
}

fn instances(slice: &Value) -> Decoded<InstanceList> {
    let mut list = InstanceList::default();
    // Names cannot be servers without a resolver.
    if slice.get("addressType").and_then(Value::as_str) == Some("FQDN") {
        return Ok(list);
    }
    let mut ports = Vec::new();
    for (number, port) in array(slice.get("ports"), "ports")?.iter().enumerate() {
        match self::port(port) {
            Ok(port) => ports.extend(port),
            Err(error) => reject(&mut list.invalid, error.within(format!("port {}", number + 1)))?,
        }
    }
    for (number, endpoint) in array(slice.get("endpoints"), "endpoints")?.iter().enumerate() {
        let at = |error: DocumentError| error.within(format!("endpoint {}", number + 1));
        match self::endpoint(endpoint) {
            Ok(None) => {}
            Ok(Some(endpoint)) => {
                for port in &ports {
                    list.add(at_port(&endpoint, *port)).map_err(at)?;
                }
            }
            Err(error) => reject(&mut list.invalid, at(error))?,
        }
    }
    list.finish()
}

/// The number and the name of a TCP port; `None` for other ports.
fn port(port: &Value) -> Decoded<Option<(u16, &str)>> {
    let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
    if protocol != "TCP" {
        return Ok(None);
    }
    // A port without a number means all ports, so it does not give an address.
    let Some(value) = port.get("port").filter(|port| !port.is_null()) else { return Ok(None) };
    let value = value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let value = value.ok_or_else(|| DocumentError::new("", "the number is not between 1 and 65535"))?;
    let text = port.get("name").and_then(Value::as_str).unwrap_or_default();
    Ok(Some((value, name(text, "the name of the port")?)))
}

/// The properties that an endpoint has at all ports; `None` if it has no address.
fn endpoint(value: &Value) -> Decoded<Option<Instance>> {
    // All addresses of an endpoint are equivalent.
    let Some(address) = array(value.get("addresses"), "addresses")?.first() else { return Ok(None) };
    let text = address.as_str().unwrap_or_default();
    let address = text.parse().ok().filter(|address: &IpAddr| !address.is_unspecified());
    let address = address
        .ok_or_else(|| DocumentError::new("", format!("`{}` is not an IP address", shortened(text))))?;
    let condition =
        |name: &str| value.get("conditions").and_then(|all| all.get(name)).and_then(Value::as_bool);
    let is_ready = condition("ready").unwrap_or(true);
    let is_draining = condition("terminating") == Some(true) && condition("serving").unwrap_or(is_ready);
    let of = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let id = of("/targetRef/name").or(of("/hostname")).unwrap_or(text);
    let zone = of("/zone").map(|zone| name(zone, "the zone")).transpose()?;
    let node = of("/nodeName").map(|node| name(node, "the name of the node")).transpose()?;
    let labels: Vec<(Box<str>, Box<str>)> =
        node.map(|node| ("node".into(), node.into())).into_iter().collect();
    Ok(Some(Instance {
        zone: zone.map(Into::into),
        labels: labels.into(),
        is_ready: is_ready && !is_draining,
        is_draining,
        ..Instance::new(name(id, "the name of the endpoint")?, address, 0)
    }))
}

fn at_port(endpoint: &Instance, (port, name): (u16, &str)) -> Instance {
    let label = (!name.is_empty()).then(|| (PORT_LABEL.into(), name.into()));
    let labels = match label {
        Some(label) => [label].into_iter().chain(endpoint.labels.iter().cloned()).collect(),
        None => endpoint.labels.clone(),
    };
    Instance { port, labels, ..endpoint.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, version: &str, endpoints: &str) -> String {
        format!(
            r#"{{"metadata": {{"name": "{name}", "resourceVersion": "{version}"}}, "addressType": "IPv4",
                "ports": [{{"name": "http", "port": 8080}}, {{"name": "dns", "port": 53, "protocol": "UDP"}}],
                "endpoints": [{endpoints}]}}"#
        )
        .replace('\n', " ")
    }

    fn endpoint(address: &str, pod: &str, conditions: &str) -> String {
        format!(
            r#"{{"addresses": ["{address}"], "conditions": {{{conditions}}}, "zone": "z1", "nodeName": "n1",
                "targetRef": {{"kind": "Pod", "name": "{pod}"}}}}"#
        )
    }

    fn shown(store: &SliceStore) -> Vec<String> {
        let list = store.instances().expect("it is bounded");
        let one =
            |own: &Instance| format!("{} {} {} {}", own.id, own.socket(), own.is_ready, own.is_draining);
        list.iter().map(one).collect()
    }

    #[test]
    fn a_watch_changes_the_list() {
        let mut store = SliceStore::default();
        let first = slice("web-a", "7", &endpoint("10.0.0.1", "web-0", r#""ready": true"#));
        let document = format!(r#"{{"metadata": {{"resourceVersion": "9"}}, "items": [{first}]}}"#);
        store.replace(document.as_bytes()).expect("it is valid");
        assert_eq!(
            (store.version(), shown(&store)),
            ("9", vec!["web-0 10.0.0.1:8080 true false".to_owned()])
        );
        let event = |kind: &str, object: &str| format!(r#"{{"type": "{kind}", "object": {object}}}"#);
        let ended = endpoint("10.0.0.1", "web-0", r#""ready": false, "serving": true, "terminating": true"#);
        let new = slice("web-b", "11", &endpoint("10.0.0.2", "web-1", ""));
        for (kind, object, outcome, version, list) in [
            (
                "MODIFIED",
                slice("web-a", "10", &ended),
                WatchEvent::Changed,
                "10",
                &["web-0 10.0.0.1:8080 false true"][..],
            ),
            (
                "ADDED",
                new,
                WatchEvent::Changed,
                "11",
                &["web-0 10.0.0.1:8080 false true", "web-1 10.0.0.2:8080 true false"],
            ),
            (
                "BOOKMARK",
                r#"{"metadata": {"resourceVersion": "15"}}"#.to_owned(),
                WatchEvent::Bookmark,
                "15",
                &["web-0 10.0.0.1:8080 false true", "web-1 10.0.0.2:8080 true false"],
            ),
            (
                "DELETED",
                slice("web-a", "16", ""),
                WatchEvent::Changed,
                "16",
                &["web-1 10.0.0.2:8080 true false"],
            ),
            (
                "ERROR",
                r#"{"kind": "Status", "code": 410}"#.to_owned(),
                WatchEvent::Expired,
                "16",
                &["web-1 10.0.0.2:8080 true false"],
            ),
        ] {
            assert_eq!(store.apply(event(kind, &object).as_bytes()), Ok((outcome, Vec::new())), "{kind}");
            assert_eq!(
                (store.version(), &shown(&store)[..]),
                (version, &list.iter().map(|own| (*own).to_owned()).collect::<Vec<_>>()[..]),
                "{kind}"
            );
        }
    }

    #[test]
    fn invalid_events_change_nothing() {
        let mut store = SliceStore::default();
        let first = slice("web-a", "7", &endpoint("10.0.0.1", "web-0", ""));
        store.apply(format!(r#"{{"type": "ADDED", "object": {first}}}"#).as_bytes()).expect("it is valid");
        for (line, error) in [
            (r#"{"type": "ADDED""#.to_owned(), "line 1, column 16: EOF while parsing an object"),
            (r#"{"type": "MOVED"}"#.to_owned(), "unknown type of event `MOVED`"),
            (r#"{"type": "DELETED", "object": {}}"#.to_owned(), "the slice has no `metadata.name`"),
            (
                r#"{"type": "ERROR", "object": {"code": 500, "message": "broken"}}"#.to_owned(),
                "the server reports an error: broken",
            ),
            (
                r#"{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1&x=2"}}}"#.to_owned(),
                "there is no valid `metadata.resourceVersion`",
            ),
        ] {
            assert_eq!(
                store.apply(line.as_bytes()).map_err(|error| error.to_string()),
                Err(error.to_owned())
            );
            assert_eq!((store.version(), shown(&store).len()), ("7", 1), "{line}");
        }
    }

    #[test]
    fn invalid_slices_and_endpoints_do_not_hide_others() {
        let mut store = SliceStore::default();
        let good = endpoint("10.0.0.1", "web-0", "");
        let mixed = slice("web-a", "7", &format!("{good}, {}", endpoint("x", "web-1", "")));
        let mixed = mixed.replace(r#""ports": ["#, r#""ports": [{"port": 0}, "#);
        let unnamed = slice("", "7", &good);
        let list = |items: &str| format!(r#"{{"metadata": {{"resourceVersion": "9"}}, "items": [{items}]}}"#);
        let invalid = store.replace(list(&format!("{unnamed}, {mixed}")).as_bytes()).expect("one is valid");
        let errors: Vec<String> = invalid.iter().map(ToString::to_string).collect();
        let expected = [
            "item 1: the slice has no `metadata.name`",
            "item 2, slice `web-a`, port 1: the number is not between 1 and 65535",
            "item 2, slice `web-a`, endpoint 2: `x` is not an IP address",
        ];
        assert_eq!(errors, expected);
        assert_eq!(shown(&store), ["web-0 10.0.0.1:8080 true false"]);
        let error = store.replace(list(&unnamed).as_bytes()).map_err(|error| error.to_string());
        assert_eq!(error, Err(expected[0].to_owned()));
        // A slice without valid endpoints does not replace the last one, and the watch continues after it.
        let bad = slice("web-a", "12", &endpoint("y", "web-0", ""));
        let event = |object: &str| format!(r#"{{"type": "MODIFIED", "object": {object}}}"#);
        let error = DocumentError::new("slice `web-a`, endpoint 1", "`y` is not an IP address");
        assert_eq!(store.apply(event(&bad).as_bytes()), Ok((WatchEvent::Bookmark, vec![error])));
        assert_eq!((store.version(), shown(&store).len()), ("12", 1));
        let mixed = slice("web-a", "13", &format!("{}, {good}", endpoint("x", "web-1", "")));
        let (event, invalid) = store.apply(event(&mixed).as_bytes()).expect("it is an event");
        assert_eq!((event, invalid.len(), store.version()), (WatchEvent::Changed, 1, "13"));
        assert_eq!(shown(&store), ["web-0 10.0.0.1:8080 true false"]);
    }

    #[test]
    fn a_pod_with_two_families_is_one_instance() {
        let mut store = SliceStore::default();
        for (name, address) in [("web-a", "10.0.0.1"), ("web-b", "fd00::1")] {
            let object = slice(name, "7", &endpoint(address, "web-0", ""));
            store
                .apply(format!(r#"{{"type": "ADDED", "object": {object}}}"#).as_bytes())
                .expect("it is valid");
        }
        assert_eq!(shown(&store), ["web-0 10.0.0.1:8080 true false"]);
    }
}
