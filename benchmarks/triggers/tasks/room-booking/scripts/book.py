"""Books a room, and prints the number of the booking."""

import sys
import zlib

room, day = sys.argv[1:3]
number = zlib.crc32(f"{room}/{day}".encode()) % 9000 + 1000
print(f"{room} on {day}: booked, booking number {number}")
