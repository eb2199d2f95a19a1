#!/usr/bin/env python3
"""Becomes a program that has the system calls and namespaces which a systemd unit leaves it.

restricted.py [--systemd-analyze FILE] [--user UID] [--unit FILE]... -- PROGRAM ARGS...

The files are a unit and its drop-ins: SystemCallFilter= and RestrictNamespaces= count. Without any,
there are no namespaces, as in most containers. Root becomes the user UID, who has no groups.

systemd itself is not run: this installs a seccomp filter like systemd's. It knows the numbers of the
system calls that matter for mounts and privileges, and lets all others be. It needs systemd-analyze
for the names in systemd's sets, and nothing else but the standard library.
"""

import argparse
import ctypes
import fileinput
import os
import platform
import struct
import subprocess
import sys

NUMBERS = {
    "x86_64": {
        "capset": 126, "chroot": 161, "clone": 56, "clone3": 435, "fsconfig": 431, "fsmount": 432,
        "fsopen": 430, "mount": 165, "mount_setattr": 442, "move_mount": 429,
        "open_by_handle_at": 304, "open_tree": 428, "pivot_root": 155, "setgroups": 116,
        "setns": 308, "setuid": 105, "umount2": 166, "unshare": 272,
    },
    "aarch64": {
        "capset": 91, "chroot": 51, "clone": 220, "clone3": 435, "fsconfig": 431, "fsmount": 432,
        "fsopen": 430, "mount": 40, "mount_setattr": 442, "move_mount": 429,
        "open_by_handle_at": 265, "open_tree": 428, "pivot_root": 41, "setgroups": 159,
        "setns": 268, "setuid": 146, "umount2": 39, "unshare": 97,
    },
}[platform.machine()]

NAMESPACES = {
    "cgroup": 0x02000000, "ipc": 0x08000000, "net": 0x40000000, "mnt": 0x00020000,
    "pid": 0x20000000, "user": 0x10000000, "uts": 0x04000000,
}

LOAD, EQUAL, ANY_OF, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38
NUMBER, FIRST_ARGUMENT = 0, 16


def members(name):
    """The system calls of one of systemd's sets, and of the sets in it."""
    if not name.startswith("@"):
        return {name}
    said = subprocess.run(
        [options.systemd_analyze, "--no-pager", "syscall-filter", name],
        check=True, capture_output=True, text=True,
    ).stdout
    found = set()
    for line in said.splitlines():
        word = line.strip()
        if line.startswith(" ") and not word.startswith("#"):
            found |= members(word)
    return found


def of_unit(paths):
    """Which system calls are refused, and the flags of the namespaces that are."""
    allowed, namespaces = set(), None
    for line in fileinput.input(paths, encoding="utf-8"):
        key, _, value = line.strip().partition("=")
        if key == "SystemCallFilter":
            names = set().union(*map(members, value.removeprefix("~").split()))
            allowed = allowed - names if value.startswith("~") else allowed | names
        elif key == "RestrictNamespaces":
            namespaces = set() if value == "yes" else set(value.split())
            assert namespaces <= set(NAMESPACES), value
    assert allowed and namespaces is not None, "the unit restricts both"
    refused = {name for name in NUMBERS if name not in allowed}
    return refused, sum(flag for name, flag in NAMESPACES.items() if name not in namespaces)


def install(refused, flags):
    program = [(LOAD, 0, 0, NUMBER)]
    for name in sorted(refused):
        program += [(EQUAL, 0, 1, NUMBERS[name]), (RETURN, 0, 0, REFUSE)]
    # Its flags are in memory, where a filter cannot look: the C library then takes `clone`.
    program += [(EQUAL, 0, 1, NUMBERS["clone3"]), (RETURN, 0, 0, UNKNOWN)]
    for name in ("unshare", "clone"):
        program += [
            (EQUAL, 0, 4, NUMBERS[name]),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (ANY_OF, 0, 1, flags),
            (RETURN, 0, 0, REFUSE),
            (RETURN, 0, 0, ALLOW),
        ]
    program.append((RETURN, 0, 0, ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in [(38, 1, 0, 0, 0), (22, 2, ctypes.create_string_buffer(header), 0, 0)]:
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


parser = argparse.ArgumentParser()
parser.add_argument("--user", type=int)
parser.add_argument("--systemd-analyze", default="systemd-analyze")
parser.add_argument("--unit", action="append")
parser.add_argument("program", nargs="+")
options = parser.parse_args()
restrictions = of_unit(options.unit) if options.unit else (set(), sum(NAMESPACES.values()))
if options.user is not None and os.getuid() == 0:
    os.setgroups([])
    os.setresgid(options.user, options.user, options.user)
    os.setresuid(options.user, options.user, options.user)
install(*restrictions)
os.execvp(options.program[0], options.program)
