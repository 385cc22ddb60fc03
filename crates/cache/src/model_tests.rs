//! Tests a cache with all its features (validation, files, readers of arriving responses) against a model of RFC 9111, with random
//! requests, responses, purges, crashes and corrupt files. In this test files are in memory, and the clock is a number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::Head;
use proptest::prelude::*;

use crate::{
    BLOCK, Blocks, CacheRequest, CacheSettings, Clocks, Described, Disk, Feed, FileChange, FileFeed,
    FileHeader, FileRead, Filling, FlightTurn, HEADER, Loaded, Lookup, Now, Object, Piece, Purge, Store,
    ask_whether, describe, header, is_about, may_validate, read, sum,
};

const WALL: i64 = 1_700_000_000;

fn at(ms: u64) -> Now {
    Now { ms, wall: WALL + ms as i64 / 1000 }
}

fn settings() -> CacheSettings {
    CacheSettings {
        blocks: 24,
        max_object: 12_000,
        vary: true,
        revalidation: true,
        wait_ms: 1000,
        tags: Some("cache-tag".into()),
        disk: Some(Disk { directory: "/".into(), size: 40_000 }),
        ..CacheSettings::new("c", 24)
    }
}

fn get(path: &str, origin: &str) -> Head {
    let mut head = Head::new();
    head.start_request(b"GET", path.as_bytes());
    head.append(b"Host", b"h");
    head.append(b"Origin", origin.as_bytes());
    head
}

fn response(status: u16, tag: &str, lifetime: u64, path: &str) -> Head {
    let mut head = Head::new();
    head.start_response(status, None);
    head.append(b"ETag", format!("\"{tag}\"").as_bytes());
    head.append(b"Cache-Control", format!("max-age={lifetime}").as_bytes());
    head.append(b"Vary", b"origin");
    head.append(b"Cache-Tag", path.trim_start_matches('/').as_bytes());
    head
}

fn clocks(ms: u64) -> Clocks {
    Clocks { ms, wall_ms: WALL * 1000 + ms as i64 }
}

/// A body that is read in blocks.
#[derive(Debug)]
struct Whole(Vec<u8>);

impl Blocks for Whole {
    fn read(&self, block: u64) -> Option<Vec<u8>> {
        self.0.chunks(BLOCK).nth(block as usize).map(<[u8]>::to_vec)
    }
}

/// The simulated disk: the content of each file by number, and the parts of the file that is being written.
#[derive(Default)]
struct Files(BTreeMap<u64, Vec<u8>>, Vec<u8>, Vec<u8>);

impl Files {
    /// Performs queued changes: all of them, or only `most` before a power failure.
    fn change(&mut self, store: &Store, ms: u64, mut most: usize) {
        let files = store.files.as_ref().expect("files");
        while most > 0
            && let Some(change) = files.waiting_change()
        {
            most -= 1;
            match change {
                FileChange::Remove(number) => _ = self.0.remove(&number),
                FileChange::Write(entry, object) => {
                    if entry.is_gone() {
                        files.written(&entry, false);
                        continue;
                    }
                    let bytes = file_of(&object, entry.number, clocks(ms));
                    assert_eq!(bytes.len() as u64, entry.size);
                    self.0.insert(entry.number, bytes);
                    assert!(files.written(&entry, true));
                }
                FileChange::Create(own) => self.1 = own.describe(clocks(ms)),
                FileChange::Append(_, bytes) => {
                    files.changed(bytes.len() as u64);
                    self.2.extend(bytes);
                }
                FileChange::Commit(own, entry, body) => {
                    let (described, blocks) = (std::mem::take(&mut self.1), std::mem::take(&mut self.2));
                    let bytes = [header(own.number, body, &described), described, blocks].concat();
                    assert_eq!(bytes.len() as u64, entry.size);
                    if files.written(&entry, true) {
                        self.0.insert(own.number, bytes);
                    }
                }
                FileChange::Abort(_) => (self.1, self.2) = (Vec::new(), Vec::new()),
            }
        }
    }

    fn described(&self, number: u64, ms: u64) -> Option<(FileHeader, Described)> {
        let bytes = self.0.get(&number)?;
        let header = FileHeader::read(bytes).ok()?;
        if header.number != number || header.size() != bytes.len() as u64 {
            return None;
        }
        let text = bytes.get(HEADER..HEADER + header.described as usize)?;
        Some((header, read(&header, text, clocks(ms)).ok()?))
    }

