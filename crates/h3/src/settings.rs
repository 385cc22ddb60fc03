//! SETTINGS (RFC 9114 section 7.2.4): the peer's, and ours.

use crate::fault::Violation;
use crate::frame::{FrameHeader, kind};
use crate::limits::Config;
use crate::varint;
use fields::Role;

const QPACK_MAX_TABLE_CAPACITY: u64 = 1;
const MAX_FIELD_SECTION_SIZE: u64 = 6;
const QPACK_BLOCKED_STREAMS: u64 = 7;
/// RFC 9220.
const ENABLE_CONNECT_PROTOCOL: u64 = 8;
/// RFC 9297, which permits no other value than 0 or 1.
const H3_DATAGRAM: u64 = 0x33;

/// The peer's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSettings {
    /// The maximum size of its dynamic table, in bytes.
    pub table_capacity: u64,
    /// The number of streams that may wait for entries of that table.
    pub blocked_streams: u64,
    /// The maximum size of a field section that it accepts, in bytes; [`u64::MAX`] if not set.
    pub max_field_section: u64,
    /// Whether it accepts extended CONNECT (RFC 9220).
    pub connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings {
            table_capacity: 0,
            blocked_streams: 0,
            max_field_section: u64::MAX,
            connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Reads the payload of a SETTINGS frame; unknown settings are ignored.
    pub(crate) fn read(mut payload: &[u8]) -> Result<PeerSettings, Violation> {
        let (mut settings, mut seen) = (PeerSettings::default(), 0u64);
        while !payload.is_empty() {
            let id = varint::take(&mut payload).ok_or(Violation::FrameSize)?;
            let value = varint::take(&mut payload).ok_or(Violation::FrameSize)?;
            if id < 64 {
                if seen & 1 << id != 0 {
                    return Err(Violation::SettingTwice);
                }
                seen |= 1 << id;
            }
            settings.take(id, value)?;
        }
        Ok(settings)
    }

    fn take(&mut self, id: u64, value: u64) -> Result<(), Violation> {
        match id {
            0 | 2..=5 => return Err(Violation::ReservedSetting),
            QPACK_MAX_TABLE_CAPACITY => self.table_capacity = value,
            MAX_FIELD_SECTION_SIZE => self.max_field_section = value,
            QPACK_BLOCKED_STREAMS => self.blocked_streams = value,
            ENABLE_CONNECT_PROTOCOL | H3_DATAGRAM if value > 1 => return Err(Violation::SettingValue),
            ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            _ => {}
        }
        Ok(())
    }
}

/// Writes our SETTINGS frame. Defaults are left out.
pub(crate) fn write_ours(role: Role, config: &Config, out: &mut Vec<u8>) {
    let connect = role == Role::Server && config.rules.connect_protocol;
    let settings = [
        (QPACK_MAX_TABLE_CAPACITY, u64::from(config.table_capacity)),
        (MAX_FIELD_SECTION_SIZE, u64::from(config.max_field_section)),
        (QPACK_BLOCKED_STREAMS, u64::from(config.blocked_streams)),
        (ENABLE_CONNECT_PROTOCOL, u64::from(connect)),
    ];
    let sent = || settings.iter().filter(|setting| setting.1 != 0);
    let length = sent().map(|(id, value)| varint::size(*id) + varint::size(*value)).sum::<usize>() as u64;
    FrameHeader { kind: kind::SETTINGS, length }.put(out);
    for (id, value) in sent() {
        varint::put(*id, out);
        varint::put(*value, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_settings_are_read_as_they_were_meant() {
        let config = Config { table_capacity: 4096, blocked_streams: 16, ..Config::default() };
        let mut out = Vec::new();
        write_ours(Role::Server, &config, &mut out);
        let mut rest = &out[..];
        let header = FrameHeader::take(&mut rest).unwrap();
        assert_eq!((header.kind, header.length as usize), (kind::SETTINGS, rest.len()));
        let expected = PeerSettings {
            table_capacity: 4096,
            blocked_streams: 16,
            max_field_section: u64::MAX,
            connect_protocol: true,
        };
        assert_eq!(PeerSettings::read(rest), Ok(expected));
    }
}
