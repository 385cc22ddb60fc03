//! Transport parameters (RFC 9000, 18), for `show quic`.

use std::fmt::{self, Write};

/// The parameters of one side. Those that were not sent have their default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TransportParameters {
    /// The connection ID that the client chose for the server at first; only the server sends it.
    original_id: Option<Vec<u8>>,
    /// The side's own connection ID.
    pub(super) source_id: Vec<u8>,
    idle_ms: u64,
    payload_max: u64,
    delay_exponent: u64,
    delay_ms: u64,
    ids: u64,
    data: u64,
    /// For streams that the side opens, for those that the other opens, and for unidirectional ones.
    stream_data: [u64; 3],
    streams_bidi: u64,
    streams_uni: u64,
    stays: bool,
    has_reset_token: bool,
    /// The chosen version, if version information was sent (RFC 9368).
    version: Option<u32>,
}

impl Default for TransportParameters {
    fn default() -> Self {
        Self {
            original_id: None,
            source_id: Vec::new(),
            idle_ms: 0,
            payload_max: 65_527,
            delay_exponent: 3,
            delay_ms: 25,
            ids: 2,
            data: 0,
            stream_data: [0; 3],
            streams_bidi: 0,
            streams_uni: 0,
            stays: false,
            has_reset_token: false,
            version: None,
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Takes a variable-length integer (RFC 9000, 16).
fn var_int(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let (number, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(number[1..].iter().fold(u64::from(first & 0x3f), |number, byte| number << 8 | u64::from(*byte)))
}

impl TransportParameters {
    /// Parses parameters, up to the first that is malformed.
    pub(super) fn parse(mut bytes: &[u8]) -> Self {
        let mut all = Self::default();
        while let Some((id, value)) = next(&mut bytes) {
            all.set(id, value);
        }
        all
    }

    fn set(&mut self, id: u64, value: &[u8]) {
        let number = var_int(&mut &*value).unwrap_or_default();
        match id {
            0x00 => self.original_id = Some(value.to_vec()),
            0x01 => self.idle_ms = number,
            0x02 => self.has_reset_token = true,
            0x03 => self.payload_max = number,
            0x04 => self.data = number,
            0x05 => self.stream_data[0] = number,
            0x06 => self.stream_data[1] = number,
            0x07 => self.stream_data[2] = number,
            0x08 => self.streams_bidi = number,
            0x09 => self.streams_uni = number,
            0x0a => self.delay_exponent = number,
            0x0b => self.delay_ms = number,
            0x0c => self.stays = true,
            0x0e => self.ids = number,
            0x0f => self.source_id = value.to_vec(),
            0x11 => self.version = value.first_chunk().map(|version| u32::from_be_bytes(*version)),
            _ => {}
        }
    }
}

/// Takes a parameter: its ID and its value.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let id = var_int(bytes)?;
    let length = usize::try_from(var_int(bytes)?).ok()?;
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some((id, value))
}

impl fmt::Display for TransportParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = &self.original_id {
            write!(f, "odcid={} ", hex(id))?;
        }
        writeln!(f, "iscid={}", hex(&self.source_id))?;
        let (idle, payload) = (self.idle_ms, self.payload_max);
        let (exponent, delay, ids) = (self.delay_exponent, self.delay_ms, self.ids);
        writeln!(
            f,
            "    midle_timeout={idle}ms mudp_payload_sz={payload} ack_delay_exp={exponent} mack_delay={delay}ms \
             act_cid_limit={ids}"
        )?;
        let (data, [ours, theirs, uni]) = (self.data, self.stream_data);
        let (ms_bidi, ms_uni) = (self.streams_bidi, self.streams_uni);
        write!(
            f,
            "    md={data} msd_bidi_l={ours} msd_bidi_r={theirs} msd_uni={uni} ms_bidi={ms_bidi} ms_uni={ms_uni}"
        )?;
        let flags = [(self.stays, "no_act_migr"), (self.has_reset_token, "stless_rst_tok")];
        let flags: Vec<&str> =
            flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
        if !flags.is_empty() {
            write!(f, "\n    ({})", flags.join(","))?;
        }
        if let Some(version) = self.version {
            write!(f, "\n    versions:chosen={version:#010x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_up_to_the_first_malformed_one() {
        let bytes = [
            &[0x01, 4, 0x80, 0, 0x75, 0x30][..], // 30,000 ms as a four-byte number
            &[0x04, 4, 0x80, 0x19, 0, 0],        // 1,638,400 bytes
            &[0x08, 2, 0x40, 0x64],              // 100 streams
            &[0x0c, 0],                          // no migration
            &[0x0f, 3, 0xab, 0xcd, 0xef],        // a connection ID
            &[0x11, 4, 0, 0, 0, 1],              // version 1
            &[0x71, 0x27, 1, 9],                 // unknown
            &[0x09, 9, 3],                       // cut off
        ]
        .concat();
        let all = TransportParameters::parse(&bytes);
        assert_eq!(all.idle_ms, 30_000);
        assert_eq!((all.data, all.streams_bidi, all.streams_uni), (1_638_400, 100, 0));
        assert_eq!((all.stays, all.version, &*all.source_id), (true, Some(1), &[0xab, 0xcd, 0xef][..]));
        let text = all.to_string();
        assert!(text.starts_with("iscid=abcdef\n    midle_timeout=30000ms mudp_payload_sz=65527 "), "{text}");
        assert!(text.ends_with("\n    (no_act_migr)\n    versions:chosen=0x00000001"), "{text}");
        assert_eq!(TransportParameters::parse(&[]), TransportParameters::default());
    }
}
