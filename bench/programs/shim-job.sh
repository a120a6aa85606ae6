#!/bin/bash
# shim-job.sh PROGRAM PEER LISTENERS MODE [WORD...]: inside a job, listeners on
# another node, and the measurement of them here. MODE is storm or connects.
set -euo pipefail
program=$1 peer=$2 listeners=$3 mode=$4
shift 4
job=$(dirname "${LD_PRELOAD%%:*}")
coproc FAR { exec "$job/launch" "$peer" "$program" listen "$listeners"; }
pid=$FAR_PID
read -r -t 30 -a ports <&"${FAR[0]}"
status=0
"$program" "$mode" "$peer" "${ports[@]}" "$@" || status=$?
# Its input's end is its own.
eval "exec ${FAR[1]}>&-"
wait "$pid" || true
exit "$status"
