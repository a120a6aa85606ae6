#!/bin/bash
# probe.sh DIRECTORY PEER PROBE: inside a job, starts what a probe of the shim
# talks to on another node, and runs the probe here.
set -euo pipefail
directory=$1 peer=$2 probe=$3
job=$(dirname "${LD_PRELOAD%%:*}")
own=$(sed -n 's/^virtual //p' "$job/shim.conf")
closed=1

coproc COUNTERPART {
    case $probe in
    accept) exec "$job/launch" "$peer" "$directory/caller" ;;
    *) exec "$job/launch" "$peer" "$directory/server" 0.0.0.0 ;;
    esac
}
pid=$COUNTERPART_PID
read -r -t 120 port <&"${COUNTERPART[0]}"

status=0
case $probe in
connect_nonblocking) "$directory/$probe" "$peer" "$port" "$closed" delayed || status=$? ;;
connect_blocking) "$directory/$probe" "$peer" "$port" "$closed" || status=$? ;;
*) "$directory/$probe" "$peer" "$port" "$own" || status=$? ;;
esac

# Its input's end is its own.
eval "exec ${COUNTERPART[1]}>&-"
wait "$pid" || true
exit "$status"
