//! The fuzzers' seeds pass the checks of their targets: `fuzz/seeds/<target>` has regular and hostile inputs, one per file.

use weir_tests::targets::TARGETS;
use weir_tests::workspace;

#[test]
fn all_seeds_pass_their_target() {
    let mut broken = Vec::new();
    for (name, target) in TARGETS {
        let folder = workspace().join("fuzz/seeds").join(name);
        let mut seeds: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        seeds.sort();
        assert!(seeds.len() >= 8, "{name} has {} seeds", seeds.len());
        for seed in seeds {
            let bytes = std::fs::read(&seed).expect("a seed is a file");
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                broken.push(seed);
            }
        }
    }
    assert!(broken.is_empty(), "these break their targets: {broken:#?}");
}

#[test]
fn truncated_seeds_pass_their_target() {
    for (name, target) in TARGETS.iter().filter(|(name, _)| *name != "config") {
        let folder = workspace().join("fuzz/seeds").join(name);
        for entry in std::fs::read_dir(&folder).expect("every target has seeds").filter_map(Result::ok) {
            let bytes = std::fs::read(entry.path()).expect("a seed is a file");
            let step = (bytes.len() / 16).max(1);
            for end in (0..bytes.len()).step_by(step) {
                let outcome = std::panic::catch_unwind(|| target(&bytes[..end]));
                assert!(outcome.is_ok(), "{end} bytes of {} break their target", entry.path().display());
            }
        }
    }
}

/// Applies mutations like a simple fuzzer, the same ones in every run. `WEIR_MUTATIONS` sets their number per seed, `WEIR_TARGET`
/// restricts them to one target.
#[test]
fn mutated_seeds_pass_their_target() {
    let rounds: u64 = std::env::var("WEIR_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let chosen = std::env::var("WEIR_TARGET").ok();
    for (name, target) in TARGETS.iter().filter(|(name, _)| chosen.as_deref().is_none_or(|one| one == *name))
    {
        let folder = workspace().join("fuzz/seeds").join(name);
        for entry in std::fs::read_dir(&folder).expect("every target has seeds").filter_map(Result::ok) {
            let seed = std::fs::read(entry.path()).expect("a seed is a file");
            for round in 0..rounds {
                let bytes = changed(&seed, round);
                let outcome = std::panic::catch_unwind(|| target(&bytes));
                assert!(outcome.is_ok(), "{name} is broken by b\"{}\"", bytes.escape_ascii());
            }
        }
    }
}

/// Returns the seed with a few bytes changed, removed, inserted or repeated.
fn changed(seed: &[u8], round: u64) -> Vec<u8> {
    const TELLING: &[u8] = b"\r\n\0\x7f\xff :,;=%[]{}()\"\\'$09aF/*?#.-+\t";
    let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.len() as u64 ^ 0x5851_f42d_4c95_7f2d;
    let mut draw = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % limit.max(1)
    };
    let mut bytes = seed.to_vec();
    for _ in 0..=draw(4) {
        let at = draw(bytes.len());
        match draw(4) {
            0 if !bytes.is_empty() => bytes[at] = TELLING[draw(TELLING.len())],
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 if !bytes.is_empty() => {
                let end = at + draw(bytes.len() - at + 1);
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => bytes.insert(at, TELLING[draw(TELLING.len())]),
        }
    }
    bytes
}
