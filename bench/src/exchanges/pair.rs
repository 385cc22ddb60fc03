//! Both programs side by side: what each case comes to in one and in the other, which cases they
//! refuse, and a case cut down to what makes it differ.

use std::collections::BTreeSet;
use std::path::Path;

use crate::exchanges::case::Case;
use crate::exchanges::compare::{self, Difference};
use crate::exchanges::proxy::{Program, Said};
use crate::exchanges::reduce;

/// How many cases stand beside each other when one is cut down, where most of the time is waiting.
const MANY: usize = 120;
/// How often a case is cut down at most.
const ROUNDS: usize = 8;

pub(crate) struct Pair {
    weir: Program,
    haproxy: Program,
}

/// Who refuses a case, and what it says.
pub(crate) enum Refusal {
    Both,
    Weir(String),
    Haproxy(String),
}

impl Pair {
    pub(crate) fn new(weir: &Path, haproxy: &Path) -> Result<Self, String> {
        Ok(Self { weir: Program::new(weir, "weir")?, haproxy: Program::new(haproxy, "haproxy")? })
    }

    /// What differs, for each of the cases. Both run at the same time, so that the machine treats
    /// them alike.
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

    /// Where a program came to its end by itself: looks for the case that ended it.
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

    /// Cuts a case down as long as it differs in the same way.
    pub(crate) fn reduce(
        &self,
        case: &Case,
        differences: &[Difference],
    ) -> Result<(Case, Vec<Difference>), String> {
        let (mut case, mut differences) = (case.clone(), differences.to_vec());
        let shape = differences.first().map(Difference::shape).unwrap_or_default();
        for _ in 0..ROUNDS {
            let mut candidates = reduce::smaller(&case);
            // A line may need another one.
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

    /// Which of the cases are refused. Asked for all of them in one configuration; those that a
    /// complaint names are then asked for alone, and the rest together again.
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
                // Nobody is named.
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
