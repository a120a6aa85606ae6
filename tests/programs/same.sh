#!/bin/bash
# same.sh PART BINARY DIRECTORY OWN PEER OWN_NAME PEER_NAME BEHAVIOUR...: one
# part of each behaviour (crates/shim/tests/same), a few at once. What it
# printed goes to DIRECTORY/BEHAVIOUR.PART, with its exit status.
set -uo pipefail
part=$1 binary=$2 directory=$3
addresses=("${@:4:4}")
shift 7
one() {
    "$binary" "$1" "$part" "$directory" "${addresses[@]}" </dev/null \
        >"$directory/$1.$part" 2>"$directory/$1.$part.stderr"
    echo "status $?" >>"$directory/$1.$part"
}

# Most of them wait for timers of the kernel. The other part takes the same
# ones in the same order, so the first that is not done runs there, too.
running=0
for name; do
    if [ "$running" -ge 6 ]; then
        wait -n
        running=$((running - 1))
    fi
    one "$name" &
    running=$((running + 1))
done
wait
