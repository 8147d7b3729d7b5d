#!/usr/bin/env bash
# Each feature alone, none, and all: the library is without a warning, and what a feature
# does not bring is not asked for. tests/run.sh looks at none, the default and all.
set -euo pipefail
cd "$(dirname "$0")/.."

look() {
    local began=$SECONDS
    cargo clippy --lib --quiet "$@" -- -D warnings
    printf '%s: %d s\n' "$*" $((SECONDS - began))
}

features=$(sed -n '/^\[features\]/,/^\[/ s/^\([a-z-]*\) = .*/\1/p' Cargo.toml | grep -vx default)
look --no-default-features
for feature in $features; do
    look --no-default-features --features "$feature"
done
look --all-features
