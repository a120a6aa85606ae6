#!/bin/sh
# As an ordinary user: a network namespace of the user's own, as of a container, by slirp4netns, which
# lets in the port of the agent. Writes the id of a process in it to the file `inside` in the directory
# $1, once all is ready, and lasts.
set -eu
cd "$1"
unshare --user --map-current-user --net sleep infinity &
inside=$!
outside=$(readlink /proc/self/ns/net)
until [ "$(readlink "/proc/$inside/ns/net")" != "$outside" ]; do sleep 0.05; done
slirp4netns --configure --mtu=65520 --disable-host-loopback --api-socket network.sock "$inside" tap0 &
until [ -S network.sock ]; do sleep 0.05; done
/usr/bin/python3 - <<'END'
import socket

asked = socket.socket(socket.AF_UNIX)
asked.connect("network.sock")
asked.sendall(
    b'{"execute": "add_hostfwd", "arguments": {"proto": "tcp", "host_addr": "0.0.0.0", "host_port": 7730,'
    b' "guest_addr": "10.0.2.100", "guest_port": 7730}}'
)
asked.shutdown(socket.SHUT_WR)
answer = asked.recv(1000)
assert b"return" in answer, answer
END
echo "$inside" >inside.new
mv inside.new inside
wait
