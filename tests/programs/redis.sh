#!/bin/bash
# Under `isthmus run --each`: Redis on the second node serves the first by its name.
# 20,000 keys go there in one stream, 50 clients at once count to 5,000, and a
# replica on the first node gets all of it.
set -euo pipefail
server=${ISTHMUS_NODE_LIST##*,}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

serve() {
    timeout 150 redis-server --port 7000 --dir "$work" --save '' --protected-mode no \
        --enable-debug-command yes --loglevel warning "$@"
}
at() {
    timeout 150 redis-cli -e -p 7000 -h "$@"
}
# eventually WANT COMMAND...: waits until the command prints that.
eventually() {
    local want=$1 tries=0
    shift
    until "$@" 2>&1 | grep -qxF "$want"; do
        tries=$((tries + 1))
        if [ $tries -ge 1200 ]; then
            "$@" >&2
            exit 1
        fi
        sleep 0.1
    done
}

if [ "$ISTHMUS_NODE_RANK" = 1 ]; then
    serve &
    wait $!
    exit
fi
eventually PONG at "$server" ping
serve --replicaof "$server" 7000 &
seq 20000 | sed 's/.*/SET key& value&\r/' | at "$server" --pipe
# Each of these adds one to the same key.
timeout 150 redis-benchmark -h "$server" -p 7000 --csv -c 50 -n 5000 -t incr
[ "$(at "$server" get counter:__rand_int__)" = 5000 ]
[ "$(at "$server" dbsize)" = 20001 ]

# A digest of all keys and values.
digest=$(at "$server" debug digest)
eventually "$digest" at "$ISTHMUS_NODE" debug digest
echo "$(at "$ISTHMUS_NODE" dbsize) keys are the same at both sites"
at "$ISTHMUS_NODE" shutdown nosave
at "$server" shutdown nosave
