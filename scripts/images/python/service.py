"""Imports numpy, then answers on port 8081 with what it computed."""

import http.server

import numpy

RESULT = str(float(numpy.linalg.det(numpy.eye(3)))).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(RESULT)


http.server.ThreadingHTTPServer(("127.0.0.1", 8081), Handler).serve_forever()
