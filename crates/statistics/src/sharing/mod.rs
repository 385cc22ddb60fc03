//! Counters that processes share (`shm-stats-file`; configuration manual, chapter 3): those of frontends,
//! backends, servers and listeners with a globally unique identifier.
//!
//! Each process has a place in a file and writes there, now and then, what it counted; what is shown
//! is that and what stands in the places of all others. Workers go on counting where they always do, and
//! know nothing of it. A process that ends leaves its place with all that is in it; the next one takes it
//! over, so that nothing is lost and nothing has to be added up. The last process that ends removes the
//! file.
//!
//! Called by the binary at start, once a second from a thread of its own, and at the end; and by whoever
//! shows statistics, who never waits here.

mod alive;
mod file;
mod layout;
mod object;

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use state::{Proxy, Server};

use self::file::{Locked, SharedFile};
use self::layout::{Holder, Identity, ObjectEntry, ObjectRecord, PROCESSES, VALUES};
use self::object::{Values, add};
use crate::identified::{self, CountedObject, ProxySide};

/// How many objects a file holds where nothing is said.
pub const MOST_OBJECTS: u32 = 2048;

/// With more records than so many in the file, who shows counters shows what the thread found last: reading
/// them takes too long for a worker's turn.
const FEW: usize = 512;

/// How long the thread that writes once a second, or a command that clears, waits for other processes.
const PATIENCE: Duration = Duration::from_millis(500);

/// An object of this process that has a place in the file.
#[derive(Debug, Clone)]
struct SharedObject {
    entry: ObjectEntry,
    object: CountedObject,
    index: u32,
    /// How often it was cleared, as far as this process has heeded.
    clearings: u64,
    /// What this place in the file had counted before the object of this process began.
    before: Values,
    /// What was added to the numbers of its checks.
    imported: [u32; 3],
}

/// The counters that this process shares.
#[derive(Debug)]
pub struct SharedCounters(Mutex<SharingInner>);

#[derive(Debug)]
struct SharingInner {
    file: SharedFile,
    own: Identity,
    /// This process's place.
    place: usize,
    objects: Vec<SharedObject>,
    /// How many records were read or written last.
    records: usize,
    /// Whether the process is about to end.
    left: bool,
    /// Objects for which there was no place: told once.
    without_place: HashSet<Box<str>>,
}

impl Drop for SharedCounters {
    /// A start that failed leaves nothing behind.
    fn drop(&mut self) {
        let mut inner = self.inner();
        if !inner.left {
            inner.leave();
        }
    }
}

/// What `clear counters` is about.
#[derive(Debug, Clone)]
pub enum Cleared {
    /// Everything.
    All,
    /// One server.
    Server(Arc<Server>),
}

/// The file that a name stands for.
fn path_of(name: &str) -> PathBuf {
    Path::new("/dev/shm").join(name.trim_start_matches('/'))
}

/// What has an identifier.
fn objects(proxies: &[&Arc<Proxy>]) -> Vec<(ObjectEntry, CountedObject)> {
    let sides = [ProxySide::Frontends, ProxySide::Backends];
    let all = sides.into_iter().flat_map(|side| identified::objects(proxies.iter().copied(), side));
    all.map(|(guid, object)| (ObjectEntry { kind: object.kind(), guid }, object)).collect()
}

fn failed(error: impl Display) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!("shared counters cannot be read or written: {text}")
}

