//! The coding `br` (RFC 7932). Repetitions are searched for in a window of 128 KiB, and each block of up to 64 KiB has separate prefix
//! codes. The static dictionary is not used: with its indexes, it would take half a megabyte of the program, and it shortens only
//! bodies of a few kilobytes noticeably.

mod bits;
mod commands;
mod matches;
mod prefix;

use crate::Until;
use bits::BitWriter;
use commands::{BrotliCommand, COMMANDS, DISTANCES, Recent};
use matches::{BrotliMatch, Effort, History, WINDOW_BITS};
use prefix::PrefixCode;

/// The maximum length of a block.
const BLOCK: usize = 64 * 1024;
/// The number of consecutive positions without a match after which positions are skipped.
const PATIENCE: usize = 64;

/// The memory of a state.
pub(crate) const MEMORY: usize = matches::MEMORY + BLOCK / matches::SHORTEST * size_of::<BrotliCommand>();

/// Compresses `data` as one message with a level from 1 to 9.
pub fn compress_brotli(data: &[u8], level: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() / 2);
    Brotli::new(level).write(data, Until::Finished, &mut out);
    out
}

/// The state of a stream.
#[derive(Debug)]
pub(crate) struct Brotli {
    history: History,
    /// The position up to which the input was coded.
    coded: usize,
    effort: Effort,
    recent: Recent,
    bits: BitWriter,
    has_begun: bool,
    commands: Vec<BrotliCommand>,
}

impl Brotli {
    pub(crate) fn new(level: u8) -> Self {
        Self {
            history: History::new(),
            coded: 0,
            effort: Effort::of(level),
            recent: Recent::INITIAL,
            bits: BitWriter::default(),
            has_begun: false,
            commands: Vec::new(),
        }
    }

    pub(crate) fn reset(&mut self, level: u8) {
        // The result for a body must not depend on earlier bodies.
        self.history.reset();
        (self.coded, self.effort, self.recent) = (0, Effort::of(level), Recent::INITIAL);
        (self.bits, self.has_begun) = (BitWriter::default(), false);
    }

    pub(crate) fn write(&mut self, mut data: &[u8], until: Until, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            // The window size.
            self.bits.add((WINDOW_BITS - 17) << 1 | 1, 7, out);
        }
        while !data.is_empty() {
            let taken = self.history.take(data, BLOCK - (self.history.filled - self.coded));
            data = &data[taken..];
            // Blocks end early at flushes, so the history may be full before the block is.
            if self.history.filled - self.coded == BLOCK || self.history.is_full() {
                self.block(out);
            }
        }
        match until {
            Until::Later => {}
            Until::Flushed => {
                self.block(out);
                // Empty metadata, which ends at a byte boundary.
                if self.bits.flush(out) > 0 {
                    self.bits.add(0b00_0110, 6, out);
                    self.bits.align(out);
                }
            }
            Until::Finished => {
                self.block(out);
                // An empty last block.
                self.bits.add(0b11, 2, out);
                self.bits.align(out);
            }
        }
    }

    /// Codes the pending input as one block.
    fn block(&mut self, out: &mut Vec<u8>) {
        let start = self.coded;
        let length = self.history.filled - start;
        if length == 0 {
            return;
        }
        let before = self.recent;
        self.parse();
        self.coded = self.history.filled;
        let content = &self.history.bytes[start..self.coded];
        let (unchanged, written) = (self.bits.clone(), out.len());
        self.bits.add((length as u32 - 1) << 3, 19, out);
        // Compressed, with one type of blocks for literals, commands and distances each, without direct and postfix distances, with
        // one literal context, and one code for each alphabet.
        self.bits.add(0, 14, out);
        Codes::new(&self.commands, content).write(&self.commands, content, &mut self.bits, out);
        if out.len() - written > length {
            self.recent = before;
            self.bits = unchanged;
            out.truncate(written);
            self.bits.add((length as u32 - 1) << 3 | 1 << 19, 20, out);
            self.bits.align(out);
            out.extend_from_slice(content);
        }
        if self.history.slide() {
            self.coded = self.history.filled;
        }
    }

    /// Splits the pending input into commands.
    fn parse(&mut self) {
        let Self { history, effort, recent, commands, .. } = self;
        commands.clear();
        let (mut at, mut inserted) = (self.coded, 0);
        while at < history.filled {
            let mut found = history.find(at, &recent.0, *effort);
            history.add(at);
            if found == BrotliMatch::NONE {
                let step = if effort.is_lazy { 1 } else { 1 + inserted / PATIENCE };
                let step = step.min(history.filled - at);
                at += step;
                inserted += step;
                continue;
            }
            while effort.is_lazy && at + 1 < history.filled {
                let next = history.find(at + 1, &recent.0, *effort);
                if next.score <= found.score + LITERAL_COST {
                    break;
                }
                found = next;
                at += 1;
                inserted += 1;
                history.add(at);
            }
            commands.push(BrotliCommand::new(inserted, found.length, found.distance, recent));
            for covered in at + 1..at + found.length {
                history.add(covered);
            }
            at += found.length;
            inserted = 0;
        }
        if inserted > 0 {
            commands.push(BrotliCommand::last(inserted));
        }
    }
}

/// The approximate number of bits of a literal.
const LITERAL_COST: u32 = 6;

/// The codes of a block.
struct Codes {
    literals: PrefixCode<256>,
    commands: PrefixCode<COMMANDS>,
    distances: PrefixCode<DISTANCES>,
}

impl Codes {
    /// Creates the codes for commands that produce `content`.
    fn new(list: &[BrotliCommand], content: &[u8]) -> Self {
        let (mut literals, mut commands, mut distances) = ([0; 256], [0; COMMANDS], [0; DISTANCES]);
        let mut at = 0;
        for command in list {
            commands[usize::from(command.symbol)] += 1;
            for literal in &content[at..at + command.inserted as usize] {
                literals[usize::from(*literal)] += 1;
            }
            at += (command.inserted + command.copied) as usize;
            if let Some(distance) = command.distance {
                distances[usize::from(distance.symbol)] += 1;
            }
        }
        Self {
            literals: PrefixCode::new(&literals),
            commands: PrefixCode::new(&commands),
            distances: PrefixCode::new(&distances),
        }
    }

    /// Writes the descriptions of the codes and the commands.
    fn write(&self, list: &[BrotliCommand], content: &[u8], bits: &mut BitWriter, out: &mut Vec<u8>) {
        self.literals.describe(bits, out);
        self.commands.describe(bits, out);
        self.distances.describe(bits, out);
        let mut at = 0;
        for command in list {
            self.commands.put(command.symbol.into(), bits, out);
            for extra in [command.insert_extra(), command.copy_extra()] {
                bits.add(extra.bits, extra.count, out);
            }
            for literal in &content[at..at + command.inserted as usize] {
                self.literals.put((*literal).into(), bits, out);
            }
            at += (command.inserted + command.copied) as usize;
            if let Some(distance) = command.distance {
                self.distances.put(distance.symbol.into(), bits, out);
                let extra = distance.extra();
                bits.add(extra.bits, extra.count, out);
            }
        }
    }
}
