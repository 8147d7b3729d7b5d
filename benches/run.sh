#!/usr/bin/env bash
# Measures everything, and writes the table and the plots of BENCHMARKS.md. Needs
# redis-server; valgrind and taskset where they are there.
#
#     benches/run.sh [--quick]
set -euo pipefail
cd "$(dirname "$0")"

quick=()
[ "${1:-}" != --quick ] || quick=(--quick)
target=${CARGO_TARGET_DIR:-$PWD/../target}
export CARGO_TARGET_DIR=$target

command -v redis-server >/dev/null || {
    echo "redis-server is not on the path (Debian, Ubuntu: apt-get install redis-server)" >&2
    exit 1
}
pinned=()
if command -v taskset >/dev/null; then
    # The last core: the first one has the most interrupts.
    pinned=(taskset -c "$(($(nproc) - 1))")
fi

cargo build --release --bins --quiet
# Nothing else looks at the benches: the suite does not build them.
cargo clippy --all-targets --quiet -- -D warnings
cargo bench --no-run --quiet

results=$(mktemp -d "${TMPDIR:-/tmp}/flight-bench.XXXXXX")
trap 'rm -rf "$results"' EXIT
nth=10

fact() { printf 'machine\t%s\t%s\n' "$1" "$2"; }
model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -1)
{
    fact processor "${model:-$(uname -m)}, $(getconf _NPROCESSORS_ONLN) cores"
    fact system "$(uname -sr)"
    fact server "Redis $(redis-server --version | sed -n 's/.*v=\([^ ]*\).*/\1/p'), over loopback"
    fact compiler "$(rustc --version | cut -d' ' -f1,2)"
    fact day "$(date -u +%Y-%m-%d), load $(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo unknown)"
    fact form "$([ ${#quick[@]} = 0 ] && echo full || echo quick)"
    [ ${#pinned[@]} != 0 ] || printf 'skipped\tpinning to one core: taskset is missing\n'
} >"$results/00-machine.tsv"

# scene BINARY NAME [COMMAND BEFORE IT...]
scene() {
    local binary=$1 name=$2 since=$SECONDS
    shift 2
    nth=$((nth + 1))
    if ! "$@" "$target/release/$binary" "$name" ${quick[@]+"${quick[@]}"} >"$results/$nth-$name.tsv"; then
        # What it could not measure is no number.
        printf 'skipped\tscene %s: it failed\n' "$name" >"$results/$nth-$name.tsv"
        failed=1
    fi
    echo "$name: $((SECONDS - since)) s" >&2
}
failed=0

# In one process, and over Redis, with everything on one core.
scene measure lone ${pinned[@]+"${pinned[@]}"}
scene measure instructions
scene measure hot
scene count memory
scene measure cost ${pinned[@]+"${pinned[@]}"}
scene measure server ${pinned[@]+"${pinned[@]}"}
scene measure trips
scene measure hand-off-trips
scene measure hand-off-pinned ${pinned[@]+"${pinned[@]}"}
scene measure throughput
scene count many
scene measure herd

since=$SECONDS
benches=(--bench overhead --bench fan_out --bench hand_off --bench peers)
# Ten deaths of 3 s for each of its lines.
[ ${#quick[@]} != 0 ] || benches+=(--bench herd)
rm -rf "$target/criterion"
# A quick run looks at fewer of them.
cargo bench --quiet "${benches[@]}" -- ${quick[@]+"${quick[@]}"} >"$results/criterion.log" 2>&1 || {
    tail -20 "$results/criterion.log" >&2
    failed=1
}
echo "criterion: $((SECONDS - since)) s" >&2

"$target/release/report" "$results" "$target/criterion" ../BENCHMARKS.md plots
exit "$failed"
