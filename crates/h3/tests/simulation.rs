//! Two engines connected by streams that fragment and delay data, driven by seeds: every body arrives intact, nothing stalls, and
//! the engines' invariants hold after every step.

mod common;
mod sim;

use sim::Simulation;

/// `WEIR_SEEDS` sets the number of seeds, `WEIR_SEED` a single one.
#[test]
fn exchanges_survive_cuts_delays_cancellations_and_shutdowns() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("WEIR_SEED") {
        Simulation::new(seed).run();
        return;
    }
    let mut finished = 0;
    for seed in 0..number("WEIR_SEEDS").unwrap_or(1000) {
        let outcome = std::panic::catch_unwind(|| Simulation::new(seed).run());
        match outcome {
            Ok(whole) => finished += whole,
            Err(cause) => {
                eprintln!("seed {seed} fails");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(finished > 1000, "most exchanges end well: {finished}");
}
