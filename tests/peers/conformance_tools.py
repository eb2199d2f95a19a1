"""The tools and prompts of conformance_mcp.py, which imports this file."""

import asyncio
import hashlib
import hmac
import json

import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJg"
    "gg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
STATELESS = "2026-07-28"
NOTHING = {"type": "object", "properties": {}}

bus = InMemorySubscriptionBus()
# Whether it asks clients with sessions alone, as servers do that were made for these.
asks_in_sessions = False
tools, prompts = {}, {}


def tool(description, schema=NOTHING, listed=True):
    """Registers a function as the tool of its name."""

    def register(function):
        name = function.__name__
        definition = types.Tool(name=name, description=description, input_schema=schema)
        tools[name] = (definition, function, listed)
        return function

    return register


def strings(*names):
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


def said(text):
    return types.CallToolResult(content=[text_block(text)])


def text_block(text):
    return types.TextContent(type="text", text=text)


def image_block():
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def resource_block(uri, mime_type, text):
    resource = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=resource)


# Questions to the client: requests on a session, or the result of the call without one.


class Asking(Exception):
    """Ends a handler with questions."""

    def __init__(self, questions, state):
        self.result = types.InputRequiredResult(input_requests=questions, request_state=state)


async def ask(ctx, params, questions, state=None):
    """The client's response to each of the questions."""
    if ctx.protocol_version < STATELESS:
        results = {
            "elicitation/create": types.ElicitResult,
            "sampling/createMessage": types.CreateMessageResult,
            "roots/list": types.ListRootsResult,
        }
        place = ServerMessageMetadata(related_request_id=ctx.request_id)
        return {
            key: await ctx.session.send_request(one, results[one.method], metadata=place)
            for key, one in questions.items()
        }
    if asks_in_sessions:
        raise MCPError(-32601, "Method not found")
    responses = params.input_responses or {}
    if any(key not in responses for key in questions):
        raise Asking(questions, state)
    return responses


def form(message, **properties):
    return optional(message, properties, list(properties))


def optional(message, properties, required=()):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def sampling(text, max_tokens):
    message = types.SamplingMessage(role="user", content=text_block(text))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    return types.CreateMessageRequest(params=params)


def roots():
    return types.ListRootsRequest(params=types.RequestParams())


NAME = {"type": "string"}


def signed(payload):
    digest = hmac.new(b"for tests alone", payload.encode(), hashlib.sha256).hexdigest()
    return f"{payload}.{digest}"


def payload_of(state):
    """What a state of ours says."""
    payload = state.rpartition(".")[0]
    if not hmac.compare_digest(signed(payload), state):
        raise MCPError(types.INVALID_PARAMS, "The request state is not this server's.")
    return payload


# Tools.


EMBEDDED = "This is an embedded resource content."
FIXED = {
    "test_simple_text": [text_block("This is a simple text response for testing.")],
    "test_image_content": [image_block()],
    "test_audio_content": [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [resource_block("test://embedded-resource", "text/plain", EMBEDDED)],
    "test_multiple_content_types": [
        text_block("Multiple content types test:"),
        image_block(),
        resource_block(
            "test://mixed-content-resource",
            "application/json",
            json.dumps({"test": "data", "value": 123}),
        ),
    ],
}


def fixed(name, content):
    async def call(ctx, params):
        return types.CallToolResult(content=content)

    call.__name__ = name
    tool("Returns what never changes")(call)


for name, content in FIXED.items():
    fixed(name, content)


@tool("Logs while it works")
async def test_tool_with_logging(ctx, params):
    for line in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
        await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)
        await asyncio.sleep(0.05)
    return said("Tool with logging executed successfully")


@tool("Logs once")
async def test_logging_tool(ctx, params):
    await ctx.session.send_log_message("info", "one line", related_request_id=ctx.request_id)
    return said("logged")


@tool("Fails")
async def test_error_handling(ctx, params):
    failed = said("This tool intentionally returns an error for testing")
    failed.is_error = True
    return failed


