//! ACLs (manual, 7.1 and 7.4): criteria with their patterns, the ACLs of a proxy by name, and the predefined ACLs.

mod keywords;
mod patterns;

use std::sync::Arc;

use diag::{Diagnostic, Span};
use state::Mode;

use crate::auth::Userlist;
use crate::explained::{ExplainedTest, MOST_VALUES, MatchedPattern, shown};
use crate::expression::Expression;
use crate::fetch::{self, Cursor};
use crate::named_acls::{Acl, AclTest, single};
use crate::outcome::{FAIL, MISS, PASS};
use crate::pattern::entries::{Entries, Texts};
use crate::pattern::{List, MatchMethod, PatternIndex, View};
use crate::place::{Columns, Place};
use crate::value::{Type, Value};
use crate::word_cursor::{Word, Words};
use crate::{Env, Scope};
use keywords::{PREDEFINED, alias};
use patterns::{flags, patterns};

/// One test: an expression, a match method and the patterns.
#[derive(Debug)]
pub struct Criterion {
    expression: Expression,
    expects: Type,
    /// The patterns of the ACL line, as configured.
    fixed: PatternIndex,
    /// The patterns of the ACL line, including changes made through the runtime socket.
    words: View,
    /// Pattern files.
    views: Box<[View]>,
    /// The criterion as configured, for explanations.
    text: Box<str>,
}

impl Criterion {
    /// Compiles the words after the ACL's name: criterion, flags, operator and values.
    pub fn compile(words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Self, Diagnostic> {
        let Some(word) = words.next() else {
            return Err(Diagnostic::alert(
                "an ACL requires a criterion: a sample expression or an ACL keyword",
            )
            .at(words.end()));
        };
        let text: Vec<&str> = [word].iter().chain(words.rest()).map(|word| word.text).collect();
        let (expression, implied) = criterion(word, words, scope)?;
        let alone = words.peek().is_none();
        let flags = flags(words, scope)?;
        let method = match flags.method.or(implied) {
            Some(method) => method,
            None => {
                return Err(Diagnostic::alert(format!(
                    "`{}` returns type {}, which has no default match method",
                    word.text,
                    expression.gives().name()
                ))
                .at(word.span)
                .help("select a method with `-m`: found, bool, int, ip, bin, len, str, sub, reg, beg, end, dir or dom"));
            }
        };
        let expects = method.expects();
        if !expression.gives().casts_to(expects) {
            return Err(Diagnostic::alert(format!(
                "match method `{}` does not support type {}",
                MatchMethod::names().nth(method as usize).unwrap_or_default(),
                expression.gives().name()
            ))
            .at(word.span));
        }
        if alone && !matches!(method, MatchMethod::Found | MatchMethod::Bool) {
            scope.names.warn(without_patterns(word));
        }
        let (fixed, list) = patterns(words, method, &flags, word, scope)?;
        if method == MatchMethod::Str
            && let Some(userlist) = expression.gives_groups_of()
        {
            check_groups(userlist, &list, flags.files.is_empty(), word)?;
        }
        let views = flags
            .files
            .into_iter()
            .map(|(list, ignore_case)| View::new(list, method, ignore_case))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Diagnostic::alert(error).at(word.span))?;
        // Presence and boolean tests run once; pattern files do not apply to them.
        let (words, text) = (View::of_acl(list), text.join(" ").into());
        Ok(Self { expression, expects, fixed, words, views: views.into(), text })
    }

    /// Whether a pattern matches `value`. The value is cast first if its type requires it.
    #[inline]
    fn accepts(&self, value: Value<'_>) -> bool {
        // The value is matched in place, and moved only if it must be cast.
        if fits(&value, self.expects) {
            self.matches(&value)
        } else {
            value.cast(self.expects).is_some_and(|value| self.matches(&value))
        }
    }

