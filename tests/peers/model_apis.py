"""Stand-ins of the APIs of OpenAI, Anthropic and Gemini, kept to their documented shapes.

    model_apis.py

Prints `READY URL`. The first request of a conversation is answered with calls of the bridge's
tools, the second with a text if the tools and the results are what they should be, and else with
400 and the reason. The types of the official clients have to accept every request. Must not: look
at anything but what a request has.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import List

from anthropic.types import MessageParam, ToolParam
from google.genai.types import Content, Tool
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from pydantic import TypeAdapter

CALLS = [
    ("plain_note", {"text": "tea"}),
    ("all_get_tiny_image", {}),
    ("plain_note", {"text": 7}),
    ("not_there", {}),
    ("plain_fail", {}),
]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
DONE = "Tea is at four."


def check(right, what, found=None):
    if not right:
        raise ValueError(f"{what}: {json.dumps(found)[:2000]}")


def check_types(kind, value):
    """Has the client's own type read all of the value."""
    adapter = TypeAdapter(kind)  # It has to live as long as what it reads late.
    exhaust(adapter.validate_python(value))


def exhaust(value):
    """An `Iterable` is validated when it is read."""
    if not isinstance(value, (str, bytes)):
        for part in (
            value.values() if isinstance(value, dict) else getattr(value, "__iter__", tuple)()
        ):
            exhaust(part)


def check_tools(tools):
    """`tools` as (name, description, schema)."""
    known = {name: (description, schema) for name, description, schema in tools}
    check(len(known) >= 21, "the tools of both servers", list(known))
    check(known["plain_note"] == ("Notes a text.", SCHEMA), "a definition", known["plain_note"])
    check(known["plain_args"][1]["type"] == "object", "a schema", known["plain_args"])


def check_results(results, images, prefix):
    """`results` as (text, whether it is an error or None, files)."""
    check(len(results) == len(CALLS), "a result for each call", results)
    note, image, invalid, unknown, failed = results
    check(note[0] == "noted: tea" and not note[1], "a result", note)
    check(bool(image[2]) == images, "the image", image)
    wanted = "attached]" if images else "not passed on, as the API of the model takes no such file"
    check("[file image-" in image[0] and wanted in image[0], "the line of the image", image[0])
    check(all(it[1] in (True, None) for it in (invalid, unknown, failed)), "errors", results)
    check(invalid[0].startswith(prefix + "tool_input_invalid"), "invalid arguments", invalid)
    check(unknown[0].startswith(prefix) and "not_there" in unknown[0], "an unknown tool", unknown)
    check(failed[0].startswith(prefix) and "on purpose" in failed[0], "a failure", failed)


def chat(body):
    check_types(List[ChatCompletionFunctionToolParam], body["tools"])
    check_types(List[ChatCompletionMessageParam], body["messages"])
    functions = [tool["function"] for tool in body["tools"] if tool["type"] == "function"]
    check_tools(
        [
            (it["name"], it["description"], it["parameters"])
            for it in functions
            if "description" in it
        ]
    )
    reply = {"role": "assistant", "content": None}
    if len(body["messages"]) == 1:
        # As some local servers do it.
        calls = [
            {
                "id": "call_0",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for name, args in CALLS
        ]
        reply["tool_calls"] = calls
    else:
        results = body["messages"][2:]
        check(
            all(it["role"] == "tool" and it["tool_call_id"] == "call_0" for it in results),
            "results",
            results,
        )
        check_results([(it["content"], None, []) for it in results], False, "Error: ")
        reply["content"] = DONE
    choice = {
        "index": 0,
        "message": reply,
        "logprobs": None,
        "finish_reason": "tool_calls" if "tool_calls" in reply else "stop",
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice],
    }


