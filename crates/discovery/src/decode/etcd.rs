//! etcd: keys below a prefix, as a range and as the events of a watch, through the JSON gateway of version 3.
//!
//! The value of a key is an address with a port, or an object with `address` (or `Addr`, as etcd's gRPC naming writes it) and the
//! other properties of an instance. Each key is a separate document: an invalid key or value does not affect the others.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use state::discovery::Instance;

use super::{
    Decoded, DocumentError, MOST_INSTANCES, MOST_LABELS, json, list, name, object, shortened, socket,
    socket_of,
};

/// The keys below a prefix with their instances.
#[derive(Debug)]
pub struct KeyStore {
    prefix: Box<str>,
    keys: BTreeMap<Box<str>, Instance>,
    revision: u64,
    /// The keys that are invalid or have invalid values, and the revisions of these.
    invalid: HashMap<Box<str>, u64>,
}

/// The consequence of an answer of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEvent {
    /// The keys have changed.
    Changed,
    /// Nothing has changed.
    Unchanged,
    /// The revision was compacted, or the watch was cancelled: the range must be obtained again.
    Expired,
}

/// Keys that are invalid or have invalid values, once for each value. The latter keep their last valid value.
pub type InvalidKeys = Vec<DocumentError>;

impl KeyStore {
    /// Creates a store without keys.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into(), keys: BTreeMap::new(), revision: 0, invalid: HashMap::new() }
    }

    /// The body of the request for all keys.
    pub fn range_request(&self) -> Vec<u8> {
        json!({"key": STANDARD.encode(&*self.prefix), "range_end": STANDARD.encode(self.end())})
            .to_string()
            .into_bytes()
    }

    /// The body of the request for changes after the last answer.
    pub fn watch_request(&self) -> Vec<u8> {
        json!({"create_request": {
            "key": STANDARD.encode(&*self.prefix),
            "range_end": STANDARD.encode(self.end()),
            "start_revision": (self.revision + 1).to_string(),
        }})
        .to_string()
        .into_bytes()
    }

    /// The key after all keys with the prefix.
    fn end(&self) -> Vec<u8> {
        let mut end = self.prefix.as_bytes().to_vec();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                return end;
            }
        }
        // All keys.
        vec![0]
    }

    /// Replaces all keys with those of a range.
    ///
    /// # Errors
    /// The document is not the answer to a range request. The store is unchanged.
    pub fn replace(&mut self, bytes: &[u8]) -> Decoded<InvalidKeys> {
        let document = json(bytes)?;
        let members = object(&document, "the document")?;
        let revision = number(document.pointer("/header/revision"))
            .ok_or_else(|| DocumentError::new("", "there is no `header.revision`"))?;
        let pairs = super::array(members.get("kvs"), "kvs")?;
        if pairs.len() > MOST_INSTANCES {
            return Err(DocumentError::new("", format!("there are more than {MOST_INSTANCES} keys")));
        }
        let (mut keys, mut errors, mut invalid) = (BTreeMap::new(), Vec::new(), HashMap::new());
        for pair in pairs {
            let (key, error) = match key(pair) {
                Ok(key) => match self.instance(&key, pair) {
                    Ok(instance) => {
                        keys.insert(key, instance);
                        continue;
                    }
                    Err(error) => {
                        if let Some(last) = self.keys.get(&key) {
                            keys.insert(key.clone(), last.clone());
                        }
                        (key, error)
                    }
                },
                Err(error) => (error.place.as_str().into(), error),
            };
            let version = version(pair);
            if self.invalid.get(&key) != Some(&version) {
                errors.push(error);
            }
            invalid.insert(key, version);
        }
        (self.keys, self.revision, self.invalid) = (keys, revision, invalid);
        Ok(errors)
    }

    /// Applies an answer of a watch, which is one line.
    ///
    /// # Errors
    /// The line is not an answer, or the server reports an error.
    pub fn apply(&mut self, line: &[u8]) -> Decoded<(KeyEvent, InvalidKeys)> {
        let document = json(line)?;
        if let Some(error) = document.get("error") {
            let text = error.get("message").or(error.get("grpc_status")).unwrap_or(error).to_string();
            return Err(DocumentError::new("", format!("the server reports an error: {}", shortened(&text))));
        }
        let result = document.get("result").ok_or_else(|| DocumentError::new("", "there is no `result`"))?;
        let is_cancelled = result.get("canceled").and_then(Value::as_bool) == Some(true);
        if is_cancelled || number(result.get("compact_revision")).is_some_and(|revision| revision > 0) {
            return Ok((KeyEvent::Expired, Vec::new()));
        }
        let events = super::array(result.get("events"), "events")?;
        if events.len() > MOST_INSTANCES {
            return Err(DocumentError::new("", format!("there are more than {MOST_INSTANCES} events")));
        }
        let (mut outcome, mut errors) = (KeyEvent::Unchanged, Vec::new());
        for event in events {
            let pair = event.get("kv").unwrap_or(&Value::Null);
            // The gateway omits default values, and PUT is one.
            let is_deleted = event.get("type").and_then(Value::as_str) == Some("DELETE");
            let key = match key(pair) {
                Ok(key) => key,
                Err(error) if is_deleted => {
                    self.invalid.remove(error.place.as_str());
                    continue;
                }
                Err(error) => {
                    self.note_invalid(error.place.as_str().into(), pair);
                    errors.push(error);
                    continue;
                }
            };
            if is_deleted {
                self.keys.remove(&key);
                self.invalid.remove(&key);
                outcome = KeyEvent::Changed;
                continue;
            }
            match self.instance(&key, pair) {
                Ok(instance) if self.keys.len() < MOST_INSTANCES || self.keys.contains_key(&key) => {
                    self.invalid.remove(&key);
                    self.keys.insert(key, instance);
                    outcome = KeyEvent::Changed;
                }
                Ok(_) => {
                    errors.push(DocumentError::new("", format!("there are more than {MOST_INSTANCES} keys")))
                }
                Err(error) => {
                    self.note_invalid(key, pair);
                    errors.push(error);
                }
            }
        }
        if let Some(revision) = number(result.pointer("/header/revision")) {
            self.revision = self.revision.max(revision);
        }
        Ok((outcome, errors))
    }

    /// Returns the instances of all keys.
    ///
    /// # Errors
    /// There are too many.
    pub fn instances(&self) -> Decoded<Vec<Instance>> {
        list(self.keys.values().cloned().collect())
    }

    /// Remembers that the value of a key was reported as invalid.
    fn note_invalid(&mut self, key: Box<str>, pair: &Value) {
        if self.invalid.len() < MOST_INSTANCES || self.invalid.contains_key(&key) {
            self.invalid.insert(key, version(pair));
        }
    }

    fn instance(&self, key: &str, pair: &Value) -> Decoded<Instance> {
        let within = |error: DocumentError| error.within(format!("key `{}`", shortened(key)));
        let id = key.strip_prefix(&*self.prefix).unwrap_or(key).trim_start_matches('/');
        let id = name(if id.is_empty() { key } else { id }, "the key").map_err(within)?;
        let value = decoded(pair.get("value")).unwrap_or_default();
        let text =
            String::from_utf8(value).map_err(|_| within(DocumentError::new("", "the value is not UTF-8")))?;
        value_of(id, text.trim()).map_err(within)
    }
}

