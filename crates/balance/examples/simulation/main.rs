//! Prints the results of each algorithm in each scenario, in virtual time: `make bench BENCH=balance`.
//!
//! The numbers depend only on the seed and the model, not on the machine. They only serve to compare algorithms.

#![allow(missing_docs, unreachable_pub)]

// Tests look at the shares of the servers.
#[allow(dead_code)]
mod model;
mod scenarios;

fn main() {
    println!(
        "| scenario | algorithm | requests/s | errors/s | picking, % of CPU | p50, ms | p99, ms | p99.9, ms |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for scenario in scenarios::all() {
        for (name, algorithm) in scenarios::ALGORITHMS {
            let run =
                model::Simulation::new(scenario.machine, &scenario.origins, scenario.load, algorithm(), 1);
            let outcome = run.run(scenario.warm, scenario.length);
            let [p50, p99, p999] = outcome.latency.map(|us| us as f64 / 1000.0);
            println!(
                "| {} | {name} | {:.0} | {:.0} | {:.2} | {p50:.2} | {p99:.2} | {p999:.2} |",
                scenario.name, outcome.rate, outcome.errors, outcome.picking
            );
        }
    }
}
