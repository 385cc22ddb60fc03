//! What the fuzzers call: each a function of bytes that must not panic.
