"""A Unix socket in place of an agent's: `fake_agent.py PATH OWNER USER`. The file belongs
to OWNER, and the process that listens runs as USER. Prints how much each client sends."""
import os
import socket
import sys

path, owner, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chmod(path, 0o600)
os.chown(path, owner, owner)
os.setresgid(user, user, user)
os.setresuid(user, user, user)
# SO_PEERCRED at the client is of this moment.
listener.listen()
print("ready", flush=True)
while True:
    client, _ = listener.accept()
    client.settimeout(5)
    received = 0
    try:
        while data := client.recv(4096):
            received += len(data)
    except TimeoutError:
        pass
    print("received", received, flush=True)
