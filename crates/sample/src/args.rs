//! Arguments of fetches and converters: one parser for all of them, with the quoting rules of the manual's section 2.2.
//!
//! The keyword tables declare the kind of each argument. At startup, the texts are resolved to numbers, names, proxies, variables
//! and so on.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use base::raw::bytes_of;
use base::units::{DefaultUnit, parse_duration};
use http::Name;
use state::table::Table;
use state::{Proxy, Server};

use crate::auth::Userlist;
use crate::named_acls::Predicate;
use crate::pattern::View;
use crate::regex::Regex;
use crate::scope::Scope;
use crate::vars::{SetConditions, Var};

/// An argument's kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ArgKind {
    Str,
    Int,
    Time,
    HeaderName,
    Ip4,
    Ip6,
    /// IPv4 mask, as a length or dotted.
    Mask4,
    /// IPv6 prefix length.
    Mask6,
    /// A frontend. Without the argument, the current proxy.
    Frontend,
    /// A backend. Without the argument, the current proxy.
    Backend,
    /// `backend/server`, or a server of the current backend.
    Server,
    Userlist,
    Variable,
    /// A number, or the name of a variable that holds one (`add(txn.x)`).
    IntOrVariable,
    /// Text, or a variable if it looks like a variable's name.
    StrOrVariable,
    Regex,
    /// The name of a stick table.
    Table,
}

/// One argument in a keyword's row.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The argument's kind.
    pub kind: ArgKind,
    /// Whether the argument is optional.
    pub optional: bool,
    /// Whether an empty argument is different from an omitted one.
    pub may_be_empty: bool,
}

/// A mandatory argument.
pub const fn arg(kind: ArgKind) -> Spec {
    Spec { kind, optional: false, may_be_empty: false }
}

/// An optional argument.
pub const fn opt(kind: ArgKind) -> Spec {
    Spec { kind, optional: true, may_be_empty: false }
}

/// An optional default value: text or a number. An empty argument is the empty text or 0.
pub const fn default_value(kind: ArgKind) -> Spec {
    Spec { kind, optional: true, may_be_empty: true }
}

impl ArgKind {
    /// The name used in messages and in `-dKsmp`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Str | Self::HeaderName | Self::StrOrVariable | Self::IntOrVariable => "string",
            Self::Int => "integer",
            Self::Time => "delay",
            Self::Ip4 => "IPv4 address",
            Self::Ip6 => "IPv6 address",
            Self::Mask4 => "IPv4 mask",
            Self::Mask6 => "IPv6 mask",
            Self::Frontend => "frontend",
            Self::Backend => "backend",
            Self::Server => "server",
            Self::Userlist => "user list",
            Self::Variable => "variable",
            Self::Regex => "regex",
            Self::Table => "table",
        }
    }
}

/// A resolved argument.
#[derive(Debug)]
pub enum Arg {
    /// Omitted.
    Missing,
    /// Text.
    Bytes(Box<[u8]>),
    /// A number; a time in ms.
    Int(i64),
    /// A header's name.
    Name(Name),
    /// An IPv4 address or mask.
    Ip4(Ipv4Addr),
    /// An IPv6 address or mask.
    Ip6(Ipv6Addr),
    /// A proxy.
    Proxy(Arc<Proxy>),
    /// A server: its backend and name.
    Server(Arc<Proxy>, Box<str>),
    /// A stick table.
    Table(Arc<Table>),
    /// The users of a userlist.
    Userlist(Arc<Userlist>),
    /// A variable.
    Var(Var),
    /// The conditions for setting a variable.
    SetConditions(SetConditions),
    /// A regular expression.
    Regex(Regex),
    /// A map.
    View(Box<View>),
    /// A conjunction of ACLs.
    Predicate(Box<dyn Predicate>),
    /// A date format, a JSON path or the like, prepared by the keyword's row.
    Prepared(Arc<dyn Prepared>),
}

/// A converter's arguments in its own prepared form.
pub trait Prepared: std::any::Any + std::fmt::Debug + Send + Sync {}

