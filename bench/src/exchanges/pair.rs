//! Runs both programs: compares their results for each case, finds the cases they refuse, and minimises cases that differ.

use std::collections::BTreeSet;
use std::path::Path;

use crate::exchanges::case::Case;
use crate::exchanges::compare::{self, Difference};
use crate::exchanges::proxy::{Program, Said};
use crate::exchanges::reduce;

/// How many variants run at once while a case is minimised, which consists mostly of waiting.
const MANY: usize = 120;
/// Maximum number of reduction rounds for a case.
const ROUNDS: usize = 8;

pub(crate) struct Pair {
    weir: Program,
    haproxy: Program,
}

/// Which program refuses a case, and its message.
pub(crate) enum Refusal {
    Both,
    Weir(String),
    Haproxy(String),
}

impl Pair {
    pub(crate) fn new(weir: &Path, haproxy: &Path) -> Result<Self, String> {
        Ok(Self { weir: Program::new(weir, "weir")?, haproxy: Program::new(haproxy, "haproxy")? })
    }

    /// Returns the differences for each of the cases. Both programs run at the same time, so that the machine affects them equally.
    pub(crate) fn run(&self, cases: &[&Case], at_once: usize) -> Result<Vec<Vec<Difference>>, String> {
        let (ours, theirs) = std::thread::scope(|scope| {
            let ours = scope.spawn(|| self.weir.run(cases, at_once));
            let theirs = self.haproxy.run(cases, at_once);
            (ours.join().unwrap_or_else(|_| Err("a thread panicked".into())), theirs)
        });
        if ours.is_err() || theirs.is_err() {
            return self.run_halves(cases, at_once, [ours.err(), theirs.err()]);
        }
        let (ours, theirs) = (ours?, theirs?);
        let outcomes = cases.iter().zip(ours.iter().zip(&theirs));
        Ok(outcomes.map(|(case, (ours, theirs))| compare::differences(case, ours, theirs)).collect())
    }

    /// If a program crashes, searches for the case that causes it.
    fn run_halves(
        &self,
        cases: &[&Case],
        at_once: usize,
        errors: [Option<String>; 2],
    ) -> Result<Vec<Vec<Difference>>, String> {
        if let [_] = cases {
            let [weir, haproxy] = errors.map(Option::unwrap_or_default);
            return Ok(vec![vec![Difference { place: "the program".into(), weir, haproxy }]]);
        }
        let (one, other) = cases.split_at(cases.len() / 2);
        let mut all = self.run(one, at_once)?;
        all.extend(self.run(other, at_once)?);
        Ok(all)
    }

    /// Minimises a case while it still differs in the same way.
    pub(crate) fn reduce(
        &self,
        case: &Case,
        differences: &[Difference],
    ) -> Result<(Case, Vec<Difference>), String> {
        let (mut case, mut differences) = (case.clone(), differences.to_vec());
        let shape = differences.first().map(Difference::shape).unwrap_or_default();
        for _ in 0..ROUNDS {
            let mut candidates = reduce::smaller(&case);
            // A line may depend on another one.
            let refused = self.refusals(&candidates.iter().collect::<Vec<_>>())?;
            let mut refused = refused.iter();
            candidates.retain(|_| refused.next().is_some_and(Option::is_none));
            if candidates.is_empty() {
                break;
            }
            let results = self.run(&candidates.iter().collect::<Vec<_>>(), MANY)?;
            let found =
                results.into_iter().zip(&candidates).find(|(found, _)| reduce::is_same(&shape, found));
            let Some((found, one)) = found else { break };
            (case, differences) = (one.clone(), found);
        }
        Ok((case, differences))
    }

    /// Returns which of the cases are refused. All are checked in one configuration; cases named in a message are then checked
    /// separately, and the rest together again.
    pub(crate) fn refusals(&self, cases: &[&Case]) -> Result<Vec<Option<Refusal>>, String> {
        let mut refusals: Vec<Option<Refusal>> = cases.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..cases.len()).collect();
        loop {
            let some: Vec<&Case> = left.iter().map(|place| cases[*place]).collect();
            let mut suspects = BTreeSet::new();
            let mut is_clean = true;
            for program in [&self.weir, &self.haproxy] {
                if let Some(said) = program.refusal(&some)? {
                    is_clean = false;
                    suspects.extend(said.named.iter().filter_map(|number| left.get(*number)).copied());
                }
            }
            if is_clean {
                return Ok(refusals);
            }
            if suspects.is_empty() {
                // The message names no case.
                suspects.extend(left.iter().copied());
            }
            for place in &suspects {
                refusals[*place] = self.refusal(cases[*place])?;
            }
            let count = left.len();
            left.retain(|place| refusals[*place].is_none() && !suspects.contains(place));
            if left.len() == count || left.is_empty() {
                return Ok(refusals);
            }
        }
    }

    fn refusal(&self, case: &Case) -> Result<Option<Refusal>, String> {
        let said =
            |program: &Program| Ok::<_, String>(program.refusal(&[case])?.map(|Said { text, .. }| text));
        Ok(match (said(&self.weir)?, said(&self.haproxy)?) {
            (None, None) => None,
            (Some(_), Some(_)) => Some(Refusal::Both),
            (Some(said), None) => Some(Refusal::Weir(said)),
            (None, Some(said)) => Some(Refusal::Haproxy(said)),
        })
    }
}
