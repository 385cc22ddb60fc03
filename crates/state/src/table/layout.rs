//! The data types of stick table entries (configuration manual, 11.1), and the memory layout of an entry, which is computed once
//! when the table is created.

use std::ops::Range;

/// The type of a table's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// IPv4 addresses, 4 bytes.
    Ip4,
    /// IPv6 addresses, 16 bytes.
    Ip6,
    /// 32-bit numbers, in network order.
    Int,
    /// Text up to a maximum length in bytes.
    Str,
    /// Bytes of a fixed length.
    Bin,
}

impl KeyType {
    /// Returns the name of the type in `show table` and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ip4 => "ip",
            Self::Ip6 => "ipv6",
            Self::Int => "integer",
            Self::Str => "string",
            Self::Bin => "binary",
        }
    }
}

/// How a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// A 32-bit number.
    Word,
    /// A 64-bit number.
    Long,
    /// Events in a period.
    Rate,
    /// The number of a string in the table's dictionary; 0 for none.
    Text,
}

/// The data types, in the order used by `show table` and the peers' protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum DataType {
    ServerId,
    Gpt0,
    Gpc0,
    Gpc0Rate,
    ConnCnt,
    ConnRate,
    ConnCur,
    SessCnt,
    SessRate,
    HttpReqCnt,
    HttpReqRate,
    HttpErrCnt,
    HttpErrRate,
    BytesInCnt,
    BytesInRate,
    BytesOutCnt,
    BytesOutRate,
    Gpc1,
    Gpc1Rate,
    ServerKey,
    HttpFailCnt,
    HttpFailRate,
    Gpt,
    Gpc,
    GpcRate,
    GlitchCnt,
    GlitchRate,
}

/// The number of types.
pub const TYPES: usize = 27;

/// Maximum array length.
pub const MOST_ELEMENTS: u32 = 100;

const ALL: [(DataType, &str, ValueForm, bool); TYPES] = [
    (DataType::ServerId, "server_id", ValueForm::Word, false),
    (DataType::Gpt0, "gpt0", ValueForm::Word, false),
    (DataType::Gpc0, "gpc0", ValueForm::Word, false),
    (DataType::Gpc0Rate, "gpc0_rate", ValueForm::Rate, false),
    (DataType::ConnCnt, "conn_cnt", ValueForm::Word, false),
    (DataType::ConnRate, "conn_rate", ValueForm::Rate, false),
    (DataType::ConnCur, "conn_cur", ValueForm::Word, false),
    (DataType::SessCnt, "sess_cnt", ValueForm::Word, false),
    (DataType::SessRate, "sess_rate", ValueForm::Rate, false),
    (DataType::HttpReqCnt, "http_req_cnt", ValueForm::Word, false),
    (DataType::HttpReqRate, "http_req_rate", ValueForm::Rate, false),
    (DataType::HttpErrCnt, "http_err_cnt", ValueForm::Word, false),
    (DataType::HttpErrRate, "http_err_rate", ValueForm::Rate, false),
    (DataType::BytesInCnt, "bytes_in_cnt", ValueForm::Long, false),
    (DataType::BytesInRate, "bytes_in_rate", ValueForm::Rate, false),
    (DataType::BytesOutCnt, "bytes_out_cnt", ValueForm::Long, false),
    (DataType::BytesOutRate, "bytes_out_rate", ValueForm::Rate, false),
    (DataType::Gpc1, "gpc1", ValueForm::Word, false),
    (DataType::Gpc1Rate, "gpc1_rate", ValueForm::Rate, false),
    (DataType::ServerKey, "server_key", ValueForm::Text, false),
    (DataType::HttpFailCnt, "http_fail_cnt", ValueForm::Word, false),
    (DataType::HttpFailRate, "http_fail_rate", ValueForm::Rate, false),
    (DataType::Gpt, "gpt", ValueForm::Word, true),
    (DataType::Gpc, "gpc", ValueForm::Word, true),
    (DataType::GpcRate, "gpc_rate", ValueForm::Rate, true),
    (DataType::GlitchCnt, "glitch_cnt", ValueForm::Word, false),
    (DataType::GlitchRate, "glitch_rate", ValueForm::Rate, false),
];

impl DataType {
    /// Iterates over all types, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|(data, ..)| *data)
    }

    /// Returns the type with that name.
    pub fn find(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, own, ..)| *own == name).map(|(data, ..)| *data)
    }

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        ALL[self as usize].1
    }

    /// Returns how values of the type are stored.
    pub fn form(self) -> ValueForm {
        ALL[self as usize].2
    }

    /// Whether the type is an array.
    pub fn is_array(self) -> bool {
        ALL[self as usize].3
    }
}

/// One data type of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The data type.
    pub data: DataType,
    /// The number of elements. It is 1 except for arrays.
    pub count: u32,
    /// The period of a rate, in milliseconds; 0 for other types.
    pub period_ms: u32,
    /// The offsets of the first word and the first long of the column in an entry.
    pub(super) word: u32,
    pub(super) long: u32,
}

impl Column {
    /// Creates a column without offsets.
    pub fn new(data: DataType, count: u32, period_ms: u32) -> Self {
        Self { data, count, period_ms, word: 0, long: 0 }
    }
}

