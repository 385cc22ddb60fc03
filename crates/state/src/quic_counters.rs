//! The QUIC and HTTP/3 counters of a frontend or backend.

use runtime::{Count, Gauge};

macro_rules! counters {
    ($(#[$doc:meta])* $kind:ident { $($(#[$field:meta])* $name:ident)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[allow(missing_docs, reason = "the statistics describe each column")]
        pub struct $kind { $($(#[$field])* pub $name: Count),* }

        impl $kind {
            /// The number of counters.
            pub const COUNT: usize = [$(stringify!($name)),*].len();

            /// Returns all counters, in the order of the statistics.
            pub fn all(&self) -> [&Count; Self::COUNT] {
                [$(&self.$name),*]
            }
        }
    };
}

counters! {
    /// QUIC counters (module `quic`), without the gauge of half-open connections.
    QuicCounters {
        rxbuf_full
        dropped_pkt
        dropped_pkt_bufoverrun
        dropped_parsing_pkt
        socket_full
        sendto_err
        sendto_err_unknwn
        sent_pkt
        lost_pkt
        too_short_dgram
        retry_sent
        retry_validated
        retry_error
        hdshk_fail
        stless_rst_sent
        conn_migration_done
        transp_err_no_error
        transp_err_internal_error
        transp_err_connection_refused
        transp_err_flow_control_error
        transp_err_stream_limit_error
        transp_err_stream_state_error
        transp_err_final_size_error
        transp_err_frame_encoding_error
        transp_err_transport_parameter_error
        transp_err_connection_id_limit
        transp_err_protocol_violation_error
        transp_err_invalid_token
        transp_err_application_error
        transp_err_crypto_buffer_exceeded
        transp_err_key_update_error
        transp_err_aead_limit_reached
        transp_err_no_viable_path
        transp_err_crypto_error
        transp_err_unknown_error
        data_blocked
        stream_data_blocked
        streams_blocked_bidi
        streams_blocked_uni
        ncbuf_gap_limit
    }
}

impl QuicCounters {
    /// Returns the counter of a transport error (RFC 9000, 20.1).
    pub fn transport_error(&self, code: u64) -> &Count {
        match code {
            0x00 => &self.transp_err_no_error,
            0x01 => &self.transp_err_internal_error,
            0x02 => &self.transp_err_connection_refused,
            0x03 => &self.transp_err_flow_control_error,
            0x04 => &self.transp_err_stream_limit_error,
            0x05 => &self.transp_err_stream_state_error,
            0x06 => &self.transp_err_final_size_error,
            0x07 => &self.transp_err_frame_encoding_error,
            0x08 => &self.transp_err_transport_parameter_error,
            0x09 => &self.transp_err_connection_id_limit,
            0x0a => &self.transp_err_protocol_violation_error,
            0x0b => &self.transp_err_invalid_token,
            0x0c => &self.transp_err_application_error,
            0x0d => &self.transp_err_crypto_buffer_exceeded,
            0x0e => &self.transp_err_key_update_error,
            0x0f => &self.transp_err_aead_limit_reached,
            0x10 => &self.transp_err_no_viable_path,
            0x0100..=0x01ff => &self.transp_err_crypto_error,
            _ => &self.transp_err_unknown_error,
        }
    }
}

counters! {
    /// HTTP/3 counters (module `h3`): received frames, and error codes sent or received.
    Http3Counters {
        data
        headers
        cancel_push
        push_promise
        max_push_id
        goaway
        settings
        no_error
        general_protocol_error
        internal_error
        stream_creation_error
        closed_critical_stream
        frame_unexpected
        frame_error
        excessive_load
        id_error
        settings_error
        missing_settings
        request_rejected
        request_cancelled
        request_incomplete
        message_error
        connect_error
        version_fallback
        qpack_decompression_failed
        qpack_encoder_stream_error
        qpack_decoder_stream_error
    }
}

/// All counters of one worker for a frontend or backend.
#[derive(Debug, Default)]
pub struct QuicShard {
    /// The transport.
    pub quic: QuicCounters,
    /// Handshakes in progress.
    pub half_open: Gauge,
    /// HTTP/3.
    pub h3: Http3Counters,
}

impl QuicShard {
    /// Resets the counters, but not the gauge.
    pub(crate) fn clear(&self) {
        self.quic.all().into_iter().chain(self.h3.all()).for_each(Count::clear);
    }
}
