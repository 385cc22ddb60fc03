//! Counters shared between processes (`shm-stats-file`; configuration manual, chapter 3): those of frontends, backends, servers and
//! listeners with a globally unique identifier.
//!
//! Each process has a slot in a file and periodically writes its counters there; displayed values are the sum of its own counters
//! and those in all other slots. Workers count as usual and are not aware of it. A process that ends leaves its slot with its
//! contents. The next process takes the slot over, so nothing is lost and nothing has to be added up. The last process removes the
//! file.
//!
//! Called by the binary at start, once a second from a separate thread, and at the end. Also called before statistics are
//! displayed; then it never blocks.

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

/// The default number of objects in a file.
pub const MOST_OBJECTS: u32 = 2048;

/// If the file has more records than this, displayed counters are those that the thread has read last, because reading them takes
/// too long for a worker's turn.
const FEW: usize = 512;

/// How long the periodic thread, or a command that clears counters, waits for other processes.
const PATIENCE: Duration = Duration::from_millis(500);

/// An object of this process that has an index in the file.
#[derive(Debug, Clone)]
struct SharedObject {
    entry: ObjectEntry,
    object: CountedObject,
    index: u32,
    /// The clearing count that this process has applied.
    clearings: u64,
    /// The values in this slot before the object of this process was created.
    before: Values,
    /// The amounts added to its check counters from others.
    imported: [u32; 3],
}

/// The counters shared by this process.
#[derive(Debug)]
pub struct SharedCounters(Mutex<SharingInner>);

#[derive(Debug)]
struct SharingInner {
    file: SharedFile,
    own: Identity,
    /// The process slot.
    place: usize,
    objects: Vec<SharedObject>,
    /// The number of records in the last exchange.
    records: usize,
    /// Whether the process is about to end.
    left: bool,
    /// Objects for which the file has no room. Each is reported once.
    without_place: HashSet<Box<str>>,
}

impl Drop for SharedCounters {
    /// Cleans up after a failed start.
    fn drop(&mut self) {
        let mut inner = self.inner();
        if !inner.left {
            inner.leave();
        }
    }
}

/// The scope of `clear counters`.
#[derive(Debug, Clone)]
pub enum Cleared {
    /// Everything.
    All,
    /// One server.
    Server(Arc<Server>),
}

/// The path of the file with that name.
fn path_of(name: &str) -> PathBuf {
    Path::new("/dev/shm").join(name.trim_start_matches('/'))
}

/// The objects with an identifier.
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
    /// Opens the file `name`, takes a slot in it, and looks up the objects of `proxies`. To be called before the file may become
    /// inaccessible and before the workers start.
    ///
    /// # Errors
    /// The file cannot be used, or has too little room.
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
        // All objects of the configuration must have room in the file.
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

    /// Writes the counters of this process, and reads those of the others.
    ///
    /// # Errors
    /// The file cannot be read or written. Or the file has no room for some objects, which is reported once.
    pub fn exchange<'p>(&self, proxies: impl Iterator<Item = &'p Arc<Proxy>>) -> Result<(), String> {
        self.inner().exchange(&proxies.collect::<Vec<_>>(), PATIENCE)
    }

    /// Like [`Self::exchange`], for displaying counters: if it would have to wait, the values that were read last are used.
    pub fn refresh<'p>(&self, proxies: impl Iterator<Item = &'p Arc<Proxy>>) {
        if let Ok(mut inner) = self.0.try_lock()
            && inner.records <= FEW
        {
            // Errors are reported by the next regular exchange.
            let _ = inner.exchange(&proxies.collect::<Vec<_>>(), Duration::ZERO);
        }
    }

    /// Whether a server's counters are shared.
    pub fn holds(&self, server: &Arc<Server>) -> bool {
        let asked = CountedObject::Server(server.clone());
        self.inner().objects.iter().any(|own| own.object.is(&asked))
    }

    /// `clear counters`: clears the counters in all processes.
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

    /// Called when the process ends: its counters remain for others, or the last process removes the file.
    pub fn leave<'p>(&self, proxies: impl Iterator<Item = &'p Arc<Proxy>>) {
        let mut inner = self.inner();
        let _ = inner.exchange(&proxies.collect::<Vec<_>>(), PATIENCE);
        inner.leave();
    }
}

/// Takes a slot in the file, preferably one that another process has left, with its counters.
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
        .ok_or_else(|| format!("{PROCESSES} processes already share its counters, the maximum"))?;
    locked.set_holder(place, Holder::Process(own)).map_err(failed)?;
    Ok(place)
}

/// The records of all other processes.
struct Others(Vec<Vec<u8>>);

impl Others {
    fn read(locked: &Locked<'_>, own_place: usize, used: u32) -> io::Result<Self> {
        let holders = locked.holders()?;
        let known = holders.iter().enumerate();
        let known = known.filter(|(at, holder)| *at != own_place && **holder != Some(Holder::Nobody));
        known.map(|(at, _)| locked.records(at, used)).collect::<io::Result<_>>().map(Self)
    }

    /// The sum of the other processes' counters of an object since it was last cleared.
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

    /// Reports objects for which there is no room, each once.
    fn tell_missing(&mut self, missing: Option<Missing>) -> Result<(), String> {
        let Some(Missing { objects, needed, most }) = missing else { return Ok(()) };
        let before = self.without_place.len();
        let first = objects.first().map(|entry| entry.guid.clone()).unwrap_or_default();
        self.without_place.extend(objects.into_iter().map(|entry| entry.guid));
        if self.without_place.len() == before {
            return Ok(());
        }
        Err(format!(
            "no space for '{first}' among {most} objects: increase `shm-stats-file-max-objects` to at least {needed}"
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
            // The next exchange clears them in this process, as in the others.
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
        // Nothing can be done about a file that cannot be written: the next process notices that this one has ended.
        let _ = if alone { locked.release() } else { locked.set_holder(self.place, Holder::Gone) };
    }
}

impl SharedObject {
    /// Resets the counters if the object was cleared.
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

/// Writes the records of this process. Its predecessor's records of objects that it does not have are kept.
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

/// Objects for which the file has no room.
struct Missing {
    objects: Vec<ObjectEntry>,
    needed: usize,
    most: u32,
}

/// Updates the shared objects to the current ones of the process. If the file cannot be read or written, nothing changes.
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
    // The counters of removed objects are in this process's records from here on.
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
    let report = Missing { objects: missing, needed, most: locked.most() };
    Ok((!report.objects.is_empty()).then_some(report))
}

/// The objects in the file.
struct ObjectTable {
    places: HashMap<ObjectEntry, u32>,
    used: u32,
    clearings: Vec<u64>,
    /// Objects of other running processes.
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

    /// The index of an object and its clearing count. This is the existing index, a new one, or that of an object which no process
    /// has any more. `None` if no index is free.
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
        // Invalidates the counters of the object that had this index before.
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

    /// The number of entries that all running processes need, including the objects `wanted` by this one.
    fn needed(&self, wanted: &HashSet<ObjectEntry>) -> usize {
        let of_others = self.places.iter().filter(|(_, index)| self.of_others.contains(index));
        wanted.len() + of_others.filter(|(entry, _)| !wanted.contains(*entry)).count()
    }
}
