"""Two messages of one session with the SDK's sync client, which has no tools of its own.

    sync_session.py BASE_URL TOKEN FIRST_PROMPT SECOND_PROMPT

Prints one JSON object.
"""

import json
import sys

from mantyx import MantyxClient

base_url, token, *prompts = sys.argv[1:]
with MantyxClient(api_key=token, workspace_slug="acme", base_url=base_url) as client:
    models = client.list_models()
    session = client.create_session(system_prompt="You are a test.")
    messages = []
    for prompt in prompts:
        result = session.send(prompt)
        events = [{"seq": ev.seq, "type": ev.type, "data": ev.data} for ev in result.events]
        messages.append({"text": result.text, "events": events})
    history = len(session.history())
    session.end()
print(json.dumps({"models": len(models.models), "messages": messages, "history": history}))
