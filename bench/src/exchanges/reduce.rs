//! Minimises a case that differs while it still differs in the same place: removes a line, a step, a server's response, a client.

use crate::exchanges::case::{Case, Step};
use crate::exchanges::compare::Difference;

/// Returns the case without each one of its parts; variants without large parts come first.
pub(crate) fn smaller(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Case)| {
        let mut one = case.clone();
        change(&mut one);
        if one != *case {
            all.push(one);
        }
    };
    // A client's initial pause stays, because without it the order of clients would depend on chance.
    let without_pauses = |one: &mut Case| {
        for steps in &mut one.clients {
            let mut place = 0;
            steps.retain(|step| {
                place += 1;
                place == 1 || !matches!(step, Step::Pause(_))
            });
        }
    };
    with(&|one| {
        one.front.clear();
        one.back.clear();
        one.clients.truncate(1);
    });
    with(&|one| {
        one.front.clear();
        one.back.clear();
    });
    with(&|one| one.back.clear());
    with(&|one| one.front.clear());
    with(&|one| one.clients.truncate(1));
    with(&|one| {
        one.servers.truncate(1);
        one.servers[0].answers.truncate(1);
    });
    with(&|one| one.clients.iter_mut().for_each(|steps| steps.truncate(2)));
    with(&without_pauses);
    for place in 0..case.front.len() {
        with(&|one| drop(one.front.remove(place)));
    }
    for place in 0..case.back.len() {
        with(&|one| drop(one.back.remove(place)));
    }
    for place in (0..case.servers.len()).filter(|_| case.servers.len() > 1) {
        with(&|one| drop(one.servers.remove(place)));
    }
    for place in (0..case.clients.len()).filter(|_| case.clients.len() > 1) {
        with(&|one| drop(one.clients.remove(place)));
    }
    for (place, server) in case.servers.iter().enumerate() {
        if !server.parameters.is_empty() {
            with(&|one| one.servers[place].parameters.clear());
        }
        for turn in (0..server.answers.len()).filter(|_| server.answers.len() > 1) {
            with(&|one| drop(one.servers[place].answers.remove(turn)));
        }
        for (turn, answer) in server.answers.iter().enumerate() {
            for step in 0..answer.steps.len() {
                with(&|one| drop(one.servers[place].answers[turn].steps.remove(step)));
            }
        }
    }
    for (place, steps) in case.clients.iter().enumerate() {
        let first = usize::from(matches!(steps.first(), Some(Step::Pause(_))));
        for step in first..steps.len() {
            with(&|one| drop(one.clients[place].remove(step)));
        }
    }
    all
}

/// Returns whether one of `found` is the difference with that shape.
pub(crate) fn is_same(shape: &str, found: &[Difference]) -> bool {
    found.iter().any(|one| one.shape() == shape)
}
