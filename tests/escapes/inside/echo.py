"""What it was given, byte by byte. Case 59."""

from __future__ import annotations

import json
import os
import sys

if __name__ == "__main__":
    with open(os.path.join(os.environ["WORK_DIR"], "written"), "w", encoding="ascii") as file:
        file.write("x")
    given = [os.fsencode(word).hex() for word in sys.argv[1:]]
    print(json.dumps({"given": given, "odd": os.fsencode(os.environ["ODD"]).hex(), "here": os.listdir()}))
