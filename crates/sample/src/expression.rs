//! Expressions: a fetch followed by converters (manual, 7.3), compiled once and evaluated per
//! request.

use std::sync::Arc;

use diag::{Diagnostic, Span};

use crate::args::{self, Arg, ArgKind, Args, Spec};
use crate::auth::Userlist;
use crate::convert::{self, Convert, Run};
use crate::env::Env;
use crate::explained::shown;
use crate::fetch::{self, Any, Cursor, Fetch};
use crate::place::Columns;
use crate::scope::Scope;
use crate::script::Use;
use crate::script_functions::{self, ScriptFunction};
use crate::value::{Type, Value};
use crate::vars::Var;
use crate::word_cursor::Words;

/// A fetch with its converters.
#[derive(Debug)]
pub struct Expression {
    fetch: &'static Fetch,
    args: Args,
    steps: Box<[ConverterStep]>,
    gives: Type,
}

#[derive(Debug)]
struct ConverterStep {
    convert: &'static Convert,
    args: Args,
}

/// The unparsed rest of an expression's text.
struct Parser<'a, 's> {
    text: &'a str,
    at: usize,
    span: Span,
    scope: &'a Scope<'s>,
}

impl Expression {
    /// Whether the value is only known after the transfer.
    pub(crate) fn is_late(&self) -> bool {
        self.fetch.late
    }

    /// Compiles an expression from `words`: one word, and the following words if they are converters.
    pub fn compile(words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Self, Diagnostic> {
        let Some(word) = words.next() else {
            return Err(Diagnostic::alert("expected a sample expression").at(words.end()));
        };
        let (mut expression, end) = Self::begin(word.text, word.span, scope)?;
        if end < word.text.len() {
            return Err(trailing(word.text, end, word.span));
        }
        expression.take_converters(words, scope)?;
        expression.check_place(scope, word.span)?;
        Ok(expression)
    }

    /// Consumes the words that are converters and appends them.
    pub(crate) fn take_converters(
        &mut self,
        words: &mut Words<'_>,
        scope: &Scope<'_>,
    ) -> Result<(), Diagnostic> {
        let mut steps = std::mem::take(&mut self.steps).into_vec();
        while let Some(next) = words.peek() {
            let name = next.text.split(['(', ',']).next().unwrap_or_default();
            if convert::find(name).is_none() && script_functions::name(name).is_none() {
                break;
            }
            let mut parser = Parser { text: next.text, at: 0, span: next.span, scope };
            self.gives = parser.converters(self.gives, &mut steps)?;
            if parser.at < next.text.len() {
                return Err(trailing(next.text, parser.at, next.span));
            }
            words.next();
        }
        self.steps = steps.into();
        Ok(())
    }

    /// Compiles all of `text`, located at `span`.
    pub fn compile_str(text: &str, span: Span, scope: &Scope<'_>) -> Result<Self, Diagnostic> {
        let (expression, end) = Self::begin(text, span, scope)?;
        if end < text.len() {
            return Err(trailing(text, end, span));
        }
        expression.check_place(scope, span)?;
        Ok(expression)
    }

    /// Compiles the expression at the start of `text` without checking where it may be used. Returns where the expression ends.
    /// The caller checks the rest of the text and the place of use.
    pub fn begin(text: &str, span: Span, scope: &Scope<'_>) -> Result<(Self, usize), Diagnostic> {
        let mut parser = Parser { text, at: 0, span, scope };
        let (fetch, args) = parser.fetch()?;
        let mut steps = Vec::new();
        let gives = parser.converters(fetch.gives, &mut steps)?;
        let end = parser.at;
        Ok((Self { fetch, args, steps: steps.into(), gives }, end))
    }

    /// Compiles `text`, which only has converters that are applied to a log line ([`Env::request_bytes`] as text).
    pub fn of_message(text: &str, span: Span, scope: &Scope<'_>) -> Result<Self, Diagnostic> {
        let mut parser = Parser { text, at: 0, span, scope };
        let mut steps = Vec::new();
        let fetch = &fetch::MESSAGE;
        let gives = parser.converters(fetch.gives, &mut steps)?;
        if parser.at < text.len() {
            return Err(trailing(text, parser.at, span));
        }
        if !gives.casts_to(Type::Str) {
            return Err(
                Diagnostic::alert(format!("the result of `{text}` cannot be hashed as text")).at(span)
            );
        }
        Ok(Self { fetch, args: Args(Box::default()), steps: steps.into(), gives })
    }

    /// Refuses a fetch that has no data where `scope` is evaluated.
    pub fn check_place(&self, scope: &Scope<'_>, span: Span) -> Result<(), Diagnostic> {
        if self.fetch.columns.meets(scope.columns()) {
            return Ok(());
        }
        let name = self.fetch.name;
        Err(Diagnostic::alert(format!("`{name}` cannot be used here: it needs {}", self.fetch.columns.needs()))
            .at(span)
            .haproxy(format!(
                "sample fetch <{name}> may not be reliably used here because it needs {} which is not available here.",
                self.fetch.columns.needs()
            )))
    }

    /// Whether the expression reads raw connection bytes (manual, 7.3.5), which HTTP messages do not have.
    pub(crate) fn reads_bytes(&self) -> bool {
        const PREFIXES: &[&str] = &[
            "payload",
            "rdp_cookie",
            "rep_ssl_hello_type",
            "req.len",
            "req.payload",
            "req.rdp_cookie",
            "req.ssl_",
            "req_len",
            "req_ssl_",
            "res.len",
            "res.payload",
            "res.ssl_hello_type",
        ];
        PREFIXES.iter().any(|prefix| self.fetch.name.starts_with(prefix))
    }

    /// The type of the values; `Any` if it is only known at evaluation.
    pub fn gives(&self) -> Type {
        self.gives
    }

    /// The places at which the fetch may be used.
    pub(crate) fn columns(&self) -> Columns {
        self.fetch.columns
    }

    /// The name of the fetch.
    pub fn name(&self) -> &'static str {
        self.fetch.name
    }

