"""Cards signed by the A2A SDK, of 1.x or of 0.3, whichever is installed.

Prints one line of JSON for each: its `name`, the `card` as the SDK's server would serve it, and the
`key` (PEM) that signed it.
"""

import json

from a2a.utils.signing import create_agent_card_signer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

RSA = rsa.generate_private_key(65537, 2048)
KEYS = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "RS256": RSA,
    "PS256": RSA,
}


def signed(algorithm, card):
    header = {"alg": algorithm, "kid": algorithm, "jku": "https://127.0.0.1:9/jwks", "typ": "JOSE"}
    return create_agent_card_signer(KEYS[algorithm], header)(card)


def out(name, card, algorithm):
    key = KEYS[algorithm].public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    print(json.dumps({"name": name, "card": card, "key": key.decode()}, ensure_ascii=False))


def interface(version, path="/rpc"):
    return {"url": path, "protocolBinding": "JSONRPC", "protocolVersion": version}


PLAIN = {
    "name": "Agent",
    "description": "Does what a test says.",
    "version": "1",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "test", "name": "Test", "description": "Tests.", "tags": ["test"]}],
}
RICH = PLAIN | {
    "name": "Büro 😀",
    "description": "",
    "documentationUrl": "http://127.0.0.1:9/doc",
    "capabilities": {
        "streaming": False,
        "extendedAgentCard": True,
        "extensions": [{"uri": "urn:x", "params": {"n": 5, "m": 1e21, "é": [0.1, None, ""]}}],
    },
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {
                    "clientCredentials": {
                        "tokenUrl": "https://127.0.0.1:9/token",
                        "scopes": {"read": "Reads."},
                    }
                }
            }
        },
    },
    "securityRequirements": [{"schemes": {"key": {}}}, {"schemes": {"oauth": {"list": ["read"]}}}],
    "skills": PLAIN["skills"]
    + [{"id": "2", "name": "2", "description": "", "tags": [], "securityRequirements": [{"schemes": {"key": {}}}]}],
}


def cards_1_0():
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict
    from a2a.types.a2a_pb2 import AgentCard
    from google.protobuf.json_format import ParseDict

    for algorithm in KEYS:
        card = PLAIN | {"supportedInterfaces": [interface("1.0")]}
        card = signed(algorithm, ParseDict(card, AgentCard()))
        out("v1_" + algorithm.lower(), agent_card_to_dict(card), algorithm)
    # With 0.3 among them, the server adds 0.3's own fields to what is signed.
    for name, versions in [("rich", ["1.0"]), ("both", ["1.0", "0.3"])]:
        interfaces = [interface(version, "/" + version) for version in versions]
        card = ParseDict(RICH | {"supportedInterfaces": interfaces}, AgentCard())
        card = signed("ES256", signed("EdDSA", card))
        out("v1_" + name, agent_card_to_dict(card), "ES256")


def cards_0_3():
    from a2a.types import AgentCard

    schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    for name, more in [
        ("plain", {}),
        ("secured", {"securitySchemes": schemes, "security": [{"key": []}], "protocolVersion": "0.2.6"}),
    ]:
        card = signed("ES256", AgentCard.model_validate(PLAIN | {"url": "/rpc"} | more))
        out("v03_" + name, card.model_dump(mode="json", exclude_none=True, by_alias=True), "ES256")


try:
    import a2a.types.a2a_pb2  # noqa: F401
except ImportError:
    cards_0_3()
else:
    cards_1_0()
