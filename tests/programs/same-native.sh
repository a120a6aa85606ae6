#!/bin/bash
# same-native.sh: as same.sh, on a node without isthmus: with the host names
# that isthmus would give the two nodes.
set -euo pipefail
here=$(dirname "$0")
if [ "${SAME_NAMES-}" != given ]; then
    SAME_NAMES=given exec unshare --mount --uts "$0" "$@"
fi
directory=$3
hosts=$directory/hosts.$1
printf '127.0.0.1 localhost\n%s %s\n%s %s\n' "$4" "$6" "$5" "$7" >"$hosts"
mount --bind "$hosts" /etc/hosts
hostname "$6"
exec "$here/same.sh" "$@"
