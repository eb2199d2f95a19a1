#!/usr/bin/env python3
"""A stand-in for the commands of MCP clients, as the real ones answer (claude 2.1, codex 0.171,
gemini 0.61): adds a server to the user's list, and removes it.

Usage: mcp_clients.py claude|codex|gemini ARGUMENT...
"""

import json
import pathlib
import sys

HOME = pathlib.Path.home()


def claude(words):
    path = HOME / ".claude.json"
    members = json.loads(path.read_text()) if path.exists() else {}
    servers = members.setdefault("mcpServers", {})
    match words:
        case ["mcp", "add-json", "--scope", "user", name, entry]:
            if name in servers:
                sys.exit(f"MCP server {name} already exists in user config")
            servers[name] = json.loads(entry)
            print(f"Added stdio MCP server {name} to user config")
        case ["mcp", "remove", "--scope", "user", name]:
            if servers.pop(name, None) is None:
                sys.exit(f'No MCP server named "{name}" in user scope')
            print(f"Removed MCP server {name} from user config")
        case _:
            sys.exit(f"unknown command: {words}")
    path.write_text(json.dumps(members, indent=2))


def codex(words):
    path = HOME / ".codex/config.toml"
    match words:
        case ["mcp", "add", name, "--", command, *args]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                f"[mcp_servers.{name}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
            )
            print(f"Added global MCP server '{name}'.")
        case ["mcp", "remove", name]:
            path.write_text("")
            print(f"Removed global MCP server '{name}'.")
        case _:
            sys.exit(f"unknown command: {words}")


def gemini(words):
    path = HOME / ".gemini/settings.json"
    match words:
        case ["mcp", "add", "--scope", "user", name, command, *args]:
            path.parent.mkdir(exist_ok=True)
            entry = {"command": command, "args": args}
            path.write_text(json.dumps({"mcpServers": {name: entry}}, indent=2))
            print(f'MCP server "{name}" added to user settings. (stdio)', file=sys.stderr)
        case ["mcp", "remove", "--scope", "user", name]:
            path.write_text("{}")
            print(f'Server "{name}" removed from user settings.', file=sys.stderr)
        case _:
            sys.exit(f"unknown command: {words}")


{"claude": claude, "codex": codex, "gemini": gemini}[sys.argv[1]](sys.argv[2:])
