#!/usr/bin/env python3
"""A stdio MCP server whose definitions and results are what careless servers write.

Usage: nasty_mcp.py sessions|stateless

It speaks 2025-11-25 or 2026-07-28. Each tool is called as it is named and has a result of its own. It
needs nothing but the standard library.
"""

import json
import sys

STATELESS = sys.argv[1] == "stateless"
INPUT = '"inputSchema":{"type":"object"}'
NULLS = '"title":null,"description":null,"icons":null,"_meta":null'
DONE = '{"content":[{"type":"text","text":"done"}]}'

# The name of each tool, the members of its definition, and its result.
TOOLS = [
    ("good", INPUT + ',"outputSchema":{"type":"object","properties":{"a":{"type":"integer"}}}',
     '{"content":[{"type":"text","text":"{}"}],"structuredContent":{"a":1}}'),
    ("nulls", INPUT + "," + NULLS + ',"outputSchema":null,"execution":null,'
     '"annotations":{"readOnlyHint":null,"title":null}',
     '{"content":[{"type":"text","text":"done","annotations":null,"_meta":null}],'
     '"structuredContent":null,"isError":null,"_meta":null}'),
    ("null_schemas", '"inputSchema":{"type":"object","properties":null,"required":null}', DONE),
    ("array", INPUT + ',"outputSchema":{"type":"array","items":{"type":"integer"}}',
     '{"content":[],"structuredContent":[1,2]}'),
    ("any", INPUT + ',"outputSchema":{"anyOf":[{"type":"object"},{"type":"string"}]}',
     '{"content":[{"type":"text","text":"any"}],"structuredContent":"any"}'),
    ("untyped", INPUT + ',"outputSchema":{}',
     '{"content":[{"type":"text","text":"7"}],"structuredContent":7}'),
    ("bad_output", INPUT + ',"outputSchema":{"type":"object","properties":'
     '{"a":{"minimum":0,"exclusiveMinimum":true}}}', '{"content":[],"structuredContent":{"a":1}}'),
    ("bad_pattern", INPUT + ',"outputSchema":{"type":"object","properties":'
     '{"a":{"pattern":"\\\\<a\\\\-b"}}}', '{"content":[],"structuredContent":{"a":"<a-b"}}'),
    ("flags", '"inputSchema":{"type":"object","properties":{"a":true}}', DONE),
    ("half", INPUT + r',"description":"a\ud800b"', r'{"content":[{"type":"text","text":"a\ud800b"}]}'),
    ("rows", INPUT, '{"rows":3}'),
    ("tool_result", INPUT, '{"toolResult":{"rows":3}}'),
    ("words", INPUT, '{"content":"words"}'),
    ("block", INPUT, '{"content":{"type":"text","text":"block"}}'),
    ("null_content", INPUT, '{"content":null}'),
    ("empty", INPUT, "{}"),
    ("list", INPUT, "[1,2]"),
    ("structure", INPUT, '{"structuredContent":{"a":1}}'),
    ("blocks", INPUT, '{"content":[{"type":"hologram"},{"type":"image","data":"a_k="},"words",'
     '{"type":"resource","resource":{"uri":"a","text":"t"}}]}'),
    ("hints", INPUT, '{"content":[{"type":"text","text":"hi","annotations":'
     '{"priority":7,"lastModified":"today"}}]}'),
    # No client could read these.
    ("bad_hint", INPUT + ',"annotations":{"readOnlyHint":"yes"}', DONE),
    ("no_schema", '"inputSchema":null', DONE),
    # Arguments of this one cannot be checked in one part.
    ("old_draft", '"inputSchema":{"type":"object","properties":'
     '{"n":{"type":"number","minimum":0,"exclusiveMinimum":true},"m":{"type":"string"}}}', DONE),
]
RESOURCES = [
    '{"uri":"nasty://a","name":"a","size":null,"annotations":null,%s}' % NULLS,
    '{"uri":"nasty://b","name":"b","annotations":{"priority":5,"audience":["me"]}}',
    '{"uri":"a/b","name":"relative"}',
]
TEMPLATES = ['{"uriTemplate":"nasty://{x}","name":"t","mimeType":null,%s}' % NULLS]
PROMPTS = [
    '{"name":"ask","arguments":[{"name":"x","description":null,"required":null}],%s}' % NULLS,
    '{"name":"nameless","arguments":[{}]}',
]
CONTENTS = '{"contents":[{"uri":"nasty://a","text":"a","mimeType":null,"_meta":null}]}'
MESSAGES = ('{"description":null,"messages":[{"role":"user","content":"words"},'
            '{"role":"user","content":{"type":"text","text":"a","_meta":null}}]}')


def listed(key, items):
    return '{"%s":[%s]}' % (key, ",".join(items))


def answer(method, params):
    if method == "initialize" and not STATELESS:
        return ('{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":null},'
                '"resources":{},"prompts":{},"completions":null,"logging":null},'
                '"serverInfo":{"name":"nasty","version":"1","title":null},"instructions":null}')
    if method == "server/discover" and STATELESS:
        return ('{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":'
                '{"tools":{},"resources":{},"prompts":{}},"ttlMs":0,"cacheScope":"private"}')
    if method == "tools/list":
        tools = ['{"name":"%s",%s}' % (name, members) for name, members, _ in TOOLS]
        # In 2026-07-28, the empty text is a cursor like any other.
        if not STATELESS:
            return listed("tools", tools)
        if params.get("cursor") == "":
            return listed("tools", tools[1:])
        return listed("tools", tools[:1])[:-1] + ',"nextCursor":""}'
    if method == "tools/call":
        return next(result for name, _, result in TOOLS if name == params["name"])
    return {
        "resources/list": listed("resources", RESOURCES),
        "resources/templates/list": listed("resourceTemplates", TEMPLATES),
        "resources/read": CONTENTS,
        "prompts/list": listed("prompts", PROMPTS),
        "prompts/get": MESSAGES,
    }.get(method)


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message or "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    outcome = '"result":' + result if result else '"error":{"code":-32601,"message":"no"}'
    print('{"jsonrpc":"2.0","id":%s,%s}' % (json.dumps(message["id"]), outcome), flush=True)