    /// Like [`Self::accepts`], for a string. No value is built if only the line's own patterns are used.
    #[inline]
    fn accepts_text(&self, text: &[u8]) -> bool {
        if self.expects == Type::Str
            && self.views.is_empty()
            && let Some(entries) = self.unchanged()
        {
            return self.fixed.find_bytes(text, false, entries).is_some();
        }
        self.accepts(Value::str(text))
    }

    /// The line's own patterns, unless the runtime socket has changed them.
    #[inline]
    fn unchanged(&self) -> Option<&Entries> {
        let list = self.words.list();
        list.fixed().filter(|_| !list.is_changed())
    }

    #[inline]
    fn matches(&self, value: &Value<'_>) -> bool {
        let own = match self.unchanged() {
            Some(entries) => self.fixed.find(value, false, entries).is_some(),
            None => self.words.matches(value),
        };
        own || self.views.iter().any(|view| view.matches(value))
    }

    /// Returns the pattern that matches `value`, which has the expected type.
    fn matching(&self, value: &Value<'_>) -> Option<MatchedPattern> {
        let own = match self.unchanged() {
            Some(entries) => self.fixed.find(value, false, entries).map(|slot| shown(entries.text(slot))),
            None => self.words.lookup_key(value, shown),
        };
        if let Some(text) = own {
            return Some(MatchedPattern { text, list: None });
        }
        let of_file = |view: &View| {
            let text = view.lookup_key(value, shown)?;
            Some(MatchedPattern { text, list: Some(view.list().name().into()) })
        };
        self.views.iter().find_map(of_file)
    }
}

impl AclTest for Criterion {
    fn test(&self, env: &Env<'_>) -> u8 {
        if let Some((any, args)) = self.expression.any() {
            env.may_change.set(false);
            return match any(env, args, &mut |text| self.accepts_text(text)) {
                true => PASS,
                false if env.may_change.get() && !env.complete => MISS,
                false => FAIL,
            };
        }
        let mut cursor = Cursor::all();
        let mut result = FAIL;
        loop {
            cursor.more = false;
            env.may_change.set(false);
            let value = self.expression.next(env, &mut cursor);
            let may_change = env.may_change.get() && !env.complete;
            if may_change {
                result |= MISS;
            }
            match value {
                None => return result,
                Some(value) => {
                    if self.accepts(value) {
                        return PASS;
                    }
                }
            }
            if !cursor.more {
                return result;
            }
        }
    }

    fn keyword(&self) -> &'static str {
        self.expression.name()
    }

    fn columns(&self) -> Columns {
        self.expression.columns()
    }

    fn reads_bytes(&self) -> bool {
        self.expression.reads_bytes()
    }

    fn explain(&self, env: &Env<'_>, is_live: bool) -> ExplainedTest {
        let mut explained = ExplainedTest { text: self.text.clone(), ..ExplainedTest::default() };
        if !is_live && self.expression.has_side_effects() {
            explained.is_skipped = true;
            return explained;
        }
        let mut cursor = Cursor::all();
        loop {
            cursor.more = false;
            env.may_change.set(false);
            let mut text = String::new();
            let value = self.expression.next_explained(env, &mut cursor, &mut text);
            if env.may_change.get() && !env.complete {
                explained.result |= MISS;
            }
            if !text.is_empty() && explained.values.len() < MOST_VALUES {
                explained.values.push(text);
            }
            let Some(value) = value else { return explained };
            if let Some(pattern) = value.cast(self.expects).and_then(|value| self.matching(&value)) {
                explained.result = PASS;
                explained.pattern = Some(pattern).filter(|pattern| !pattern.text.is_empty());
                return explained;
            }
            if !cursor.more {
                return explained;
            }
        }
    }
}

fn without_patterns(word: Word<'_>) -> Diagnostic {
    Diagnostic::warning(format!("`{}` never matches: it has no pattern", word.text))
        .at(word.span)
        .help("use `-m found` to test for a value, `-m bool` to test for a value other than 0, or `--` to silence this warning")
        .haproxy(format!(
            "acl keyword '{}' : no pattern to match against were provided, so this ACL will never match.\n  \
             If this is what you intended, please add '--' to get rid of this warning.\n  \
             If you intended to match only for existence, please use '-m found'.\n  \
             If you wanted to force an int to match as a bool, please use '-m bool'.",
            word.text
        ))
}

