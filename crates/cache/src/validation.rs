//! Validation of stale responses (RFC 9111, 4.3): the conditional request, and the effect of a 304 response.

use std::sync::Arc;

use http::{Head, KnownName, Name};

use crate::freshness::{Lifetime, Now};
use crate::identity::Identity;
use crate::object::{Object, blocks_of, memory};
use crate::request::is_of_message;
use crate::store::{Bucket, Store};
use crate::times::FreshnessTimes;

/// Conditions about a cache's stored response.
const CONDITIONS: [KnownName; 2] = [KnownName::IfNoneMatch, KnownName::IfModifiedSince];

/// Request fields that ask for a part of the response, or require the current state.
const OTHERS: [KnownName; 4] =
    [KnownName::Range, KnownName::IfRange, KnownName::IfMatch, KnownName::IfUnmodifiedSince];

impl Object {
    /// Whether the server can validate the object.
    pub fn has_validator(&self) -> bool {
        !self.is_hints
            && [KnownName::Etag, KnownName::LastModified]
                .into_iter()
                .any(|name| self.head.get_known(name).is_some())
    }
}

/// Whether a request with this head may be made conditional for a validation: it must ask for the whole response. The cache itself
/// evaluates the client's conditions.
pub fn may_validate(request: &Head) -> bool {
    OTHERS.into_iter().all(|name| request.get_known(name).is_none())
}

/// The client's own conditions.
#[derive(Debug)]
pub struct Conditions(Box<Head>);

impl Conditions {
    /// Restores these conditions in the request.
    pub fn restore(&self, request: &mut Head) {
        ask_for_whole(request);
        self.0.fields().for_each(|(name, value)| _ = request.append(name, value));
    }
}

/// Makes the request conditional on `object` (RFC 9111, 4.3.1); returns the client's own conditions.
pub fn ask_whether(request: &mut Head, object: &Object) -> Conditions {
    let mut own = Head::new();
    own.start_request(b"GET", b"/");
    for name in CONDITIONS {
        for value in request.get_all(&name.into()) {
            own.push_known(name, value, false);
        }
    }
    ask_for_whole(request);
    let of = [KnownName::Etag, KnownName::LastModified];
    for (condition, validator) in CONDITIONS.into_iter().zip(of) {
        if let Some(value) = object.head.get_known(validator) {
            request.push_known(condition, value, false);
        }
    }
    Conditions(Box::new(own))
}

/// Removes all conditions and ranges from the request.
pub fn ask_for_whole(request: &mut Head) {
    CONDITIONS.into_iter().chain(OTHERS).for_each(|name| _ = request.remove_known(name));
}

/// Whether a 304 response refers to `object` (RFC 9111, 4.3.4): the tag, if present, must be the object's. Servers that omit the
/// tag are trusted.
pub fn is_about(response: &Head, object: &Object) -> bool {
    let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    let (received, own) = (response.get_known(KnownName::Etag), object.head.get_known(KnownName::Etag));
    match (received, own) {
        (Some(received), Some(own)) if received.starts_with(b"\"") && own.starts_with(b"\"") => {
            received == own
        }
        (Some(received), Some(own)) => opaque(received) == opaque(own),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

/// Returns the stored head updated by a 304 response.
fn freshened(kept: &Head, response: &Head) -> Head {
    // The fields about the body and its variant are kept from the stored response.
    const STAY: &[&[u8]] = &[b"content-encoding", b"content-range", b"content-type", b"vary"];
    let is_told =
        |name: &[u8]| !is_of_message(name) && !STAY.iter().any(|own| own.eq_ignore_ascii_case(name));
    let mut head = kept.clone();
    head.remove_if(|name, _| is_told(name) && response.get(&Name::new(name)).is_some());
    for (name, value) in response.fields().filter(|(name, _)| is_told(name)) {
        head.append(name, value);
    }
    head.shrink(0);
    head
}

impl Store {
    /// Applies a 304 response to `old`; returns the updated object, and whether it is stored.
    pub fn freshen(&self, old: &Arc<Object>, response: &Head, now: Now) -> (Arc<Object>, bool) {
        let head = freshened(&old.head, response);
        let lifetime = {
            let mut judged = head.clone();
            if let Some(age) = response.get_known(KnownName::Age) {
                judged.push_known(KnownName::Age, age, false);
            }
            Lifetime::of(&judged, &self.settings, now)
        };
        let stale =
            Lifetime { left: 0, age: 0, modified: old.times.modified, while_revalidate: 0, if_error: 0 };
        let times = FreshnessTimes::of(lifetime.unwrap_or(stale), now);
        let (key, variant, body) = (old.key.clone(), old.variant.clone(), old.body.clone());
        // The memory of the body, and that of the old head, is already counted.
        let taken = blocks_of(memory(&head, &key, &variant) + body.len() as u64);
        let room = self.take(taken.saturating_sub(old.body.blocks()), now.ms);
        let may_stay = lifetime.is_some() && room.is_some();
        let room = room.unwrap_or_else(|| self.no_room());
        let new = Object::new(Identity { hash: old.hash, key, variant }, head, body, times, room, now.ms);
        if !may_stay {
            self.remove_object(old);
            return (Arc::new(new), false);
        }
        match self.replace(old, new) {
            Ok(new) => (new, true),
            Err(new) => (Arc::new(*new), false),
        }
    }

    /// Removes `object`, if the store still has it.
    pub fn remove_object(&self, object: &Arc<Object>) {
        _ = self.remove_if(object.hash, |own| std::ptr::eq(own, &**object));
    }

    /// Replaces `old` by `new`.
    ///
    /// # Errors
    /// `old` was removed in the meantime: returns the object.
    fn replace(&self, old: &Arc<Object>, new: Object) -> Result<Arc<Object>, Box<Object>> {
        let mut gone = Bucket::new();
        let mut order = self.order();
        if !self.has(old) {
            return Err(Box::new(new));
        }
        self.take_out(old, &mut order, &mut gone);
        let new = self.put_in(new, &mut order);
        drop(order);
        self.remove_files(&new);
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&str, &str)]) -> Head {
        let mut head = Head::new();
        head.start_response(200, None);
        fields.iter().for_each(|(name, value)| _ = head.append(name.as_bytes(), value.as_bytes()));
        head
    }

    #[test]
    fn a_304_updates_the_stored_head() {
        let kept = head(&[
            ("ETag", "\"a\""),
            ("Cache-Control", "max-age=1"),
            ("Cache-Control", "public"),
            ("Content-Type", "text/plain"),
            ("Content-Length", "7"),
            ("X-Kept", "1"),
        ]);
        let received = head(&[
            ("etag", "\"a\""),
            ("cache-control", "max-age=9"),
            ("content-type", "text/html"),
            ("content-length", "0"),
            ("connection", "close"),
            ("date", "now"),
            ("x-new", "2"),
        ]);
        let fresh = freshened(&kept, &received);
        let fields: Vec<(String, String)> = fresh
            .fields()
            .map(|(name, value)| {
                (
                    String::from_utf8_lossy(name).to_ascii_lowercase(),
                    String::from_utf8_lossy(value).into_owned(),
                )
            })
            .collect();
        let wanted = [
            ("content-type", "text/plain"),
            ("content-length", "7"),
            ("x-kept", "1"),
            ("etag", "\"a\""),
            ("cache-control", "max-age=9"),
            ("date", "now"),
            ("x-new", "2"),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(fields, wanted);
    }
}