    fn body(&self, header: &FileHeader) -> Option<Vec<u8>> {
        let mut rest = self.0.get(&header.number)?.get(header.blocks_at() as usize..)?;
        let mut body = Vec::new();
        for block in 0..header.blocks() {
            let length = (header.body as usize - body.len()).min(BLOCK);
            let (data, behind) = rest.split_at_checked(length)?;
            let (told, behind) = behind.split_at_checked(8)?;
            if sum(header.number, block, data) != told {
                return None;
            }
            body.extend_from_slice(data);
            rest = behind;
        }
        Some(body)
    }

    /// Performs queued reads.
    fn read(&mut self, store: &Arc<Store>, ms: u64) {
        let files = store.files.as_ref().expect("files");
        while let Some(read) = files.waiting_read() {
            let FileRead::Load(entry, load) = read else { continue };
            if entry.is_long() {
                let described = self.described(entry.number, ms);
                let long = described.and_then(|(header, described)| {
                    let blocks = Arc::new(Whole(self.body(&header)?));
                    Some(Loaded::Long(files.long(&entry, described, header.body, blocks)))
                });
                if long.is_none() {
                    files.wrong(&entry);
                }
                load.end(long.filter(|_| !entry.is_gone()));
                continue;
            }
            let kept = self.described(entry.number, ms).and_then(|(header, described)| {
                let reserved = store.reserve(&entry, &described, &header, ms)?;
                Some((described, self.body(&header)?, reserved))
            });
            let object = match kept {
                Some((described, body, reserved)) => store.promote(&entry, described, body, reserved, ms),
                None => {
                    files.wrong(&entry);
                    None
                }
            };
            load.end(object.map(Loaded::Kept));
        }
    }

    /// Scans the files as the next process would do.
    fn scan(&mut self, store: &Store, ms: u64) {
        let numbers: Vec<u64> = self.0.keys().copied().collect();
        for number in &numbers {
            let is_found = self
                .described(*number, ms)
                .is_some_and(|(header, described)| store.found_file(&described, &header, ms));
            if !is_found {
                self.0.remove(number);
            }
        }
        store.files.as_ref().expect("files").open(numbers.last().copied().unwrap_or(0));
    }
}

fn file_of(object: &Object, number: u64, now: Clocks) -> Vec<u8> {
    let mut bytes = describe(object, number, now);
    for (block, data) in object.body.chunks(BLOCK).enumerate() {
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(&sum(number, block as u64, data));
    }
    bytes
}

/// A version of a resource at the server, with the model's knowledge about it.
#[derive(Debug, Clone)]
struct Version {
    path: usize,
    origin: usize,
    number: usize,
    fresh_until: u64,
    /// The latest of all expiry times that the server has sent, which may be in an old file.
    longest: u64,
    is_gone: bool,
}

impl Version {
    fn lives(&mut self, until: u64) {
        (self.fresh_until, self.is_gone) = (until, false);
        self.longest = self.longest.max(until);
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// A request: whether its resource has changed, and the length and lifetime of the response.
    Ask {
        path: usize,
        origin: usize,
        changes: bool,
        length: usize,
        lifetime: u64,
    },
    Purge {
        path: usize,
        by: usize,
    },
    /// A request that changes the resource.
    Change {
        path: usize,
    },
    /// A request for a response in a file that is purged before it is read.
    Race {
        path: usize,
        origin: usize,
    },
    /// The process dies after this many changes to files.
    Crash {
        changes: usize,
    },
    /// A file is truncated after this byte, or the byte is changed.
    Break {
        file: usize,
        byte: usize,
        cuts: bool,
    },
    /// The disk performs its queued jobs.
    Settle,
}

const PATHS: &[&str] = &["/a", "/ab", "/b"];
const ORIGINS: &[&str] = &["one", "two"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3usize, 0..2usize, any::<bool>(), 0..16_000usize, 1..20u64)
            .prop_map(|(path, origin, changes, length, lifetime)| Step::Ask { path, origin, changes, length, lifetime }),
        1 => (0..3usize, 0..4usize).prop_map(|(path, by)| Step::Purge { path, by }),
        1 => (0..3usize).prop_map(|path| Step::Change { path }),
        1 => (0..3usize, 0..2usize).prop_map(|(path, origin)| Step::Race { path, origin }),
        1 => (0..4usize).prop_map(|changes| Step::Crash { changes }),
        1 => (0..8usize, 0..9000usize, any::<bool>()).prop_map(|(file, byte, cuts)| Step::Break { file, byte, cuts }),
        4 => Just(Step::Settle),
    ]
}