/// Warns about an ACL with fetches that have no data where `scope` is evaluated. `name` is set for declared ACLs.
pub(crate) fn warn(acl: &Acl, name: Option<&str>, span: Span, scope: &Scope<'_>) {
    let Some(rules) = scope.place.rules() else { return };
    let usable = |test: &&Arc<dyn AclTest>| test.columns().meets(scope.columns());
    if let (Some(first), None) = (acl.first(), acl.iter().find(usable)) {
        let keyword = first.keyword();
        let (title, shown) = match name {
            Some(name) => (format!("ACL `{name}`"), format!("acl '{name}'")),
            None => ("this ACL".to_owned(), "anonymous acl".to_owned()),
        };
        let side = if scope.proxy.is_none_or(|proxy| proxy.is_frontend) { "frontend" } else { "backend" };
        scope.names.warn(
            Diagnostic::warning(format!("{title} never matches: `{keyword}` is not available in {rules} rules"))
                .at(span)
                .haproxy(format!(
                    "{shown} will never match because it uses keyword '{keyword}' which is incompatible with '{side} {rules} rule'"
                )),
        );
    }
    let of_bytes = acl.iter().find(|test| test.reads_bytes());
    if let Some(test) = of_bytes.filter(|_| scope.mode == Mode::Http) {
        let keyword = test.keyword();
        scope.names.warn(
            crate::expression::bytes_in_http(keyword, span)
                .haproxy(format!("L6 sample fetches ignored on HTTP proxies: '{keyword}' gives nothing.")),
        );
    }
}

/// Returns the criteria of `acl` that can be evaluated where `scope` is. As in HAProxy, response rules see only the times and
/// counters of the request: criteria about the request's contents never match there (see [`warn`]).
pub(crate) fn tested(acl: Acl, scope: &Scope<'_>) -> Acl {
    if !matches!(scope.place, Place::HttpResponse | Place::TcpResponseContent) {
        return acl;
    }
    let is_tested = |test: &&Arc<dyn AclTest>| {
        let name = test.keyword();
        test.columns() != Columns::REQUEST
            || name.starts_with("req.timer.")
            || matches!(name, "req.len" | "req_len" | "rdp_cookie_cnt" | "req.rdp_cookie_cnt")
    };
    if acl.iter().all(|test| is_tested(&test)) {
        return acl;
    }
    acl.iter().filter(is_tested).cloned().collect()
}

/// Whether patterns accept `value` without a cast, because it has the expected type or one that compares in the same way.
#[inline]
fn fits(value: &Value<'_>, expects: Type) -> bool {
    match expects {
        Type::Any => true,
        Type::Str => matches!(value, Value::Str(_) | Value::Method(_)),
        Type::Addr => matches!(value, Value::Ip4(_) | Value::Ip6(_)),
        other => value.kind() == other,
    }
}

/// The expression of a criterion, and the match method implied by its keyword or type. After a fetch, but not after an ACL keyword,
/// words that name converters belong to the expression.
fn criterion(
    word: Word<'_>,
    words: &mut Words<'_>,
    scope: &Scope<'_>,
) -> Result<(Expression, Option<MatchMethod>), Diagnostic> {
    let length = word.text.find(['(', ',']).unwrap_or(word.text.len());
    let name = &word.text[..length];
    let (text, method) = match alias(name) {
        Some((fetch, method)) => (format!("{fetch}{}", &word.text[length..]), Some(method)),
        None => (word.text.to_owned(), None),
    };
    let (mut expression, end) = Expression::begin(&text, word.span, scope).map_err(|error| {
        let keyword_unknown = fetch::find(name).is_none() && method.is_none();
        if !keyword_unknown {
            return error;
        }
        let own: Vec<String> = keywords::names().collect();
        let known = fetch::all().map(|fetch| fetch.name).chain(own.iter().map(String::as_str));
        Diagnostic::alert(format!("unknown fetch method `{name}` in ACL expression `{}`", word.text))
            .at(word.span.part(0, length))
            .did_you_mean(diag::suggest(name, known))
            .haproxy(format!("unknown fetch method '{name}' in ACL expression '{}'", word.text))
    })?;
    if end < text.len() {
        return Err(Diagnostic::alert(format!("unexpected `{}` in the criterion of the ACL", &text[end..]))
            .at(word.span));
    }
    if method.is_none() {
        expression.take_converters(words, scope)?;
    }
    // After a converter, only the type of the result matters.
    let method = match method {
        Some(method) if !expression.has_converters() => Some(method),
        _ => MatchMethod::implied_by(expression.gives()),
    };
    Ok((expression, method))
}

