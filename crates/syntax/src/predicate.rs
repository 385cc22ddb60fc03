//! The predicates of conditions (manual, section 2.4): one table, and the functions.

use crate::environment::Environment;
use crate::predicates::ProgramFacts;
use crate::version::Version;

/// A predicate.
pub(crate) struct Predicate {
    pub(crate) name: &'static str,
    /// The type of each argument, as HAProxy names it.
    pub(crate) arguments: &'static [&'static str],
    /// Evaluates the predicate; an error contains the index of the wrong argument and a description.
    pub(crate) evaluate: Evaluate,
}

type Evaluate = fn(&ProgramFacts, &Environment, &[&str]) -> Result<bool, (usize, String)>;

const S: &str = "string";

const fn row(name: &'static str, arguments: &'static [&'static str], evaluate: Evaluate) -> Predicate {
    Predicate { name, arguments, evaluate }
}

#[rustfmt::skip]
pub(crate) static PREDICATES: &[Predicate] = &[
    //  name                      arguments  function
    row("awslc_api_atleast",       &[S],     awslc_api_atleast),
    row("awslc_api_before",        &[S],     awslc_api_before),
    row("defined",                 &[S],     defined),
    row("enabled",                 &[S],     enabled),
    row("feature",                 &[S],     feature),
    row("fips_mode",               &[],      fips_mode),
    row("openssl_version_atleast", &[S],     openssl_version_atleast),
    row("openssl_version_before",  &[S],     openssl_version_before),
    row("ssllib_name_startswith",  &[S],     ssllib_name_startswith),
    row("streq",                   &[S, S],  streq),
    row("strneq",                  &[S, S],  strneq),
    row("strstr",                  &[S, S],  strstr),
    row("version_atleast",         &[S],     version_atleast),
    row("version_before",          &[S],     version_before),
];

type Outcome = Result<bool, (usize, String)>;

fn awslc_api_atleast(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    let wanted = number(args[0])?;
    Ok(facts.awslc_api.is_some_and(|api| api >= wanted))
}

fn awslc_api_before(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    let wanted = number(args[0])?;
    Ok(facts.awslc_api.is_some_and(|api| api < wanted))
}

fn defined(_: &ProgramFacts, environment: &Environment, args: &[&str]) -> Outcome {
    Ok(environment.get(args[0]).is_some())
}

fn enabled(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    Ok(facts.enabled.contains(&args[0]))
}

fn feature(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    Ok(facts.features.contains(&args[0]))
}

fn fips_mode(facts: &ProgramFacts, _: &Environment, _: &[&str]) -> Outcome {
    Ok(facts.fips)
}

fn openssl_version_atleast(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    let wanted = version(args[0])?;
    Ok(facts.openssl_version.is_some_and(|version| version >= wanted))
}

fn openssl_version_before(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    let wanted = version(args[0])?;
    Ok(facts.openssl_version.is_some_and(|version| version < wanted))
}

fn ssllib_name_startswith(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    Ok(facts.ssl_library.is_some_and(|library| library.starts_with(args[0])))
}

fn streq(_: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    Ok(args[0] == args[1])
}

fn strneq(_: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    Ok(args[0] != args[1])
}

fn strstr(_: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    Ok(args[0].contains(args[1]))
}

fn version_atleast(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    Ok(facts.version >= version(args[0])?)
}

fn version_before(facts: &ProgramFacts, _: &Environment, args: &[&str]) -> Outcome {
    Ok(facts.version < version(args[0])?)
}

fn version(text: &str) -> Result<Version, (usize, String)> {
    text.parse().map_err(|error| (0, format!("`{text}` is {error}")))
}

fn number(text: &str) -> Result<u32, (usize, String)> {
    text.parse().map_err(|_| (0, format!("`{text}` is not a number")))
}
