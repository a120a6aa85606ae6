"""Runs commands on another node in place of ssh, without asking who calls: for
emulated grids only.

usage: rexec.py serve            runs what callers send, until it is ended
       rexec.py HOST COMMAND...  has the server at HOST run a command
"""

import json
import socket
import subprocess
import sys
import threading

PORT = 5997


def serve():
    def run(connection):
        with connection, connection.makefile() as lines:
            command = " ".join(json.loads(lines.readline()))
            subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, stdout=connection, stderr=connection)

    listener = socket.create_server(("", PORT))
    print("ready", flush=True)
    while True:
        threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()


def call(host, command):
    with socket.create_connection((host, PORT)) as connection:
        connection.sendall(json.dumps(command).encode() + b"\n")
        while data := connection.recv(65536):
            sys.stdout.buffer.write(data)
            sys.stdout.flush()


if sys.argv[1] == "serve":
    serve()
else:
    call(sys.argv[1], sys.argv[2:])
