//! The columns of QUIC and of HTTP/3 frames.

use runtime::Sharded;
use state::counters::{self, FrontendCounters};
use state::quic_counters::{Http3Counters, QuicCounters};

use crate::column::{C, ObjectRow};

/// Fills the columns of a frontend.
pub(crate) fn put(row: &mut ObjectRow, shards: &Sharded<FrontendCounters>) {
    let mut from = C::h3_data as usize;
    let mut put = |totals: &[u64]| {
        for total in totals {
            row.values[from] = (*total).into();
            from += 1;
        }
    };
    let mut h3 = [0; Http3Counters::COUNT];
    let mut quic = [0; QuicCounters::COUNT];
    for shard in shards.all() {
        let of_shard = &shard.quic;
        h3.iter_mut().zip(of_shard.h3.all()).for_each(|(total, one)| *total += one.get());
        quic.iter_mut().zip(of_shard.quic.all()).for_each(|(total, one)| *total += one.get());
    }
    put(&h3);
    let (before, after) = quic.split_at(C::quic_half_open_conn as usize - C::quic_rxbuf_full as usize);
    put(before);
    put(&[counters::current(shards, |shard| shard.quic.half_open.get())]);
    put(after);
}
