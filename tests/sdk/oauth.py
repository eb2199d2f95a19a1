"""One run by an app that logs in to MANTYX with the SDK's own OAuth client, and shows the bridge's
token beside MANTYX's.

    oauth.py BASE_URL TOKEN

Prints one JSON object.
"""

import json
import sys

import httpx
from mantyx import MantyxClient, MantyxOAuthClient


def main(base_url, token):
    http = httpx.Client(headers={"X-API-Key": token}, timeout=30)
    oauth = MantyxOAuthClient(
        client_id="mantyx_oa_1",
        client_secret="mantyx_oas_1",
        base_url=base_url,
        http_client=http,
    )
    source = oauth.refresh_token_source(refresh_token="mantyx_rt_1")
    with MantyxClient(
        token_source=source, workspace_slug="acme", base_url=base_url, http_client=http
    ) as client:
        result = client.run_agent(system_prompt="You are a test.", prompt="hi")
        print(json.dumps({"text": result.text}))


main(*sys.argv[1:])
