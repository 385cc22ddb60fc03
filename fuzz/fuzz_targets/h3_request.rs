//! Passes fuzzer input to `weir_tests::targets::h3_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_tests::targets::h3_request(bytes));