impl SharedCounters {
    /// Opens the file `name` stands for, takes a place in it and finds the objects of `proxies` there.
    /// To be called before the process may lose sight of the file, and before there are workers.
    ///
    /// # Errors
    /// The file cannot be used, or there is not enough room in it.
    pub fn open<'p>(
        name: &str,
        most: u32,
        proxies: impl Iterator<Item = &'p Arc<Proxy>>,
    ) -> Result<Self, String> {
        let wrong = |why: String| format!("shm-stats-file: {why}.");
        let file = SharedFile::open(&path_of(name), most).map_err(wrong)?;
        let own = Identity::own();
        let place = take_place(&file, own).map_err(|why| wrong(format!("'{name}': {why}")))?;
        let (objects, without_place) = (Vec::new(), HashSet::new());
        let mut inner = SharingInner { file, own, place, objects, records: 0, left: false, without_place };
        // All objects of the configuration must have a place.
        match inner.exchange(&proxies.collect::<Vec<_>>(), PATIENCE) {
            Ok(()) => Ok(Self(Mutex::new(inner))),
            Err(why) => {
                inner.leave();
                Err(wrong(why))
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, SharingInner> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Writes what this process counted, and reads what others did.
    ///
    /// # Errors
    /// The file cannot be read or written; or objects have no place in it, which is told once.
    pub fn exchange<'p>(&self, proxies: impl Iterator<Item = &'p Arc<Proxy>>) -> Result<(), String> {
        self.inner().exchange(&proxies.collect::<Vec<_>>(), PATIENCE)
    }

    /// The same for who is about to show counters: where that would have to wait, they are shown as they
    /// were found last.
    pub fn refresh<'p>(&self, proxies: impl Iterator<Item = &'p Arc<Proxy>>) {
        if let Ok(mut inner) = self.0.try_lock()
            && inner.records <= FEW
        {
            // What is wrong is told by the next exchange.
            let _ = inner.exchange(&proxies.collect::<Vec<_>>(), Duration::ZERO);
        }
    }

    /// Whether a server's counters are among them.
    pub fn holds(&self, server: &Arc<Server>) -> bool {
        let asked = CountedObject::Server(server.clone());
        self.inner().objects.iter().any(|own| own.object.is(&asked))
    }

    /// `clear counters`: has all processes count anew.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn clear<'p>(
        &self,
        what: &Cleared,
        proxies: impl Iterator<Item = &'p Arc<Proxy>>,
    ) -> Result<(), String> {
        let mut inner = self.inner();
        inner.clear(what).map_err(failed)?;
        inner.exchange(&proxies.collect::<Vec<_>>(), PATIENCE)
    }

    /// The process ends: what it counted stays for others, or the file goes with the last of them.
    pub fn leave<'p>(&self, proxies: impl Iterator<Item = &'p Arc<Proxy>>) {
        let mut inner = self.inner();
        let _ = inner.exchange(&proxies.collect::<Vec<_>>(), PATIENCE);
        inner.leave();
    }
}

/// Takes a place in the file: one that a process left, with what it counted, before a new one.
fn take_place(file: &SharedFile, own: Identity) -> Result<usize, String> {
    let locked = file.lock(Duration::from_secs(5)).map_err(failed)?;
    let holders = locked.holders().map_err(failed)?;
    let left = |holder: &Option<Holder>| match holder {
        Some(Holder::Gone) => true,
        Some(Holder::Process(other)) => !other.runs(&own),
        _ => false,
    };
    let place = holders
        .iter()
        .position(left)
        .or_else(|| holders.iter().position(|holder| *holder == Some(Holder::Nobody)))
        .ok_or_else(|| format!("{PROCESSES} processes share its counters, and there can be no more"))?;
    locked.set_holder(place, Holder::Process(own)).map_err(failed)?;
    Ok(place)
}

/// The records of all processes but one.
struct Others(Vec<Vec<u8>>);

impl Others {
    fn read(locked: &Locked<'_>, own_place: usize, used: u32) -> io::Result<Self> {
        let holders = locked.holders()?;
        let known = holders.iter().enumerate();
        let known = known.filter(|(at, holder)| *at != own_place && **holder != Some(Holder::Nobody));
        known.map(|(at, _)| locked.records(at, used)).collect::<io::Result<_>>().map(Self)
    }

    /// What they counted of an object since it was last cleared.
    fn sum(&self, index: u32, clearings: u64) -> Values {
        let mut sum = [0; VALUES];
        for records in &self.0 {
            if let Some(record) = record(records, index).filter(|record| record.clearings == clearings) {
                add(&mut sum, &record.values);
            }
        }
        sum
    }
}

fn record(records: &[u8], index: u32) -> Option<ObjectRecord> {
    let at = index as usize * ObjectRecord::SIZE;
    ObjectRecord::read(records.get(at..at + ObjectRecord::SIZE)?)
}

impl SharingInner {
    fn exchange(&mut self, proxies: &[&Arc<Proxy>], patience: Duration) -> Result<(), String> {
        if self.left {
            return Ok(());
        }
        let mut objects = std::mem::take(&mut self.objects);
        let outcome = self.exchange_of(&mut objects, proxies, patience);
        self.objects = objects;
        outcome
    }

