"""The official Python client of A2A, of 0.3 or 1.x, against the agent at URL, for the integration
tests.

    a2a_client.py URL BINDING [TOKEN]

BINDING is `JSONRPC` or `HTTP+JSON`. The agent is a2a_v03_agent.py, a2a_v1_agent.py or
a2a_js_agent.mjs, directly or behind the bridge. Prints what came of it as one JSON object, in which
ids have names by their order and times are left out: what is the same prints the same.
"""

import asyncio
import json
import sys
import uuid
from importlib.metadata import version

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory

IS_OLD = version("a2a-sdk").startswith("0.")
IDS = ("id", "taskId", "contextId", "messageId", "artifactId")

if IS_OLD:
    from a2a.types import Message, Part, TaskIdParams, TaskQueryParams, TextPart
else:
    from a2a.types.a2a_pb2 import (
        CancelTaskRequest,
        GetTaskRequest,
        ListTasksRequest,
        Message,
        Part,
        SendMessageRequest,
        SubscribeToTaskRequest,
    )
    from google.protobuf.json_format import MessageToDict


def plain(value):
    """What the SDK gives, as JSON."""
    if isinstance(value, tuple):
        task, update = value
        return plain(update or task)
    if IS_OLD:
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return MessageToDict(value)


class Names:
    """Names ids by the order in which they come."""

    def __init__(self):
        self.known = {}

    def without_ids(self, value):
        if isinstance(value, list):
            return [self.without_ids(one) for one in value]
        if not isinstance(value, dict):
            return value
        named = {}
        for key, one in sorted(value.items()):
            if key == "timestamp":
                continue
            is_id = key in IDS and isinstance(one, str)
            named[key] = self.known.setdefault(one, f"id {len(self.known)}") if is_id else self.without_ids(one)
        return named


def message(words, task=None, context=None, id=None):
    ids = {"message_id": id or str(uuid.uuid4())}
    ids |= {"task_id": task} if task else {}
    ids |= {"context_id": context} if context else {}
    if IS_OLD:
        return Message(role="user", parts=[Part(root=TextPart(text=words))], **ids)
    return Message(role="ROLE_USER", parts=[Part(text=words)], **ids)


def error(failure):
    """The error of the agent in an exception of the SDK."""
    inner = getattr(failure, "error", None)
    code = getattr(inner, "code", None)
    status = getattr(failure, "status_code", None)
    return {"error": type(failure).__name__, "code": code, "status": status}


async def sent(client, words, **ids):
    """All that comes of a message."""
    events = []
    try:
        request = message(words, **ids)
        async for event in client.send_message(request if IS_OLD else SendMessageRequest(message=request)):
            events.append(plain(event))
    except Exception as failure:
        events.append(error(failure))
    return events


async def get(client, task):
    return plain(await client.get_task(TaskQueryParams(id=task) if IS_OLD else GetTaskRequest(id=task)))


async def cancel(client, task):
    return plain(await client.cancel_task(TaskIdParams(id=task) if IS_OLD else CancelTaskRequest(id=task)))


def subscribe(client, task):
    if IS_OLD:
        return client.resubscribe(TaskIdParams(id=task))
    return client.subscribe(SubscribeToTaskRequest(id=task))


async def tried(work):
    try:
        return await work
    except Exception as failure:
        return error(failure)


def ids_of(event):
    """The ids of task and context in an event."""
    inner = next((event[key] for key in ("task", "statusUpdate", "artifactUpdate") if key in event), event)
    return inner.get("taskId") or inner.get("id"), inner.get("contextId")


async def begun(client, words):
    """The ids of the task that a message has become; the stream is left after its first event."""
    request = message(words)
    stream = client.send_message(request if IS_OLD else SendMessageRequest(message=request))
    async for event in stream:
        ids = ids_of(plain(event))
        await stream.aclose()
        return ids


async def cancelled(client):
    task, _ = await begun(client, "long 100")
    state = (await cancel(client, task))["status"]["state"]
    return [state, (await tried(cancel(client, task)))]


async def taken_up(client):
    """How a task ends whose stream was left, by another stream."""
    task, _ = await begun(client, "long 15")
    last = None
    async for event in subscribe(client, task):
        last = plain(event)
    return [last, (await get(client, task))["status"]["state"]]


async def use(url, binding, token):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        option = "supported_transports" if IS_OLD else "supported_protocol_bindings"
        config = {option: [binding], "use_client_preference": True, "httpx_client": http}
        streaming = ClientFactory(ClientConfig(**config)).create(card)
        waiting = ClientFactory(ClientConfig(streaming=False, **config)).create(card)
        names = Names()
        told = {}
        for words in ("msg hi", "task report", "chunks", "file", "fail", "words", "draft", "throw"):
            told[words] = await sent(streaming, words)
        for words in ("msg hi", "task report", "long 3", "fail"):
            told[f"waits: {words}"] = await sent(waiting, words)
        asked = await sent(streaming, "input")
        task, context = ids_of(asked[-1])
        told["asked"] = asked
        told["answered"] = await sent(streaming, "Friday", task=task, context=context)
        told["after the end"] = await sent(streaming, "Monday", task=task, context=context)
        told["conversation"] = await sent(streaming, "msg again", context=context)
        told["task"] = await get(streaming, task)
        told["no task"] = await tried(get(streaming, "nowhere"))
        told["no task to cancel"] = await tried(cancel(streaming, "nowhere"))
        told["message to no task"] = await sent(waiting, "msg hi", task="nowhere")
        told["cancelled"] = await cancelled(streaming)
        told["taken up"] = await taken_up(streaming)
        return names.without_ids({"card": plain(card), "told": told})


def main():
    url, binding, *token = sys.argv[1:]
    print(json.dumps(asyncio.run(use(url, binding, token[0] if token else None))))


if __name__ == "__main__":
    main()
