//! Whole exchanges through Weir and through haproxy: random rules, framings, faults and timings. What clients and servers
//! receive, the log lines and the counters must be the same.
//!
//!     weir-exchanges WEIR HAPROXY [exchanges=300] [seed=1] [case=N] [batch=60] [at-once=12] [show=20] [reduce=1] [known=0]
//!
//! One configuration holds the frontends and backends of a batch of cases. A case that differs is tried again with fewer
//! others beside it, so that only what differs every time counts, and then cut down to what makes it differ (`reduce=0`
//! leaves it as it is). `case=N` runs that case alone. Differences that are meant are counted by their reason ([`known`]);
//! any other ends the program with 1. The same seed gives the same cases.

mod act;
mod case;
mod compare;
mod known;
mod message;
mod proxy;
mod random;
mod reduce;
mod traffic;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use case::Case;
use compare::Difference;
use proxy::Program;

/// How many cases stand beside each other when a difference is tried again.
const FEW: usize = 4;
/// And when a case is cut down, where most of the time is waiting.
const MANY: usize = 40;
/// How often a case is cut down at most.
const ROUNDS: usize = 8;

struct Options {
    weir: PathBuf,
    haproxy: PathBuf,
    numbers: BTreeMap<String, u64>,
}

const NUMBERS: &[(&str, u64)] = &[
    ("exchanges", 300),
    ("seed", 1),
    ("case", u64::MAX),
    ("batch", 60),
    ("at-once", 12),
    ("show", 20),
    ("reduce", 1),
    ("known", 0),
];

