"""Addresses by which anybody may use an object of an S3 server for a while: version 4 of Amazon's signatures, in the query."""

import datetime
import hashlib
import hmac
import urllib.parse

REGION = "us-east-1"
LASTING_S = 3600


def signed(method, host, path, key, secret, now=None, lasting_s=LASTING_S):
    """The path with its query."""
    now = now or datetime.datetime.now(datetime.timezone.utc)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    scope = f"{day}/{REGION}/s3/aws4_request"
    query = urllib.parse.urlencode(sorted({
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{key}/{scope}", "X-Amz-Date": stamp,
        "X-Amz-Expires": str(lasting_s), "X-Amz-SignedHeaders": "host",
    }.items()), quote_via=urllib.parse.quote, safe="")
    request = "\n".join([method, urllib.parse.quote(path), query, f"host:{host}\n", "host", "UNSIGNED-PAYLOAD"])
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    made = f"AWS4{secret}".encode()
    for part in (day, REGION, "s3", "aws4_request", text):
        made = hmac.new(made, part.encode(), hashlib.sha256).digest()
    return f"{path}?{query}&X-Amz-Signature={made.hex()}"
