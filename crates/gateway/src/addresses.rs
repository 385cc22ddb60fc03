//! The addresses of gateways from one translation to the next.
//!
//! The status of a gateway has its addresses, but an API server takes time to send a new status back. Meanwhile the gateway must
//! not get another address because one has become free, or because an older status arrives.

use crate::objects::{Key, Objects};
use crate::output::StatusUpdate;

impl Objects {
    /// Records the addresses that `statuses` give to gateways.
    pub fn record_addresses(&mut self, statuses: &[StatusUpdate]) {
        for update in statuses.iter().filter(|update| update.kind == "Gateway") {
            let addresses = update.status.get("addresses").cloned().map(serde_json::from_value);
            if let (Some(gateway), Some(Ok(addresses))) = (self.gateways.get_mut(&update.key), addresses) {
                gateway.status.addresses = addresses;
            }
        }
    }

    /// Does the same as [`copy_from`](Self::copy_from), but a gateway keeps the addresses that it has in these objects.
    pub fn copy_spec_from(&mut self, other: &Self, kind: &str, key: &Key) {
        let known = (kind == "Gateway").then(|| self.gateways.remove(key)).flatten();
        self.copy_from(other, kind, key);
        if let (Some(known), Some(gateway)) = (known, self.gateways.get_mut(key))
            && known.metadata.uid == gateway.metadata.uid
            && !known.status.addresses.is_empty()
        {
            gateway.status.addresses = known.status.addresses;
        }
    }
}