    /// Whether any converters follow the fetch.
    pub fn has_converters(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Evaluates to a single value. If there are several (headers, cookies), this is the fetch's default, usually the last one.
    #[inline]
    pub fn eval<'a>(&'a self, env: &'a Env<'a>) -> Option<Value<'a>> {
        self.next(env, &mut Cursor::once())
    }

    /// Appends the value as text to `out`. Returns whether there was a value.
    pub fn eval_into(&self, env: &Env<'_>, out: &mut Vec<u8>) -> bool {
        let value = self.eval(env);
        if let Some(value) = &value {
            value.write_text(out);
        }
        value.is_some()
    }

    /// Whether an evaluation changes anything but variables of the request and its connection, or runs a script.
    pub fn has_side_effects(&self) -> bool {
        let name = self.fetch.name;
        let changes = |step: &ConverterStep| match step.convert.name {
            "debug" | "lua." => true,
            "set-var" | "unset-var" => matches!(step.args.get(0), Arg::Var(Var::Process(_))),
            _ => false,
        };
        name.contains("_inc_gpc")
            || name.contains("_clr_gpc")
            || matches!(name, "lua." | "src_updt_conn_cnt")
            || self.steps.iter().any(changes)
    }

    /// Like [`Self::next`], but also appends the value to `text`, with the results of all converters. A map converter is shown
    /// with the key that matched.
    pub(crate) fn next_explained<'a>(
        &'a self,
        env: &'a Env<'a>,
        cursor: &mut Cursor,
        text: &mut String,
    ) -> Option<Value<'a>> {
        let mut value = (self.fetch.run)(env, &self.args, cursor)?;
        push_value(&value, text);
        for ConverterStep { convert, args } in &self.steps {
            if value.kind() != convert.takes {
                value = value.cast(convert.takes)?;
            }
            text.push_str(" → ");
            text.push_str(convert.name);
            if let Arg::View(view) = args.get(0) {
                let key = view.lookup_key(&value, shown);
                let key = key.map_or_else(|| "no key matches".to_owned(), |key| format!("key `{key}`"));
                text.push_str(&format!("({}): {key}", view.list().name()));
            }
            value = convert.apply(value, args, env)?;
            text.push_str(" → ");
            push_value(&value, text);
        }
        Some(value)
    }

    /// The value as text, with the results of all converters, as in a trace of a condition. Empty without a value.
    pub fn explain(&self, env: &Env<'_>) -> String {
        let mut text = String::new();
        self.next_explained(env, &mut Cursor::once(), &mut text);
        text
    }

    /// The shortcut for testing all values: the function and arguments of the fetch, if the fetch has one and no converter follows.
    #[inline]
    pub(crate) fn any(&self) -> Option<(Any, &Args)> {
        self.fetch.any.filter(|_| self.steps.is_empty()).map(|any| (any, &self.args))
    }

    /// The userlist, if the expression returns its group names unchanged.
    pub(crate) fn gives_groups_of(&self) -> Option<&Userlist> {
        match self.args.get(0) {
            Arg::Userlist(list) if self.fetch.name == "http_auth_group" && self.steps.is_empty() => {
                Some(list)
            }
            _ => None,
        }
    }

    /// The value at `cursor`. After the call, `cursor` shows whether more values may follow.
    #[inline]
    pub fn next<'a>(&'a self, env: &'a Env<'a>, cursor: &mut Cursor) -> Option<Value<'a>> {
        // Values are so large that unnecessary moves are measurable, and most expressions have no converter.
        if self.steps.is_empty() {
            return (self.fetch.run)(env, &self.args, cursor);
        }
        self.converted(env, cursor)
    }

    fn converted<'a>(&'a self, env: &'a Env<'a>, cursor: &mut Cursor) -> Option<Value<'a>> {
        match (self.fetch.run)(env, &self.args, cursor)? {
            Value::Int(number) => calculated(number, &self.steps, env),
            value => converted(value, &self.steps, env),
        }
    }
}

