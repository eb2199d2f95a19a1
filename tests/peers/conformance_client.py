"""The client that MCP's own conformance suite starts against its servers, for the integration
tests: a bridge with the server as its one backend, and a client of 2026-07-28 of that bridge.

    conformance_client.py BRIDGE URL

BRIDGE is the program. The suite sets the variables MCP_CONFORMANCE_SCENARIO and, for some
scenarios, MCP_CONFORMANCE_CONTEXT.
"""

import base64
import http.cookiejar
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
# Less than the suite gives a client.
PATIENCE = 20


def config(url, state, context):
    backend = {"url": url, "prefix": ""}
    if wants_login(os.environ["MCP_CONFORMANCE_SCENARIO"]):
        backend["auth"] = {"oauth": login_client(url, context)}
    elif "client_id" in context:
        proofs = {"client_secret": "client_secret", "private_key_pem": "private_key"}
        client = {key: context[given] for given, key in proofs.items() if given in context}
        client["client_id"] = context["client_id"]
        issuer, token_url = issuer_of(url)
        client |= {"token_url": token_url} | ({"audience": issuer} if "private_key" in client else {})
        backend["auth"] = {"oauth": client}
    return {
        "listen": "127.0.0.1:0",
        "state_dir": str(state),
        "auth": "off",
        "upstream": {"sandbox": True, "workspace": "acme"},
        "mcp": {"server": backend},
    }


def wants_login(scenario):
    """Whether a person logs in."""
    return scenario.startswith("auth/") and "client-credentials" not in scenario


def login_client(url, context):
    """What an operator writes: the issuer, as it is on another port of this machine; and the client, where one was
    registered by hand."""
    client = {"login": "bridge"}
    client |= {key: context[key] for key in ("client_id", "client_secret") if key in context}
    if os.environ["MCP_CONFORMANCE_SCENARIO"] == "auth/basic-cimd":
        client["client_id"] = "https://conformance-test.local/client-metadata.json"
    issuers = named_issuers(url)
    if issuers:
        client["issuer"] = issuers[0]
    return client


