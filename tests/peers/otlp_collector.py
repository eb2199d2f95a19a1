"""A collector of OTLP's traces, for the integration tests, on the official protobuf messages.

    otlp_collector.py --port N [--answers A,B,…]

It writes each POST to stdout, a line of JSON: its path, its headers, and its spans, with ids in hex.
The answers are statuses, the last of them again and again; `hang` is none at all, `partial` is 200
that refuses one span, and a redirect leads to /elsewhere. Must not: forgive what is no protobuf.
"""

import argparse
import http.server
import itertools
import json
import threading

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.trace.v1 import trace_pb2


def attributes(pairs):
    found = {}
    for pair in pairs:
        assert pair.key not in found, f"{pair.key} is there twice"
        found[pair.key] = getattr(pair.value, pair.value.WhichOneof("value"))
    return found


def spans(body):
    request = service.ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8
                yield {
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "state": span.trace_state,
                    "name": span.name,
                    "kind": trace_pb2.Span.SpanKind.Name(span.kind),
                    "attributes": attributes(span.attributes),
                    "failed": span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
                    "nanos": [span.start_time_unix_nano, span.end_time_unix_nano],
                    "remote": bool(span.flags & 0x200),
                    "resource": attributes(resource.resource.attributes),
                    "scope": scope.scope.name,
                }


class Handler(http.server.BaseHTTPRequestHandler):
    lock = threading.Lock()
    answers = None

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        line = {"path": self.path, "headers": headers, "spans": list(spans(body))}
        with self.lock:
            print(json.dumps(line), flush=True)
            answer = next(self.answers)
        if answer == "hang":
            threading.Event().wait()
        reply = service.ExportTraceServiceResponse()
        if answer == "partial":
            reply.partial_success.rejected_spans = 1
        reply = reply.SerializeToString()
        self.send_response(200 if answer == "partial" else int(answer))
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--answers", default="200")
    arguments = parser.parse_args()
    answers = arguments.answers.split(",")
    Handler.answers = itertools.chain(answers, itertools.repeat(answers[-1]))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    print(f"READY http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