fn body_of(number: usize, length: usize) -> Vec<u8> {
    format!("{number:08}").bytes().cycle().take(length.max(8)).collect()
}

/// Returns the number of the version that a body belongs to.
fn version_of(body: &[u8]) -> usize {
    std::str::from_utf8(&body[..8]).expect("a number").parse().expect("a number")
}

struct World {
    store: Arc<Store>,
    files: Files,
    versions: Vec<Version>,
    ms: u64,
}

/// The result of a lookup.
enum Hit {
    Fresh(Vec<u8>),
    Stale(Arc<Object>),
    Nothing,
}

impl Hit {
    fn of(found: Lookup) -> Self {
        match found {
            Lookup::Fresh(object) => Self::Fresh(object.body.to_vec()),
            Lookup::Stale(object) => Self::Stale(object),
            Lookup::Hints(_) | Lookup::Nothing => Self::Nothing,
        }
    }
}

impl World {
    /// Reads a response from its file block by block.
    fn read_long(&mut self, mut feed: FileFeed) -> Vec<u8> {
        let mut context = Context::from_waker(Waker::noop());
        let mut body = Vec::new();
        loop {
            match feed.poll_piece(&mut context) {
                Poll::Ready(Piece::Bytes(bytes, range)) => body.extend_from_slice(&bytes[range]),
                Poll::Ready(Piece::End) => return body,
                Poll::Ready(Piece::Cut) => panic!("what was whole is cut"),
                Poll::Pending => match self.store.files.as_ref().and_then(|files| files.waiting_read()) {
                    Some(FileRead::Block(_, blocks, block, fetch)) => fetch.end(blocks.read(block)),
                    other => panic!("{other:?}"),
                },
            }
        }
    }

    fn current(&mut self, path: usize, origin: usize, changes: bool) -> usize {
        let is = |version: &Version| version.path == path && version.origin == origin;
        let last = self.versions.iter().rev().find(|version| is(version)).map(|version| version.number);
        match last.filter(|_| !changes) {
            Some(number) => number,
            None => {
                let number = self.versions.len();
                self.versions.push(Version {
                    path,
                    origin,
                    number,
                    fresh_until: 0,
                    longest: 0,
                    is_gone: false,
                });
                number
            }
        }
    }

    fn find(&mut self, request: &CacheRequest, head: &Head) -> Hit {
        match self.store.find(request, head, self.ms) {
            Lookup::Fresh(object) => Hit::Fresh(object.body.to_vec()),
            found => {
                let is_stale = matches!(found, Lookup::Stale(_));
                let Some(mut loading) = self.store.find_file(request, head, self.ms, is_stale) else {
                    return Hit::of(found);
                };
                self.files.read(&self.store, self.ms);
                let mut context = Context::from_waker(Waker::noop());
                let Poll::Ready(loaded) = loading.poll_loaded(&mut context) else {
                    panic!("nothing was read")
                };
                if let Some(feed) = loaded.and_then(|loaded| loaded.feed(self.ms)) {
                    return Hit::Fresh(self.read_long(feed));
                }
                Hit::of(self.store.find(request, head, self.ms))
            }
        }
    }

