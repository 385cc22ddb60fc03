//! Differential test of whole exchanges through Weir and through haproxy: random rules, framings, faults and timings. Received
//! messages, log lines and counters must be equal.
//!
//!     weir-bench exchanges [exchanges=300] [seed=1] [from=0] [case=N] [batch=240]
//!                          [at-once=80] [few=16] [show=20] [reduce=1]
//!
//! One configuration holds the frontends and backends of a batch of cases. Cases that differ are repeated with fewer others
//! running, those of several batches together, so that only reproducible differences count, and then minimised (`reduce=0` disables
//! that). `case=N` runs only that case, `from=N` begins there. Intended differences are counted by their reason ([`known`]); any
//! other makes the program exit with 1. The same seed gives the same cases.

mod act;
mod case;
mod compare;
mod hindered;
mod known;
mod message;
mod pair;
mod proxy;
mod random;
mod reduce;
mod streams;
mod tally;
mod traffic;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use case::Case;
use compare::Difference;
use pair::{Pair, Refusal};
use tally::{Tally, described};

struct Options {
    weir: PathBuf,
    haproxy: PathBuf,
    numbers: BTreeMap<String, u64>,
}

const NUMBERS: &[(&str, u64)] = &[
    ("exchanges", 300),
    ("seed", 1),
    ("from", 0),
    ("case", u64::MAX),
    ("batch", 240),
    ("at-once", 80),
    ("few", 16),
    ("show", 20),
    ("reduce", 1),
];

fn options(words: &[String]) -> Result<Options, String> {
    let mut words = words.iter();
    let mut path =
        |what: &str| words.next().map(PathBuf::from).ok_or(format!("the path of {what} is missing"));
    let (weir, haproxy) = (path("weir")?, path("haproxy")?);
    let mut numbers: BTreeMap<String, u64> =
        NUMBERS.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
    for word in words {
        let (name, value) = word.split_once('=').ok_or(format!("`{word}` is no `name=value`"))?;
        let place = numbers.get_mut(name).ok_or(format!("`{name}` is no option"))?;
        *place = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    }
    Ok(Options { weir, haproxy, numbers })
}

impl Options {
    fn number(&self, name: &str) -> usize {
        self.numbers.get(name).copied().unwrap_or_default() as usize
    }
}

/// A case that differed once.
struct Doubtful {
    number: u64,
    case: Case,
    differences: Vec<Difference>,
}

/// Runs one batch: omits refused cases, runs the rest, and returns differences without a known reason.
fn run(options: &Options, pair: &Pair, numbers: &[u64], tally: &mut Tally) -> Result<Vec<Doubtful>, String> {
    let show = options.number("show");
    let all: Vec<(u64, Case)> = numbers
        .iter()
        .map(|number| (*number, random::case(options.number("seed") as u64, *number)))
        .collect();
    let refusals = pair.refusals(&all.iter().map(|(_, case)| case).collect::<Vec<_>>())?;
    let mut cases = Vec::new();
    for ((number, case), refusal) in all.into_iter().zip(refusals) {
        let (who, said) = match refusal {
            None => {
                cases.push((number, case));
                continue;
            }
            Some(Refusal::Both) => {
                tally.refused += 1;
                continue;
            }
            Some(Refusal::Weir(said)) => ("weir", said),
            Some(Refusal::Haproxy(said)) => ("haproxy", said),
        };
        let alert = said.lines().find(|line| line.contains("ALERT")).unwrap_or_default();
        let alert = alert.rsplit(" : ").next().unwrap_or_default().to_owned();
        let shape = format!("only {who} refuses: {alert}");
        if tally.unexplained(&shape, show) {
            println!("\n==== {shape}\ncase={number}\n{case}{said}");
        }
    }
    let found =
        pair.run(&cases.iter().map(|(_, case)| case).collect::<Vec<_>>(), options.number("at-once"))?;
    tally.compared += cases.len();
    let mut doubtful = Vec::new();
    for ((number, case), differences) in cases.into_iter().zip(found) {
        if differences.is_empty() {
            tally.same += 1;
        } else if !tally.explains(&case, &mut differences.clone()) {
            doubtful.push(Doubtful { number, case, differences });
        }
    }
    Ok(doubtful)
}