    fn exchange_of(
        &mut self,
        shared: &mut Vec<SharedObject>,
        proxies: &[&Arc<Proxy>],
        patience: Duration,
    ) -> Result<(), String> {
        let locked = self.file.lock(patience).map_err(failed)?;
        let missing = follow(&locked, self.place, &self.own, shared, objects(proxies)).map_err(failed)?;
        let used = locked.used().map_err(failed)?.min(locked.most());
        let clearings = locked.clearings(used).map_err(failed)?;
        for own in shared.iter_mut() {
            own.heed(&clearings);
        }
        write(&locked, self.place, used, shared).map_err(failed)?;
        locked.set_holder(self.place, Holder::Process(self.own.heard())).map_err(failed)?;
        let others = Others::read(&locked, self.place, used).map_err(failed)?;
        drop(locked);
        self.records = (others.0.len() + 1) * used as usize;
        for own in shared.iter_mut() {
            let mut values = others.sum(own.index, own.clearings);
            add(&mut values, &own.before);
            own.object.put_others(&values, &mut own.imported);
        }
        self.tell_missing(missing)
    }

    /// Tells of objects without a place, each once.
    fn tell_missing(&mut self, missing: Option<Missing>) -> Result<(), String> {
        let Some(Missing { objects, needed, most }) = missing else { return Ok(()) };
        let before = self.without_place.len();
        let first = objects.first().map(|entry| entry.guid.clone()).unwrap_or_default();
        self.without_place.extend(objects.into_iter().map(|entry| entry.guid));
        if self.without_place.len() == before {
            return Ok(());
        }
        Err(format!(
            "'{first}' finds no place among {most} objects: `shm-stats-file-max-objects` has to be at least {needed}"
        ))
    }

    fn clear(&mut self, what: &Cleared) -> io::Result<()> {
        let wanted = |own: &SharedObject| match (what, &own.object) {
            (Cleared::All, _) => true,
            (Cleared::Server(server), CountedObject::Server(own)) => Arc::ptr_eq(server, own),
            _ => false,
        };
        let locked = self.file.lock(PATIENCE)?;
        let all = locked.clearings(locked.used()?.min(locked.most()))?;
        for own in self.objects.iter().filter(|own| wanted(own)) {
            // In this process they are cleared with the next exchange, as in the others.
            let before = all.get(own.index as usize).copied().unwrap_or_default();
            locked.set_clearings(own.index, before.wrapping_add(1))?;
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.left = true;
        let Ok(locked) = self.file.lock(PATIENCE) else { return };
        let runs = |holder: &Option<Holder>| match holder {
            Some(Holder::Process(other)) => other.runs(&self.own),
            _ => false,
        };
        let Ok(holders) = locked.holders() else { return };
        let alone = !holders.iter().enumerate().any(|(at, holder)| at != self.place && runs(holder));
        // Nothing can be done about a file that cannot be written now: the next process sees that
        // this one is gone.
        let _ = if alone { locked.release() } else { locked.set_holder(self.place, Holder::Gone) };
    }
}

impl SharedObject {
    /// Begins anew if the object was cleared since.
    fn heed(&mut self, clearings: &[u64]) {
        let Some(now) = clearings.get(self.index as usize) else { return };
        if *now != self.clearings {
            self.object.clear();
            (self.clearings, self.before, self.imported) = (*now, [0; VALUES], [0; 3]);
        }
    }