fn push_value(value: &Value<'_>, text: &mut String) {
    let mut bytes = Vec::new();
    value.write_text(&mut bytes);
    text.push_str(&format!("`{}`", shown(&bytes)));
}

/// Applies `steps` to `number`. Leading arithmetic converters run here without building intermediate values.
fn calculated<'a>(mut number: i64, steps: &'a [ConverterStep], env: &'a Env<'a>) -> Option<Value<'a>> {
    for (at, step) in steps.iter().enumerate() {
        match step.convert.run {
            Run::Calculate(calculate) => number = calculate(number, &step.args, env)?,
            Run::Change(_) => return converted(Value::Int(number), &steps[at..], env),
        }
    }
    Some(Value::Int(number))
}

/// Applies `steps` to `value`.
fn converted<'a>(mut value: Value<'a>, steps: &'a [ConverterStep], env: &'a Env<'a>) -> Option<Value<'a>> {
    for ConverterStep { convert, args } in steps {
        if value.kind() != convert.takes {
            value = value.cast(convert.takes)?;
        }
        value = convert.apply(value, args, env)?;
    }
    Some(value)
}

fn trailing(text: &str, at: usize, span: Span) -> Diagnostic {
    let rest = &text[at..];
    Diagnostic::alert(format!("unexpected `{rest}` after the expression `{}`", &text[..at]))
        .at(part(text, span, at, text.len()))
        .help("separate converters with commas, and quote arguments that contain a parenthesis or a comma")
}

/// The span of a part of a word if the word appears verbatim in the file (without quotes or escapes).
fn part(text: &str, span: Span, start: usize, end: usize) -> Span {
    if span.len() == text.len() { span.part(start, end) } else { span }
}

