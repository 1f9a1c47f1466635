"""Imports torch, then answers on port 8085 with what a small network computed."""

import http.server

import torch

torch.manual_seed(1)
LAYERS = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
with torch.no_grad():
    RESULT = f"{LAYERS(torch.ones(1, 64)).item():.4f}\n".encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(RESULT)


http.server.ThreadingHTTPServer(("127.0.0.1", 8085), Handler).serve_forever()
