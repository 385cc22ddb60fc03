//! Certificate chains of peers, shared by the connections of a thread.
//!
//! Most connections of a proxy lead to few servers, which present the same chain each time.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use rustls::pki_types::CertificateDer;

/// A chain as DER, starting with the peer's own certificate.
type Chain = [Box<[u8]>];

/// The number of chains to compare with a new one.
const CHAINS_MAX: usize = 8;

thread_local! {
    /// The chains of the latest handshakes, the newest last.
    static LATEST: RefCell<Vec<Weak<Chain>>> = const { RefCell::new(Vec::new()) };
}

/// Returns a copy of a chain: that of another connection of this thread, if a recent one has the same chain.
pub(super) fn share(certificates: &[CertificateDer<'_>]) -> Arc<Chain> {
    if certificates.is_empty() {
        return Arc::default();
    }
    LATEST.with_borrow_mut(|latest| {
        let is_same =
            |chain: &Arc<Chain>| chain.iter().map(|one| &**one).eq(certificates.iter().map(|one| &**one));
        if let Some(at) = latest.iter().position(|chain| chain.upgrade().as_ref().is_some_and(is_same))
            && let Some(chain) = latest[at].upgrade()
        {
            latest[at..].rotate_left(1);
            return chain;
        }
        let chain: Arc<Chain> = certificates.iter().map(|one| Box::from(&**one)).collect();
        latest.retain(|chain| chain.strong_count() > 0);
        if latest.len() == CHAINS_MAX {
            latest.remove(0);
        }
        latest.push(Arc::downgrade(&chain));
        chain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(byte: u8) -> [CertificateDer<'static>; 2] {
        [vec![byte; 700].into(), vec![0; 900].into()]
    }

    #[test]
    fn equal_chains_are_shared_as_long_as_they_are_used() {
        let first = share(&chain(1));
        assert_eq!(first.iter().map(|one| one.len()).collect::<Vec<_>>(), [700, 900]);
        assert!(Arc::ptr_eq(&first, &share(&chain(1))));
        assert!(!Arc::ptr_eq(&first, &share(&chain(2))));
        let part = share(&chain(1)[..1]);
        assert_eq!(part.len(), 1);
        // The most recently used chains stay.
        let others: Vec<_> = (10..10 + CHAINS_MAX as u8 - 1).map(|byte| share(&chain(byte))).collect();
        assert!(!Arc::ptr_eq(&first, &share(&chain(1))));
        assert!(
            others
                .iter()
                .enumerate()
                .skip(1)
                .all(|(at, one)| { Arc::ptr_eq(one, &share(&chain(10 + at as u8))) })
        );
        assert!(share(&[]).is_empty());
    }
}
