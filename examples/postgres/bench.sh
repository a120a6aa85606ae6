#!/bin/sh
# A PostgreSQL server on this node, and pgbench as its client on another:
#
#   isthmus run --nodes n1.alpha,n1.beta -- examples/postgres/bench.sh n1.beta
#
# The server lives in a temporary directory that goes with it. PostgreSQL runs
# for ordinary users only.
set -eu
client=$1

for bin in /usr/lib/postgresql/*/bin /usr/bin /usr/local/bin; do
    [ -x "$bin/initdb" ] && break
done
work=$(mktemp -d)
stop() {
    [ ! -e "$work/data/postmaster.pid" ] || "$bin/pg_ctl" stop -D "$work/data" -m fast >&2
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM HUP

# Only this job reaches the server; a password keeps it from the node's other users.
PGPASSWORD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export PGPASSWORD
echo "$PGPASSWORD" >"$work/password"
"$bin/initdb" -D "$work/data" -U bench -A scram-sha-256 --pwfile "$work/password" --no-sync >/dev/null
echo 'host all all 240.64.0.0/10 scram-sha-256' >>"$work/data/pg_hba.conf"

# In a job, `hostname` is the node's name in the grid, which the client knows it by.
server=$(hostname)
"$bin/pg_ctl" start -D "$work/data" -l "$work/log" -w >&2 -o \
    "-c listen_addresses=$server -c unix_socket_directories=$work -c fsync=off" || {
    cat "$work/log" >&2
    exit 1
}

there() {
    isthmus exec "$client" --env PGPASSWORD -- "$@"
}
there pgbench -h "$server" -U bench -i -s 1 -q postgres
there pgbench -h "$server" -U bench -c 8 -t 50 postgres
# pgbench moves money about: what tellers, branches and accounts hold, and the
# history, must agree.
there psql -h "$server" -U bench -d postgres -At -c "
    SELECT 'client ' || inet_client_addr() || ', ' || count(*) || ' transactions, ' || CASE
        WHEN sum(delta) = (SELECT sum(abalance) FROM pgbench_accounts)
         AND sum(delta) = (SELECT sum(bbalance) FROM pgbench_branches)
         AND sum(delta) = (SELECT sum(tbalance) FROM pgbench_tellers)
        THEN 'balances agree' ELSE 'balances differ' END
    FROM pgbench_history"
