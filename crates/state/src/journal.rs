//! The latest events that matter to operators: servers that change, reloads, certificates, limits that were reached.
//!
//! The journal belongs to the process, so in-place reloads keep it. Each topic has a separate bounded list, so that a server that
//! flaps does not displace a refused reload. Written by the code that reports an event; read by `show events` and other displays.
//! Recording takes a lock; events that clients can repeat are [`RepeatedEvent`]s, which take it once a minute.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base::clock::{WallTime, now_ms};

/// The subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTopic {
    /// Servers and backends: up, down, drain, maintenance, added, removed, ejected.
    Servers,
    /// Starts, reloads and stops of the process.
    Reloads,
    /// Certificates: replaced, expired, soon to expire, failed updates.
    Certificates,
    /// Limits that were reached.
    Limits,
}

impl EventTopic {
    /// All topics.
    pub const ALL: [Self; 4] = [Self::Servers, Self::Reloads, Self::Certificates, Self::Limits];

    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Servers => "servers",
            Self::Reloads => "reloads",
            Self::Certificates => "certificates",
            Self::Limits => "limits",
        }
    }

    /// The maximum number of events kept: 1,024 for all topics together.
    fn capacity(self) -> usize {
        match self {
            Self::Servers => 512,
            Self::Reloads => 64,
            Self::Certificates => 192,
            Self::Limits => 256,
        }
    }
}

/// The maximum size in bytes of an event's text, and of its object. With them, the journal takes at most 768 kB.
const LONGEST: (usize, usize) = (512, 192);

/// The time in which a repeated event is recorded once.
const REPEATED_MS: u64 = 60_000;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// The number of the event since the start of the process, from 1. Events are in this order.
    pub number: u64,
    /// When it happened, or first happened.
    pub at: WallTime,
    /// Its subject.
    pub topic: EventTopic,
    /// The name of the object: `backend/server`, a proxy, a file; `-` for the process.
    pub object: Box<str>,
    /// How often it happened within a minute from `at`.
    pub count: u64,
    /// How long the previous state lasted, or `None` if this is not a change of a state.
    pub previous: Option<Duration>,
    /// The text, as in the log message.
    pub text: Box<str>,
}

/// A recorded event.
struct Stored {
    entry: JournalEntry,
    /// For repeated events: the counter and its value before the first one of this entry.
    repeats: Option<(Arc<AtomicU64>, u64)>,
}

impl Stored {
    fn shown(&self) -> JournalEntry {
        let mut entry = self.entry.clone();
        if let Some((counter, before)) = &self.repeats {
            entry.count = counter.load(Relaxed).saturating_sub(*before).max(1);
        }
        entry
    }
}

#[derive(Default)]
struct Journal {
    recorded: u64,
    topics: [VecDeque<Stored>; 4],
}

static JOURNAL: Mutex<Journal> = Mutex::new(Journal { recorded: 0, topics: [const { VecDeque::new() }; 4] });

fn journal() -> MutexGuard<'static, Journal> {
    JOURNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cuts a text to a number of bytes, and removes line breaks.
fn bounded(text: &str, most: usize) -> Box<str> {
    let text = text.trim_end();
    let end = text.floor_char_boundary(most);
    text[..end].replace(|own: char| own.is_control(), " ").into()
}

fn push(
    topic: EventTopic,
    object: &str,
    previous: Option<Duration>,
    text: &str,
    repeats: Option<&Arc<AtomicU64>>,
) {
    let (text, object) = (bounded(text, LONGEST.0), bounded(object, LONGEST.1));
    let mut journal = journal();
    journal.recorded += 1;
    let entry = JournalEntry {
        number: journal.recorded,
        at: WallTime::now(),
        topic,
        object,
        count: 1,
        previous,
        text,
    };
    let list = &mut journal.topics[topic as usize];
    let mut before = 0;
    if let Some(counter) = repeats {
        before = counter.load(Relaxed).saturating_sub(1);
        // The earlier entry for the same event keeps its final count.
        for own in list.iter_mut().rev() {
            if own.repeats.as_ref().is_some_and(|(other, _)| Arc::ptr_eq(other, counter)) {
                own.entry.count =
                    before.saturating_sub(own.repeats.take().map_or(0, |(_, first)| first)).max(1);
                break;
            }
        }
    }
    if list.len() >= topic.capacity() {
        list.pop_front();
    }
    list.push_back(Stored { entry, repeats: repeats.map(|counter| (counter.clone(), before)) });
}

