//! The slots of an entry in an aggregate table with owners, and the first word of a slot.

/// The slots of an entry: a sum from each owner, and one of the parts that were received directly.
pub(super) const SLOTS: usize = 3;

/// The slot of the parts that were received directly.
pub(super) const DIRECT: usize = 2;

/// How many bits of a slot's first word are the number of the member that sent it. The rest is the generation of its sums.
const MEMBER_BITS: u32 = 11;

/// The number of owners of a key.
pub const OWNERS: usize = 2;

/// The maximum number of members with owners, including this process.
pub const MOST_MEMBERS: usize = 1024;

/// In a sum, the value of a tag that no other member has changed after the receiver. It is too large for a tag. A server key without
/// a text has the same meaning.
pub const UNCHANGED: u64 = 1 << 32;

/// The word of a tag in a slot if the sender has not sent a value. Any value differs from it, except the largest tag.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// Returns the first word of a slot with a sum of a member.
pub(super) fn stamp(member: usize, generation: u32) -> u32 {
    generation << MEMBER_BITS | (member as u32 + 1)
}

/// Returns the member that sent a sum.
pub(super) fn sender(word: u32) -> Option<usize> {
    ((word & ((1 << MEMBER_BITS) - 1)) as usize).checked_sub(1)
}
