//! Conditions (manual, 7.2), which follow `if` and `unless`: ACLs joined by AND, OR and negation.

use diag::Diagnostic;

use crate::acl::{self, Criterion};
use crate::env::Env;
use crate::explained::{ExplainedCondition, ExplainedTerm};
use crate::named_acls::{Acl, Predicate, single};
use crate::outcome::{FAIL, MISS, PASS};
use crate::scope::Scope;
use crate::word_cursor::{Word, Words};

pub use crate::outcome::Test;

/// A condition: alternatives, each of which is a list of terms that must all be true.
#[derive(Debug)]
pub struct Condition {
    alternatives: Box<[Box<[Term]>]>,
    unless: bool,
    /// The terms as configured, in order. Boxed once more, because only explanations read them.
    #[allow(clippy::box_collection)]
    texts: Box<Vec<Box<str>>>,
}

#[derive(Debug)]
struct Term {
    negated: bool,
    acl: Acl,
}

impl Condition {
    /// Compiles the rest of `words`, which follow `if`.
    pub fn compile(words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Self, Diagnostic> {
        Self::parse(words, scope, false)
    }

    /// Compiles an `if …` or `unless …` at the end of a line. Returns `None` if no word is left. Other words are an error.
    pub fn compile_optional(words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Option<Self>, Diagnostic> {
        let Some(word) = words.peek() else { return Ok(None) };
        match word.text {
            "if" | "unless" => {
                words.next();
                Self::parse(words, scope, word.text == "unless").map(Some)
            }
            other => {
                Err(Diagnostic::alert(format!("unexpected `{other}`; only `if` or `unless` may follow"))
                    .at(word.span))
            }
        }
    }

    /// The conjunction of the named ACLs, each optionally prefixed with `!` (the fetch `acl`).
    pub fn of_names(names: impl Iterator<Item = String>, scope: &Scope<'_>) -> Result<Self, String> {
        let mut texts = Vec::new();
        let terms = names.map(|name| {
            texts.push(name.as_str().into());
            let bare = name.trim_start_matches('!');
            let negated = (name.len() - bare.len()) % 2 == 1;
            let acl = scope.acls.get(bare).map_or_else(
                || {
                    let word = Word { text: bare, span: diag::Span::default() };
                    acl::resolve(word, scope).map_err(|error| error.message)
                },
                Ok,
            )?;
            Ok(Term { negated, acl: acl::tested(acl, scope) })
        });
        let terms: Vec<Term> = terms.collect::<Result<_, String>>()?;
        Ok(Self { alternatives: [terms.into()].into(), unless: false, texts: texts.into() })
    }

    fn parse(words: &mut Words<'_>, scope: &Scope<'_>, unless: bool) -> Result<Self, Diagnostic> {
        let start = words.span();
        let mut alternatives: Vec<Box<[Term]>> = Vec::new();
        let (mut terms, mut texts) = (Vec::new(), Vec::new());
        while let Some(word) = words.next() {
            if matches!(word.text, "or" | "OR" | "||") {
                if terms.is_empty() {
                    return Err(
                        Diagnostic::alert(format!("missing ACL before `{}`", word.text)).at(word.span)
                    );
                }
                alternatives.push(std::mem::take(&mut terms).into());
                continue;
            }
            let before = words.clone();
            terms.push(term(word, words, scope)?);
            texts.push(text_of(word, &before, words));
        }
        if terms.is_empty() {
            let message = if alternatives.is_empty() {
                "missing ACL in the condition"
            } else {
                "missing ACL after the last `or`"
            };
            return Err(Diagnostic::alert(message).at(start));
        }
        alternatives.push(terms.into());
        Ok(Self { alternatives: alternatives.into(), unless, texts: texts.into() })
    }

    /// Evaluates the condition.
    #[inline]
    pub fn eval(&self, env: &Env<'_>) -> Test {
        let mut result = FAIL;
        for terms in &self.alternatives {
            result |= all(terms, env);
            if result == PASS {
                break;
            }
        }
        let result = if self.unless { negate(result) } else { result };
        test_of(result)
    }
}

impl Condition {
    /// Evaluates the condition, and returns the result of each term that decides it. Terms after the decision are not evaluated.
    /// A term with side effects is evaluated only if `is_live` is set; otherwise, it counts as false.
    pub fn explain(&self, env: &Env<'_>, is_live: bool) -> ExplainedCondition {
        let mut result = FAIL;
        let (mut terms, mut texts) = (Vec::new(), self.texts.iter());
        for (number, alternative) in self.alternatives.iter().enumerate() {
            let texts: Vec<&str> = texts.by_ref().take(alternative.len()).map(|text| &**text).collect();
            if result == PASS {
                break;
            }
            let mut all = PASS;
            for (place, (term, text)) in alternative.iter().zip(texts).enumerate() {
                let (one, mut explained) = term.explain(text, env, is_live);
                explained.begins_alternative = number > 0 && place == 0;
                terms.push(explained);
                all &= one;
                if all == FAIL {
                    break;
                }
            }
            result |= all;
        }
        let result = if self.unless { negate(result) } else { result };
        ExplainedCondition { test: test_of(result), unless: self.unless, terms }
    }
}

impl Term {
    fn explain(&self, text: &str, env: &Env<'_>, is_live: bool) -> (u8, ExplainedTerm) {
        let (mut result, mut tests) = (FAIL, Vec::new());
        for criterion in self.acl.iter() {
            let explained = criterion.explain(env, is_live);
            result |= explained.result;
            tests.push(explained);
            if result == PASS {
                break;
            }
        }
        let result = if self.negated { negate(result) } else { result };
        let test = test_of(result);
        (result, ExplainedTerm { text: text.into(), test, tests, begins_alternative: false })
    }
}

fn test_of(result: u8) -> Test {
    match result {
        PASS => Test::Yes,
        FAIL => Test::No,
        _ => Test::Wait,
    }
}

/// The words of a term: the first one, and those that were taken from `before` to get to `after`.
fn text_of(first: Word<'_>, before: &Words<'_>, after: &Words<'_>) -> Box<str> {
    let taken = before.rest().len() - after.rest().len();
    let mut text = first.text.to_owned();
    for word in &before.rest()[..taken] {
        text.push(' ');
        text.push_str(word.text);
    }
    text.into()
}

impl Predicate for Condition {
    fn holds(&self, env: &Env<'_>) -> bool {
        self.eval(env) == Test::Yes
    }
}

/// Parses a term: a name or `{ … }`, optionally after `!`.
fn term(first: Word<'_>, words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Term, Diagnostic> {
    let mut word = first;
    let mut negated = false;
    loop {
        let bare = word.text.trim_start_matches('!');
        negated ^= (word.text.len() - bare.len()) % 2 == 1;
        if !bare.is_empty() {
            word.text = bare;
            break;
        }
        word = words.next().ok_or_else(|| Diagnostic::alert("missing ACL after `!`").at(first.span))?;
    }
    if word.text != "{" {
        let acl = acl::resolve(word, scope)?;
        acl::warn(&acl, Some(word.text), word.span, scope);
        return Ok(Term { negated, acl: acl::tested(acl, scope) });
    }
    let inner = words.rest();
    let Some(length) = inner.iter().position(|word| word.text == "}") else {
        return Err(Diagnostic::alert("the anonymous ACL has no closing brace")
            .at(word.span)
            .help("separate the braces with spaces: `{ path_beg /x }`"));
    };
    let end = inner[length].span;
    let mut criterion = Words::new(&inner[..length], end);
    let compiled = Criterion::compile(&mut criterion, scope)?;
    for _ in 0..=length {
        words.next();
    }
    let acl = single(compiled);
    acl::warn(&acl, None, word.span, scope);
    Ok(Term { negated, acl: acl::tested(acl, scope) })
}

fn negate(result: u8) -> u8 {
    PASS >> result
}

fn all(terms: &[Term], env: &Env<'_>) -> u8 {
    let mut result = PASS;
    for term in terms {
        let mut one = FAIL;
        for criterion in term.acl.iter() {
            one |= criterion.test(env);
            if one == PASS {
                break;
            }
        }
        result &= if term.negated { negate(one) } else { one };
        if result == FAIL {
            break;
        }
    }
    result
}

const _: () = assert!(PASS >> FAIL == PASS && PASS >> MISS == MISS && PASS >> PASS == FAIL);
