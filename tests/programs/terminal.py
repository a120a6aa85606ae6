#!/usr/bin/env python3
"""Runs a command on a terminal of its own. Each line of standard input does
something to it: "int" presses Ctrl-C, "hangup" closes the terminal. What the
command writes comes out, then "status N"."""
import os
import pty
import select
import signal
import sys

child, master = pty.fork()
if child == 0:
    # As from a login, also where a shell's background or nohup ignores them.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    watched = [master, 0] if master is not None else [0]
    ready, _, _ = select.select(watched, [], [], 0.1)
    if 0 in ready:
        words = os.read(0, 4096).decode().split()
        if not words:
            os.kill(child, 9)
            break
        for word in words:
            if word == "int":
                os.write(master, b"\x03")
            elif word == "hangup":
                os.close(master)
                master = None
    if master is not None and master in ready:
        try:
            os.write(1, os.read(master, 65536))
        except OSError:
            pass
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        # What it wrote last.
        while master is not None and select.select([master], [], [], 0)[0]:
            try:
                os.write(1, os.read(master, 65536))
            except OSError:
                break
        print("status", os.waitstatus_to_exitcode(status), flush=True)
        break
