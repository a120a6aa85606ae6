#!/bin/sh
# A web server on this node, and a client of yours on another:
#
#   isthmus run --nodes n1.alpha,n1.beta -- \
#       examples/http/serve.sh DIRECTORY n1.beta ab -k -n 5000 -c 1000 http://n1.alpha:8080/FILE
#
# nginx serves the files of a directory on port 8080 until the client has ended. Its
# workers go on as the user that starts it, who may read the files.
set -eu
files=$(cd "$1" && pwd)
client=$2
shift 2

work=$(mktemp -d)
cat >"$work/nginx.conf" <<END
daemon off;
pid $work/pid;
error_log stderr;
worker_processes 1;
$([ "$(id -u)" != 0 ] || echo 'user root;')
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path $work/body;
    proxy_temp_path $work/proxy;
    fastcgi_temp_path $work/fastcgi;
    uwsgi_temp_path $work/uwsgi;
    scgi_temp_path $work/scgi;
    server {
        listen $(hostname):8080 backlog=4096;
        root $files;
    }
}
END
PATH=$PATH:/usr/sbin nginx -e stderr -c "$work/nginx.conf" &
server=$!
stop() {
    kill "$server" 2>/dev/null || true
    wait "$server" || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 1' INT TERM HUP
# It listens once it has written its process id.
while [ ! -s "$work/pid" ]; do
    kill -0 "$server"
    sleep 0.1
done
isthmus exec "$client" -- "$@"