def named_issuers(url):
    """The issuers that the server's metadata names, wherever that is."""
    origin, _, path = url.rpartition("/")
    request = urllib.request.Request(url, b"{}", {"content-type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=PATIENCE).close()
        named = ""
    except urllib.error.HTTPError as error:
        named = error.headers.get("www-authenticate", "")
    places = re.findall(r'resource_metadata="([^"]+)"', named)
    well_known = f"{origin}/.well-known/oauth-protected-resource"
    for place in [*places, f"{well_known}/{path}", well_known]:
        try:
            return fetch(place).get("authorization_servers", [])
        except (ValueError, IndexError):
            pass
    return []


def issuer_of(url):
    """The issuer that the server names, and its token endpoint: the bridge goes to no other port of this machine
    unless its operator says so."""
    origin, _, path = url.rpartition("/")
    resource = fetch(f"{origin}/.well-known/oauth-protected-resource/{path}")
    issuer = resource["authorization_servers"][0]
    return issuer, fetch(f"{issuer}/.well-known/oauth-authorization-server")["token_endpoint"]


def fetch(url, body=None, headers={}):
    """The JSON at `url`, be it of an error."""
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            text = response.read().decode()
    except urllib.error.HTTPError as error:
        text = error.read().decode()
    if text.startswith("{"):
        return json.loads(text)
    # An event stream, whose last message is the answer.
    return json.loads([line[6:] for line in text.splitlines() if line.startswith("data: ")][-1])


def soon(probe):
    """What `probe` returns at last, or nothing."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = probe()
        if found:
            return found
        time.sleep(0.05)
    return None


class Bridge:
    def __init__(self, program, url, context, directory):
        state = pathlib.Path(directory) / "state"
        state.mkdir()
        self.program, self.context, self.server = program, context, url
        self.state, self.path = state, pathlib.Path(directory) / "bridge.yaml"
        self.write()
        self.tools = []
        command = [program, "serve", "-c", str(self.path)]
        self.process = subprocess.Popen(command, stdout=sys.stderr, cwd=directory)
        address = state / "listen"
        soon(lambda: address.exists() and address.read_text().endswith("\n"))
        self.url = address.read_text().split()[0]
        if not self.url.startswith("http"):
            self.url = f"http://{self.url}"

    def write(self):
        self.path.write_text(json.dumps(config(self.server, self.state, self.context)))

    def log_in(self):
        """An operator logs in: by the command, and a browser that the issuer sends straight back."""
        command = [self.program, "login", "server", "-c", str(self.path)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        print(line, file=sys.stderr)
        address = re.search(r"http\S*/oauth/start/\S+", line)
        if address:
            jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
            try:
                with urllib.request.build_opener(jar).open(address.group(), timeout=PATIENCE) as page:
                    print(page.geturl().split("?")[0], page.status, file=sys.stderr)
            except urllib.error.HTTPError as error:
                print(error.url.split("?")[0], error.code, error.read(), file=sys.stderr)
                process.terminate()
        print(process.stdout.read(), file=sys.stderr)
        return process.wait() == 0

    def login_state(self):
        secret = (self.state / "operator").read_text().strip()
        logins = fetch(f"{self.url}/v1/logins", headers={"x-bridge-operator": secret})["logins"]
        return logins[0]["state"] if logins else None

    def backend(self):
        return fetch(f"{self.url}/v1/status")["backends"][0]

    def request(self, method, **params):
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": STATELESS,
            "mcp-method": method,
        }
        subject = params.get("name") or params.get("uri")
        if subject:
            headers["mcp-name"] = encoded(subject)
        for tool in self.tools:
            if tool["name"] == params.get("name"):
                headers.update(repeated(tool, params["arguments"]))
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        answer = fetch(f"{self.url}/mcp", json.dumps(message).encode(), headers)
        print(method, params, "->", answer, file=sys.stderr)
        return answer.get("result", {})

    def call(self, name, arguments):
        """Calls a tool, and accepts the defaults of each question."""
        result = self.request("tools/call", name=name, arguments=arguments)
        while result.get("resultType") == "input_required":
            answers = {
                key: {"action": "accept", "content": filled(question["params"])}
                for key, question in result["inputRequests"].items()
            }
            result = self.request(
                "tools/call",
                name=name,
                arguments=arguments,
                inputResponses=answers,
                requestState=result["requestState"],
            )
        return result


def filled(question):
    """A user's answer: the defaults of the form, and yes to the rest."""
    properties = question["requestedSchema"]["properties"]
    return {name: schema.get("default", True) for name, schema in properties.items()}


def repeated(tool, arguments):
    """The arguments that 2026-07-28 wants in headers, too."""
    headers = {}
    for name, schema in tool["inputSchema"].get("properties", {}).items():
        header, value = schema.get("x-mcp-header"), arguments.get(name)
        if header and value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            headers[f"mcp-param-{header}"] = encoded(text)
    return headers


def encoded(text):
    if text.isascii() and text.isprintable() and text == text.strip():
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def use(bridge, scenario, context):
    """Makes the calls that the scenario waits for."""
    bridge.tools = bridge.request("tools/list").get("tools", [])
    names = [tool["name"] for tool in bridge.tools]
    if scenario == "json-schema-2020-12-preservation":
        schema = bridge.tools[names.index("json_schema_2020_12_tool")]["inputSchema"]
        bridge.call("json_schema_echo", {"schema": schema})
    elif scenario == "http-standard-headers":
        bridge.call(names[0], {})
        for resource in bridge.request("resources/list").get("resources", []):
            bridge.request("resources/read", uri=resource["uri"])
        for prompt in bridge.request("prompts/list").get("prompts", []):
            bridge.request("prompts/get", name=prompt["name"], arguments={})
    elif "toolCalls" in context:
        for call in context["toolCalls"]:
            bridge.call(call["name"], call["arguments"])
    else:
        for tool in bridge.tools:
            bridge.call(tool["name"], arguments_of(tool["inputSchema"]))


def log_in_and_use(bridge, scenario, context):
    """As an operator does it: logs in, and again as long as the bridge says that the login lacks a scope, or has ended."""
    for _ in range(3):
        if not bridge.log_in():
            sys.exit("no login")
        soon(lambda: bridge.backend()["state"] == "ready" or bridge.login_state() != "ok")
        use(bridge, scenario, context)
        if bridge.login_state() == "ok":
            return
        # The server may have another issuer by now.
        bridge.write()
        bridge.process.send_signal(signal.SIGHUP)
        time.sleep(1)


def arguments_of(schema):
    """Something for each argument that the tool wants."""
    values = {"string": "text", "boolean": True, "object": {}}
    properties = schema.get("properties", {})
    return {name: values.get(properties[name]["type"], 2) for name in schema.get("required", [])}


def main(program, url):
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory() as directory:
        bridge = Bridge(program, url, context, directory)
        try:
            if wants_login(scenario):
                log_in_and_use(bridge, scenario, context)
                return
            state = soon(lambda: {"ready": "ready", "down": "down"}.get(bridge.backend()["state"]))
            if state != "ready":
                sys.exit(f"not connected: {bridge.backend()}")
            use(bridge, scenario, context)
        finally:
            bridge.process.terminate()
            bridge.process.wait()


main(*sys.argv[1:])
