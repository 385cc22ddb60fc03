//! Prefix codes (RFC 7932, 3): their construction from counts of symbols, and their representation in the stream.

use super::bits::BitWriter;

/// The length of the longest code.
const LONGEST: u8 = 15;
/// The length of the longest code of a code length.
const LONGEST_OF_LENGTHS: u8 = 5;
/// The number of code length symbols: the lengths, and two for repetitions.
const LENGTHS: usize = 18;
/// Repeats the previous length.
const REPEAT: u8 = 16;
/// Repeats zero.
const ZEROS: u8 = 17;
/// The order in which the lengths of code length codes are written.
const ORDER: [usize; LENGTHS] = [1, 2, 3, 4, 0, 5, 17, 6, 16, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// By length of a code length code: its representation and the number of bits of that.
const LENGTH_CODES: [(u32, u32); 6] = [(0, 2), (7, 4), (3, 3), (2, 2), (1, 2), (15, 4)];

/// The code of an alphabet with `N` symbols.
#[derive(Debug)]
pub(crate) struct PrefixCode<const N: usize> {
    lengths: [u8; N],
    /// The symbol of a code with a single one, which takes no bits.
    only: usize,
    /// The codes, first bit lowest.
    codes: [u16; N],
}

impl<const N: usize> PrefixCode<N> {
    /// Creates the code for symbols that occur as often as `counts` states.
    pub(crate) fn new(counts: &[u32; N]) -> Self {
        let mut lengths = lengths(counts, LONGEST);
        let mut used =
            lengths.iter().enumerate().filter(|(_, length)| **length > 0).map(|(symbol, _)| symbol);
        let only = used.next().unwrap_or(0);
        if used.next().is_none() {
            lengths[only] = 0;
        }
        Self { lengths, only, codes: codes(&lengths) }
    }

    /// Writes a symbol.
    #[inline(always)]
    pub(crate) fn put(&self, symbol: usize, bits: &mut BitWriter, out: &mut Vec<u8>) {
        bits.add(self.codes[symbol].into(), self.lengths[symbol].into(), out);
    }

    /// Writes the description of the code.
    pub(crate) fn describe(&self, bits: &mut BitWriter, out: &mut Vec<u8>) {
        let mut used = [0; 4];
        let mut number = 0;
        for (symbol, length) in self.lengths.iter().enumerate() {
            if *length > 0 {
                if let Some(slot) = used.get_mut(number) {
                    *slot = symbol;
                }
                number += 1;
            }
        }
        match number {
            0 => self.describe_simple(&mut [self.only], bits, out),
            1..=4 => self.describe_simple(&mut used[..number], bits, out),
            _ => self.describe_complex(bits, out),
        }
    }

    /// Names up to four symbols, from which their number implies the lengths.
    fn describe_simple(&self, used: &mut [usize], bits: &mut BitWriter, out: &mut Vec<u8>) {
        used.sort_by_key(|symbol| (self.lengths[*symbol], *symbol));
        bits.add(1 | (used.len() as u32 - 1) << 2, 4, out);
        for symbol in &*used {
            bits.add(*symbol as u32, (N - 1).ilog2() + 1, out);
        }
        if used.len() == 4 {
            // One bit distinguishes codes of two bits each from codes of one, two and three bits.
            bits.add((self.lengths[used[0]] == 1).into(), 1, out);
        }
    }

    fn describe_complex(&self, bits: &mut BitWriter, out: &mut Vec<u8>) {
        let end = self.lengths.iter().rposition(|length| *length > 0).map_or(0, |last| last + 1);
        let runs = runs(&self.lengths[..end]);
        let mut counts = [0; LENGTHS];
        for (symbol, _) in &runs {
            counts[usize::from(*symbol)] += 1;
        }
        let lengths = lengths(&counts, LONGEST_OF_LENGTHS);
        let codes = codes(&lengths);
        let is_single = lengths.iter().filter(|length| **length > 0).count() == 1;
        // Zeros at the end are omitted, but with a single code no length completes the set.
        let written = if is_single {
            LENGTHS
        } else {
            ORDER.iter().rposition(|symbol| lengths[*symbol] > 0).map_or(0, |last| last + 1)
        };
        let skipped = match ORDER.iter().take_while(|symbol| lengths[**symbol] == 0).count() {
            0 | 1 => 0,
            2 => 2,
            _ => 3,
        };
        bits.add(skipped as u32, 2, out);
        for symbol in &ORDER[skipped..written] {
            let (code, count) = LENGTH_CODES[usize::from(lengths[*symbol])];
            bits.add(code, count, out);
        }
        for (symbol, more) in runs {
            if !is_single {
                bits.add(codes[usize::from(symbol)].into(), lengths[usize::from(symbol)].into(), out);
            }
            match symbol {
                REPEAT => bits.add(more.into(), 2, out),
                ZEROS => bits.add(more.into(), 3, out),
                _ => {}
            }
        }
    }
}

/// Returns the code length symbols for a sequence of lengths, with the extra bits of repetitions.
fn runs(mut lengths: &[u8]) -> Vec<(u8, u8)> {
    let mut runs = Vec::with_capacity(lengths.len());
    // The value that a repetition at the beginning refers to.
    let mut previous = 8;
    while let Some(first) = lengths.first().copied() {
        let count = lengths.iter().take_while(|length| **length == first).count();
        lengths = &lengths[count..];
        if first == 0 {
            repeat(0, ZEROS, 3, count, &mut runs);
        } else {
            let known = usize::from(first == previous);
            if known == 0 {
                runs.push((first, 0));
            }
            repeat(first, REPEAT, 2, count - (1 - known), &mut runs);
            previous = first;
        }
    }
    runs
}

/// Adds `count` repetitions of a length. A repetition symbol stands for at least three of them. Consecutive ones are the digits of
/// the number of repetitions, each of which has `width` bits and is at least one.
fn repeat(length: u8, symbol: u8, width: u32, count: usize, runs: &mut Vec<(u8, u8)>) {
    if count < 3 {
        runs.extend(std::iter::repeat_n((length, 0), count));
        return;
    }
    let start = runs.len();
    let mut left = count - 3;
    loop {
        runs.push((symbol, (left & ((1 << width) - 1)) as u8));
        left >>= width;
        if left == 0 {
            break;
        }
        left -= 1;
    }
    runs[start..].reverse();
}

/// Returns the code lengths of an optimal prefix code, limited to `longest` bits.
fn lengths<const N: usize>(counts: &[u32; N], longest: u8) -> [u8; N] {
    let mut lengths = [0; N];
    // Rare symbols count as more frequent ones until no code is too long.
    let mut least = 1;
    while !unlimited_lengths(counts, least, longest, &mut lengths) {
        least *= 2;
    }
    lengths
}

/// Computes code lengths by Huffman's algorithm, and returns whether all are short enough.
fn unlimited_lengths<const N: usize>(
    counts: &[u32; N],
    least: u32,
    longest: u8,
    lengths: &mut [u8; N],
) -> bool {
    lengths.fill(0);
    let mut leaves: Vec<(u32, u16)> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(symbol, count)| ((*count).max(least), symbol as u16))
        .collect();
    if let [(_, symbol)] = leaves[..] {
        lengths[usize::from(symbol)] = 1;
        return true;
    }
    leaves.sort_unstable();
    // Inner nodes arise in the order of their weights, so that two queues replace a heap. Nodes are numbered leaves first.
    let mut weights: Vec<u32> = leaves.iter().map(|(weight, _)| *weight).collect();
    let number = leaves.len();
    let mut parents = vec![0; (2 * number).saturating_sub(1)];
    let (mut leaf, mut inner) = (0, number);
    while weights.len() + 1 < 2 * number {
        let mut weight = 0;
        for _ in 0..2 {
            let is_leaf = leaf < number && (inner >= weights.len() || weights[leaf] <= weights[inner]);
            let node = if is_leaf { &mut leaf } else { &mut inner };
            weight += weights[*node];
            parents[*node] = weights.len();
            *node += 1;
        }
        weights.push(weight);
    }
    let mut depths = vec![0u8; parents.len()];
    for node in (0..parents.len().saturating_sub(1)).rev() {
        depths[node] = depths[parents[node]].saturating_add(1);
    }
    for (node, (_, symbol)) in leaves.iter().enumerate() {
        lengths[usize::from(*symbol)] = depths[node];
    }
    lengths.iter().all(|length| *length <= longest)
}

/// Assigns codes in the order of length and symbol.
fn codes<const N: usize>(lengths: &[u8; N]) -> [u16; N] {
    let mut numbers = [0u32; LONGEST as usize + 1];
    for length in lengths.iter().filter(|length| **length > 0) {
        numbers[usize::from(*length)] += 1;
    }
    let mut next = [0u32; LONGEST as usize + 1];
    for length in 1..next.len() {
        next[length] = (next[length - 1] + numbers[length - 1]) << 1;
    }
    let mut codes = [0; N];
    for (code, length) in codes.iter_mut().zip(lengths) {
        if *length > 0 {
            let entry = &mut next[usize::from(*length)];
            *code = (*entry as u16).reverse_bits() >> (16 - length);
            *entry += 1;
        }
    }
    codes
}