/// The arguments of one use of a keyword.
#[derive(Debug, Default)]
pub struct Args(pub Box<[Arg]>);

impl Args {
    /// Stores the arguments. Omitted arguments at the end are dropped to save memory.
    pub fn new(mut args: Vec<Arg>) -> Self {
        while let Some(Arg::Missing) = args.last() {
            args.pop();
        }
        Self(args.into())
    }

    /// The argument at `index`, [`Arg::Missing`] if omitted.
    #[inline]
    pub fn get(&self, index: usize) -> &Arg {
        self.0.get(index).unwrap_or(&Arg::Missing)
    }

    /// The argument at `index` as a number.
    pub fn int(&self, index: usize) -> Option<i64> {
        match self.get(index) {
            Arg::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The argument at `index` as text.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        match self.get(index) {
            Arg::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The argument at `index` as a header name.
    pub fn name(&self, index: usize) -> Option<&Name> {
        match self.get(index) {
            Arg::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The argument at `index` as a proxy.
    pub fn proxy(&self, index: usize) -> Option<&Arc<Proxy>> {
        match self.get(index) {
            Arg::Proxy(proxy) => Some(proxy),
            _ => None,
        }
    }

    /// The argument at `index` as a stick table.
    #[inline]
    pub fn table(&self, index: usize) -> Option<&Arc<Table>> {
        match self.get(index) {
            Arg::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The argument at `index` as a server, if the server currently exists.
    pub fn server(&self, index: usize) -> Option<Arc<Server>> {
        match self.get(index) {
            Arg::Server(proxy, name) => proxy.server(name),
            _ => None,
        }
    }

    /// The argument at `index` as a map.
    pub fn view(&self, index: usize) -> Option<&View> {
        match self.get(index) {
            Arg::View(view) => Some(view),
            _ => None,
        }
    }

    /// The argument at `index` as a regular expression.
    pub fn regex(&self, index: usize) -> Option<&Regex> {
        match self.get(index) {
            Arg::Regex(regex) => Some(regex),
            _ => None,
        }
    }

    /// The argument at `index` in the prepared form.
    pub fn prepared<T: Prepared>(&self, index: usize) -> Option<&T> {
        match self.get(index) {
            Arg::Prepared(prepared) => (&**prepared as &dyn std::any::Any).downcast_ref(),
            _ => None,
        }
    }
}

/// The bytes of a text argument.
pub fn text_of(arg: &Arg) -> &[u8] {
    match arg {
        Arg::Bytes(bytes) => bytes,
        _ => b"",
    }
}

/// Splits the contents of the parentheses at commas, and resolves quotes and escapes. `text` begins after the opening parenthesis.
/// The second value is the number of bytes up to and including the closing parenthesis, or `None` if it is missing.
pub fn split(text: &str) -> (Vec<String>, Option<usize>) {
    let mut args = Vec::new();
    let mut current: Vec<u8> = Vec::new();
    let (mut single, mut double) = (false, false);
    let bytes = text.as_bytes();
    let mut at = 0;
    let finish = |current: &mut Vec<u8>, args: &mut Vec<String>| {
        args.push(String::from_utf8_lossy(&std::mem::take(current)).into_owned());
    };
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' if !single => double = !double,
            b'\'' if !double => single = !single,
            b'\\' if !single => match bytes.get(at) {
                Some(b'n') => {
                    current.push(b'\n');
                    at += 1;
                }
                Some(b'r') => {
                    current.push(b'\r');
                    at += 1;
                }
                Some(b't') => {
                    current.push(b'\t');
                    at += 1;
                }
                Some(escaped @ (b'\\' | b'"' | b'\'' | b' ')) => {
                    current.push(*escaped);
                    at += 1;
                }
                // Not an escape at this level: the backslash belongs to the argument, for example to a regular expression.
                _ => current.push(b'\\'),
            },
            b',' if !single && !double => finish(&mut current, &mut args),
            b')' if !single && !double => {
                finish(&mut current, &mut args);
                return (args, Some(at));
            }
            other => current.push(other),
        }
    }
    finish(&mut current, &mut args);
    (args, None)
}

/// Resolves the texts according to the row's specification. The error is the end of a sentence that begins with the keyword.
pub fn resolve(texts: &[String], specs: &[Spec], scope: &Scope<'_>) -> Result<Vec<Arg>, String> {
    // Empty parentheses mean no argument, unless a text is expected.
    let texts = if specs.is_empty() && matches!(texts, [text] if text.is_empty()) { &[] } else { texts };
    if texts.len() > specs.len() {
        return Err(match specs.len() {
            0 => "takes no argument".to_owned(),
            most => format!("takes at most {most} argument{}, not {}", plural(most), texts.len()),
        });
    }
    let mut args = Vec::with_capacity(specs.len());
    for (index, spec) in specs.iter().enumerate() {
        match texts.get(index) {
            Some(text) if text.is_empty() && spec.may_be_empty => {
                args.push(if spec.kind == ArgKind::Int { Arg::Int(0) } else { Arg::Bytes(Box::default()) });
            }
            Some(text) if !(text.is_empty() && (spec.optional || is_own_without_name(spec.kind))) => {
                let resolved = resolve_one(text, spec.kind, scope);
                args.push(resolved.map_err(|error| format!("argument {}: {error}", index + 1))?);
            }
            _ if spec.optional && !names_current_proxy(spec.kind) => args.push(Arg::Missing),
            _ if spec.kind == ArgKind::Table => args.push(Arg::Table(own_table(scope)?)),
            _ if names_current_proxy(spec.kind) => {
                let missing = || format!("needs the name of a {}", spec.kind.name());
                let own = scope.proxy.ok_or_else(missing)?;
                let fits = if spec.kind == ArgKind::Backend { own.is_backend } else { own.is_frontend };
                if !fits {
                    return Err(format!("{}, because `{}` is not one", missing(), own.name));
                }
                args.push(Arg::Proxy(Arc::clone(own)));
            }
            _ => return Err(format!("needs argument {}: a {}", index + 1, spec.kind.name())),
        }
    }
    Ok(args)
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Whether an omitted argument of this kind stands for the current proxy or its table.
fn is_own_without_name(kind: ArgKind) -> bool {
    names_current_proxy(kind) || kind == ArgKind::Table
}

/// The stick table of the current proxy.
fn own_table(scope: &Scope<'_>) -> Result<Arc<Table>, String> {
    let own = scope.proxy.filter(|_| !scope.inherited);
    let Some(own) = own else { return Err("needs the name of a stick table".into()) };
    scope
        .names
        .table(&own.name)
        .ok_or_else(|| format!("needs the name of a stick table, because `{}` has no stick table", own.name))
}

fn names_current_proxy(kind: ArgKind) -> bool {
    matches!(kind, ArgKind::Frontend | ArgKind::Backend)
}

fn resolve_one(text: &str, kind: ArgKind, scope: &Scope<'_>) -> Result<Arg, String> {
    let wrong = || format!("`{text}` is not a valid {}", kind.name());
    Ok(match kind {
        ArgKind::Str => Arg::Bytes(bytes_of(text).into()),
        ArgKind::HeaderName => Arg::Name(Name::new(&bytes_of(text))),
        ArgKind::Int => Arg::Int(text.parse().map_err(|_| wrong())?),
        ArgKind::Time => {
            let time = parse_duration(text, DefaultUnit::Milliseconds)
                .map_err(|error| format!("`{text}`: {error}"))?;
            Arg::Int(time.as_millis() as i64)
        }
        ArgKind::Ip4 => Arg::Ip4(text.parse().map_err(|_| wrong())?),
        ArgKind::Ip6 => Arg::Ip6(text.parse().map_err(|_| wrong())?),
        ArgKind::Mask4 => Arg::Ip4(base::network::parse_v4_mask(text).map_err(|_| wrong())?.into()),
        ArgKind::Mask6 => Arg::Ip6(mask6(text).ok_or_else(wrong)?),
        ArgKind::Frontend => {
            Arg::Proxy(scope.names.frontend(text).ok_or_else(|| format!("there is no frontend `{text}`"))?)
        }
        ArgKind::Backend => {
            Arg::Proxy(scope.names.backend(text).ok_or_else(|| format!("there is no backend `{text}`"))?)
        }
        ArgKind::Server => resolve_server(text, scope)?,
        ArgKind::Userlist => {
            Arg::Userlist(scope.names.userlist(text).ok_or_else(|| format!("there is no userlist `{text}`"))?)
        }
        ArgKind::Variable => Arg::Var(scope.variables.borrow_mut().resolve(text)?),
        ArgKind::IntOrVariable => match text.parse() {
            Ok(value) => Arg::Int(value),
            Err(_) => Arg::Var(
                scope
                    .variables
                    .borrow_mut()
                    .resolve(text)
                    .map_err(|_| format!("`{text}` is neither a number nor a variable"))?,
            ),
        },
        ArgKind::StrOrVariable => match looks_like_variable(text) {
            true => Arg::Var(scope.variables.borrow_mut().resolve(text)?),
            false => Arg::Bytes(bytes_of(text).into()),
        },
        ArgKind::Regex => Arg::Regex(Regex::new(text, false)?),
        ArgKind::Table => {
            Arg::Table(scope.names.table(text).ok_or_else(|| format!("there is no stick table `{text}`"))?)
        }
    })
}

/// Whether `text` begins like a variable name.
pub fn looks_like_variable(text: &str) -> bool {
    let scope = text.split_once('.').map(|(scope, _)| scope);
    matches!(
        scope,
        Some("proc" | "sess" | "txn" | "req" | "res" | "check" | "psess" | "ptxn" | "preq" | "pres")
    )
}

fn mask6(text: &str) -> Option<Ipv6Addr> {
    if let Ok(length) = text.parse::<u32>() {
        let bits = u128::MAX.checked_shl(128u32.checked_sub(length)?).unwrap_or(0);
        return Some(bits.into());
    }
    text.parse().ok()
}

/// Records that the configuration refers to a server, so that the server cannot be deleted.
fn refer(proxy: Arc<Proxy>, name: &str) -> Result<Arg, String> {
    let Some(server) = proxy.server(name) else {
        return Err(format!("there is no server `{name}` in `{}`", proxy.name));
    };
    server.referenced.store(true, std::sync::atomic::Ordering::Relaxed);
    Ok(Arg::Server(proxy, name.into()))
}

fn resolve_server(text: &str, scope: &Scope<'_>) -> Result<Arg, String> {
    match text.split_once('/') {
        Some((backend, server)) => {
            let proxy =
                scope.names.backend(backend).ok_or_else(|| format!("there is no backend `{backend}`"))?;
            refer(proxy, server)
        }
        None => {
            let missing = || format!("`{text}` must have the form `backend/server`");
            let proxy = scope.proxy.filter(|_| !scope.inherited).ok_or_else(missing)?;
            refer(Arc::clone(proxy), text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn arguments_are_split_as_in_the_manual() {
        #[rustfmt::skip]
        let cases: &[(&str, &[&str], Option<usize>)] = &[
            (")",                               &[""],                            Some(1)),
            ("a,b)",                            &["a", "b"],                      Some(4)),
            ("a,)",                             &["a", ""],                       Some(3)),
            (r#""(foo|bar)",blah,g)"#,          &["(foo|bar)", "blah", "g"],      Some(19)),
            (r#"(foo|bar),blah,g)"#,            &["(foo|bar"],                    Some(9)),
            (r#""^/(here)(/|$)","my/\1",g)"#,   &["^/(here)(/|$)", r"my/\1", "g"], Some(26)),
            (r#"\'foo\')"#,                     &["'foo'"],                       Some(8)),
            (r#"'a\n,b')"#,                     &[r"a\n,b"],                      Some(8)),
            (r#""a\n")"#,                       &["a\n"],                         Some(6)),
            ("a, b)",                           &["a", " b"],                     Some(5)),
            ("a",                               &["a"],                           None),
        ];
        for (text, expected, end) in cases {
            let (args, found) = split(text);
            assert_eq!(args, *expected, "{text}");
            assert_eq!(found, *end, "{text}");
        }
    }
}