/// The key of a pair. The place of an error is the readable part of the key.
fn key(pair: &Value) -> Decoded<Box<str>> {
    let place = |text: &str| format!("key `{}`", shortened(text));
    let encoded = pair.get("key").and_then(Value::as_str).unwrap_or_default();
    let bytes =
        STANDARD.decode(encoded).map_err(|_| DocumentError::new(place(encoded), "the key is not base64"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(error.as_bytes());
        DocumentError::new(place(&text), "the key is not UTF-8")
    })?;
    Ok(text.into())
}

/// An instance in the value of a key.
fn value_of(id: &str, text: &str) -> Decoded<Instance> {
    if !text.starts_with('{') {
        return Ok(socket(text)?.instance(id));
    }
    let value = json(text.as_bytes())?;
    let of = |names: [&str; 2]| names.iter().find_map(|name| value.get(*name).and_then(Value::as_str));
    let address = of(["address", "Addr"]);
    let place = match (address, value.get("port")) {
        (Some(address), None) => socket(address)?,
        (address, port) => socket_of(address, port)?,
    };
    let weight = match value.get("weight") {
        None | Some(Value::Null) => None,
        Some(weight) => Some(
            weight
                .as_u64()
                .filter(|weight| *weight <= 256)
                .ok_or_else(|| DocumentError::new("", "the weight is not between 0 and 256"))?
                as u32,
        ),
    };
    let mut labels: Vec<(Box<str>, Box<str>)> = Vec::new();
    for (key, text) in value.get("labels").and_then(Value::as_object).into_iter().flatten() {
        let text =
            text.as_str().ok_or_else(|| DocumentError::new("", "the value of a label is not a string"))?;
        labels.push((name(key, "the name of a label")?.into(), name(text, "the value of a label")?.into()));
    }
    if labels.len() > MOST_LABELS {
        return Err(DocumentError::new("", format!("there are more than {MOST_LABELS} labels")));
    }
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    let zone = value.get("zone").and_then(Value::as_str).map(|zone| name(zone, "the zone")).transpose()?;
    Ok(Instance {
        weight,
        zone: zone.map(Into::into),
        labels: labels.into(),
        is_ready: flag("ready").unwrap_or(true),
        is_draining: flag("draining").unwrap_or(false),
        ..place.instance(id)
    })
}

