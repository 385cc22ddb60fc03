//! Gateways keep their addresses while an API server has not sent their statuses back, or sends older ones.

#![allow(clippy::unwrap_used, reason = "tests")]

use gateway_model::{Key, ListenAddress, Objects, Settings, translate};
use serde_json::{Value, json};

const LISTED: [&str; 3] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];

fn gateway(name: &str, uid: &str, status: &[&str]) -> Value {
    let addresses: Vec<Value> = status.iter().map(|value| json!({ "value": value })).collect();
    json!({"kind": "Gateway", "metadata": {"namespace": "a", "name": name, "uid": uid, "generation": 1},
           "spec": {"gatewayClassName": "weir", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
           "status": {"addresses": addresses}})
}

/// The objects as an API server has them.
fn stored(gateways: &[Value]) -> Objects {
    let mut objects = Objects::default();
    let class = json!({"kind": "GatewayClass", "metadata": {"name": "weir"},
                       "spec": {"controllerName": Settings::default().controller_name}});
    objects.insert("GatewayClass", class).unwrap();
    for gateway in gateways {
        objects.insert("Gateway", gateway.clone()).unwrap();
    }
    objects
}

/// Translates the objects, and returns the address of each gateway.
fn addresses(objects: &mut Objects) -> Vec<(String, String)> {
    let of = |value: &&str| ListenAddress { bind: (*value).into(), reported: vec![(*value).into()] };
    let settings = Settings { addresses: LISTED.iter().map(of).collect(), ..Settings::default() };
    let output = translate(objects, &settings);
    objects.record_addresses(&output.statuses);
    let gateways = output.statuses.iter().filter(|update| update.kind == "Gateway");
    let value = |status: &Value| status["addresses"][0]["value"].as_str().unwrap_or_default().to_owned();
    gateways.map(|update| (update.key.name.clone(), value(&update.status))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn freed_addresses_move_no_gateway() {
    let mut used = stored(&[gateway("x", "1", &[]), gateway("y", "2", &[])]);
    assert_eq!(addresses(&mut used), pairs(&[("x", LISTED[0]), ("y", LISTED[1])]));
    used.remove("Gateway", &Key::new("a", "x"));
    assert_eq!(addresses(&mut used), pairs(&[("y", LISTED[1])]));
    // Without the record, the free address would be the first one.
    assert_eq!(addresses(&mut stored(&[gateway("y", "2", &[])])), pairs(&[("y", LISTED[0])]));
}

#[test]
fn older_statuses_move_no_gateway() {
    let key = Key::new("a", "y");
    let mut used = stored(&[gateway("x", "1", &[]), gateway("y", "2", &[])]);
    addresses(&mut used);
    for status in [&[][..], &[LISTED[2]]] {
        used.copy_spec_from(&stored(&[gateway("y", "2", status)]), "Gateway", &key);
        assert_eq!(addresses(&mut used), pairs(&[("x", LISTED[0]), ("y", LISTED[1])]));
    }
    // The first version of a gateway has the address that another process gave it.
    used.copy_spec_from(&stored(&[gateway("y", "3", &[LISTED[2]])]), "Gateway", &key);
    assert_eq!(addresses(&mut used), pairs(&[("x", LISTED[0]), ("y", LISTED[2])]));
    used.copy_spec_from(&stored(&[]), "Gateway", &key);
    assert_eq!(addresses(&mut used), pairs(&[("x", LISTED[0])]));
}
