#!/usr/bin/env bash
# Lists anew what is public, in public-api.txt. Its diff belongs into the review, and what
# users see of it into CHANGELOG.md.
set -euo pipefail
cd "$(dirname "$0")/.."
RENEW_PUBLIC_API=1 cargo test --all-features --quiet --test published api
git --no-pager diff --stat -- public-api.txt
