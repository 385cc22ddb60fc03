//! Stub for OpenSSL in a build without the feature `legacy-tls`. No value can be created, so no method is ever called.

use crate::buffer::PendingBytes;
use crate::engine::key::PrivateKey;
use crate::engine::side::{ServedCertificate, ServerLineOptions};
use crate::error::{Error, Reason};
use crate::ocsp;
use crate::settings::Parameters;
use crate::tickets::Resumption;

/// Whether OpenSSL is built in.
pub const BUILT_IN: bool = false;

const ABSENT: &str = "it requires OpenSSL, but this program was built without `legacy-tls`";

/// Returns OpenSSL's version, which is empty.
pub fn version() -> &'static str {
    ""
}

/// Fails, because there is no OpenSSL.
///
/// # Errors
/// Always.
pub fn load_provider(_: Option<&str>, _: &str) -> Result<(), String> {
    Err(ABSENT.into())
}

/// Would sign with a key that only OpenSSL supports; always returns `None`.
pub(crate) fn sign(_: &PrivateKey, _: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Would decrypt a key that only OpenSSL supports; always returns `None`.
pub(crate) fn open_key(_: &str, _: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Would format a certificate, which only OpenSSL can do; always returns `None`.
pub(crate) fn certificate_text(_: &[u8]) -> Option<String> {
    None
}

#[derive(Clone, Debug)]
pub(crate) enum ServerSide {}

impl ServerSide {
    pub(crate) fn new(
        _: &Parameters,
        _: &ServedCertificate<'_>,
        _: Option<&ocsp::Response>,
        _: &Resumption,
    ) -> Result<Self, String> {
        Err(ABSENT.into())
    }
}

#[derive(Debug)]
pub(crate) enum ClientSide {}

impl ClientSide {
    pub(crate) fn new(_: &Parameters, _: &ServerLineOptions<'_>) -> Result<Self, String> {
        Err(ABSENT.into())
    }
}

pub(crate) struct HandshakeResult {
    pub(crate) version: u16,
    pub(crate) suite: u16,
    pub(crate) group: u16,
    pub(crate) alpn: Option<Box<[u8]>>,
    pub(crate) is_resumed: bool,
    pub(crate) peer: Vec<Box<[u8]>>,
}

pub(crate) enum LegacyLink {}

pub(crate) struct ReadOutcome {
    pub(crate) filled: usize,
    pub(crate) closed: Result<bool, Reason>,
}

impl LegacyLink {
    pub(crate) fn server(side: &ServerSide, _: &[u8]) -> Result<Self, Error> {
        match *side {}
    }

    pub(crate) fn client(side: &ClientSide, _: Option<&str>) -> Result<Self, Error> {
        match *side {}
    }

    pub(crate) fn handshake(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<bool, Error> {
        match *self {}
    }

    pub(crate) fn handshake_result(&self) -> HandshakeResult {
        match *self {}
    }

    pub(crate) fn has_waiting(&self) -> bool {
        match *self {}
    }

    pub(crate) fn receive(&mut self, _: &[u8]) {
        match *self {}
    }

    pub(crate) fn read(&mut self, _: &mut [u8], _: &mut PendingBytes) -> ReadOutcome {
        match *self {}
    }

    pub(crate) fn write(
        &mut self,
        _: &[u8],
        _: &[u8],
        _: usize,
        _: &mut [u8],
    ) -> Result<(usize, usize), Error> {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: &mut PendingBytes) {
        match *self {}
    }
}