@tool("Reports progress")
async def test_tool_with_progress(ctx, params):
    token = (ctx.meta or {}).get("progress_token")
    for done in [0, 50, 100]:
        if token is not None:
            await ctx.session.send_progress_notification(
                token, done, total=100, related_request_id=str(ctx.request_id)
            )
        await asyncio.sleep(0.05)
    return said("Progress reported")


@tool("Closes the stream of its own call before it answers")
async def test_reconnection(ctx, params):
    if ctx.close_sse_stream:
        await ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    return said("Reconnection test completed successfully")


@tool("Asks the client's model", strings("prompt"))
async def test_sampling(ctx, params):
    question = sampling(params.arguments["prompt"], 100)
    response = (await ask(ctx, params, {"sample": question}))["sample"]
    return said(f"LLM response: {response.content.text}")


@tool("Asks the user", strings("message"))
async def test_elicitation(ctx, params):
    user = {"type": "string", "description": "User's response"}
    email = {"type": "string", "description": "User's email address"}
    question = form(params.arguments["message"], username=user, email=email)
    response = (await ask(ctx, params, {"user": question}))["user"]
    return said(f"User response: action={response.action}, content={json.dumps(response.content)}")


async def elicited(ctx, params, question):
    response = (await ask(ctx, params, {"form": question}))["form"]
    content = json.dumps(response.content)
    return said(f"Elicitation completed: action={response.action}, content={content}")


STATUS = ["active", "inactive", "pending"]


@tool("Asks with defaults for all primitive types")
async def test_elicitation_sep1034_defaults(ctx, params):
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": STATUS, "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return await elicited(ctx, params, optional("Please review the defaults", properties))


@tool("Asks with all forms of an enumeration")
async def test_elicitation_sep1330_enums(ctx, params):
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{number}", "title": f"{word} Option"}
        for number, word in enumerate(["First", "Second", "Third"], 1)
    ]
    properties = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return await elicited(ctx, params, optional("Please select options", properties))


SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool("Tool with JSON Schema 2020-12 features", SCHEMA_2020)
async def json_schema_2020_12_tool(ctx, params):
    return said("called")


REGION = strings("region")
REGION["properties"]["region"]["x-mcp-header"] = "Region"


@tool("Has a parameter that is sent as a header, too", REGION)
async def test_header_param(ctx, params):
    return said(f"region {params.arguments['region']}")


@tool("Needs sampling")
async def test_missing_capability(ctx, params):
    if declared(ctx).sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This tool needs sampling.",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return said("not missing")


def declared(ctx):
    return ctx.session.client_capabilities or types.ClientCapabilities()


@tool("Asks the user in the stream of its answer")
async def test_streaming_elicitation(ctx, params):
    return await elicited(ctx, params, form("Which name?", name=NAME))


@tool("Asks for a name")
async def test_input_required_result_elicitation(ctx, params):
    question = form("What is your name?", name=NAME)
    response = (await ask(ctx, params, {"user_name": question}))["user_name"]
    return said(f"Hello, {response.content['name']}!")


@tool("Asks the client's model for a capital")
async def test_input_required_result_sampling(ctx, params):
    question = sampling("What is the capital of France?", 100)
    response = (await ask(ctx, params, {"capital_question": question}))["capital_question"]
    return said(response.content.text)


@tool("Asks for the client's roots")
async def test_input_required_result_list_roots(ctx, params):
    response = (await ask(ctx, params, {"client_roots": roots()}))["client_roots"]
    return said(" ".join(str(root.uri) for root in response.roots))


CONFIRM = {"confirm": form("Please confirm", ok={"type": "boolean"})}


@tool("Checks the state that comes back with the answer")
async def test_input_required_result_request_state(ctx, params):
    await ask(ctx, params, CONFIRM, signed("confirm"))
    return said("state-ok" if payload_of(params.request_state) == "confirm" else "another state")


