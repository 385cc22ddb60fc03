//! Validation of what is stale (RFC 9111, 4.3): the request that asks whether it is still what it
//! was, and what a response of 304 makes of it.

use std::sync::Arc;

use http::{Head, KnownName, Name};

use crate::freshness::{Lifetime, Now};
use crate::identity::Identity;
use crate::object::{Object, blocks_of, memory};
use crate::request::is_of_message;
use crate::store::{Bucket, Store};
use crate::times::FreshnessTimes;

/// Conditions that say what a cache has.
const CONDITIONS: [KnownName; 2] = [KnownName::IfNoneMatch, KnownName::IfModifiedSince];

/// Fields of requests that ask for a part, or for nothing unless the client knows what there is.
const OTHERS: [KnownName; 4] =
    [KnownName::Range, KnownName::IfRange, KnownName::IfMatch, KnownName::IfUnmodifiedSince];

impl Object {
    /// Whether a server can be asked if it is still what it was.
    pub fn has_validator(&self) -> bool {
        !self.is_hints
            && [KnownName::Etag, KnownName::LastModified]
                .into_iter()
                .any(|name| self.head.get_known(name).is_some())
    }
}

/// Whether a request of this head may be made one that asks whether what is kept still holds: it
/// asks for the whole. What it says itself of what its client has is the cache's to answer.
pub fn may_validate(request: &Head) -> bool {
    OTHERS.into_iter().all(|name| request.get_known(name).is_none())
}

/// What a request says of what its client has.
#[derive(Debug)]
pub struct Conditions(Box<Head>);

impl Conditions {
    /// Puts that in the place of what the request says now.
    pub fn restore(&self, request: &mut Head) {
        ask_for_whole(request);
        self.0.fields().for_each(|(name, value)| _ = request.append(name, value));
    }
}

/// Has the request ask whether `object` is still what it was (RFC 9111, 4.3.1); what it said itself.
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

/// Has the request ask for all of it, whatever its client has.
pub fn ask_for_whole(request: &mut Head) {
    CONDITIONS.into_iter().chain(OTHERS).for_each(|name| _ = request.remove_known(name));
}

/// Whether a response of 304 is about `object` (RFC 9111, 4.3.4): a tag that it has must be the
/// object's. Servers that leave out what they were asked with are taken at their word.
pub fn is_about(response: &Head, object: &Object) -> bool {
    let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    let (told, own) = (response.get_known(KnownName::Etag), object.head.get_known(KnownName::Etag));
    match (told, own) {
        (Some(told), Some(own)) if told.starts_with(b"\"") && own.starts_with(b"\"") => told == own,
        (Some(told), Some(own)) => opaque(told) == opaque(own),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

/// The head of what is kept, with what a response of 304 says of it.
fn freshened(kept: &Head, response: &Head) -> Head {
    // What tells of the body, and of who gets it, is that of what is kept.
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
    /// Takes a response of 304 about `old`: what that is from now on, and whether it is kept.
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
        // The memory of the body is counted already, and that of the head as it was.
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

    /// Takes `object` out, if it is there.
    pub fn remove_object(&self, object: &Arc<Object>) {
        _ = self.remove_if(object.hash, |own| std::ptr::eq(own, &**object));
    }

    /// Puts `new` in the place of `old`.
    ///
    /// # Errors
    /// That was taken out meanwhile: the object comes back.
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
    fn a_head_takes_what_a_304_says_of_it() {
        let kept = head(&[
            ("ETag", "\"a\""),
            ("Cache-Control", "max-age=1"),
            ("Cache-Control", "public"),
            ("Content-Type", "text/plain"),
            ("Content-Length", "7"),
            ("X-Kept", "1"),
        ]);
        let told = head(&[
            ("etag", "\"a\""),
            ("cache-control", "max-age=9"),
            ("content-type", "text/html"),
            ("content-length", "0"),
            ("connection", "close"),
            ("date", "now"),
            ("x-new", "2"),
        ]);
        let fresh = freshened(&kept, &told);
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