impl Parser<'_, '_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn error(&self, start: usize, message: String) -> Diagnostic {
        Diagnostic::alert(message).at(part(self.text, self.span, start, self.at.max(start + 1)))
    }

    /// Reads a keyword, which ends at a parenthesis, a comma, a blank or the bracket that ends a log format item.
    fn keyword(&mut self) -> &str {
        let rest = &self.text[self.at..];
        let length = rest.find(['(', ')', ',', ' ', '\t', ']']).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn arguments(&mut self, start: usize, name: &str, specs: &[Spec]) -> Result<Vec<String>, Diagnostic> {
        if !self.rest().starts_with('(') {
            return Ok(Vec::new());
        }
        let (texts, length) = args::split(&self.rest()[1..]);
        match length {
            Some(length) => {
                self.at += 1 + length;
                // `str()` is the empty string.
                let empty = specs.first().is_some_and(|spec| !spec.optional && spec.kind == ArgKind::Str);
                Ok(if texts.is_empty() && empty { vec![String::new()] } else { texts })
            }
            None => {
                self.at = self.text.len();
                Err(self.error(start, format!("missing closing parenthesis after the arguments of `{name}`")))
            }
        }
    }

    fn fetch(&mut self) -> Result<(&'static Fetch, Args), Diagnostic> {
        let start = self.at;
        let name = self.keyword().to_owned();
        if let Some(own) = script_functions::name(&name) {
            let args = self.of_script(start, Use::Fetch, own)?;
            return Ok((&script_functions::FETCH, args));
        }
        let Some(fetch) = fetch::find(&name) else {
            return Err(self.unknown(start, &name, "fetch method", fetch::suggest(&name)));
        };
        let texts = self.arguments(start, &name, fetch.args)?;
        let mut args = args::resolve(&texts, fetch.args, self.scope)
            .map_err(|error| self.error(start, format!("`{name}` {error}")))?;
        if let Some(prepare) = fetch.prepare {
            prepare(&mut args, self.scope)
                .map_err(|error| self.error(start, format!("`{name}`: {error}")))?;
        }
        Ok((fetch, Args::new(args)))
    }

    /// Resolves the script function of that name and parses its arguments.
    fn of_script(&mut self, start: usize, used: Use, name: &str) -> Result<Args, Diagnostic> {
        let what = if used == Use::Fetch { "fetch" } else { "converter" };
        let Some(function) = self.scope.names.script(used, name) else {
            let known = self.scope.names.script_names(used);
            let near =
                diag::suggest(name, known.iter().map(|name| &**name)).map(|near| format!("lua.{near}"));
            return Err(self
                .error(start, format!("no script has registered a {what} `{name}`"))
                .did_you_mean(near.as_deref()));
        };
        let full = format!("lua.{name}");
        let texts = self.arguments(start, &full, script_functions::FETCH.args)?;
        let mut args = args::resolve(&texts, script_functions::FETCH.args, self.scope)
            .map_err(|error| self.error(start, format!("`{full}` {error}")))?;
        args.insert(0, Arg::Prepared(Arc::new(ScriptFunction(function))));
        Ok(Args::new(args))
    }

    fn converters(&mut self, mut gives: Type, steps: &mut Vec<ConverterStep>) -> Result<Type, Diagnostic> {
        // At the start of a word, no comma precedes the first converter.
        let mut first = self.at == 0;
        loop {
            if !first {
                if !self.rest().starts_with(',') {
                    return Ok(gives);
                }
                let commas = self.rest().len() - self.rest().trim_start_matches(',').len();
                self.at += commas;
                if self.rest().is_empty() {
                    return Ok(gives);
                }
            }
            first = false;
            let start = self.at;
            let name = self.keyword().to_owned();
            if let Some(own) = script_functions::name(&name) {
                let args = self.of_script(start, Use::Converter, own)?;
                steps.push(ConverterStep { convert: &script_functions::CONVERT, args });
                gives = script_functions::CONVERT.gives;
                continue;
            }
            let Some(convert) = convert::find(&name) else {
                return Err(self.unknown(start, &name, "converter", convert::suggest(&name)));
            };
            let texts = self.arguments(start, &name, convert.args)?;
            if !gives.casts_to(convert.takes) {
                let message = format!(
                    "converter `{name}` cannot be applied: it takes {}, but the input is {}",
                    convert.takes.name(),
                    gives.name()
                );
                return Err(self.error(start, message));
            }
            let mut args = args::resolve(&texts, convert.args, self.scope)
                .map_err(|error| self.error(start, format!("`{name}` {error}")))?;
            if let Some(prepare) = convert.prepare {
                prepare(&mut args, self.scope)
                    .map_err(|error| self.error(start, format!("`{name}`: {error}")))?;
            }
            if let Some(Arg::View(view)) = args.first() {
                let (file, line) = self.scope.names.position(self.span);
                view.list().note_user("map", &file, line);
            }
            gives = match (convert.gives, convert.takes) {
                (Type::Same, Type::Any) => gives,
                (Type::Same, takes) => takes,
                (gives, _) => gives,
            };
            steps.push(ConverterStep { convert, args: Args::new(args) });
        }
    }

    fn unknown(&self, start: usize, name: &str, what: &str, near: Option<&str>) -> Diagnostic {
        self.error(start, format!("unknown {what} `{name}`")).did_you_mean(near)
    }
}

/// The warning for a fetch of raw connection bytes in HTTP mode.
pub(crate) fn bytes_in_http(name: &str, span: Span) -> Diagnostic {
    Diagnostic::warning(format!("`{name}` returns nothing in HTTP mode: it reads raw connection data"))
        .at(span)
        .label("use it in `mode tcp`")
}
