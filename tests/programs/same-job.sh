#!/bin/bash
# same-job.sh BINARY DIRECTORY PEER BEHAVIOUR...: inside a job, both parts: the
# left one here, the right one on another node.
set -euo pipefail
here=$(dirname "$0")
binary=$1 directory=$2 peer_name=$3
shift 3
job=$(dirname "${LD_PRELOAD%%:*}")
own=$(sed -n 's/^virtual //p' "$job/shim.conf")
own_name=$(sed -n 's/^name //p' "$job/shim.conf")
peer=$(sed -n "s/^host \([^ ]*\) $peer_name\$/\1/p" "$job/shim.conf")
"$job/launch" "$peer_name" "$here/same.sh" right "$binary" "$directory" "$peer" "$own" "$peer_name" "$own_name" "$@" &
right=$!
"$here/same.sh" left "$binary" "$directory" "$own" "$peer" "$own_name" "$peer_name" "$@"
wait "$right"
