#!/usr/bin/env bash
# Everything that must hold: format, lints, docs, tests. On Debian and Ubuntu it
# installs redis-server and curl where they are missing, and Chromium where it can be had.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
# The examples print lines for it.
command -v curl >/dev/null || missing+=(curl)
if [ ${#missing[@]} != 0 ]; then
    if command -v apt-get >/dev/null; then
        as_root=""
        [ "$(id -u)" = 0 ] || as_root="sudo"
        $as_root apt-get update -qq
        # A server that starts by itself would only be in the way.
        $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq "${missing[@]}" >/dev/null
    else
        echo "not on the path: ${missing[*]}: install it (macOS: brew install redis curl)" >&2
        exit 1
    fi
fi

# The playground's page is looked at in a browser; what is behind it needs none.
browser_is_there() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        "$name" --version >/dev/null 2>&1 && return
    done
    return 1
}
if ! browser_is_there && command -v apt-get >/dev/null; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    { $as_root apt-get update -qq &&
        $as_root env DEBIAN_FRONTEND=noninteractive timeout 120 apt-get install -y -qq chromium
    } >/dev/null 2>&1 || true
fi
browser_is_there || printf '== no Chromium: the page of the playground is NOT tested in a browser\n' >&2

# Tests start servers and write into folders here, and leave neither behind, also where
# they fail: what is left is named, ended and removed.
room=$(mktemp -d /tmp/flight.XXXXXX)
export TMPDIR=$room

processes_left() {
    local process
    for process in /proc/[0-9]*; do
        case "$(readlink "$process/cwd" 2>/dev/null)" in
        "$room"*) echo "${process#/proc/}" ;;
        *) grep -qszx "TMPDIR=$room" "$process/environ" && echo "${process#/proc/}" ;;
        esac
    done
}

clean_up() {
    local status=$? processes files
    processes=$(processes_left || true)
    files=$(ls -A "$room")
    if [ -n "$processes$files" ]; then
        printf '\n== left behind:\n' >&2
        # shellcheck disable=SC2086
        [ -z "$processes" ] || ps -o pid,args -p ${processes//$'\n'/,} >&2 || true
        [ -z "$files" ] || ls -lA "$room" >&2
        # shellcheck disable=SC2086
        [ -z "$processes" ] || kill -KILL $processes 2>/dev/null || true
        [ "$status" != 0 ] || status=1
    fi
    rm -rf "$room"
    exit "$status"
}
trap clean_up EXIT

step() {
    local began=$SECONDS
    printf '\n== %s\n' "$*"
    "$@"
    printf '   %d s\n' $((SECONDS - began))
}

step cargo fmt --check
step cargo clippy --all-targets --all-features --quiet -- -D warnings
# With a test beside it, what the library depends on is built as it is for all the others.
step cargo clippy --lib --test docs --quiet -- -D warnings
# And with what its own features bring, no more: without any, and with all. The latter is
# also what the fuzz targets of fuzz/ drive; `fuzz/run.sh` runs them.
step cargo rustc --lib --no-default-features --profile check --quiet -- -D warnings
step cargo rustc --lib --all-features --profile check --quiet -- --cfg fuzzing -D warnings
# Advisories are fetched, and new ones are nobody's fault here: `cargo deny check` has them.
if cargo deny --version >/dev/null 2>&1; then
    step cargo deny check licenses bans sources
fi
RUSTDOCFLAGS="-D warnings" step cargo doc --no-deps --all-features --quiet
step cargo build --examples --all-features --quiet
# What threads share by hand, in many orders of them: a build of its own.
step cargo test --manifest-path tests/shuttle/Cargo.toml --target-dir target --quiet races
if cargo nextest --version >/dev/null 2>&1; then
    # Most of the time tests wait: one more than there are cores.
    step cargo nextest run --all-features --test-threads "$(($(nproc 2>/dev/null || echo 2) + 1))"
    step cargo test --doc --all-features --quiet
else
    step cargo test --all-features
fi
