#!/bin/sh
# together.sh DIRECTORY COUNT COMMAND...: runs COMMAND as one of COUNT ranks, and
# ends when all of them have run it. MPICH's launcher dies of a broken pipe now
# and then if a rank ends before all have started, on any network.
set -eu
directory=$1
count=$2
shift 2
"$@"
: >"$directory/$(hostname)-$$"
tries=0
until [ "$(find "$directory" -type f | wc -l)" -ge "$count" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 9000 ] || exit 1
    sleep 0.01
done
