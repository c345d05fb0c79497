"""What alerts are sent to: keeps every notification, and answers GET with all of them as a JSON list."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

received = []


class Webhook(BaseHTTPRequestHandler):
    def do_POST(self):
        received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self._answer(b"{}")

    def do_GET(self):
        self._answer(json.dumps(received).encode())

    def log_message(self, *_arguments):
        """The notifications are the log."""

    def _answer(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("0.0.0.0", 8080), Webhook).serve_forever()  # noqa: S104 (inside a container of its own)