/// The layout of an entry, which consists of 32-bit words and 64-bit longs.
#[derive(Debug)]
pub(super) struct Layout {
    by_type: [Option<Column>; TYPES],
    columns: Box<[Column]>,
    /// Number of words in an entry.
    pub(super) words: usize,
    /// Number of longs in an entry.
    pub(super) longs: usize,
    /// Number of words for the key. Keys of variable length include their length.
    pub(super) key_words: usize,
    /// The position and size of the other members' parts. A part is a word with its generation, followed by values that
    /// are arranged like the entry's own.
    parts: PartLayout,
}

/// The position of the parts in an entry.
#[derive(Debug, Clone, Copy, Default)]
struct PartLayout {
    first_column: usize,
    word: usize,
    long: usize,
    words: usize,
    longs: usize,
}

/// The header words of every entry.
pub(super) mod head {
    /// The neighbours in order of age. A free entry is its own elder, and its younger neighbour is the next free entry.
    pub(in super::super) const OLDER: usize = 0;
    pub(in super::super) const NEWER: usize = 1;
    /// The number of holders.
    pub(in super::super) const HELD: usize = 2;
    /// When the entry was last touched.
    pub(in super::super) const TOUCHED: usize = 3;
    /// When the entry got its position in order of age.
    pub(in super::super) const PLACED: usize = 4;
    /// The hash of the key.
    pub(in super::super) const HASH: usize = 5;
    /// The number of the entry's last update for peers; the maximum value if it has none yet.
    pub(in super::super) const UPDATE: usize = 6;
    /// The number of header words.
    pub(in super::super) const WORDS: usize = 7;
}

impl Layout {
    /// Arranges the columns `wanted`, and the parts of `parts` other members.
    pub(super) fn new(kind: KeyType, key_length: usize, wanted: &[Column], parts: usize) -> Self {
        let length_word = usize::from(kind == KeyType::Str);
        let key_words = length_word + key_length.div_ceil(4);
        let mut layout = Self {
            by_type: [None; TYPES],
            columns: Box::default(),
            words: head::WORDS + key_words,
            longs: 0,
            key_words,
            parts: PartLayout::default(),
        };
        for data in DataType::all() {
            let Some(column) = wanted.iter().find(|column| column.data == data) else { continue };
            let placed = Column { word: layout.words as u32, long: layout.longs as u32, ..*column };
            layout.by_type[data as usize] = Some(placed);
            let count = column.count as usize;
            let (words, longs) = match data.form() {
                ValueForm::Word | ValueForm::Text => (count, 0),
                ValueForm::Long => (0, count),
                ValueForm::Rate => (count, count),
            };
            layout.words += words;
            layout.longs += longs;
        }
        layout.columns = layout.by_type.iter().flatten().copied().collect();
        let first_column = head::WORDS + key_words;
        let (words, longs) = (1 + layout.words - first_column, layout.longs);
        layout.parts = PartLayout { first_column, word: layout.words, long: longs, words, longs };
        layout.words += parts * words;
        layout.longs += parts * longs;
        layout
    }

    /// Returns the words and longs of the values of this process.
    pub(super) fn own_values(&self) -> (Range<usize>, Range<usize>) {
        (self.parts.first_column..self.parts.word, 0..self.parts.long)
    }

    /// Returns the word with the generation of a part.
    pub(super) fn part_word(&self, slot: usize) -> usize {
        self.parts.word + slot * self.parts.words
    }

    /// Returns the first word and the first long of a value in a part.
    pub(super) fn place_in_part(&self, slot: usize, column: &Column, element: usize) -> (usize, usize) {
        let word = self.part_word(slot) + 1 + column.word as usize - self.parts.first_column;
        (word + element, self.parts.long + slot * self.parts.longs + column.long as usize + element)
    }

    #[inline]
    pub(super) fn column(&self, data: DataType) -> Option<&Column> {
        self.by_type[data as usize].as_ref()
    }

    pub(super) fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_numbers_and_are_found_by_name() {
        for (number, data) in DataType::all().enumerate() {
            assert_eq!(data as usize, number);
            assert_eq!(DataType::find(data.name()), Some(data));
        }
        assert_eq!(DataType::find("gpc2"), None);
    }

    #[test]
    fn columns_do_not_overlap() {
        let wanted = [
            Column::new(DataType::GpcRate, 3, 10),
            Column::new(DataType::BytesInCnt, 1, 0),
            Column::new(DataType::Gpt, 2, 0),
            Column::new(DataType::ConnRate, 1, 10),
        ];
        let layout = Layout::new(KeyType::Str, 5, &wanted, 0);
        let place = |data| layout.column(data).map(|column| (column.word as usize, column.long));
        let first = head::WORDS + 3;
        assert_eq!(place(DataType::ConnRate), Some((first, 0)));
        assert_eq!(place(DataType::BytesInCnt), Some((first + 1, 1)));
        assert_eq!(place(DataType::Gpt), Some((first + 1, 2)));
        assert_eq!(place(DataType::GpcRate), Some((first + 3, 2)));
        assert_eq!((layout.words, layout.longs), (first + 6, 5));
        // Each part has another word.
        let layout = Layout::new(KeyType::Str, 5, &wanted, 2);
        assert_eq!((layout.words, layout.longs), (first + 6 + 2 * 7, 3 * 5));
        let tag = layout.column(DataType::Gpt).map(|column| layout.place_in_part(1, column, 1));
        assert_eq!(
            (layout.part_word(1), tag),
            (first + 6 + 7, Some((first + 6 + 7 + 1 + 1 + 1, 2 * 5 + 2 + 1)))
        );
    }
}
