"""What the SDK's exceptions say of a wrong token and of a refused spec.

    errors.py BASE_URL TOKEN

Prints one JSON object of the exceptions' classes and texts.
"""

import json
import sys

from mantyx import MantyxClient, MantyxError


def failure(token, **spec):
    try:
        with MantyxClient(api_key=token, workspace_slug="acme", base_url=base_url) as client:
            client.run_agent(prompt="hi", **spec)
    except MantyxError as error:
        return {"class": type(error).__name__, "text": str(error)}
    return None


base_url, token = sys.argv[1:]
print(
    json.dumps(
        {
            "auth": failure("mantyx_wrong", system_prompt="You are a test."),
            "spec": failure(token, agent_id="no_such_agent"),
        }
    )
)
