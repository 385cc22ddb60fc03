//! Decoders on arbitrary, truncated and mutated documents: none of them panics, exceeds its bounds, or accepts a truncated document.

use discovery::decode::etcd::KeyStore;
use discovery::decode::kubernetes::SliceStore;
use discovery::decode::{LONGEST_NAME, MOST_LABELS, consul, containers, nomad, saved, targets};
use proptest::prelude::*;
use serde_json::json;
use state::discovery::Instance;

type Decode = fn(&[u8]) -> Option<Vec<Instance>>;

fn kubernetes(bytes: &[u8]) -> Option<Vec<Instance>> {
    let mut store = SliceStore::default();
    store.replace(bytes).ok()?;
    store.instances().ok()
}

fn etcd(bytes: &[u8]) -> Option<Vec<Instance>> {
    let mut store = KeyStore::new("/");
    store.replace(bytes).ok()?;
    store.instances().ok()
}

const DECODERS: [Decode; 7] = [
    |bytes| targets::decode(bytes).ok().map(|list| list.instances),
    |bytes| consul::decode(bytes).ok().map(|list| list.instances),
    |bytes| nomad::decode(bytes).ok().map(|list| list.instances),
    |bytes| containers::decode(bytes).ok().map(|list| list.instances),
    |bytes| saved::decode(bytes).ok().map(|saved| saved.instances),
    kubernetes,
    etcd,
];

/// A valid document for each decoder, with two instances.
fn documents() -> [String; 7] {
    [
        json!([{"targets": ["10.0.0.1:80", "10.0.0.2:80"], "labels": {"zone": "a", "weight": "5", "env": "x"}}]),
        json!([
            {"Node": {"Node": "n", "Address": "10.0.0.1"}, "Service": {"ID": "a", "Port": 80, "Tags": ["x"]}, "Checks": []},
            {"Node": {"Node": "n", "Address": "10.0.0.2"}, "Service": {"ID": "b", "Port": 80}, "Checks": [{"Status": "passing"}]}
        ]),
        json!([
            {"AllocID": "a", "Address": "10.0.0.1", "Port": 80, "Tags": ["x"]},
            {"AllocID": "b", "Address": "10.0.0.2", "Port": 80}
        ]),
        json!([{"Names": ["/a"], "State": "running", "Labels": {"weir.weight": "7"},
            "NetworkSettings": {"Networks": {"n": {"IPAddress": "10.0.0.1"}}},
            "Ports": [{"PrivatePort": 80, "Type": "tcp"}, {"PrivatePort": 81, "Type": "tcp"}]}]),
        json!({"section": "s", "query": "", "instances": [
            {"id": "a", "address": "10.0.0.1:80", "ready": true, "labels": [["x", "y"]]},
            {"id": "b", "address": "10.0.0.2:80", "zone": "z", "weight": 3}
        ]}),
        json!({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "s"}, "ports": [{"port": 80}],
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "zone": "z"}]}]}),
        json!({"header": {"revision": "1"}, "kvs": [
            {"key": "L2E=", "value": "MTAuMC4wLjE6ODA="}, {"key": "L2I=", "value": "MTAuMC4wLjI6ODA="}
        ]}),
    ]
    .map(|document| document.to_string())
}

/// The bounds of every instance.
fn is_bounded(instance: &Instance) -> bool {
    let fits = |text: &str| text.len() <= LONGEST_NAME && !text.chars().any(char::is_control);
    fits(&instance.id)
        && instance.port > 0
        && instance.address.is_unspecified() == instance.host.is_some()
        && instance.host.as_deref().is_none_or(fits)
        && instance.weight.is_none_or(|weight| weight <= 256)
        && instance.zone.as_deref().is_none_or(fits)
        && instance.labels.len() <= MOST_LABELS
        && instance.labels.iter().all(|(name, value)| fits(name) && fits(value))
}

#[test]
fn no_truncated_document_is_accepted() {
    for (decode, document) in DECODERS.iter().zip(documents()) {
        assert_eq!(decode(document.as_bytes()).map(|list| list.len()), Some(2), "{document}");
        for end in 0..document.len() {
            assert_eq!(decode(&document.as_bytes()[..end]), None, "{}", &document[..end]);
        }
    }
}

/// Documents like [`documents`], with the part of the first element that is replaced to make it invalid.
#[test]
fn an_invalid_element_does_not_hide_others() {
    let replaced = [
        r#""10.0.0.1:80""#,
        r#""Port":80"#,
        r#""AllocID":"a""#,
        r#"[{"Labels":{"weir.weight":"7"},"#,
        r#""address":"10.0.0.1:80""#,
        r#"["10.0.0.1"]"#,
        r#""L2E=""#,
    ];
    let invalid = [
        "7",
        r#""Port":0"#,
        r#""AllocID":"""#,
        r#"[{"Labels":{"weir.weight":"x"},"Names":["/b"]},{"Labels":{"weir.weight":"7"},"#,
        r#""address":"""#,
        r#"["x"]"#,
        r#""L/8=""#,
    ];
    for (((decode, document), from), to) in DECODERS.iter().zip(documents()).zip(replaced).zip(invalid) {
        let changed = document.replacen(from, to, 1);
        assert_ne!(changed, document);
        let expected = 2 - usize::from(!to.contains("Labels"));
        assert_eq!(decode(changed.as_bytes()).map(|list| list.len()), Some(expected), "{changed}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_or_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for decode in DECODERS {
            prop_assert!(decode(&bytes).is_none_or(|list| list.iter().all(is_bounded)));
        }
    }

    #[test]
    fn mutated_documents_are_refused_or_bounded(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)
    ) {
        for (decode, document) in DECODERS.iter().zip(documents()) {
            let mut bytes = document.into_bytes();
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            prop_assert!(decode(&bytes).is_none_or(|list| list.iter().all(is_bounded)));
        }
    }

    #[test]
    fn order_and_repetition_do_not_matter(mut ports in proptest::collection::vec(1..200_u16, 0..20), seed in any::<u64>()) {
        let document = |ports: &[u16]| {
            let targets: Vec<String> = ports.iter().map(|port| format!("10.0.0.1:{port}")).collect();
            targets::decode(json!([{"targets": targets}]).to_string().as_bytes())
        };
        let first = document(&ports);
        let places = seed as usize % ports.len().max(1);
        ports.rotate_left(places);
        ports.extend(ports.clone());
        prop_assert_eq!(first, document(&ports));
    }
}
