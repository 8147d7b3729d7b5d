#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tower_singleflight::fuzzing::pieces(data));