fn options() -> Result<Options, String> {
    let mut words = std::env::args().skip(1);
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

/// Both programs.
struct Pair {
    weir: Program,
    haproxy: Program,
}

impl Pair {
    fn new(weir: &Path, haproxy: &Path) -> Result<Self, String> {
        Ok(Self { weir: Program::new(weir, "weir")?, haproxy: Program::new(haproxy, "haproxy")? })
    }

    /// What differs, for each of the cases.
    fn run(&self, cases: &[&Case], at_once: usize) -> Result<Vec<Vec<Difference>>, String> {
        let ours = self.weir.run(cases, at_once)?;
        let theirs = self.haproxy.run(cases, at_once)?;
        let outcomes = cases.iter().zip(ours.iter().zip(&theirs));
        Ok(outcomes.map(|(case, (ours, theirs))| compare::differences(case, ours, theirs)).collect())
    }

    /// Cuts a case down as long as it differs in the same way.
    fn reduce(&self, case: &Case, differences: &[Difference]) -> Result<(Case, Vec<Difference>), String> {
        let (mut case, mut differences) = (case.clone(), differences.to_vec());
        let shape = differences.first().map(Difference::shape).unwrap_or_default();
        for _ in 0..ROUNDS {
            let mut candidates = reduce::smaller(&case);
            if candidates.is_empty() {
                break;
            }
            let mut results = self.run(&candidates.iter().collect::<Vec<_>>(), MANY);
            if results.is_err() {
                // A line may need another one.
                candidates.retain(|one| self.refusal(one).is_ok_and(|refused| refused.is_none()));
                results = self.run(&candidates.iter().collect::<Vec<_>>(), MANY);
            }
            let results = results?;
            let found =
                results.into_iter().zip(&candidates).find(|(found, _)| reduce::is_same(&shape, found));
            let Some((found, one)) = found else { break };
            (case, differences) = (one.clone(), found);
        }
        Ok((case, differences))
    }

    /// What one of the two says against a case, and which.
    fn refusal(&self, case: &Case) -> Result<Option<(&'static str, String)>, String> {
        let (ours, theirs) = (self.weir.refusal(case)?, self.haproxy.refusal(case)?);
        Ok(match (ours, theirs) {
            (None, None) => None,
            (Some(_), Some(said)) => Some(("both", said)),
            (Some(said), None) => Some(("weir", said)),
            (None, Some(said)) => Some(("haproxy", said)),
        })
    }
}

/// What came of all cases.
#[derive(Default)]
struct Tally {
    compared: usize,
    same: usize,
    refused: usize,
    unsteady: usize,
    known: BTreeMap<&'static str, usize>,
    /// How many by the shape of the first difference.
    unexplained: BTreeMap<String, usize>,
}

impl Tally {
    /// Counts a difference; the first of its shape is shown at once.
    fn unexplained(&mut self, shape: String, show: usize, text: impl FnOnce() -> String) {
        if !self.unexplained.contains_key(&shape) && self.unexplained.len() < show {
            println!("\n==== {shape}\n{}", text());
        }
        *self.unexplained.entry(shape).or_default() += 1;
    }

    /// Takes out what is known; whether nothing is left.
    fn explains(&mut self, case: &Case, differences: &mut Vec<Difference>) -> bool {
        let reasons = known::take(case, differences);
        if differences.is_empty() {
            reasons.iter().for_each(|why| *self.known.entry(why).or_default() += 1);
        }
        differences.is_empty()
    }

    fn report(&self) -> ExitCode {
        println!("{} exchanges compared, {} the same", self.compared, self.same);
        println!(
            "{} configurations refused by both, {} differences not seen again",
            self.refused, self.unsteady
        );
        for (why, count) in &self.known {
            println!("{count} differences: {why}");
        }
        let count: usize = self.unexplained.values().sum();
        println!("{count} exchanges with differences not explained, of {} shapes", self.unexplained.len());
        let mut shapes: Vec<_> = self.unexplained.iter().collect();
        shapes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (shape, count) in shapes {
            println!("{count:6} {shape}");
        }
        if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn described(number: u64, case: &Case, differences: &[Difference]) -> String {
    let mut text = format!("case={number}\n{case}");
    for one in differences {
        let indented = |text: &str| text.replace('\n', "\n        ");
        let (place, weir, haproxy) = (&one.place, indented(&one.weir), indented(&one.haproxy));
        text.push_str(&format!("{place}\n    weir    {weir}\n    haproxy {haproxy}\n"));
    }
    text
}

/// One batch: leaves out what is refused, carries out the rest, looks at differences again.
fn run(options: &Options, pair: &Pair, numbers: &[u64], tally: &mut Tally) -> Result<(), String> {
    let seed = options.number("seed") as u64;
    let show = options.number("show");
    let mut cases = Vec::new();
    for number in numbers {
        let case = random::case(seed, *number);
        match pair.refusal(&case)? {
            None => cases.push((*number, case)),
            Some(("both", _)) => tally.refused += 1,
            Some((who, said)) => {
                let alert = said.lines().find(|line| line.contains("ALERT")).unwrap_or_default();
                let alert = alert.rsplit(" : ").next().unwrap_or_default().to_owned();
                let shape = format!("only {who} refuses: {alert}");
                tally.unexplained(shape, show, || format!("case={number}\n{case}{said}"));
            }
        }
    }
    let all: Vec<&Case> = cases.iter().map(|(_, case)| case).collect();
    let first = pair.run(&all, options.number("at-once"))?;
    tally.compared += all.len();
    let differ: Vec<usize> = (0..all.len()).filter(|place| !first[*place].is_empty()).collect();
    tally.same += all.len() - differ.len();
    if differ.is_empty() {
        return Ok(());
    }
    let again = pair.run(&differ.iter().map(|place| all[*place]).collect::<Vec<_>>(), FEW)?;
    for (place, differences) in differ.into_iter().zip(again) {
        let (number, case) = &cases[place];
        // A difference that shows only now and then is one of timing; what counts shows both times.
        let mut steady = differences;
        steady.retain(|one| first[place].iter().any(|known| known.place == one.place));
        if steady.is_empty() {
            tally.unsteady += 1;
            continue;
        }
        if tally.explains(case, &mut steady) {
            continue;
        }
        let shape = steady[0].shape();
        let is_new = !tally.unexplained.contains_key(&shape) && tally.unexplained.len() < show;
        let (case, steady) = match options.number("reduce") {
            1 if is_new => pair.reduce(case, &steady)?,
            _ => (case.clone(), steady),
        };
        tally.unexplained(shape, show, || described(*number, &case, &steady));
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            let names: Vec<&str> = NUMBERS.iter().map(|(name, _)| *name).collect();
            eprintln!(
                "weir-exchanges: {error}\nusage: weir-exchanges WEIR HAPROXY [{}=N]",
                names.join("=N] [")
            );
            return ExitCode::from(2);
        }
    };
    let mut tally = Tally::default();
    let only = options.numbers.get("case").copied().filter(|number| *number != u64::MAX);
    let numbers: Vec<u64> = match only {
        Some(number) => vec![number],
        None => (0..options.number("exchanges") as u64).collect(),
    };
    let pair = match Pair::new(&options.weir, &options.haproxy) {
        Ok(pair) => pair,
        Err(error) => {
            eprintln!("weir-exchanges: {error}");
            return ExitCode::from(2);
        }
    };
    let mut done = 0;
    for batch in numbers.chunks(options.number("batch").max(1)) {
        if let Err(error) = run(&options, &pair, batch, &mut tally) {
            eprintln!("\nweir-exchanges: cases {} to {}: {error}", batch[0], batch[batch.len() - 1]);
            return ExitCode::from(2);
        }
        done += batch.len();
        eprint!("\r{done} of {} exchanges", numbers.len());
    }
    eprintln!();
    tally.report()
}
