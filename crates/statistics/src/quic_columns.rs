//! Fills the QUIC and HTTP/3 columns of the statistics.

use runtime::LazySharded;
use state::counters;
use state::quic_counters::{Http3Counters, QuicCounters, QuicShard};

use crate::column::{C, ObjectRow};

/// Fills the columns of a frontend or backend. `of` returns the counters of a worker, if there are any.
pub(crate) fn put<T>(row: &mut ObjectRow, shards: &LazySharded<T>, of: impl Fn(&T) -> Option<&QuicShard>) {
    let mut from = C::h3_data as usize;
    let mut put = |totals: &[u64]| {
        for total in totals {
            row.values[from] = (*total).into();
            from += 1;
        }
    };
    let mut h3 = [0; Http3Counters::COUNT];
    let mut quic = [0; QuicCounters::COUNT];
    for of_shard in shards.all().filter_map(&of) {
        h3.iter_mut().zip(of_shard.h3.all()).for_each(|(total, one)| *total += one.get());
        quic.iter_mut().zip(of_shard.quic.all()).for_each(|(total, one)| *total += one.get());
    }
    put(&h3);
    let (before, after) = quic.split_at(C::quic_half_open_conn as usize - C::quic_rxbuf_full as usize);
    put(before);
    put(&[counters::current(shards, |shard| of(shard).map_or(0, |quic| quic.half_open.get()))]);
    put(after);
}
