//! Conditions (manual, 7.2), which follow `if` and `unless`: ACLs joined by AND, OR and negation.

use diag::Diagnostic;

use crate::acl::{self, Criterion};
use crate::env::Env;
use crate::named_acls::{Acl, FAIL, MISS, PASS, Predicate, single};
use crate::scope::Scope;
use crate::word_cursor::{Word, Words};

/// The result of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// The condition does not hold.
    No,
    /// Not decided until more bytes arrive.
    Wait,
    /// The condition is true.
    Yes,
}

/// A condition: alternatives, each of which is a list of terms that must all be true.
#[derive(Debug)]
pub struct Condition {
    alternatives: Box<[Box<[Term]>]>,
    unless: bool,
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
        let terms = names.map(|name| {
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
        Ok(Self { alternatives: [terms.into()].into(), unless: false })
    }

    fn parse(words: &mut Words<'_>, scope: &Scope<'_>, unless: bool) -> Result<Self, Diagnostic> {
        let start = words.span();
        let mut alternatives: Vec<Box<[Term]>> = Vec::new();
        let mut terms = Vec::new();
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
            terms.push(term(word, words, scope)?);
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
        Ok(Self { alternatives: alternatives.into(), unless })
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
        match result {
            PASS => Test::Yes,
            FAIL => Test::No,
            _ => Test::Wait,
        }
    }
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