@tool("Refuses a state that was changed")
async def test_input_required_result_tampered_state(ctx, params):
    if params.request_state is not None:
        payload_of(params.request_state)
    await ask(ctx, params, CONFIRM, signed("confirm"))
    return said("state-ok")


@tool("Asks the user, the model and for the roots at once")
async def test_input_required_result_multiple_inputs(ctx, params):
    questions = {
        "user_name": form("What is your name?", name=NAME),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    }
    await ask(ctx, params, questions, signed("three"))
    payload_of(params.request_state)
    return said("all three")


@tool("Asks twice, one after the other")
async def test_input_required_result_multi_round(ctx, params):
    round_two = params.request_state and payload_of(params.request_state) == "two"
    if not round_two:
        first = {"step1": form("Step 1: What is your name?", name=NAME)}
        await ask(ctx, params, first, signed("one"))
        payload_of(params.request_state)
        params.input_responses = {}
    second = {"step2": form("Step 2: What is your favorite color?", color=NAME)}
    await ask(ctx, params, second, signed("two"))
    return said("both steps")


@tool("Asks only as the client can answer")
async def test_input_required_result_capabilities(ctx, params):
    client, questions = declared(ctx), {}
    if client.sampling is not None:
        questions["sample"] = sampling("Say hello", 10)
    if client.elicitation is not None:
        questions["user"] = form("What is your name?", name=NAME)
    await ask(ctx, params, questions, None if questions else signed("nothing"))
    return said("answered")


async def toggled(catalog, name, event):
    """Lists one entry more than before, or one less."""
    definition, function, listed = catalog[name]
    catalog[name] = (definition, function, not listed)
    await bus.publish(event)


@tool("Is listed at times", listed=False)
async def test_changing_tool(ctx, params):
    return said("here")


@tool("Changes the list of tools")
async def test_trigger_tool_change(ctx, params):
    await toggled(tools, "test_changing_tool", ToolsListChanged())
    if ctx.protocol_version < STATELESS:
        await ctx.session.send_tool_list_changed()
    return said("changed")


@tool("Changes the list of prompts")
async def test_trigger_prompt_change(ctx, params):
    await toggled(prompts, "test_changing_prompt", PromptsListChanged())
    if ctx.protocol_version < STATELESS:
        await ctx.session.send_prompt_list_changed()
    return said("changed")


# Prompts.


def prompt(description, *arguments, listed=True):
    """Registers a function that makes the prompt of its name."""

    def register(function):
        name = function.__name__
        wanted = [types.PromptArgument(name=one, required=True) for one in arguments]
        definition = types.Prompt(name=name, description=description, arguments=wanted)
        prompts[name] = (definition, function, listed)
        return function

    return register


def messages(*blocks):
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=block) for block in blocks]
    )


@prompt("Has no arguments")
async def test_simple_prompt(ctx, params):
    return messages(text_block("This is a simple prompt for testing."))


@prompt("Has two arguments", "arg1", "arg2")
async def test_prompt_with_arguments(ctx, params):
    first, second = params.arguments["arg1"], params.arguments["arg2"]
    return messages(text_block(f"Prompt with arguments: arg1='{first}', arg2='{second}'"))


@prompt("Holds a resource", "resourceUri")
async def test_prompt_with_embedded_resource(ctx, params):
    text = "Embedded resource content for testing."
    resource = resource_block(params.arguments["resourceUri"], "text/plain", text)
    return messages(resource, text_block("Please process the embedded resource above."))


@prompt("Holds an image")
async def test_prompt_with_image(ctx, params):
    return messages(image_block(), text_block("Please analyze the image above."))


@prompt("Asks for its context")
async def test_input_required_result_prompt(ctx, params):
    question = form("What context should the prompt use?", context=NAME)
    response = (await ask(ctx, params, {"user_context": question}))["user_context"]
    return messages(text_block(f"In the context {response.content['context']}"))


@prompt("Is listed at times", listed=False)
async def test_changing_prompt(ctx, params):
    return messages(text_block("here"))
