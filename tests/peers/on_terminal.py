"""Runs a program on a terminal of its own, for the integration tests.

    on_terminal.py COLUMNS ROWS PROGRAM [ARG]...

What the program writes goes to stdout, what comes on stdin is typed (so that a byte 3 is Ctrl-C).
Ends as the program does. Must not: need anything but the standard library.
"""

import fcntl
import os
import pty
import select
import struct
import sys
import termios

columns, rows = int(sys.argv[1]), int(sys.argv[2])
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.execvp(sys.argv[3], sys.argv[3:])

sources = [terminal, 0]
while terminal in sources:
    for source in select.select(sources, [], [])[0]:
        try:
            data = os.read(source, 65536)
        except OSError:
            # The program and all that it started have closed the terminal.
            data = b""
        if not data:
            sources.remove(source)
        elif source == 0:
            os.write(terminal, data)
        else:
            os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
