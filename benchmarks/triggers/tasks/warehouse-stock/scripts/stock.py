"""Prints how many pieces of an article are in stock."""

import sys
import zlib

number = sys.argv[1]
print(f"{number}: {zlib.crc32(number.encode()) % 9000 + 1000} pieces in stock")
