//! Request targets: the forms allowed for each method, and how `Host` must match the authority.
//!
//! Implements RFC 9112 section 3.2 and RFC 3986 section 6.2.3 as HAProxy applies them. Runs when a request is completely parsed.

use crate::head::Head;
use crate::name::KnownName;
use crate::options::ParseOptions;
use crate::outcome::{ErrorKind, ParseError};
use crate::scan::is_host_value;
use crate::uri::{self, TargetForm, default_port, split_port};
use crate::{Method, eq_ignore_case};

/// Checks the target and `Host`. Removes the default port of an http or https target, and that of `Host`.
pub(crate) fn check(head: &mut Head, options: &ParseOptions) -> Result<(), ParseError> {
    let bad_target = Err(ParseError { kind: ErrorKind::Target, offset: head.target.start as usize });
    if head.method_id == Method::Other && head.method() == b"PRI" {
        // This can only be the HTTP/2 preface (RFC 9113, 3.4).
        return Err(ParseError { kind: ErrorKind::Method, offset: head.method.start as usize });
    }
    let host = single_host(head)?;
    let connect = head.method_id == Method::Connect;
    if head.target().first() == Some(&b'/') && !connect {
        return Ok(());
    }
    let split = uri::split(head.target());
    match split.form {
        TargetForm::Authority if connect && options.relaxed && head.target().first() != Some(&b'*') => Ok(()),
        TargetForm::Authority if connect => check_connect(head, host),
        TargetForm::Absolute if !connect => check_absolute(head, host, options),
        TargetForm::Asterisk if head.method_id == Method::Options => Ok(()),
        _ => bad_target,
    }
}

/// The index of the single `Host` line. Equal duplicates are dropped; different or invalid ones are refused even in relaxed mode.
fn single_host(head: &mut Head) -> Result<Option<usize>, ParseError> {
    if head.seen & KnownName::Host.bit() == 0 {
        return Ok(None);
    }
    let mut first: Option<usize> = None;
    for i in 0..head.fields.len() {
        let f = head.fields[i];
        if f.known != KnownName::Host || f.is_dead() {
            continue;
        }
        if !is_host_value(f.value(&head.bytes)) {
            return Err(ParseError { kind: ErrorKind::HostCharacter, offset: f.value as usize });
        }
        let Some(kept) = first else {
            first = Some(i);
            continue;
        };
        if !eq_ignore_case(head.fields[kept].value(&head.bytes), f.value(&head.bytes)) {
            return Err(ParseError { kind: ErrorKind::Host, offset: f.value as usize });
        }
        head.remove_at(i);
    }
    Ok(first)
}

fn tolerate_host(head: &mut Head, index: usize, options: &ParseOptions) -> Result<(), ParseError> {
    let error = ParseError { kind: ErrorKind::Host, offset: head.fields[index].value as usize };
    if !options.relaxed {
        return Err(error);
    }
    head.violation.get_or_insert(error);
    Ok(())
}

/// CONNECT specifies a host and a port. `Host` may omit the port if it is 80 or 443, and is then forwarded without it.
fn check_connect(head: &mut Head, host: Option<usize>) -> Result<(), ParseError> {
    let (name, port) = split_port(head.target());
    let number = port.and_then(crate::scan::decimal);
    let sound = !name.is_empty() && !head.target().contains(&b'@') && number.is_some_and(|n| n <= 65535);
    if !sound {
        return Err(ParseError { kind: ErrorKind::Target, offset: head.target.start as usize });
    }
    let Some(index) = host else { return Ok(()) };
    let (host_name, host_port) = split_port(head.fields[index].value(&head.bytes));
    let usual = matches!(number, Some(80 | 443));
    let same_port = host_port == port || (usual && host_port.unwrap_or_default().is_empty());
    if !eq_ignore_case(name, host_name) || !same_port {
        return Err(ParseError { kind: ErrorKind::Host, offset: head.fields[index].value as usize });
    }
    if usual && host_port.is_some_and(|p| !p.is_empty()) {
        let name = name.to_vec();
        head.replace_value_at(index, &name);
    }
    Ok(())
}

fn check_absolute(head: &mut Head, host: Option<usize>, options: &ParseOptions) -> Result<(), ParseError> {
    let split = uri::split(head.target());
    let scheme = split.scheme();
    let default = default_port(scheme);
    let is_default = |port: Option<&[u8]>| port.is_none_or(|p| p.is_empty() || Some(p) == default);
    let (name, port) = split_port(split.host_port());
    if let Some(index) = host {
        let (host_name, host_port) = split_port(head.fields[index].value(&head.bytes));
        let same_port = host_port == port || (is_default(port) && is_default(host_port));
        if !eq_ignore_case(name, host_name) || !same_port {
            tolerate_host(head, index, options)?;
        }
    }
    if default.is_none() {
        return Ok(());
    }
    let split = uri::split(head.target());
    let (name, port) = split_port(split.host_port());
    // An empty path means the root. For OPTIONS, it means the server as a whole (RFC 9112, 3.2.4).
    let bare = split.authority_end() == head.target().len() && head.method_id != Method::Options;
    if port.is_some() && is_default(port) {
        // If a different `Host` is tolerated, the authority that replaces it was not validated yet.
        if host.is_some() && !is_host_value(name) {
            return Err(ParseError { kind: ErrorKind::HostCharacter, offset: head.target.start as usize });
        }
        let name = name.to_vec();
        let cut = split.authority_end() - port.map_or(0, |p| p.len() + 1);
        let rest = if bare { &b"/"[..] } else { &head.target()[split.authority_end()..] };
        let target = [&head.target()[..cut], rest].concat();
        head.set_target(&target);
        if let Some(index) = host {
            head.replace_value_at(index, &name);
        }
    } else if bare {
        let target = [head.target(), b"/"].concat();
        head.set_target(&target);
    }
    Ok(())
}