/// Checks that the patterns of a group test are groups of the userlist and that there is at least one.
fn check_groups(
    userlist: &Userlist,
    list: &List,
    alone: bool,
    criterion: Word<'_>,
) -> Result<(), Diagnostic> {
    let Some(entries) = list.fixed() else { return Ok(()) };
    let mut words = entries.slots().map(|slot| base::raw::text_of(entries.text(slot))).peekable();
    if alone && words.peek().is_none() {
        return Err(Diagnostic::alert(format!("`{}` needs group names", criterion.text))
            .at(criterion.span)
            .haproxy("acl http_auth_group(): no groups specified"));
    }
    match words.find(|word| !userlist.has_group(word)) {
        None => Ok(()),
        Some(word) => {
            Err(Diagnostic::alert(format!("there is no group `{word}` in the userlist `{}`", userlist.name))
                .at(criterion.span)
                .did_you_mean(diag::suggest(&word, userlist.group_names()))
                .haproxy(format!("acl http_auth_group(): invalid group '{word}'")))
        }
    }
}

/// Compiles the words after `acl`: the name and the criterion, for [`crate::Acls::add`].
///
/// # Errors
/// The name is missing or not allowed, or the criterion is invalid.
pub fn compile_declaration(
    words: &mut Words<'_>,
    scope: &Scope<'_>,
) -> Result<(Box<str>, Criterion), Diagnostic> {
    let Some(name) = words.next() else {
        return Err(Diagnostic::alert("an ACL requires a name and a criterion").at(words.end()));
    };
    let wrong = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'));
    if let Some(at) = name.text.find(wrong) {
        let wrong = name.text[at..].chars().next().unwrap_or_default();
        return Err(Diagnostic::alert(format!("character `{wrong}` is not allowed in an ACL name"))
            .at(name.span)
            .help("use letters, digits, `-`, `_`, `.` and `:`"));
    }
    if matches!(name.text, "or" | "OR") {
        return Err(Diagnostic::alert(format!("`{}` is an operator and cannot be an ACL name", name.text))
            .at(name.span));
    }
    Ok((name.text.into(), Criterion::compile(words, scope)?))
}

/// Resolves `word` to a declared or a predefined ACL.
pub(crate) fn resolve(word: Word<'_>, scope: &Scope<'_>) -> Result<Acl, Diagnostic> {
    if let Some(acl) = scope.acls.get(word.text) {
        return Ok(acl);
    }
    let Some((_, text)) = PREDEFINED.iter().find(|(name, _)| *name == word.text) else {
        let known = scope.acls.names().chain(PREDEFINED.iter().map(|(name, _)| *name));
        let error = Diagnostic::alert(format!("unknown ACL `{}`", word.text))
            .at(word.span)
            .haproxy(format!("no such ACL : '{}'", word.text));
        return Err(match word.text.strip_prefix('{') {
            Some(criterion) => error.label(format!("a blank must follow the brace: `{{ {criterion}`")),
            None => error.did_you_mean(diag::suggest(word.text, known)),
        });
    };
    let list: Vec<Word<'_>> = text.iter().map(|text| Word { text, span: word.span }).collect();
    let criterion = Criterion::compile(&mut Words::new(&list, word.span), scope)?;
    Ok(single(criterion))
}
