//! Differential test: random expressions, log formats and conditions on random requests, through Weir and through haproxy; the
//! results must be equal.
//!
//!     weir-bench diff [seed=1] [configs=60] [expressions=100] [requests=20] [show=20] [known=0]
//!
//! Each configuration sets a variable from each expression and answers with all of them in hexadecimal digits. If one of the two
//! programs refuses a line, the refusals are compared and the line is left out. Known differences are counted by their reason
//! ([`known`], `known=N` shows that many of each); any other makes the program exit with 1. The same seed gives the same cases.

mod expression;
mod known;
mod proxy;
mod request;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;

use expression::Case;
use proxy::Peer;

struct Options {
    weir: PathBuf,
    haproxy: PathBuf,
    seed: u64,
    configs: usize,
    expressions: usize,
    requests: usize,
    show: usize,
    known: usize,
}

fn options(words: &[String]) -> Result<Options, String> {
    let mut words = words.iter();
    let mut path =
        |what: &str| words.next().map(PathBuf::from).ok_or(format!("the path of {what} is missing"));
    let (weir, haproxy) = (path("weir")?, path("haproxy")?);
    let mut options =
        Options { weir, haproxy, seed: 1, configs: 60, expressions: 100, requests: 20, show: 20, known: 0 };
    for word in words {
        let (name, value) = word.split_once('=').ok_or(format!("`{word}` is no `name=value`"))?;
        let number: usize = value.parse().map_err(|_| format!("`{value}` is no number"))?;
        match name {
            "seed" => options.seed = number as u64,
            "configs" => options.configs = number,
            "expressions" => options.expressions = number,
            "requests" => options.requests = number,
            "show" => options.show = number,
            "known" => options.known = number,
            _ => {
                return Err(format!("`{name}` is none of seed, configs, expressions, requests, show, known"));
            }
        }
    }
    Ok(options)
}

/// The results of all cases.
#[derive(Default)]
struct Tally {
    compared: usize,
    same: usize,
    with_result: usize,
    refused_by_both: usize,
    newer: usize,
    /// Requests that haproxy did not survive.
    lost: usize,
    /// The number of differences by reason, with the first ones of different expressions.
    known: BTreeMap<&'static str, (usize, Vec<String>)>,
    unexplained: Vec<String>,
    /// Expressions of which a difference has been shown.
    seen: HashSet<String>,
}

impl Tally {
    fn difference(
        &mut self,
        case: &Case,
        text: String,
        reason: impl FnOnce(&Case, &str) -> Option<&'static str>,
    ) {
        match reason(case, &text) {
            Some(reason) => {
                let (count, examples) = self.known.entry(reason).or_default();
                *count += 1;
                if self.seen.insert(case.text().to_owned()) {
                    examples.push(text);
                }
            }
            None if self.seen.insert(case.text().to_owned()) => self.unexplained.push(text),
            None => {}
        }
    }

    fn report(&self, show: usize, known: usize) -> ExitCode {
        println!(
            "{} results compared, {} the same, {} of them of expressions that gave something",
            self.compared, self.same, self.with_result
        );
        println!(
            "{} expressions refused by both, {} that this haproxy does not know yet",
            self.refused_by_both, self.newer
        );
        if self.lost > 0 {
            println!("{} requests left out: haproxy ended without an answer", self.lost);
        }
        for (reason, (count, examples)) in &self.known {
            println!("{count} differences: {reason}");
            examples.iter().take(known).for_each(|text| println!("  {text}"));
        }
        println!("{} expressions with differences not explained", self.unexplained.len());
        for text in self.unexplained.iter().take(show) {
            println!("  {text}");
        }
        if self.unexplained.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs one configuration: determines the lines that both accept, starts both programs, sends the requests.
fn run(options: &Options, peers: &mut [Peer; 2], turn: usize, tally: &mut Tally) -> Result<(), String> {
    let random =
        &mut fastrand::Rng::with_seed(options.seed.wrapping_mul(1_000_003).wrapping_add(turn as u64));
    let mut cases: Vec<Case> = (0..options.expressions).map(|_| Case::new(random)).collect();
    let [weir, haproxy] = peers;
    let (ours, theirs) = (weir.refused(&cases)?, haproxy.refused(&cases)?);
    for (number, case) in cases.iter().enumerate() {
        match (ours.get(&number), theirs.get(&number)) {
            (None, None) => {}
            (Some(_), Some(_)) => tally.refused_by_both += 1,
            (Some(message), None) => {
                let text = format!("only weir refuses `{}`: {message}", case.line(number));
                tally.difference(case, text, |_, text| known::of_refusal(text));
            }
            (None, Some(message)) if message.contains("unknown") => tally.newer += 1,
            (None, Some(message)) => {
                let text = format!("only haproxy refuses `{}`: {message}", case.line(number));
                tally.difference(case, text, |_, text| known::of_refusal(text));
            }
        }
    }
    let mut number = 0;
    cases.retain(|_| {
        number += 1;
        !ours.contains_key(&(number - 1)) && !theirs.contains_key(&(number - 1))
    });
    let count = cases.len();
    let mut ranges = Vec::with_capacity(count);
    for number in 0..count {
        let parts = cases[number].parts();
        ranges.push(cases.len()..cases.len() + parts.len());
        cases.extend(parts);
    }
    weir.start(&cases)?;
    haproxy.start(&cases)?;
    for _ in 0..options.requests {
        let request = request::random(random);
        let ours = weir.ask(&request)?;
        let Ok(theirs) = haproxy.ask(&request) else {
            // haproxy has exited: one of these expressions crashes it, which proves nothing about Weir.
            tally.lost += 1;
            haproxy.start(&cases)?;
            continue;
        };
        let answers = [ours, theirs];
        let result = |number: usize| [0, 1].map(|peer: usize| answers[peer].get(&number));
        for (number, case) in cases.iter().enumerate().take(count) {
            let [ours, theirs] = result(number);
            tally.compared += 1;
            if ours == theirs {
                tally.same += 1;
                tally.with_result += usize::from(ours.is_some());
                continue;
            }
            let bytes = |number| result(number).map(|hex| hex.map(|hex| proxy::bytes(hex)));
            let parts: Vec<_> = ranges[number].clone().map(bytes).collect();
            let culprit = case.culprit(&parts);
            let shown = |value: Option<&String>| value.map_or("nothing".into(), |hex| proxy::readable(hex));
            let text = format!(
                "`{}`: weir {}, haproxy {}, from `{}` on {:?}; request:\n    {}",
                case.text(),
                shown(ours),
                shown(theirs),
                culprit.call.unwrap_or("the end"),
                culprit.text(),
                String::from_utf8_lossy(&request).trim_end().replace("\r\n", "\n    ")
            );
            tally.difference(case, text, |case, _| known::of_result(case, &culprit));
        }
    }
    Ok(())
}

/// Compares the two programs named by the first arguments; `name=value` arguments set numbers.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let options = match options(words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!(
                "weir-bench: {error}\nusage: weir-bench diff [seed=N] [configs=N] [expressions=N] [requests=N] [show=N] [known=N]"
            );
            return ExitCode::from(2);
        }
    };
    let mut tally = Tally::default();
    let mut peers = [Peer::new(&options.weir), Peer::new(&options.haproxy)];
    for turn in 0..options.configs {
        if let Err(error) = run(&options, &mut peers, turn, &mut tally) {
            eprintln!("weir-bench: configuration {turn}: {error}");
            return ExitCode::from(2);
        }
        eprint!("\r{} of {} configurations", turn + 1, options.configs);
    }
    eprintln!();
    tally.report(options.show, options.known)
}
