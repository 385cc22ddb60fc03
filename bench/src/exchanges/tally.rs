//! Results of all cases: counts, and each shape of a difference once.

use std::collections::BTreeMap;
use std::process::ExitCode;

use crate::exchanges::case::Case;
use crate::exchanges::compare::Difference;
use crate::exchanges::known;

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) compared: usize,
    pub(crate) same: usize,
    pub(crate) refused: usize,
    pub(crate) unsteady: usize,
    known: BTreeMap<&'static str, usize>,
    /// Number of cases by the shape of the first difference.
    unexplained: BTreeMap<String, usize>,
}

impl Tally {
    /// Counts a difference. Returns whether it is the first of its shape, and among the `show` that are displayed.
    pub(crate) fn unexplained(&mut self, shape: &str, show: usize) -> bool {
        let is_shown = !self.unexplained.contains_key(shape) && self.unexplained.len() < show;
        *self.unexplained.entry(shape.to_owned()).or_default() += 1;
        is_shown
    }

    /// Removes known differences; returns whether none is left.
    pub(crate) fn explains(&mut self, case: &Case, differences: &mut Vec<Difference>) -> bool {
        let reasons = known::take(case, differences);
        if differences.is_empty() {
            reasons.iter().for_each(|why| *self.known.entry(why).or_default() += 1);
        }
        differences.is_empty()
    }

    pub(crate) fn report(&self) -> ExitCode {
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

/// Describes a case and its differences for people.
pub(crate) fn described(number: u64, case: &Case, differences: &[Difference]) -> String {
    let mut text = format!("case={number}\n{case}");
    for one in differences {
        let indented = |text: &str| text.replace('\n', "\n        ");
        let (place, weir, haproxy) = (&one.place, indented(&one.weir), indented(&one.haproxy));
        text.push_str(&format!("{place}\n    weir    {weir}\n    haproxy {haproxy}\n"));
    }
    text
}
