//! Whether connections to a server use TLS, and whether an operator may change that (`set server … ssl`).

use std::sync::atomic::Ordering::Relaxed;

use super::Server;

/// Whether connections to a server use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Secured {
    /// Never, because the line has no TLS settings.
    Never,
    /// Never, because the line has `no-ssl`.
    Refused,
    /// Not yet, but `default-server` has the settings.
    NotYet,
    /// No longer, because an operator turned TLS off.
    Off,
    /// Yes.
    On,
    /// Yes, and this cannot change: QUIC has no other way.
    Always,
}

impl Secured {
    /// Returns the number in `show servers state` (`srv_use_ssl`).
    pub fn number(self) -> i32 {
        match self {
            Self::On | Self::Always => 1,
            Self::Never | Self::Off => 0,
            Self::Refused | Self::NotYet => -1,
        }
    }
}

impl Server {
    /// Whether connections use TLS.
    #[inline]
    pub fn is_secured(&self) -> bool {
        self.secured.load(Relaxed) >= Secured::On as u8
    }

    /// Returns whether connections use TLS, and whether this may change.
    pub fn secured(&self) -> Secured {
        let all = [Secured::Refused, Secured::NotYet, Secured::Off, Secured::On, Secured::Always];
        let now = self.secured.load(Relaxed);
        all.into_iter().find(|one| *one as u8 == now).unwrap_or(Secured::Never)
    }

    /// Sets the initial value from the configuration.
    pub fn set_secured(&self, secured: Secured) {
        self.secured.store(secured as u8, Relaxed);
    }

    /// Switches to TLS or to unencrypted connections. Returns `false` if the line does not allow this. Earlier connections are not
    /// used any more.
    pub fn switch_secured(&self, on: bool) -> bool {
        if matches!(self.secured(), Secured::Never | Secured::Refused | Secured::Always) {
            return false;
        }
        let new = if on { Secured::On } else { Secured::Off };
        if self.secured.swap(new as u8, Relaxed) != new as u8 {
            self.outdate();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::server;

    #[test]
    fn operators_can_switch_tls_if_the_line_allows_it() {
        let server = server();
        for (setting, allowed, shown) in [
            (Secured::Never, false, 0),
            (Secured::Refused, false, -1),
            (Secured::NotYet, true, -1),
            (Secured::On, true, 1),
        ] {
            server.set_secured(setting);
            assert_eq!((server.secured(), setting.number()), (setting, shown));
            let moves = server.moves();
            assert_eq!(server.switch_secured(false), allowed, "{setting:?}");
            assert_eq!(server.moves() > moves, allowed, "{setting:?}");
            assert!(!server.is_secured() || !allowed);
            let moves = server.moves();
            assert_eq!(server.switch_secured(false), allowed, "{setting:?}");
            assert_eq!(server.moves(), moves, "nothing changes twice");
            assert_eq!(server.switch_secured(true) && server.is_secured(), allowed);
        }
    }
}
