//! Passes fuzzer input to `weir_tests::targets::state_rows`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_tests::targets::state_rows(bytes));
