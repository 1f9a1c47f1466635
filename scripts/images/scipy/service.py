"""Imports numpy, scipy and pandas, then answers on port 8083 with what it computed with each of them."""

import http.server

import numpy
import pandas
import scipy.linalg
import scipy.stats

TABLE = pandas.DataFrame({"kind": list("abab"), "value": numpy.arange(4.0)})
SUMS = TABLE.groupby("kind")["value"].sum()
RESULT = f"{SUMS.to_dict()} {scipy.linalg.det(numpy.eye(3))} {scipy.stats.norm.cdf(0.0)}\n".encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(RESULT)


http.server.ThreadingHTTPServer(("127.0.0.1", 8083), Handler).serve_forever()
