//! Edits of a head by scripts.
//!
//! Scripts can make the same edits as actions, with the same limits. Called by `proxy`.

use http::Name;
use sample::Transaction;
use sample::regex::Regex;

use crate::action::RequestLinePart;
use crate::apply::{replace_header, set_part};
use crate::authority;

/// An edit.
#[derive(Debug)]
pub enum Edit<'a> {
    /// Adds a line.
    Add(Side, &'a [u8], &'a [u8]),
    /// Replaces all lines with a name with one line.
    Set(Side, &'a [u8], &'a [u8]),
    /// Removes all lines of a name.
    Remove(Side, &'a [u8]),
    /// Replaces the matches of an expression, either in the whole lines with this name or in each of their values.
    Replace {
        /// The message to change.
        side: Side,
        /// The name of the lines.
        name: &'a [u8],
        /// The expression to search for.
        regex: &'a Regex,
        /// The replacement, with references such as `\1`.
        with: &'a [u8],
        /// Whether comma-separated values are matched individually.
        each_value: bool,
    },
    /// The request's method.
    Method(&'a [u8]),
    /// The request's path.
    Path(&'a [u8]),
    /// The query string.
    Query(&'a [u8]),
    /// The request's target.
    Uri(&'a [u8]),
    /// The response's status and reason.
    Status(u16, Option<&'a [u8]>),
}

/// Which message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Side {
    Request,
    Response,
}

impl Edit<'_> {
    /// The message whose head is changed.
    pub fn side(&self) -> Side {
        match self {
            Self::Add(side, ..)
            | Self::Set(side, ..)
            | Self::Remove(side, _)
            | Self::Replace { side, .. } => *side,
            Self::Method(_) | Self::Path(_) | Self::Query(_) | Self::Uri(_) => Side::Request,
            Self::Status(..) => Side::Response,
        }
    }

    /// Applies the edit if the head then fits in `limit` bytes. Returns whether it was applied.
    pub fn make(&self, transaction: &mut Transaction, limit: usize) -> bool {
        let side = self.side();
        let head = match side {
            Side::Request => &mut transaction.request,
            Side::Response => &mut transaction.response,
        };
        let done = match self {
            Self::Add(_, name, value) => {
                head.fits(limit, name.len() + value.len() + 4, |_| 0) && head.append(name, value)
            }
            Self::Set(_, name, value) => {
                let known = Name::new(name);
                head.fits(limit, name.len() + value.len() + 4, |head| head.lines_len(&known)) && {
                    head.remove_all(&known);
                    head.append(name, value)
                }
            }
            Self::Remove(_, name) => {
                head.remove_all(&Name::new(name));
                true
            }
            Self::Replace { name, regex, with, each_value, .. } => {
                replace_header(head, &Name::new(name), regex, with, limit, *each_value)
            }
            Self::Method(method) => set_part(head, RequestLinePart::Method, method, limit),
            Self::Path(path) => set_part(head, RequestLinePart::Path, path, limit),
            Self::Query(query) => set_part(head, RequestLinePart::Query, query, limit),
            Self::Uri(uri) => set_part(head, RequestLinePart::Uri, uri, limit),
            Self::Status(status, reason) => {
                let fits = head.fits(limit, reason.map_or(32, <[u8]>::len), |head| head.reason().len());
                if fits {
                    head.set_status(*status, *reason);
                }
                fits
            }
        };
        if done && side == Side::Request {
            self.keep_host(transaction);
        }
        done
    }

    /// Keeps the request's authority and `Host` in sync after either of them was changed.
    fn keep_host(&self, transaction: &mut Transaction) {
        let request = &mut transaction.request;
        match self {
            Self::Add(_, name, value) | Self::Set(_, name, value) => {
                authority::target_follows(request, name, value);
            }
            Self::Replace { name, .. } => {
                let name = Name::new(name);
                if let Some(value) = request.get(&name).map(<[u8]>::to_vec) {
                    authority::target_follows(request, name.lower(), &value);
                }
            }
            Self::Uri(_) => authority::host_follows(request),
            _ => {}
        }
    }
}
