//! The fields of a stick table entry that fetches and converters read and change.

use state::table::{DataType, EntryValues, Table};

use crate::args::{Arg, Args};

/// A field of an entry, stored or derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fact {
    /// A stored value.
    Stored(DataType),
    /// Bytes in units of 1,024.
    Kilobytes(DataType),
    /// Bytes per period.
    BytesRate(DataType),
    /// A general purpose counter.
    Gpc,
    /// A counter's increments per period.
    GpcRate,
    /// A general purpose tag.
    Gpt,
    /// Increments a counter and returns it.
    Increment,
    /// Clears a counter and returns its previous value.
    Clear,
    /// The number of trackers.
    Trackers,
}

/// The storage of counters and tags: the arrays, or the older single fields, which are aliases of the arrays' first elements.
const GPC: [(DataType, DataType); 2] =
    [(DataType::Gpc0, DataType::Gpc0Rate), (DataType::Gpc1, DataType::Gpc1Rate)];

/// The counter to which a keyword refers. `gpc0` and `gpc1` may be elements of the arrays; an array element is only that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// `gpc0`, `gpc1`, `gpt0`.
    Named(u32),
    /// An element of `gpc`, `gpc_rate` or `gpt`.
    Of(u32),
}

impl Element {
    fn counter(self, view: &EntryValues<'_>) -> (DataType, u32) {
        self.place(view, |number| GPC[number].0, DataType::Gpc)
    }

    fn rate(self, view: &EntryValues<'_>) -> (DataType, u32) {
        self.place(view, |number| GPC[number].1, DataType::GpcRate)
    }

    fn tag(self, view: &EntryValues<'_>) -> (DataType, u32) {
        self.place(view, |_| DataType::Gpt0, DataType::Gpt)
    }

    fn place(
        self,
        view: &EntryValues<'_>,
        named: impl Fn(usize) -> DataType,
        array: DataType,
    ) -> (DataType, u32) {
        match self {
            Self::Named(number) if view.table().column(named(number as usize & 1)).is_some() => {
                (named(number as usize & 1), 0)
            }
            Self::Named(number) | Self::Of(number) => (array, number),
        }
    }
}

/// The counts to which a keyword refers, in a table that adds up the parts of several members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The counts of all members.
    All,
    /// The counts of this process (`own`).
    Own,
}

impl Counted {
    /// Returns the choice by an optional last argument.
    #[inline]
    pub(crate) fn of(args: &Args, at: usize) -> Self {
        if matches!(args.get(at), Arg::Bytes(_)) { Self::Own } else { Self::All }
    }
}

/// Checks the optional argument `own` of a keyword for `fact`, after the one for the table.
pub(crate) fn check_own(args: &[Arg], at: usize, fact: usize) -> Result<(), String> {
    let word = match args.get(at) {
        Some(Arg::Bytes(word)) => word,
        _ => return Ok(()),
    };
    if **word != *b"own" {
        let word = String::from_utf8_lossy(word);
        return Err(format!("argument {}: unknown part `{word}`; use `own` or nothing", at + 1));
    }
    if !FACTS[fact].is_summed() {
        return Err(format!("argument {}: `own` has no effect, because the value is not a sum", at + 1));
    }
    match at.checked_sub(1).and_then(|before| args.get(before)) {
        Some(Arg::Table(table)) => check_aggregate(table, at),
        _ => Ok(()),
    }
}

fn check_aggregate(table: &Table, at: usize) -> Result<(), String> {
    match table.aggregate() {
        Some(_) => Ok(()),
        None => Err(format!(
            "argument {}: `own` has no effect, because stick table `{}` is not an `aggregate`",
            at + 1,
            table.name()
        )),
    }
}

impl Fact {
    /// Whether the value is a sum in tables that add up the parts of several members.
    fn is_summed(self) -> bool {
        match self {
            Self::Stored(data) | Self::Kilobytes(data) | Self::BytesRate(data) => data.is_summed(),
            Self::Gpc | Self::GpcRate => true,
            Self::Gpt | Self::Increment | Self::Clear | Self::Trackers => false,
        }
    }

