//! Commands: a number of literals, and a match after them (RFC 7932, 4 and 5).

/// The number of command symbols.
pub(super) const COMMANDS: usize = 704;
/// The number of distance symbols without direct and postfix codes.
pub(super) const DISTANCES: usize = 64;

const INSERT_EXTRA: [u8; 24] = [0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 12, 14, 24];
const INSERT_BASE: [u32; 24] = bases(0, &INSERT_EXTRA);
const COPY_EXTRA: [u8; 24] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 24];
const COPY_BASE: [u32; 24] = bases(2, &COPY_EXTRA);
/// The first symbol by the upper parts of the insert and the copy code.
const CELLS: [[usize; 3]; 3] = [[128, 192, 384], [256, 320, 512], [448, 576, 640]];
/// The same for commands that imply the last distance.
const IMPLICIT_CELLS: [usize; 2] = [0, 64];

/// Returns the lowest value of each code, from the numbers of extra bits.
const fn bases(first: u32, extra: &[u8; 24]) -> [u32; 24] {
    let mut bases = [first; 24];
    let mut code = 1;
    while code < 24 {
        bases[code] = bases[code - 1] + (1 << extra[code - 1]);
        code += 1;
    }
    bases
}

/// Extra bits of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extra {
    pub(super) bits: u32,
    pub(super) count: u32,
}

/// A command. Symbols of lengths with their extra bits are computed again when it is written, to keep it small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BrotliCommand {
    pub(super) symbol: u16,
    pub(super) inserted: u32,
    /// Zero for the last command of a block, which ends after the literals.
    pub(super) copied: u32,
    /// `None` if the command implies the last distance, or has no match.
    pub(super) distance: Option<Distance>,
}

/// A distance symbol with its extra bits. The symbol implies their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Distance {
    pub(super) symbol: u8,
    bits: u32,
}

impl Distance {
    pub(super) fn extra(self) -> Extra {
        Extra { bits: self.bits, count: (u32::from(self.symbol) + 2).saturating_sub(16) / 2 }
    }
}

/// The recent distances, the last one first. They persist across blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recent(pub(super) [usize; 4]);

impl Recent {
    /// The distances at the beginning of a stream.
    pub(super) const INITIAL: Self = Self([4, 11, 15, 16]);

    /// Adds a distance.
    fn add(&mut self, distance: usize) {
        if distance != self.0[0] {
            let [first, second, third, _] = self.0;
            self.0 = [distance, first, second, third];
        }
    }

    /// Returns the symbol of a distance.
    fn symbol(&self, distance: usize) -> Distance {
        if let Some(index) = self.0.iter().position(|recent| *recent == distance) {
            return Distance { symbol: index as u8, bits: 0 };
        }
        // Three below and above each of the last two: -1, +1, -2, +2, -3, +3.
        for (first, recent) in [(4, self.0[0]), (10, self.0[1])] {
            let difference = distance.abs_diff(recent);
            if difference <= 3 {
                let symbol = first + 2 * (difference as u8 - 1) + u8::from(distance > recent);
                return Distance { symbol, bits: 0 };
            }
        }
        let shifted = distance as u32 + 3;
        let count = shifted.ilog2() - 1;
        let symbol = 16 + 2 * (count - 1) + (shifted >> count & 1);
        Distance { symbol: symbol as u8, bits: shifted & ((1 << count) - 1) }
    }
}

/// Returns the code of a length, and its extra bits.
fn length_code(length: u32, bases: &[u32; 24], extra: &[u8; 24]) -> (usize, Extra) {
    let code = bases.partition_point(|base| *base <= length).saturating_sub(1);
    (code, Extra { bits: length - bases[code], count: extra[code].into() })
}

impl BrotliCommand {
    /// Creates a command that inserts literals and copies from a distance.
    pub(super) fn new(inserted: usize, copied: usize, distance: usize, recent: &mut Recent) -> Self {
        let (insert_code, _) = length_code(inserted as u32, &INSERT_BASE, &INSERT_EXTRA);
        let (copy_code, _) = length_code(copied as u32, &COPY_BASE, &COPY_EXTRA);
        let distance_code = recent.symbol(distance);
        recent.add(distance);
        let is_implicit = distance_code.symbol == 0 && insert_code < 8 && copy_code < 16;
        let cell =
            if is_implicit { IMPLICIT_CELLS[copy_code / 8] } else { CELLS[insert_code / 8][copy_code / 8] };
        Self {
            symbol: (cell + insert_code % 8 * 8 + copy_code % 8) as u16,
            inserted: inserted as u32,
            copied: copied as u32,
            distance: (!is_implicit).then_some(distance_code),
        }
    }

    /// Creates the last command of a block.
    pub(super) fn last(inserted: usize) -> Self {
        let (insert_code, _) = length_code(inserted as u32, &INSERT_BASE, &INSERT_EXTRA);
        let symbol = CELLS[insert_code / 8][0] + insert_code % 8 * 8;
        Self { symbol: symbol as u16, inserted: inserted as u32, copied: 0, distance: None }
    }

    pub(super) fn insert_extra(&self) -> Extra {
        length_code(self.inserted, &INSERT_BASE, &INSERT_EXTRA).1
    }

    pub(super) fn copy_extra(&self) -> Extra {
        match self.copied {
            0 => Extra { bits: 0, count: 0 },
            copied => length_code(copied, &COPY_BASE, &COPY_EXTRA).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_codes_of_the_standard() {
        // From the tables of RFC 7932, 5.
        for (length, code, count) in
            [(0, 0, 0), (5, 5, 0), (6, 6, 1), (33, 11, 3), (2113, 20, 10), (6210, 22, 14), (22_594, 23, 24)]
        {
            let (found, extra) = length_code(length, &INSERT_BASE, &INSERT_EXTRA);
            assert_eq!((found, extra.count), (code, count), "insert {length}");
        }
        for (length, code, count) in
            [(2, 0, 0), (9, 7, 0), (10, 8, 1), (69, 15, 4), (1093, 21, 9), (1094, 22, 10), (2118, 23, 24)]
        {
            let (found, extra) = length_code(length, &COPY_BASE, &COPY_EXTRA);
            assert_eq!((found, extra.count), (code, count), "copy {length}");
        }
    }

    #[test]
    fn every_distance_has_a_symbol_from_which_it_can_be_computed() {
        let recent = Recent([1000, 2000, 30_000, 7]);
        for distance in 1..131_057usize {
            let code = recent.symbol(distance);
            let extra = code.extra();
            let computed = match code.symbol {
                index @ 0..4 => recent.0[usize::from(index)],
                4..16 => {
                    let index = usize::from(code.symbol - 4);
                    let step = index % 6 / 2 + 1;
                    let base = recent.0[index / 6];
                    if index % 2 == 0 { base - step } else { base + step }
                }
                symbol => {
                    let high = usize::from(symbol) - 16;
                    (((2 + high % 2) << (1 + high / 2)) - 4) + extra.bits as usize + 1
                }
            };
            assert_eq!(computed, distance);
            assert!(extra.bits < 1 << extra.count);
        }
    }
}
