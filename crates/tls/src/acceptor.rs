//! What a `bind` line says of TLS, and the choice of a certificate for each ClientHello.

use std::sync::{Arc, OnceLock};

use crate::choice::{Index, Wanted};
use crate::details::{Captured, Details};
use crate::engine::key::KeyKind;
use crate::engine::side::{Served, ServerSide, Shared};
use crate::error::{Error, Kind, Reason};
use crate::hello::{Hello, numbers};
use crate::settings::{ClientVerify, Parameters};
use crate::store::Certificate;
use crate::tickets::Resumption;

/// What a line or one line of a crt-list says beside its certificate.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Versions, suites, groups.
    pub parameters: Parameters,
    /// Protocols, preferred first (`alpn`).
    pub alpn: Vec<Box<[u8]>>,
    /// How clients are verified.
    pub verify: ClientVerify,
    /// Whether early data is taken (`allow-0rtt`).
    pub early_data: u32,
}

/// A certificate, for which names it is, and what its line says.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The certificate.
    pub certificate: Arc<Certificate>,
    /// The names of its line in a crt-list; without them the certificate's own. `*` makes it a default, `!name` is none of its names.
    pub filters: Vec<Box<str>>,
    /// What its line says, over what the `bind` line says.
    pub options: Arc<Options>,
}

/// What a `bind` line is made of.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Its certificates, in order. The first is the default, unless others are said to be.
    pub entries: Vec<Entry>,
    /// Whether there is no default (`strict-sni`).
    pub strict_sni: bool,
    /// Sessions and tickets.
    pub resumption: Resumption,
    /// The longest plaintext of a record that is sent; 0 for 16 KiB (`tune.ssl.maxrecord`).
    pub max_record: u16,
    /// Whether the ClientHello is kept for fetches.
    pub keeps_hello: bool,
}

/// A `bind` line with TLS.
#[derive(Debug)]
pub struct Acceptor {
    entries: Vec<Prepared>,
    index: Index,
    strict_sni: bool,
    shared: Shared,
    max_record: u16,
    keeps_hello: bool,
}

#[derive(Debug)]
struct Prepared {
    entry: Entry,
    /// What the engine needs to serve it, made when the first client asks: with the protocols, and without.
    sides: [OnceLock<Option<ServerSide>>; 2],
}

impl Acceptor {
    /// Makes a listener's side.
    ///
    /// # Errors
    /// What the engine says against the line's options.
    pub fn new(listening: Listening) -> Result<Self, String> {
        let Listening { entries, strict_sni, resumption, max_record, keeps_hello } = listening;
        let index = Index::new(
            entries
                .iter()
                .map(|entry| (entry.certificate.kind(), &*entry.certificate.names, &*entry.filters)),
        );
        let shared = resumption.shared();
        let entries: Vec<_> =
            entries.into_iter().map(|entry| Prepared { entry, sides: Default::default() }).collect();
        let acceptor = Self { entries, index, strict_sni, shared, max_record, keeps_hello };
        // Lines that share their options share what may be wrong with them.
        let mut tried: Vec<&Arc<Options>> = Vec::new();
        for prepared in &acceptor.entries {
            if !tried.iter().any(|options| Arc::ptr_eq(options, &prepared.entry.options)) {
                tried.push(&prepared.entry.options);
                prepared.make(true, &acceptor.shared)?;
            }
        }
        Ok(acceptor)
    }

    pub(crate) fn max_record(&self) -> u16 {
        self.max_record
    }

    /// Chooses what to answer a ClientHello with.
    pub(crate) fn choose(&self, hello: &Hello<'_>, details: &mut Details) -> Result<ServerSide, Error> {
        let name = hello.server_name.and_then(|name| str::from_utf8(name).ok()).unwrap_or("");
        let place = self.index.choose(name, wanted(hello), self.strict_sni).ok_or(Error {
            kind: Kind::Handshake,
            reason: Reason::CallbackFailed,
            verify: 0,
        })?;
        let prepared = &self.entries[place];
        let options = &prepared.entry.options;
        details.own = Some(prepared.entry.certificate.clone());
        if self.keeps_hello {
            details.hello = Some(Box::new(Captured { body: hello.body.into() }));
        }
        let agrees = hello.speaks_any(&options.alpn);
        let side =
            prepared.sides[usize::from(agrees)].get_or_init(|| prepared.make(agrees, &self.shared).ok());
        side.clone().ok_or(Error::handshake(Reason::InternalError))
    }
}

impl Prepared {
    fn make(&self, agrees: bool, shared: &Shared) -> Result<ServerSide, String> {
        let Entry { certificate, options, .. } = &self.entry;
        let served = Served {
            chain: &certificate.chain,
            key: &certificate.key,
            ocsp: certificate.ocsp.as_deref(),
            // No protocol in common is no error in HAProxy: none is agreed on then.
            alpn: if agrees { &options.alpn } else { &[] },
            verify: &options.verify,
            early_data: options.early_data,
        };
        ServerSide::new(&options.parameters, &served, shared)
    }
}

/// Which kinds of certificates the client takes.
fn wanted(hello: &Hello<'_>) -> Wanted {
    let Some(signatures) = hello.signatures else {
        return Wanted { ecdsa: false, rsa: true };
    };
    // The low byte told the algorithm before TLS 1.3: 1 RSA, 3 ECDSA. 0x0804 to 0x080b are forms of RSA-PSS.
    let rsa = numbers(signatures).any(|scheme| scheme & 0xff == 1 || (0x0804..=0x080b).contains(&scheme));
    let signs_ecdsa = numbers(signatures).any(|scheme| scheme & 0xff == 3 || scheme == 0x0807);
    let ecdsa_suites =
        [0xc02b, 0xc02c, 0xcca9, 0xc023, 0xc024, 0xc009, 0xc00a, 0xc0ac, 0xc0ad, 0xc0ae, 0xc0af];
    let has_suite = numbers(hello.suites).any(|suite| suite >> 8 == 0x13 || ecdsa_suites.contains(&suite));
    Wanted { ecdsa: signs_ecdsa && has_suite, rsa }
}

impl Wanted {
    /// Whether a key of that kind is welcome.
    pub(crate) fn takes(self, kind: KeyKind) -> bool {
        match kind {
            KeyKind::Rsa => self.rsa,
            KeyKind::Ecdsa | KeyKind::Ed25519 => self.ecdsa,
        }
    }
}
