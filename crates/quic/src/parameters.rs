//! Transport parameters (RFC 9000, 18).

use std::time::Duration;

use crate::connection_id::{ConnectionId, LENGTH_MAX};
use crate::error::{TRANSPORT_PARAMETER_ERROR, TransportError};
use crate::settings::Settings;
use crate::varint::{self, Reader};

/// The number of unidirectional streams that a client may open: HTTP/3's control, encoder and decoder streams, and one for
/// extensions.
pub(crate) const UNI_STREAMS: u64 = 4;

/// The smallest maximum size of UDP payloads that a peer may announce.
const PAYLOAD_MIN: u64 = 1200;

/// The transport parameters of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportParameters {
    pub(crate) original_destination: Option<ConnectionId>,
    pub(crate) initial_source: Option<ConnectionId>,
    pub(crate) retry_source: Option<ConnectionId>,
    pub(crate) reset_token: Option<[u8; 16]>,
    /// How long the sender lets the connection be idle; 0 for no limit.
    pub max_idle: Duration,
    pub(crate) max_udp_payload: u64,
    /// The data that the other side may send on all streams.
    pub(crate) max_data: u64,
    /// The data that the other side may send on each bidirectional stream that the sender of the parameters opens.
    pub(crate) max_stream_data_local: u64,
    /// The data that the other side may send on each bidirectional stream that it opens.
    pub(crate) max_stream_data_remote: u64,
    /// The data that the other side may send on each unidirectional stream that it opens.
    pub(crate) max_stream_data_uni: u64,
    /// The number of bidirectional streams that the other side may open.
    pub(crate) max_streams_bidi: u64,
    /// The number of unidirectional streams that the other side may open.
    pub(crate) max_streams_uni: u64,
    pub(crate) ack_delay_exponent: u64,
    pub(crate) max_ack_delay: Duration,
    pub(crate) disable_active_migration: bool,
    pub(crate) active_ids: u64,
}

impl Default for TransportParameters {
    fn default() -> Self {
        Self {
            original_destination: None,
            initial_source: None,
            retry_source: None,
            reset_token: None,
            max_idle: Duration::ZERO,
            max_udp_payload: 65_527,
            max_data: 0,
            max_stream_data_local: 0,
            max_stream_data_remote: 0,
            max_stream_data_uni: 0,
            max_streams_bidi: 0,
            max_streams_uni: 0,
            ack_delay_exponent: 3,
            max_ack_delay: Duration::from_millis(25),
            disable_active_migration: false,
            active_ids: 2,
        }
    }
}

const ORIGINAL_DESTINATION: u64 = 0x00;
const MAX_IDLE: u64 = 0x01;
const RESET_TOKEN: u64 = 0x02;
const MAX_UDP_PAYLOAD: u64 = 0x03;
const MAX_DATA: u64 = 0x04;
const MAX_STREAM_DATA_LOCAL: u64 = 0x05;
const MAX_STREAM_DATA_REMOTE: u64 = 0x06;
const MAX_STREAM_DATA_UNI: u64 = 0x07;
const MAX_STREAMS_BIDI: u64 = 0x08;
const MAX_STREAMS_UNI: u64 = 0x09;
const ACK_DELAY_EXPONENT: u64 = 0x0a;
const MAX_ACK_DELAY: u64 = 0x0b;
const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
const PREFERRED_ADDRESS: u64 = 0x0d;
const ACTIVE_IDS: u64 = 0x0e;
const INITIAL_SOURCE: u64 = 0x0f;
const RETRY_SOURCE: u64 = 0x10;

/// IPv4 and IPv6 addresses with ports, before the connection ID of a preferred address.
const PREFERRED_ADDRESSES: usize = 4 + 2 + 16 + 2;

impl TransportParameters {
    /// Returns the parameters about streams and idle time, with defaults for all others.
    pub fn of_streams(settings: &Settings) -> Self {
        Self {
            max_idle: settings.max_idle.unwrap_or_default(),
            max_data: settings.connection_window,
            max_stream_data_local: settings.stream_window,
            max_stream_data_remote: settings.stream_window,
            max_stream_data_uni: settings.stream_window,
            max_streams_bidi: settings.max_streams,
            max_streams_uni: UNI_STREAMS,
            ..Self::default()
        }
    }

