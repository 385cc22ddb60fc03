//! Fuzz target for the documents of discovery sources.

use discovery::decode::etcd::KeyStore;
use discovery::decode::kubernetes::SliceStore;
use discovery::decode::{
    Decoded, LONGEST_NAME, MOST_INSTANCES, MOST_LABELS, consul, containers, nomad, saved, targets,
};
use state::discovery::Instance;

/// Checks that a document is refused or yields a bounded list in order, and that a line of a watch that is refused changes nothing.
/// The first byte selects the source. Sources with a watch get a list in the first line and events in the others.
pub fn discovery_documents(bytes: &[u8]) {
    let Some((kind, document)) = bytes.split_first() else { return };
    let list = match kind.wrapping_sub(b'0') % 7 {
        0 => targets::decode(document).map(|list| list.instances),
        1 => consul::decode(document).map(|list| list.instances),
        2 => nomad::decode(document).map(|list| list.instances),
        3 => containers::decode(document).map(|list| list.instances),
        4 => saved::decode(document).map(|saved| saved.instances),
        5 => return slices(document),
        _ => return keys(document),
    };
    list.iter().for_each(|list| check(list));
}

fn slices(document: &[u8]) {
    let mut store = SliceStore::default();
    for (number, line) in document.split(|byte| *byte == b'\n').enumerate() {
        let before = (store.instances(), store.version().to_owned());
        let is_refused = match number {
            0 => store.replace(line).is_err(),
            _ => store.apply(line).is_err(),
        };
        let after = (store.instances(), store.version().to_owned());
        assert!(!is_refused || before == after, "{before:?} {after:?}");
        assert!(after.1.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{}", after.1);
        check_decoded(&after.0);
    }
}

fn keys(document: &[u8]) {
    let mut store = KeyStore::new("/w/");
    for (number, line) in document.split(|byte| *byte == b'\n').enumerate() {
        let before = store.instances();
        let is_refused = match number {
            0 => store.replace(line).is_err(),
            _ => store.apply(line).is_err(),
        };
        let after = store.instances();
        assert!(number > 0 || !is_refused || before == after, "{before:?} {after:?}");
        check_decoded(&after);
        // The same list changes nothing.
        if number == 0 && !is_refused {
            assert!(store.replace(line).is_ok());
            assert_eq!(store.instances(), after);
        }
    }
}

fn check_decoded(list: &Decoded<Vec<Instance>>) {
    list.iter().for_each(|list| check(list));
}

/// Checks the bounds and the order of a list.
fn check(list: &[Instance]) {
    let fits = |text: &str| text.len() <= LONGEST_NAME && !text.chars().any(char::is_control);
    assert!(list.len() <= MOST_INSTANCES);
    for instance in list {
        assert!(fits(&instance.id) && instance.port > 0, "{instance:?}");
        assert_eq!(instance.host.is_some(), instance.address.is_unspecified(), "{instance:?}");
        assert!(instance.host.as_deref().is_none_or(fits), "{instance:?}");
        assert!(instance.weight.is_none_or(|weight| weight <= 256), "{instance:?}");
        assert!(instance.zone.as_deref().is_none_or(fits), "{instance:?}");
        assert!(instance.labels.len() <= MOST_LABELS, "{instance:?}");
        assert!(instance.labels.iter().all(|(name, value)| fits(name) && fits(value)), "{instance:?}");
    }
    let key = |own: &Instance| (own.id.clone(), own.address, own.host.clone(), own.port);
    assert!(list.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])), "{list:?}");
}
