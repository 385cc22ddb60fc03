//! Calls `weir_tests::targets::first_bytes` with what the fuzzer makes up.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_tests::targets::first_bytes(bytes));
