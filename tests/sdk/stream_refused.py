"""What the SDK raises where a run is created and its stream is refused.

    stream_refused.py BASE_URL

Prints one JSON object of the exception's class and what it carries.
"""

import json
import sys

from mantyx import MantyxClient, MantyxError

(base_url,) = sys.argv[1:]
try:
    with MantyxClient(api_key="mantyx_own", workspace_slug="acme", base_url=base_url) as client:
        client.run_agent(prompt="hi", system_prompt="You are a test.")
    seen = None
except MantyxError as error:
    names = ("message", "code", "status", "hint")
    seen = {"class": type(error).__name__} | {name: getattr(error, name, None) for name in names}
print(json.dumps(seen))
