#!/usr/bin/env python3
"""Becomes a program in a network of its own that has a loopback address of IPv4 and none of IPv6.

without_ipv6.py -- PROGRAM ARGS...

It needs nothing but the standard library.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

libc = ctypes.CDLL(None, use_errno=True)
# Who is not root becomes it in a namespace of users.
flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
if libc.unshare(flags) != 0:
    error = ctypes.get_errno()
    raise OSError(error, os.strerror(error))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
if os.path.exists("/proc/sys/net/ipv6"):
    with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w", encoding="ascii") as file:
        file.write("1")
program = sys.argv[2:]
os.execvp(program[0], program)