    fn values(&self) -> Values {
        let mut values = self.object.own(&self.imported);
        add(&mut values, &self.before);
        values
    }
}

/// Writes the records of this process; what others left in its place of objects that it does not have
/// stays.
fn write(locked: &Locked<'_>, place: usize, used: u32, shared: &[SharedObject]) -> io::Result<()> {
    let mut bytes = locked.records(place, used)?;
    let mut own: Vec<Option<ObjectRecord>> = vec![None; used as usize];
    for one in shared {
        if let Some(record) = own.get_mut(one.index as usize) {
            *record = Some(ObjectRecord { clearings: one.clearings, in_use: true, values: one.values() });
        }
    }
    for (own, bytes) in own.into_iter().zip(bytes.chunks_exact_mut(ObjectRecord::SIZE)) {
        match own {
            Some(record) => record.write(bytes),
            None => {
                if let Some(left) = ObjectRecord::read(bytes).filter(|record| record.in_use) {
                    ObjectRecord { in_use: false, ..left }.write(bytes);
                }
            }
        }
    }
    locked.set_records(place, &bytes)
}

/// Objects for which there is no place.
struct Missing {
    objects: Vec<ObjectEntry>,
    needed: usize,
    most: u32,
}

/// Brings what is shared up to date with the objects that the process has now. Where the file cannot be
/// read or written, nothing has changed.
fn follow(
    locked: &Locked<'_>,
    place: usize,
    own: &Identity,
    shared: &mut Vec<SharedObject>,
    now: Vec<(ObjectEntry, CountedObject)>,
) -> io::Result<Option<Missing>> {
    let same = shared.len() == now.len()
        && shared.iter().zip(&now).all(|(own, (entry, object))| own.entry == *entry && own.object.is(object));
    if same {
        return Ok(None);
    }
    let used = locked.used()?.min(locked.most());
    // What the objects that go counted is in this process's records from here on.
    write(locked, place, used, shared)?;
    let known: HashMap<&ObjectEntry, &SharedObject> = shared.iter().map(|own| (&own.entry, own)).collect();
    let mut table = ObjectTable::read(locked, place, own)?;
    let records = locked.records(place, used)?;
    let wanted: HashSet<ObjectEntry> = now.iter().map(|(entry, _)| entry.clone()).collect();
    let (mut found, mut missing) = (Vec::with_capacity(now.len()), Vec::new());
    for (entry, object) in now {
        match known.get(&entry) {
            Some(own) if own.object.is(&object) => found.push((*own).clone()),
            _ => match table.find(locked, &entry, &wanted)? {
                Some((index, clearings)) => {
                    let left = record(&records, index).filter(|left| left.clearings == clearings);
                    let before = left.map_or([0; VALUES], |left| left.values);
                    found.push(SharedObject { entry, object, index, clearings, before, imported: [0; 3] });
                }
                None => missing.push(entry),
            },
        }
    }
    let needed = table.needed(&wanted);
    *shared = found;
    let told = Missing { objects: missing, needed, most: locked.most() };
    Ok((!told.objects.is_empty()).then_some(told))
}

/// The objects of the file.
struct ObjectTable {
    places: HashMap<ObjectEntry, u32>,
    used: u32,
    clearings: Vec<u64>,
    /// Objects that other running processes have.
    of_others: HashSet<u32>,
}

impl ObjectTable {
    fn read(locked: &Locked<'_>, place: usize, own: &Identity) -> io::Result<Self> {
        let used = locked.used()?.min(locked.most());
        let entries = locked.objects(used)?;
        let places = entries.into_iter().zip(0..).filter_map(|(entry, at)| Some((entry?, at))).collect();
        let mut of_others = HashSet::new();
        for (at, holder) in locked.holders()?.into_iter().enumerate() {
            let Some(Holder::Process(other)) = holder else { continue };
            if at == place || !other.runs(own) {
                continue;
            }
            let records = locked.records(at, used)?;
            let uses = |index: &u32| record(&records, *index).is_some_and(|record| record.in_use);
            of_others.extend((0..used).filter(uses));
        }
        Ok(Self { places, used, clearings: locked.clearings(used)?, of_others })
    }

    /// The place of an object and how often it was cleared: where it was, a new one, or that of an object
    /// that no process has any more. `None` where there is none.
    fn find(
        &mut self,
        locked: &Locked<'_>,
        entry: &ObjectEntry,
        wanted: &HashSet<ObjectEntry>,
    ) -> io::Result<Option<(u32, u64)>> {
        if let Some(index) = self.places.get(entry) {
            return Ok(Some((*index, self.clearings.get(*index as usize).copied().unwrap_or_default())));
        }
        if self.used < locked.most() {
            let index = self.used;
            locked.set_object(index, entry)?;
            locked.set_used(index + 1)?;
            self.used += 1;
            self.clearings.push(0);
            self.places.insert(entry.clone(), index);
            return Ok(Some((index, 0)));
        }
        let unused = |(other, index): &(&ObjectEntry, &u32)| {
            !self.of_others.contains(index) && !wanted.contains(*other)
        };
        let Some((old, index)) = self.places.iter().find(unused).map(|(old, index)| (old.clone(), *index))
        else {
            return Ok(None);
        };
        // What was counted of the object before counts no more from here on.
        let clearings = self.clearings.get(index as usize).copied().unwrap_or_default().wrapping_add(1);
        locked.set_clearings(index, clearings)?;
        locked.set_object(index, entry)?;
        self.places.remove(&old);
        self.places.insert(entry.clone(), index);
        if let Some(own) = self.clearings.get_mut(index as usize) {
            *own = clearings;
        }
        Ok(Some((index, clearings)))
    }

    /// How many places all running processes need, with the objects that are `wanted` here.
    fn needed(&self, wanted: &HashSet<ObjectEntry>) -> usize {
        let of_others = self.places.iter().filter(|(_, index)| self.of_others.contains(index));
        wanted.len() + of_others.filter(|(entry, _)| !wanted.contains(*entry)).count()
    }
}
