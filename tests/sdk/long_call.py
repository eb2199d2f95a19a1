"""A call that outlives its turn: one message of a session begins it, the next fetches its result.

    long_call.py BASE_URL TOKEN PROMPT FILE

FILE is what the called tool waits for. Prints one JSON object.
"""

import json
import pathlib
import sys

from mantyx import MantyxClient


def answer(result):
    """The output of the one tool call of a message."""
    (output,) = [ev.data["output"] for ev in result.events if ev.type == "local_tool_result_in"]
    return output


base_url, token, prompt, path = sys.argv[1:]
with MantyxClient(api_key=token, workspace_slug="acme", base_url=base_url) as client:
    session = client.create_session(system_prompt="You are a test.")
    pending = json.loads(answer(session.send(prompt)))
    pathlib.Path(path).touch()
    ask = {"callId": pending["callId"], "wait": 60}
    result = answer(session.send("bridge_call_result " + json.dumps(ask)))
    session.end()
print(json.dumps({"pending": pending, "result": result}))
