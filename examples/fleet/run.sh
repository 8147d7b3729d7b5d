#!/usr/bin/env bash
# Three of the example `server`, and a Redis that they meet on, as plain processes.
#
#     examples/fleet/run.sh                  # on ports that are free
#     examples/fleet/run.sh 3001 3002 3003   # on these
#
# Ctrl-C ends what it has started, and nothing else. SERVER=path is the server's binary,
# where it is not to be built.
set -euo pipefail
cd "$(dirname "$0")/../.."

ports=("$@")
[ $# != 0 ] || ports=(0 0 0)
if [ ${#ports[@]} != 3 ]; then
    echo "usage: examples/fleet/run.sh [PORT PORT PORT]" >&2
    exit 2
fi
if [ -z "${SERVER:-}" ]; then
    cargo build --example server
    SERVER=${CARGO_TARGET_DIR:-target}/debug/examples/server
fi

room=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
redis="" servers=()

end() {
    trap '' INT TERM HUP
    # They leave what still runs to one another, for which Redis has to be there.
    for pid in ${servers[@]+"${servers[@]}"}; do kill "$pid" 2>/dev/null || true; done
    for pid in ${servers[@]+"${servers[@]}"}; do wait "$pid" 2>/dev/null || true; done
    if [ -n "$redis" ]; then
        kill "$redis" 2>/dev/null || true
        wait "$redis" 2>/dev/null || true
    fi
    rm -rf "$room"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Each in a group of its own: a terminal's Ctrl-C is for this script alone.
set -m

# Until it is so; or the process has ended, whose log then says why.
await() {
    local pid=$1 log=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        if ! kill -0 "$pid" 2>/dev/null; then
            cat "$log" >&2
            exit 1
        fi
        sleep 0.02
    done
}

socket=$room/redis.sock
redis-server --port 0 --unixsocket "$socket" --save "" --appendonly no --dir "$room" \
    </dev/null >"$room/redis.log" 2>&1 &
redis=$!
await "$redis" "$room/redis.log" redis-cli -s "$socket" ping

export REDIS_URL=unix://$socket
urls=()
for port in "${ports[@]}"; do
    log=$room/server-$((${#servers[@]} + 1)).log
    "$SERVER" --listen "127.0.0.1:$port" </dev/null >"$log" 2>&1 &
    servers+=($!)
    await "$!" "$log" grep -q '^listening on ' "$log"
    urls+=("$(sed -n 's/^listening on //p' "$log")")
done

echo "three servers on one Redis; Ctrl-C ends all"
for at in 0 1 2; do
    echo "  ${urls[at]} is process ${servers[at]}"
done
echo "  ask each of them at once, and see one run:"
echo "  curl '${urls[0]}/answer?q=why' & curl '${urls[1]}/answer?q=why' & curl '${urls[2]}/answer?q=why'; wait"
echo "  kill the one that runs (kill -KILL and its number), and see another one take over"
echo "  who runs, and who waits:"
echo "  REDIS_URL=$REDIS_URL cargo run --example flightctl -- list"
wait "${servers[@]}"
