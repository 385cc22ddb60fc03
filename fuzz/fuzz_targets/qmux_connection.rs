//! Passes fuzzer input to `weir_tests::targets::qmux_connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_tests::targets::qmux_connection(bytes));
