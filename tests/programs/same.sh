#!/bin/bash
# same.sh PART BINARY DIRECTORY OWN PEER OWN_NAME PEER_NAME BEHAVIOUR...: one
# part of each behaviour (crates/shim/tests/same), one after the other. What it
# printed goes to DIRECTORY/BEHAVIOUR.PART, with its exit status.
set -uo pipefail
part=$1 binary=$2 directory=$3
addresses=("${@:4:4}")
shift 7
for name; do
    "$binary" "$name" "$part" "$directory" "${addresses[@]}" </dev/null \
        >"$directory/$name.$part" 2>"$directory/$name.$part.stderr"
    echo "status $?" >>"$directory/$name.$part"
done
