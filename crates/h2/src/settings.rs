//! SETTINGS (RFC 9113 section 6.5): those of the peer and of this side.

use crate::fault::Breach;
use crate::frame::WINDOW_MAX;
use crate::frame::{FrameHeader, MAX_SIZE_DEFAULT, MAX_SIZE_LIMIT, kind};
use crate::limits::Config;
use fields::Role;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
/// RFC 8441.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// RFC 9218 section 2.1.
const NO_RFC7540_PRIORITIES: u16 = 9;

/// The length of a setting.
pub(crate) const SETTING: usize = 6;
/// The size of a header table before the first SETTINGS frame.
pub(crate) const TABLE_DEFAULT: u32 = 4096;
/// The size of every window before the first SETTINGS frame.
pub(crate) const WINDOW_DEFAULT: u32 = 65_535;

/// The peer's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSettings {
    /// The maximum size of the peer's header table.
    pub header_table_size: u32,
    /// The maximum number of streams that this side may open; `u32::MAX` if not set.
    pub max_concurrent_streams: u32,
    /// The window of a new stream towards the peer.
    pub initial_window: u32,
    /// The maximum frame payload that the peer accepts.
    pub max_frame_size: u32,
    /// Whether the peer accepts extended CONNECT (RFC 8441).
    pub connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings {
            header_table_size: TABLE_DEFAULT,
            max_concurrent_streams: u32::MAX,
            initial_window: WINDOW_DEFAULT,
            max_frame_size: MAX_SIZE_DEFAULT,
            connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Applies one setting. Unknown settings are ignored. `role` is the role of this side.
    pub(crate) fn take(&mut self, setting: &[u8; SETTING], role: Role) -> Result<(), Breach> {
        let [a, b, value @ ..] = *setting;
        let value = u32::from_be_bytes(value);
        match u16::from_be_bytes([a, b]) {
            HEADER_TABLE_SIZE => self.header_table_size = value,
            ENABLE_PUSH if value > 1 || (value == 1 && role == Role::Client) => {
                return Err(Breach::EnablePush);
            }
            MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
            INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(Breach::InitialWindow),
            INITIAL_WINDOW_SIZE => self.initial_window = value,
            MAX_FRAME_SIZE if !(MAX_SIZE_DEFAULT..=MAX_SIZE_LIMIT).contains(&value) => {
                return Err(Breach::MaxFrameSize);
            }
            MAX_FRAME_SIZE => self.max_frame_size = value,
            ENABLE_CONNECT_PROTOCOL => {
                if value > 1 || (value == 0 && self.connect_protocol) {
                    return Err(Breach::ConnectProtocol);
                }
                self.connect_protocol = value == 1;
            }
            NO_RFC7540_PRIORITIES if value > 1 => return Err(Breach::NoPriorities),
            _ => {}
        }
        Ok(())
    }
}

/// Writes the initial SETTINGS as one frame. Default values are omitted, except for the number of streams, because some peers
/// interpret its absence as permission to use more. A reversed connection, which `began` in another role, gets the settings of both
/// roles.
pub(crate) fn write_ours(role: Role, began: Role, config: &Config, out: &mut Vec<u8>) {
    let mut settings: [(u16, u32); 7] = [(0, 0); 7];
    let mut count = 0;
    let mut add = |id, value, default| {
        if Some(value) != default {
            settings[count] = (id, value);
            count += 1;
        }
    };
    if began == Role::Client {
        add(ENABLE_PUSH, 0, Some(1));
    }
    if role == Role::Server {
        add(ENABLE_CONNECT_PROTOCOL, u32::from(config.rules.connect_protocol), Some(0));
        add(NO_RFC7540_PRIORITIES, 1, Some(0));
        add(MAX_CONCURRENT_STREAMS, config.max_streams(), Some(u32::MAX));
    }
    add(HEADER_TABLE_SIZE, config.header_table_size, Some(TABLE_DEFAULT));
    add(INITIAL_WINDOW_SIZE, config.initial_window(), Some(WINDOW_DEFAULT));
    add(MAX_FRAME_SIZE, config.max_frame_size(), Some(MAX_SIZE_DEFAULT));
    let header = FrameHeader { length: count * SETTING, kind: kind::SETTINGS, flags: 0, stream: 0 };
    out.extend_from_slice(&header.bytes());
    for (id, value) in &settings[..count] {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}
