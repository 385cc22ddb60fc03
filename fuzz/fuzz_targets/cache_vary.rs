//! Passes fuzzer input to `weir_tests::targets::cache_vary`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_tests::targets::cache_vary(bytes));