/// Records an event of `object`. For events that clients cannot cause at will.
pub fn record(topic: EventTopic, object: &str, text: &str) {
    push(topic, object, None, text, None);
}

/// Records an event of `object`, with the duration of its previous state.
pub(crate) fn record_change(topic: EventTopic, object: &str, previous: Duration, text: &str) {
    push(topic, object, Some(previous), text, None);
}

/// An event of one object that may be repeated quickly. It is recorded once a minute, with a count.
#[derive(Debug, Default)]
pub struct RepeatedEvent {
    /// When it may be recorded again, in ms of the monotonic clock.
    next_ms: AtomicU64,
    /// The number of events so far.
    count: OnceLock<Arc<AtomicU64>>,
}

impl RepeatedEvent {
    /// An event that has not happened yet.
    pub const fn new() -> Self {
        Self { next_ms: AtomicU64::new(0), count: OnceLock::new() }
    }

    /// Counts the event. `text` makes its object and text if it has to be recorded. Takes the lock of the journal at most once a
    /// minute.
    pub fn note(&self, topic: EventTopic, text: impl FnOnce() -> (String, String)) {
        self.note_at(now_ms(), topic, text);
    }

    fn note_at(&self, now_ms: u64, topic: EventTopic, text: impl FnOnce() -> (String, String)) {
        let count = self.count.get_or_init(Arc::default);
        count.fetch_add(1, Relaxed);
        let next = self.next_ms.load(Relaxed);
        if now_ms < next {
            return;
        }
        // If several threads get here, only one records the event.
        let due = now_ms + REPEATED_MS;
        if self.next_ms.compare_exchange(next, due, Relaxed, Relaxed).is_ok() {
            let (object, text) = text();
            push(topic, &object, None, &text, Some(count));
        }
    }
}

/// Returns the events that `wanted` selects, oldest first.
pub fn entries(wanted: impl Fn(&JournalEntry) -> bool) -> Vec<JournalEntry> {
    let journal = journal();
    let all = journal.topics.iter().flatten();
    let mut chosen: Vec<_> = all.filter(|own| wanted(&own.entry)).map(Stored::shown).collect();
    drop(journal);
    chosen.sort_by_key(|entry| entry.number);
    chosen
}

/// Returns the latest events of all topics, newest first.
pub fn latest(most: usize) -> Vec<JournalEntry> {
    let journal = journal();
    let recent = journal.topics.iter().flat_map(|topic| topic.iter().rev().take(most));
    let mut chosen: Vec<_> = recent.map(Stored::shown).collect();
    drop(journal);
    chosen.sort_by_key(|entry| std::cmp::Reverse(entry.number));
    chosen.truncate(most);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(object: &str) -> Vec<JournalEntry> {
        entries(|entry| &*entry.object == object)
    }

    #[test]
    fn a_topic_displaces_only_its_own_oldest_events() {
        record(EventTopic::Reloads, "kept", "reloaded");
        for number in 0..600 {
            record(EventTopic::Certificates, "many", &format!("{number}\nrest"));
        }
        let many = of("many");
        assert_eq!(many.len(), EventTopic::Certificates.capacity());
        assert_eq!(many.last().map(|entry| &*entry.text), Some("599 rest"));
        assert!(many.is_sorted_by_key(|entry| entry.number));
        assert_eq!(of("kept").len(), 1);
        let latest = latest(50);
        assert!(latest.len() == 50 && latest.is_sorted_by(|a, b| a.number > b.number));
    }

    #[test]
    fn a_repeated_event_is_recorded_once_a_minute_with_its_count() {
        let event = RepeatedEvent::new();
        let note =
            |now| event.note_at(now, EventTopic::Limits, || ("full".into(), "the queue is full".into()));
        (0..5).for_each(|at| note(1_000 + at));
        assert_eq!(of("full").iter().map(|entry| entry.count).collect::<Vec<_>>(), [5]);
        (0..3).for_each(|at| note(70_000 + at));
        note(200_000);
        assert_eq!(of("full").iter().map(|entry| entry.count).collect::<Vec<_>>(), [5, 3, 1]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        record(EventTopic::Reloads, "cut", &"é".repeat(400));
        assert_eq!(of("cut")[0].text.chars().count(), 256);
    }
}