    /// Encodes the parameters, without those that have their default.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        let default = Self::default();
        let ids = [
            (ORIGINAL_DESTINATION, &self.original_destination),
            (INITIAL_SOURCE, &self.initial_source),
            (RETRY_SOURCE, &self.retry_source),
        ];
        for (name, id) in ids {
            if let Some(id) = id {
                put(&mut out, name, id);
            }
        }
        if let Some(token) = &self.reset_token {
            put(&mut out, RESET_TOKEN, token);
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(varint::MAX);
        let numbers = [
            (MAX_IDLE, millis(self.max_idle), 0),
            (MAX_UDP_PAYLOAD, self.max_udp_payload, default.max_udp_payload),
            (MAX_DATA, self.max_data, 0),
            (MAX_STREAM_DATA_LOCAL, self.max_stream_data_local, 0),
            (MAX_STREAM_DATA_REMOTE, self.max_stream_data_remote, 0),
            (MAX_STREAM_DATA_UNI, self.max_stream_data_uni, 0),
            (MAX_STREAMS_BIDI, self.max_streams_bidi, 0),
            (MAX_STREAMS_UNI, self.max_streams_uni, 0),
            (ACK_DELAY_EXPONENT, self.ack_delay_exponent, default.ack_delay_exponent),
            (MAX_ACK_DELAY, millis(self.max_ack_delay), 25),
            (ACTIVE_IDS, self.active_ids, default.active_ids),
        ];
        for (name, value, default) in numbers {
            if value != default {
                let value = value.min(varint::MAX);
                varint::write(&mut out, name);
                varint::write(&mut out, varint::length(value) as u64);
                varint::write(&mut out, value);
            }
        }
        if self.disable_active_migration {
            put(&mut out, DISABLE_ACTIVE_MIGRATION, &[]);
        }
        out
    }

    /// Decodes the parameters of a peer. `is_server` is its role.
    ///
    /// # Errors
    /// TRANSPORT_PARAMETER_ERROR with the reason.
    pub fn read(bytes: &[u8], is_server: bool) -> Result<Self, TransportError> {
        let mut parameters = Self::default();
        let mut seen: u32 = 0;
        let mut reader = Reader(bytes);
        while !reader.is_empty() {
            let name = reader.number().ok_or(MALFORMED)?;
            let value = reader.prefixed().ok_or(MALFORMED)?;
            if name <= RETRY_SOURCE {
                let bit = 1 << name;
                if seen & bit != 0 {
                    return Err(error("a transport parameter is repeated"));
                }
                seen |= bit;
            }
            parameters.set(name, value, is_server)?;
        }
        parameters.check()?;
        Ok(parameters)
    }