    /// Whether the keyword changes the entry, which is then created if necessary.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Increment | Self::Clear)
    }

    /// The value of the field in an entry, or `None` if the table does not store it.
    pub(crate) fn of(
        self,
        view: &EntryValues<'_>,
        (element, counted): (Element, Counted),
        now_ms: u64,
    ) -> Option<i64> {
        let get = |(data, element)| match counted {
            Counted::All => view.get(data, element, now_ms),
            Counted::Own => view.get_own(data, element, now_ms),
        };
        let value = match self {
            Self::Stored(data) => get((data, 0))?,
            Self::Kilobytes(data) => get((data, 0))? >> 10,
            Self::BytesRate(data) => get((data, 0))? * u64::from(view.table().settings.bytes_factor),
            Self::Gpc => get(element.counter(view))?,
            Self::GpcRate => get(element.rate(view))?,
            Self::Gpt => get(element.tag(view))?,
            Self::Trackers => u64::from(view.holders()),
            Self::Increment => return increment(view, element, 1, now_ms),
            Self::Clear => {
                let (data, number) = element.counter(view);
                // In an aggregate table, only the own part is cleared.
                let before = view.get(data, number, now_ms)?;
                view.swap(data, number, 0)?;
                view.touch(now_ms);
                before
            }
        };
        Some(value as i64)
    }
}

/// Adds to a counter and its rate, if the table stores them. Returns the counter or, if the table stores only the rate, its
/// events in the current period. In an aggregate table, this includes events counted by other members.
pub fn increment(view: &EntryValues<'_>, element: Element, amount: u32, now_ms: u64) -> Option<i64> {
    let add = |(data, number)| {
        let own = view.add(data, number, u64::from(amount), now_ms)?;
        let others =
            view.table().column(data).map_or(0, |column| view.others(column, number as usize, now_ms));
        Some(own.saturating_add(others))
    };
    let rate = add(element.rate(view));
    let counter = add(element.counter(view));
    let value = counter.or(rate)?;
    view.touch(now_ms);
    Some(value as i64)
}

/// Sets a tag.
pub fn tag(view: &EntryValues<'_>, element: Element, value: u32, now_ms: u64) {
    let (data, number) = element.tag(view);
    if view.set(data, number, value.into(), now_ms) {
        view.touch(now_ms);
    }
}

/// The fields available as keywords. The index is the number with which their functions are instantiated.
pub(crate) const FACTS: [Fact; 24] = [
    Fact::BytesRate(DataType::BytesInRate),
    Fact::BytesRate(DataType::BytesOutRate),
    Fact::Clear,
    Fact::Stored(DataType::ConnCnt),
    Fact::Stored(DataType::ConnCur),
    Fact::Stored(DataType::ConnRate),
    Fact::Gpc,
    Fact::Gpt,
    Fact::Stored(DataType::GlitchCnt),
    Fact::Stored(DataType::GlitchRate),
    Fact::GpcRate,
    Fact::Stored(DataType::HttpErrCnt),
    Fact::Stored(DataType::HttpErrRate),
    Fact::Stored(DataType::HttpFailCnt),
    Fact::Stored(DataType::HttpFailRate),
    Fact::Stored(DataType::HttpReqCnt),
    Fact::Stored(DataType::HttpReqRate),
    Fact::Increment,
    Fact::Kilobytes(DataType::BytesInCnt),
    Fact::Kilobytes(DataType::BytesOutCnt),
    Fact::Stored(DataType::SessCnt),
    Fact::Stored(DataType::SessRate),
    Fact::Trackers,
    Fact::Stored(DataType::ServerId),
];

/// Indexes of [`FACTS`].
#[allow(missing_docs)]
pub(crate) mod number {
    pub(crate) const BYTES_IN_RATE: usize = 0;
    pub(crate) const BYTES_OUT_RATE: usize = 1;
    pub(crate) const CLEAR: usize = 2;
    pub(crate) const CONN_CNT: usize = 3;
    pub(crate) const CONN_CUR: usize = 4;
    pub(crate) const CONN_RATE: usize = 5;
    pub(crate) const GPC: usize = 6;
    pub(crate) const GPT: usize = 7;
    pub(crate) const GLITCH_CNT: usize = 8;
    pub(crate) const GLITCH_RATE: usize = 9;
    pub(crate) const GPC_RATE: usize = 10;
    pub(crate) const HTTP_ERR_CNT: usize = 11;
    pub(crate) const HTTP_ERR_RATE: usize = 12;
    pub(crate) const HTTP_FAIL_CNT: usize = 13;
    pub(crate) const HTTP_FAIL_RATE: usize = 14;
    pub(crate) const HTTP_REQ_CNT: usize = 15;
    pub(crate) const HTTP_REQ_RATE: usize = 16;
    pub(crate) const INCREMENT: usize = 17;
    pub(crate) const KBYTES_IN: usize = 18;
    pub(crate) const KBYTES_OUT: usize = 19;
    pub(crate) const SESS_CNT: usize = 20;
    pub(crate) const SESS_RATE: usize = 21;
    pub(crate) const TRACKERS: usize = 22;
    pub(crate) const SERVER_ID: usize = 23;
}