    fn ask(&mut self, (path, origin): (usize, usize), changes: bool, length: usize, lifetime: u64) {
        let head = get(PATHS[path], ORIGINS[origin]);
        let mut request = self.store.request(&head).expect("a resource");
        let stale = match self.find(&request, &head) {
            Hit::Fresh(body) => {
                let version = &self.versions[version_of(&body)];
                assert_eq!((version.path, version.origin), (path, origin), "what was meant for another");
                assert!(self.ms < version.fresh_until, "{version:?} is stale at {}", self.ms);
                assert!(!version.is_gone, "{version:?} was taken out");
                assert_eq!(body, body_of(version.number, body.len()));
                return;
            }
            Hit::Stale(object) => Some(object),
            Hit::Nothing => None,
        };
        self.store.prepare(&mut request, &head);
        let number = self.current(path, origin, changes);
        let (tag, ms) = (number.to_string(), self.ms);
        let until = ms + lifetime * 1000;
        if let Some(stale) = stale {
            let mut asking = head.clone();
            assert!(may_validate(&asking));
            _ = ask_whether(&mut asking, &stale);
            let own = format!("\"{tag}\"");
            if asking.get_known(http::KnownName::IfNoneMatch) == Some(own.as_bytes()) {
                let told = response(304, &tag, lifetime, PATHS[path]);
                assert!(is_about(&told, &stale));
                assert_eq!(version_of(&stale.body), number, "another version has that tag");
                let (fresh, is_kept) = self.store.freshen(&stale, &told, at(ms));
                assert!(fresh.is_fresh(ms) && fresh.body[..] == stale.body[..]);
                if is_kept {
                    self.versions[number].lives(until);
                }
                return;
            }
        }
        let told = response(200, &tag, lifetime, PATHS[path]);
        // The server declares the length of some bodies.
        let told_length = length.is_multiple_of(2).then_some(length.max(8) as u64);
        let Some(mut filling) = self.store.begin(&request, &told, told_length, at(ms)) else { return };
        body_of(number, length).chunks(700).for_each(|piece| filling.push(piece, ms));
        filling.finish(ms);
        let version = &mut self.versions[number];
        let before = std::mem::replace(&mut version.fresh_until, 0);
        version.lives(until);
        if !matches!(self.store.find(&request, &head, ms), Lookup::Fresh(_)) {
            // This response may not have been stored: the previous one may be used until its own expiry.
            version.fresh_until = version.fresh_until.max(before);
        }
    }

    fn purge(&mut self, path: usize, by: usize) {
        let name = PATHS[path];
        let (key, tag) = (format!("h{name}"), &name[1..]);
        let purge = match by {
            0 => Purge::Key(key.as_bytes()),
            1 => Purge::Prefix(key.as_bytes()),
            2 => Purge::Tag(tag.as_bytes()),
            _ => Purge::All,
        };
        self.store.purge(&purge);
        self.gone(|other| match by {
            0 | 2 => other == name,
            1 => other.starts_with(name),
            _ => true,
        });
    }

    fn change(&mut self, path: usize) {
        self.store.remove(&self.store.request(&get(PATHS[path], "")).expect("a resource"));
        self.gone(|other| other == PATHS[path]);
    }

    fn race(&mut self, path: usize, origin: usize) {
        let head = get(PATHS[path], ORIGINS[origin]);
        let request = self.store.request(&head).expect("a resource");
        if let Some(_loading) = self.store.find_file(&request, &head, self.ms, false) {
            self.store.purge(&Purge::Key(format!("h{}", PATHS[path]).as_bytes()));
            self.files.read(&self.store, self.ms);
            self.gone(|other| other == PATHS[path]);
        }
    }

    /// Responses for paths for which `is_meant` holds must not be used again while the process runs.
    fn gone(&mut self, is_meant: impl Fn(&str) -> bool) {
        for version in self.versions.iter_mut().filter(|version| is_meant(PATHS[version.path])) {
            (version.is_gone, version.longest) = (true, 0);
        }
        self.files.change(&self.store, self.ms, usize::MAX);
    }

