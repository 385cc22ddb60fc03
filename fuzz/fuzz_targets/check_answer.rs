//! Passes fuzzer input to `weir_tests::targets::check_answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_tests::targets::check_answer(bytes));