fn decoded(value: Option<&Value>) -> Option<Vec<u8>> {
    STANDARD.decode(value?.as_str()?).ok()
}

/// The revision in which a key was last written.
fn version(pair: &Value) -> u64 {
    number(pair.get("mod_revision")).unwrap_or(0)
}

/// The gateway writes 64-bit numbers as strings.
fn number(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, value: &str) -> String {
        format!(r#"{{"key": "{}", "value": "{}"}}"#, STANDARD.encode(key), STANDARD.encode(value))
    }

    fn shown(store: &KeyStore) -> Vec<String> {
        let list = store.instances().expect("it is bounded");
        list.iter().map(|own| format!("{} {} {}", own.id, own.socket(), own.is_draining)).collect()
    }

    #[test]
    fn a_watch_changes_the_keys() {
        let mut store = KeyStore::new("/web/");
        let (a, b) = (pair("/web/a", "10.0.0.1:80"), pair("/web/b", r#"{"Op": 0, "Addr": "10.0.0.2:80"}"#));
        let range =
            format!(r#"{{"header": {{"revision": "12"}}, "kvs": [{a}, {b}, {}]}}"#, pair("/web/c", "?"));
        let invalid = store.replace(range.as_bytes()).expect("it is valid");
        assert_eq!(invalid[0].to_string(), "key `/web/c`: `?` is not an IP address or host name with a port");
        assert_eq!(shown(&store), ["a 10.0.0.1:80 false", "b 10.0.0.2:80 false"]);
        let request = String::from_utf8(store.watch_request()).expect("it is UTF-8");
        assert!(request.contains(r#""start_revision":"13""#), "{request}");
        let new = pair("/web/a", r#"{"address": "10.0.0.1", "port": 80, "draining": true, "weight": 3}"#);
        let events = format!(r#"{{"kv": {new}}}, {{"type": "DELETE", "kv": {}}}"#, pair("/web/b", ""));
        let line = format!(r#"{{"result": {{"header": {{"revision": "14"}}, "events": [{events}]}}}}"#);
        assert_eq!(store.apply(line.as_bytes()), Ok((KeyEvent::Changed, Vec::new())));
        assert_eq!(shown(&store), ["a 10.0.0.1:80 true"]);
        let created = br#"{"result": {"header": {"revision": "14"}, "created": true}}"#;
        assert_eq!(store.apply(created), Ok((KeyEvent::Unchanged, Vec::new())));
        let compacted =
            br#"{"result": {"header": {"revision": "14"}, "canceled": true, "compact_revision": "20"}}"#;
        assert_eq!(store.apply(compacted), Ok((KeyEvent::Expired, Vec::new())));
        assert_eq!(shown(&store).len(), 1);
    }

    #[test]
    fn an_invalid_value_is_reported_once() {
        let mut store = KeyStore::new("/");
        let written =
            |revision: u32| pair("/a", "?").replace('}', &format!(r#", "mod_revision": "{revision}"}}"#));
        let mut range = |pair: &str| {
            let range = format!(r#"{{"header": {{"revision": "9"}}, "kvs": [{pair}]}}"#);
            store.replace(range.as_bytes()).expect("it is valid").len()
        };
        let seen = [written(3), written(3), written(4), written(4)].map(|pair| range(&pair));
        assert_eq!(seen, [1, 0, 1, 0]);
        assert_eq!(
            [range(&pair("/a", "10.0.0.1:80")), range(&written(4))],
            [0, 1],
            "it was valid in between"
        );
        let event = format!(r#"{{"result": {{"events": [{{"kv": {}}}]}}}}"#, written(5));
        assert_eq!(store.apply(event.as_bytes()).map(|(_, errors)| errors.len()), Ok(1));
        let range = format!(r#"{{"header": {{"revision": "9"}}, "kvs": [{}]}}"#, written(5));
        assert_eq!(store.replace(range.as_bytes()), Ok(Vec::new()));
    }

    #[test]
    fn an_invalid_key_does_not_hide_others() {
        let mut store = KeyStore::new("/web/");
        let encoded = STANDARD.encode([b"/web/", &[0xff; 300][..]].concat());
        let bad = format!(r#"{{"key": "{encoded}", "value": "", "mod_revision": "4"}}"#);
        let (a, b) = (pair("/web/a", "10.0.0.1:80"), pair("/web/b", "10.0.0.2:80"));
        let error = format!("key `/web/{}`: the key is not UTF-8", "\u{fffd}".repeat(55));
        let errors = |all: InvalidKeys| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let range = format!(r#"{{"header": {{"revision": "12"}}, "kvs": [{a}, {bad}, {b}]}}"#);
        assert_eq!(store.replace(range.as_bytes()).map(errors), Ok(vec![error.clone()]));
        assert_eq!(shown(&store), ["a 10.0.0.1:80 false", "b 10.0.0.2:80 false"]);
        assert_eq!(store.replace(range.as_bytes()), Ok(Vec::new()), "it was reported");
        let (c, broken) = (pair("/web/c", "10.0.0.3:80"), r#"{"key": "?", "value": ""}"#);
        let events = format!(
            r#"{{"kv": {bad}}}, {{"kv": {broken}}}, {{"kv": {c}}}, {{"type": "DELETE", "kv": {bad}}}"#
        );
        let line = format!(r#"{{"result": {{"header": {{"revision": "14"}}, "events": [{events}]}}}}"#);
        let (event, invalid) = store.apply(line.as_bytes()).expect("the line is valid");
        assert_eq!(event, KeyEvent::Changed);
        assert_eq!(errors(invalid), [error, "key `?`: the key is not base64".to_owned()]);
        assert_eq!(shown(&store), ["a 10.0.0.1:80 false", "b 10.0.0.2:80 false", "c 10.0.0.3:80 false"]);
        assert!(String::from_utf8_lossy(&store.watch_request()).contains(r#""start_revision":"15""#));
    }

    #[test]
    fn the_end_of_a_range_follows_its_prefix() {
        assert_eq!(KeyStore::new("/web/").end(), b"/web0");
        assert_eq!(KeyStore::new("").end(), [0]);
    }

    #[test]
    fn an_invalid_value_keeps_the_last_one() {
        let mut store = KeyStore::new("/");
        let event = |value: &str| format!(r#"{{"result": {{"events": [{{"kv": {}}}]}}}}"#, pair("/a", value));
        store.apply(event("10.0.0.1:80").as_bytes()).expect("it is valid");
        for (value, error) in [
            ("10.0.0.1", "key `/a`: `10.0.0.1` is not an IP address or host name with a port"),
            (r#"{"address": "10.0.0.1", "port": 0}"#, "key `/a`: the port is not between 1 and 65535"),
            (
                r#"{"address": "10.0.0.1:80", "weight": 1000}"#,
                "key `/a`: the weight is not between 0 and 256",
            ),
            ("{", "key `/a`, line 1, column 1: EOF while parsing an object"),
        ] {
            let (outcome, invalid) = store.apply(event(value).as_bytes()).expect("the line is valid");
            assert_eq!((outcome, invalid[0].to_string()), (KeyEvent::Unchanged, error.to_owned()));
            assert_eq!(shown(&store), ["a 10.0.0.1:80 false"]);
        }
        let error = store.apply(br#"{"error": {"message": "broken"}}"#).map_err(|error| error.to_string());
        assert_eq!(error, Err("the server reports an error: \"broken\"".to_owned()));
    }
}
