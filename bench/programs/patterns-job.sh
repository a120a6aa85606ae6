#!/bin/sh
# patterns-job.sh PROGRAM DIRECTORY ADDRESS: on every node of a job, a receiver
# that listens at ADDRESS, or a sender at the two pipes named after its node.
set -eu
case $ISTHMUS_NODE in
    *.into) exec "$1" traffic serve --listen "$3" ;;
    *) exec "$1" traffic obey <"$2/$ISTHMUS_NODE.in" >"$2/$ISTHMUS_NODE.out" ;;
esac
