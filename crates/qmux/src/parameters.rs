//! Transport parameters in the frame QX_TRANSPORT_PARAMETERS (sections 4.2 and 5 of the draft).

use quic::Settings;
use quic::transport::{TRANSPORT_PARAMETER_ERROR, TransportError, TransportParameters};
use quic::varint::{self, Reader};

use crate::record::RECORD_MAX;

/// The type of the frame. On the wire it is `\xffQS0\r\n\r\n`, so that no other protocol begins with it.
pub(crate) const QX_TRANSPORT_PARAMETERS: u64 = 0x3f51_5330_0d0a_0d0a;

/// The bytes of [`QX_TRANSPORT_PARAMETERS`] on the wire.
pub(crate) const MAGIC: [u8; 8] = (QX_TRANSPORT_PARAMETERS | 3 << 62).to_be_bytes();

/// `max_record_size`.
const MAX_RECORD_SIZE: u64 = 0x0571_c594_29cd_0845;

/// The last of the parameters that RFC 9000 defines.
const LAST_OF_QUIC: u64 = 0x10;

/// The first frame is not QX_TRANSPORT_PARAMETERS.
pub(crate) const NOT_FIRST: TransportError =
    TransportError::new(TRANSPORT_PARAMETER_ERROR, "the connection does not begin with transport parameters");

/// The frame was repeated.
pub(crate) const REPEATED: TransportError =
    TransportError::new(TRANSPORT_PARAMETER_ERROR, "transport parameters were sent again");

/// Returns the frame with the limits of this side.
pub(crate) fn write(settings: &Settings) -> Vec<u8> {
    let parameters = TransportParameters::of_streams(settings).write();
    let mut frame = Vec::with_capacity(parameters.len() + 10);
    varint::write_all(&mut frame, &[QX_TRANSPORT_PARAMETERS, parameters.len() as u64]);
    frame.extend_from_slice(&parameters);
    frame
}

/// Decodes the content of the frame.
///
/// # Errors
/// TRANSPORT_PARAMETER_ERROR with the reason.
pub(crate) fn read(bytes: &[u8]) -> Result<TransportParameters, TransportError> {
    let mut reader = Reader::new(bytes);
    let mut has_record_size = false;
    while !reader.is_empty() {
        // `TransportParameters::read` refuses malformed parameters.
        let (Some(name), Some(value)) = (reader.number(), reader.prefixed()) else { break };
        match name {
            MAX_RECORD_SIZE if std::mem::replace(&mut has_record_size, true) => {
                return Err(error("a transport parameter is repeated"));
            }
            MAX_RECORD_SIZE => check_record_size(value)?,
            // max_idle_timeout, the windows, and the numbers of streams.
            0x01 | 0x04..=0x09 => {}
            _ if name <= LAST_OF_QUIC => return Err(error("QMux does not permit this transport parameter")),
            // Unknown parameters are ignored.
            _ => {}
        }
    }
    TransportParameters::read(bytes, false)
}

/// Checks the beginning of the frames in the first record of a connection, before the rest has arrived: a peer that speaks another
/// protocol may not send more.
///
/// # Errors
/// The first frame is not QX_TRANSPORT_PARAMETERS.
pub(crate) fn check_beginning(frames: &[u8]) -> Result<(), TransportError> {
    let known = frames.len().min(MAGIC.len());
    if frames[..known] == MAGIC[..known] { Ok(()) } else { Err(NOT_FIRST) }
}

/// The peer may accept larger records than by default, and not smaller ones. The records of this side never exceed the default.
fn check_record_size(value: &[u8]) -> Result<(), TransportError> {
    let mut reader = Reader::new(value);
    match reader.number() {
        Some(size) if reader.is_empty() && size >= RECORD_MAX as u64 => Ok(()),
        _ => Err(error("max_record_size is out of range")),
    }
}

const fn error(reason: &'static str) -> TransportError {
    TransportError::new(TRANSPORT_PARAMETER_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permitted_parameters_are_sent() {
        let settings = Settings { max_streams: 7, ..Settings::default() };
        let frame = write(&settings);
        assert_eq!(frame[..8], MAGIC);
        assert_eq!(&MAGIC, b"\xffQS0\r\n\r\n");
        let own = read(&frame[9..]).expect("all are permitted");
        assert_eq!(own, TransportParameters::of_streams(&settings));
    }

    #[test]
    fn parameters_of_packets_and_small_records_are_refused() {
        for bytes in [
            &[0x00, 0][..],
            &[0x02, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x03, 2, 0x44, 0xb0],
            &[0x0a, 1, 3],
            &[0x0b, 1, 3],
            &[0x0c, 0],
            &[0x0e, 1, 2],
            &[0x0f, 0],
            &[0x10, 0],
            &[0x04, 1],
            &[0x04, 1, 7, 0x04, 1, 7],
            &[0xc5, 0x71, 0xc5, 0x94, 0x29, 0xcd, 0x08, 0x45, 2, 0x7f, 0xfd],
            &[0xc5, 0x71, 0xc5, 0x94, 0x29, 0xcd, 0x08, 0x45, 2, 0x7f, 0xfe, 1],
            &[0xc5, 0x71, 0xc5, 0x94, 0x29, 0xcd, 0x08, 0x45, 0],
        ] {
            let error = read(bytes).expect_err("it is not permitted");
            assert_eq!(error.code, TRANSPORT_PARAMETER_ERROR, "{bytes:x?}");
        }
        let larger = [0xc5, 0x71, 0xc5, 0x94, 0x29, 0xcd, 0x08, 0x45, 4, 0x80, 1, 0, 0];
        assert_eq!(read(&larger), Ok(TransportParameters::default()));
        assert_eq!(read(&[0x1b, 1, 9]), Ok(TransportParameters::default()), "a reserved one is ignored");
    }
}