    fn crash(&mut self, changes: usize) {
        self.files.change(&self.store, self.ms, changes);
        (self.files.1, self.files.2) = (Vec::new(), Vec::new());
        if self.store.files.as_ref().is_some_and(|files| files.waiting_change().is_some()) {
            // If the removal of a file (to make room) was lost, the file is found again. Its expiry may then be later than a newer
            // expiry time from the server, which is lost.
            self.versions.iter_mut().for_each(|version| version.fresh_until = version.longest);
        }
        self.store = Store::new(settings());
        self.files.scan(&self.store, self.ms);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn no_stale_purged_corrupt_or_wrong_response_is_used(
        steps in prop::collection::vec((step(), 0..800u64), 1..60),
    ) {
        let (store, files) = (Store::new(settings()), Files::default());
        let mut world = World { store, files, versions: Vec::new(), ms: 1_000_000 };
        world.files.scan(&world.store, world.ms);
        for (step, passed) in steps {
            world.ms += passed;
            match step {
                Step::Ask { path, origin, changes, length, lifetime } => {
                    world.ask((path, origin), changes, length, lifetime);
                }
                Step::Purge { path, by } => world.purge(path, by),
                Step::Change { path } => world.change(path),
                Step::Race { path, origin } => world.race(path, origin),
                Step::Crash { changes } => world.crash(changes),
                Step::Break { file, byte, cuts } => {
                    if let Some(bytes) = world.files.0.values_mut().nth(file)
                        && byte < bytes.len()
                    {
                        if cuts { bytes.truncate(byte) } else { bytes[byte] ^= 1 }
                    }
                }
                Step::Settle => world.files.change(&world.store, world.ms, usize::MAX),
            }
            world.store.files.as_ref().expect("files").check();
        }
    }

    #[test]
    fn readers_get_the_whole_body_or_a_truncation(
        pieces in prop::collection::vec((1..3000usize, prop::collection::vec(0..4usize, 0..6)), 1..20),
        joins in prop::collection::vec(0..20usize, 4),
        end in 0..3usize,
        part in prop::option::of((0..20_000u64, 0..20_000u64)),
    ) {
        let store = Store::new(CacheSettings { disk: None, ..settings() });
        let head = get("/a", "one");
        let mut request = store.request(&head).expect("a resource");
        store.prepare(&mut request, &head);
        let FlightTurn::Leads(lead) = store.board(&request, &head, 1) else { panic!("nobody leads") };
        let told = response(200, "1", 9, "/a");
        let mut filling = store.begin(&request, &told, None, at(1)).expect("it may be kept");
        filling.lead(Some(lead));
        let (mut readers, mut sent) = (Vec::<(usize, Reader)>::new(), Vec::new());
        for (at, (length, reads)) in pieces.iter().enumerate() {
            let piece: Vec<u8> = (0..*length).map(|byte| (sent.len() + byte) as u8).collect();
            filling.push(&piece, 1);
            sent.extend_from_slice(&piece);
            for (number, _) in joins.iter().enumerate().filter(|(_, join)| **join == at) {
                // Readers of a response that has grown too long do not get the rest.
                if let FlightTurn::Joins(feed) = store.board(&request, &head, 1) {
                    readers.push((number, Reader::new(feed, part)));
                }
            }
            for (_, reader) in readers.iter_mut().filter(|(number, _)| reads.contains(number)) {
                reader.read();
            }
        }
        finish(filling, end);
        let wanted = part.map_or(&sent[..], |(from, until)| {
            let length = sent.len() as u64;
            let (from, until) = (from.min(until).min(length), until.max(from).min(length));
            &sent[from as usize..until as usize]
        });
        for (_, reader) in &mut readers {
            while reader.ended.is_none() {
                reader.read();
            }
            prop_assert!(wanted.starts_with(&reader.got), "something else came");
            if reader.ended == Some(true) && part.is_none() {
                prop_assert!(end == 0, "what was cut looks whole");
                prop_assert_eq!(&reader.got, &sent);
            }
            if end == 0 && sent.len() < 8000 {
                prop_assert_eq!(&reader.got, &wanted.to_vec());
            }
        }
        drop(readers);
        store.purge(&Purge::All);
        prop_assert_eq!(store.free(), store.settings.blocks, "memory is not given back");
    }
}

fn finish(mut filling: Filling, end: usize) {
    if end == 0 {
        filling.finish(1);
    }
}

/// A reader, and the data that it has got.
struct Reader {
    feed: Feed,
    got: Vec<u8>,
    ended: Option<bool>,
}

impl Reader {
    fn new(mut feed: Feed, part: Option<(u64, u64)>) -> Self {
        if let Some((from, until)) = part {
            feed.narrow(from.min(until)..until.max(from));
        }
        Self { feed, got: Vec::new(), ended: None }
    }

    fn read(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while self.ended.is_none() {
            match self.feed.poll_piece(&mut context) {
                Poll::Ready(Piece::Bytes(bytes, range)) => self.got.extend_from_slice(&bytes[range]),
                Poll::Ready(Piece::End) => self.ended = Some(true),
                Poll::Ready(Piece::Cut) => self.ended = Some(false),
                Poll::Pending => break,
            }
        }
    }
}
