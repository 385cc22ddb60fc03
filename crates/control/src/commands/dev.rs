//! Libraries and tasks, for developers (management manual, 9.3). Tasks are only counted, because they have no names.

use std::collections::BTreeMap;
use std::fmt::Write;

use runtime::{shard, worker};

use crate::invocation::{Call, CommandReply, error};

pub(crate) fn libs(_: &mut Call<'_>) -> CommandReply {
    match std::fs::read_to_string("/proc/self/maps") {
        Ok(maps) => CommandReply::Text(libraries(&maps)),
        Err(error_) => error(format!("The list of loaded objects is not available: {error_}.")),
    }
}

/// The files in a process's memory map: address range, size and path, sorted by address.
fn libraries(maps: &str) -> String {
    let mut ranges: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let bounds = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let parsed = bounds.and_then(|(start, end)| {
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        });
        let Some((start, end)) = parsed else { continue };
        let own = ranges.entry(&line[at..]).or_insert((start, end));
        *own = (own.0.min(start), own.1.max(end));
    }
    let mut rows: Vec<_> = ranges.into_iter().collect();
    rows.sort_by_key(|(_, range)| *range);
    let mut out = String::new();
    for (path, (start, end)) in rows {
        let _ = writeln!(out, "0x{start:012x}-0x{:012x} (0x{:07x}) {path}", end - 1, end - start);
    }
    out
}

pub(crate) fn tasks(_: &mut Call<'_>) -> CommandReply {
    let each: Vec<_> = (0..shard::workers()).map(worker::activity).collect();
    let queued: usize = each.iter().map(|activity| activity.queued).sum();
    let mut out = format!("Running tasks: {queued} ({} threads)\n", each.len());
    for (index, activity) in each.iter().enumerate() {
        let _ = writeln!(
            out,
            "  thread {}: queued={} tasks={} busy_ms={}",
            index + 1,
            activity.queued,
            activity.tasks,
            activity.busy.as_millis()
        );
    }
    CommandReply::Text(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_file_are_merged_and_anonymous_ones_skipped() {
        let maps = "7f0000002000-7f0000003000 r--p 0 08:01 7 /usr/lib/libc.so.6\n\
                    7f0000000000-7f0000001000 r-xp 0 08:01 7 /usr/lib/libc.so.6\n\
                    550000000000-550000002000 r-xp 0 08:01 9 /usr/bin/weir\n\
                    7ffd00000000-7ffd00001000 rw-p 0 00:00 0 [stack]\n";
        assert_eq!(
            libraries(maps),
            "0x550000000000-0x550000001fff (0x0002000) /usr/bin/weir\n\
             0x7f0000000000-0x7f0000002fff (0x0003000) /usr/lib/libc.so.6\n"
        );
    }
}
