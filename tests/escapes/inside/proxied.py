"""Where one host is allowed, no other is reached, however it is asked for. Case 30."""

from __future__ import annotations

import json
import sys
import urllib.request

if __name__ == "__main__":
    said = {}
    for name, url in json.load(sys.stdin).items():
        handlers = [urllib.request.ProxyHandler({})] if name == "proxy-around" else []
        try:
            with urllib.request.build_opener(*handlers).open(url, timeout=5) as answer:
                said[name] = answer.read(100).decode()
        except OSError as error:
            said[name] = repr(error)
    print(json.dumps(said))