/// How many cases are minimised at the same time.
const AT_ONCE: usize = 4;

/// Repeats cases that differed twice, with fewer and fewer others running. A difference that appears only sometimes is one of
/// timing; only reproducible ones count.
fn again(
    options: &Options,
    pair: &Pair,
    mut doubtful: Vec<Doubtful>,
    tally: &mut Tally,
) -> Result<(), String> {
    let show = options.number("show");
    let few = options.number("few").max(1);
    for at_once in [few, few.div_ceil(4)] {
        if doubtful.is_empty() {
            break;
        }
        let cases: Vec<&Case> = doubtful.iter().map(|one| &one.case).collect();
        let found = pair.run(&cases, at_once)?;
        let mut left = Vec::new();
        for (Doubtful { number, case, differences }, mut steady) in doubtful.into_iter().zip(found) {
            // The explanation of one difference may also cover another one that did not appear before.
            if tally.explains(&case, &mut steady) {
                continue;
            }
            steady.retain(|one| differences.iter().any(|known| known.place == one.place));
            if steady.is_empty() {
                tally.unsteady += 1;
            } else {
                left.push(Doubtful { number, case, differences: steady });
            }
        }
        doubtful = left;
    }
    let mut new = Vec::new();
    for one in doubtful {
        let shape = one.differences[0].shape();
        if tally.unexplained(&shape, show) {
            new.push((shape, one));
        }
    }
    for some in new.chunks_mut(AT_ONCE) {
        if options.number("reduce") == 1 {
            reduce(pair, some);
        }
        for (shape, Doubtful { number, case, differences }) in some {
            println!("\n==== {shape}\n{}", described(*number, case, differences));
        }
    }
    Ok(())
}

/// Minimises several cases at the same time.
fn reduce(pair: &Pair, some: &mut [(String, Doubtful)]) {
    std::thread::scope(|scope| {
        for (_, one) in some {
            scope.spawn(|| match pair.reduce(&one.case, &one.differences) {
                Ok((case, differences)) => (one.case, one.differences) = (case, differences),
                Err(error) => eprintln!("\ncase {} stays as it is: {error}", one.number),
            });
        }
    });
}

fn run_all(options: &Options, numbers: &[u64], tally: &mut Tally) -> Result<(), String> {
    let pair = Pair::new(&options.weir, &options.haproxy)?;
    let size = options.number("batch").max(1);
    let mut doubtful = Vec::new();
    for (turn, batch) in numbers.chunks(size).enumerate() {
        let failed = |error| format!("cases {} to {}: {error}", batch[0], batch[batch.len() - 1]);
        doubtful.extend(run(options, &pair, batch, tally).map_err(failed)?);
        let done = turn * size + batch.len();
        eprint!("\r{done} of {} exchanges", numbers.len());
        if doubtful.len() >= size / 2 || done == numbers.len() {
            again(options, &pair, std::mem::take(&mut doubtful), tally)?;
        }
    }
    eprintln!();
    Ok(())
}

/// Compares the two programs named by the first arguments; `name=value` arguments set numbers.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let options = match options(words) {
        Ok(options) => options,
        Err(error) => {
            let names: Vec<&str> = NUMBERS.iter().map(|(name, _)| *name).collect();
            eprintln!("weir-bench: {error}\nusage: weir-bench exchanges [{}=N]", names.join("=N] ["));
            return ExitCode::from(2);
        }
    };
    let only = options.numbers.get("case").copied().filter(|number| *number != u64::MAX);
    let from = options.number("from") as u64;
    let numbers: Vec<u64> = match only {
        Some(number) => vec![number],
        None => (from..from + options.number("exchanges") as u64).collect(),
    };
    let mut tally = Tally::default();
    if let Err(error) = run_all(&options, &numbers, &mut tally) {
        eprintln!("\nweir-bench: {error}");
        return ExitCode::from(2);
    }
    tally.report()
}