def responses(body):
    check_types(List[FunctionToolParam], body["tools"])
    check_types(List[ResponseInputItemParam], body["input"])
    check(all(tool["strict"] is False for tool in body["tools"]), "no strict mode", body["tools"])
    check_tools([(it["name"], it.get("description"), it["parameters"]) for it in body["tools"]])
    if len(body["input"]) == 1:
        output = [{"id": "rs_1", "type": "reasoning", "summary": []}]
        for at, (name, args) in enumerate(CALLS):
            output.append(
                {
                    "id": f"fc_{at}",
                    "call_id": f"call_{at}",
                    "type": "function_call",
                    "name": name,
                    "arguments": json.dumps(args),
                    "status": "completed",
                }
            )
    else:
        results = body["input"][2 + len(CALLS) :]
        check(
            [it["call_id"] for it in results] == [f"call_{at}" for at in range(len(CALLS))],
            "their order",
            results,
        )

        def read(result):
            said = result["output"]
            if isinstance(said, str):
                return said, None, []
            check(said[0]["type"] == "input_text", "the text", said)
            urls = [it["image_url"] for it in said[1:] if it["type"] == "input_image"]
            check(
                all(url.startswith("data:image/png;base64,iVBOR") for url in urls), "an image", urls
            )
            return said[0]["text"], None, urls

        check_results([read(it) for it in results], True, "Error: ")
        text = {"type": "output_text", "text": DONE, "annotations": []}
        output = [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        ]
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def anthropic(body):
    check_types(List[ToolParam], body["tools"])
    check_types(List[MessageParam], body["messages"])
    check_tools([(it["name"], it.get("description"), it["input_schema"]) for it in body["tools"]])
    stop = "tool_use"
    if len(body["messages"]) == 1:
        content = [{"type": "text", "text": "I note it."}]
        for at, (name, args) in enumerate(CALLS):
            content.append({"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": args})
    else:
        check(body["messages"][2]["role"] == "user", "one user message", body["messages"][2:])
        results = body["messages"][2]["content"]
        check(
            [it["tool_use_id"] for it in results] == [f"toolu_{at}" for at in range(len(CALLS))],
            "their order",
            results,
        )

        def read(result):
            check(result["type"] == "tool_result", "a block", result)
            said = result["content"]
            if isinstance(said, str):
                return said, result["is_error"], []
            files = [it["source"] for it in said[1:] if it["type"] == "image"]
            check(all(it["media_type"] == "image/png" for it in files), "an image", files)
            return said[0]["text"], result["is_error"], files

        check_results([read(it) for it in results], True, "")
        content, stop = [{"type": "text", "text": DONE}], "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def gemini(body):
    for tool in body["tools"]:
        Tool.model_validate(tool)
    # The client writes some keys in snake case, which the API takes as well.
    contents = [Content.model_validate_json(json.dumps(content)) for content in body["contents"]]
    functions = body["tools"][0]["functionDeclarations"]
    schema = [it.get("parametersJsonSchema", it.get("parameters_json_schema")) for it in functions]
    check_tools([(it["name"], it.get("description"), of) for it, of in zip(functions, schema)])
    if len(body["contents"]) == 1:
        # An id is optional.
        parts = [
            {"functionCall": {"name": name, "args": args} if args else {"name": name}}
            for name, args in CALLS
        ]
        parts[0]["functionCall"]["id"] = "first"
    else:
        check(contents[2].role == "user", "one user content")
        results = [part.function_response for part in contents[2].parts]
        check([it.name for it in results] == [name for name, _ in CALLS], "their order")
        check([it.id for it in results] == ["first"] + [None] * 4, "their ids")

        def read(result):
            said, files = result.response, [it.inline_data for it in result.parts or []]
            are_images = all(it.mime_type == "image/png" and it.data[1:4] == b"PNG" for it in files)
            check(are_images, "an image", repr(files))
            return (
                said.get("output", said.get("error")),
                "error" in said,
                [repr(it) for it in files],
            )

        check_results([read(it) for it in results], True, "")
        parts = [{"text": DONE}]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "responseId": "g1", "modelVersion": "m"}


ROUTES = {"/v1/chat/completions": chat, "/v1/responses": responses, "/v1/messages": anthropic}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 200
        try:
            answer = ROUTES.get(self.path, gemini)(body)
        except Exception as error:
            status = 400
            answer = {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "code": 400,
                    "message": repr(error),
                    "status": "INVALID_ARGUMENT",
                },
            }
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"READY http://127.0.0.1:{server.server_port}", flush=True)
sys.exit(server.serve_forever())