    fn set(&mut self, name: u64, value: &[u8], is_server: bool) -> Result<(), TransportError> {
        if !is_server && matches!(name, ORIGINAL_DESTINATION | RESET_TOKEN | PREFERRED_ADDRESS | RETRY_SOURCE)
        {
            return Err(error("a client sent a transport parameter of servers"));
        }
        let id = || ConnectionId::new(value).map(Some).ok_or(MALFORMED);
        match name {
            ORIGINAL_DESTINATION => self.original_destination = id()?,
            INITIAL_SOURCE => self.initial_source = id()?,
            RETRY_SOURCE => self.retry_source = id()?,
            RESET_TOKEN => self.reset_token = Some(value.try_into().map_err(|_| MALFORMED)?),
            MAX_IDLE => self.max_idle = Duration::from_millis(number(value)?),
            MAX_UDP_PAYLOAD => self.max_udp_payload = number(value)?,
            MAX_DATA => self.max_data = number(value)?,
            MAX_STREAM_DATA_LOCAL => self.max_stream_data_local = number(value)?,
            MAX_STREAM_DATA_REMOTE => self.max_stream_data_remote = number(value)?,
            MAX_STREAM_DATA_UNI => self.max_stream_data_uni = number(value)?,
            MAX_STREAMS_BIDI => self.max_streams_bidi = number(value)?,
            MAX_STREAMS_UNI => self.max_streams_uni = number(value)?,
            ACK_DELAY_EXPONENT => self.ack_delay_exponent = number(value)?,
            MAX_ACK_DELAY => self.max_ack_delay = Duration::from_millis(number(value)?),
            DISABLE_ACTIVE_MIGRATION if value.is_empty() => self.disable_active_migration = true,
            DISABLE_ACTIVE_MIGRATION => return Err(MALFORMED),
            PREFERRED_ADDRESS => check_preferred(value)?,
            ACTIVE_IDS => self.active_ids = number(value)?,
            // Unknown parameters are ignored (RFC 9000, 7.4.2).
            _ => {}
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TransportError> {
        const STREAMS_MAX: u64 = 1 << 60;
        const DELAY_MAX: Duration = Duration::from_millis(1 << 14);
        if self.max_udp_payload < PAYLOAD_MIN
            || self.ack_delay_exponent > 20
            || self.max_ack_delay >= DELAY_MAX
            || self.active_ids < 2
            || self.max_streams_bidi > STREAMS_MAX
            || self.max_streams_uni > STREAMS_MAX
        {
            return Err(error("a transport parameter is out of range"));
        }
        Ok(())
    }
}

fn put(out: &mut Vec<u8>, name: u64, value: &[u8]) {
    varint::write(out, name);
    varint::write(out, value.len() as u64);
    out.extend_from_slice(value);
}

const fn error(reason: &'static str) -> TransportError {
    TransportError::new(TRANSPORT_PARAMETER_ERROR, reason)
}

const MALFORMED: TransportError = error("a transport parameter is malformed");

fn number(value: &[u8]) -> Result<u64, TransportError> {
    let mut reader = Reader(value);
    reader.number().filter(|_| reader.is_empty()).ok_or(MALFORMED)
}

/// Checks the form of a preferred address, which we do not use.
fn check_preferred(value: &[u8]) -> Result<(), TransportError> {
    let mut reader = Reader(value);
    let id = reader.bytes(PREFERRED_ADDRESSES).and_then(|_| {
        let length = usize::from(reader.byte()?);
        reader.bytes(length)
    });
    let is_whole = reader.0.len() == 16;
    let is_valid = is_whole && id.is_some_and(|id| (1..=LENGTH_MAX).contains(&id.len()));
    is_valid.then_some(()).ok_or(MALFORMED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TransportParameters {
        TransportParameters {
            original_destination: ConnectionId::new(&[1; 8]),
            initial_source: ConnectionId::new(&[2; 20]),
            retry_source: ConnectionId::new(&[]),
            reset_token: Some([3; 16]),
            max_idle: Duration::from_secs(30),
            max_udp_payload: 1452,
            max_data: 1 << 20,
            max_stream_data_local: 1,
            max_stream_data_remote: 2,
            max_stream_data_uni: 3,
            max_streams_bidi: 100,
            max_streams_uni: 3,
            ack_delay_exponent: 4,
            max_ack_delay: Duration::from_millis(5),
            disable_active_migration: true,
            active_ids: 4,
        }
    }

    #[test]
    fn parameters_are_read_as_written() {
        let parameters = sample();
        assert_eq!(TransportParameters::read(&parameters.write(), true), Ok(parameters));
        assert_eq!(TransportParameters::default().write(), []);
    }

    #[test]
    fn truncated_parameters_never_pass_as_whole_ones() {
        let bytes = sample().write();
        for end in 1..bytes.len() {
            if let Ok(parameters) = TransportParameters::read(&bytes[..end], true) {
                assert_ne!(parameters, sample(), "cut at {end}");
            }
        }
    }

    #[test]
    fn invalid_parameters_are_errors() {
        for (bytes, is_server) in [
            (&[0x02, 0x10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15][..], false),
            (&[0x00, 1, 7], false),
            (&[0x10, 1, 7], false),
            (&[0x04, 1, 7, 0x04, 1, 7], true),
            (&[0x03, 2, 0x44, 0xaf], true),
            (&[0x0a, 1, 21], true),
            (&[0x0b, 4, 0x80, 0, 0x40, 0], true),
            (&[0x0e, 1, 1], true),
            (&[0x08, 8, 0xd0, 0, 0, 0, 0, 0, 0, 1], true),
            (&[0x04, 2, 7, 7], true),
            (&[0x0c, 1, 0], true),
            (&[0x0d, 1, 0], true),
            (&[0x0f, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], true),
        ] {
            let error = TransportParameters::read(bytes, is_server).expect_err("it is invalid");
            assert_eq!(error.code, TRANSPORT_PARAMETER_ERROR, "{bytes:x?}");
        }
    }

    #[test]
    fn unknown_parameters_are_ignored() {
        let bytes = [0x60, 0x01, 2, 9, 9, 0x1b, 0];
        assert_eq!(TransportParameters::read(&bytes, false), Ok(TransportParameters::default()));
    }
}
