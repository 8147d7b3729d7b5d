#!/usr/bin/env bash
# Fuzzes each target for so many seconds (60), or the targets that are named:
#
#   fuzz/run.sh [seconds [target ...]]
#
# Takes a nightly toolchain and a C++ compiler, and no cargo-fuzz; with that,
# `cargo +nightly fuzz run records` does the same.
set -euo pipefail
cd "$(dirname "$0")"

seconds="${1:-60}"
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(records pieces pushes replies keys)

host="$(rustc +nightly -vV | sed -n 's/^host: //p')"
# Coverage for the fuzzer, and checks that a release build leaves out.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1"

RUSTFLAGS="--cfg fuzzing" cargo run --quiet --example seeds
# With a target, so that build scripts are not instrumented.
cargo +nightly build --quiet --release --bins --target "$host"
built="${CARGO_TARGET_DIR:-target}/$host/release"
for target in "${targets[@]}"; do
    mkdir -p "artifacts/$target"
    "$built/$target" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=512 \
        -print_final_stats=1 -artifact_prefix="artifacts/$target/" "corpus/$target"
done
