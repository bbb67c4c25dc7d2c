"""Network: nothing arrives anywhere. Cases 23 to 29. Only addresses of this machine are ever sent to."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import struct

from harness import attempt, call, first

WAIT_S = 2


def connecting(name, family, kind, protocol, address_of):
    """A connection, and a word over it, so that the host knows who came."""

    def connect(task):
        with socket.socket(family, kind, protocol) as ours:
            ours.settimeout(WAIT_S)
            ours.connect(address_of(task))
            ours.sendall(name.encode())

    attempt(name)(connect)


STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
connecting("tcp-loopback", socket.AF_INET, STREAM, 0, lambda task: ("127.0.0.1", task["tcp"]))
connecting("tcp-loopback-6", socket.AF_INET6, STREAM, 0, lambda task: ("::1", task["tcp6"]))
connecting("tcp-host-address", socket.AF_INET, STREAM, 0, lambda task: (task["address_of_host"], task["tcp_host"]))
connecting("udp-loopback", socket.AF_INET, DATAGRAM, 0, lambda task: ("127.0.0.1", task["udp"]))
connecting("udp-host-address", socket.AF_INET, DATAGRAM, 0, lambda task: (task["address_of_host"], task["udp_host"]))
connecting("unix-abstract", socket.AF_UNIX, STREAM, 0, lambda task: "\0" + task["abstract"])
connecting("unix-abstract-datagram", socket.AF_UNIX, DATAGRAM, 0, lambda task: "\0" + task["abstract_datagram"])
connecting("unix-path", socket.AF_UNIX, STREAM, 0, lambda task: task["unix"])
connecting("unix-path-datagram", socket.AF_UNIX, DATAGRAM, 0, lambda task: task["unix_datagram"])
connecting("mptcp", socket.AF_INET, STREAM, 262, lambda task: ("127.0.0.1", task["tcp"]))


@attempt("unix-by-link")
def unix_by_link(task):
    link = os.path.join(os.environ["WORK_DIR"], "docker.sock")
    os.symlink(task["unix"], link)
    with socket.socket(socket.AF_UNIX) as ours:
        ours.settimeout(WAIT_S)
        ours.connect(link)
        ours.sendall(b"unix-by-link")


def pairing(name, kind):
    """Nobody asked socket(2) for a datagram socket, and it takes an address all the same."""

    def send(task):
        ours, _other = socket.socketpair(socket.AF_UNIX, kind)
        with ours:
            ours.sendto(name.encode(), task["unix_datagram"])

    attempt(name)(send)


pairing("unix-pair-datagram", DATAGRAM)
pairing("unix-pair-raw", socket.SOCK_RAW)


@attempt("route-out")
def route_out(task):
    """Connecting a datagram socket sends nothing: it only finds out whether there is a way to somewhere else."""
    with socket.socket(type=DATAGRAM) as ours:
        ours.connect(("198.51.100.7", 9))


@attempt("dns")
def dns(task):
    """A question as a resolver would get it, at the place where one listens on this machine."""
    question = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + b"\x03dns\x07example\0" + struct.pack(">2H", 1, 1)
    with socket.socket(type=DATAGRAM) as ours:
        ours.sendto(question, ("127.0.0.1", task["udp"]))


@attempt("fast-open")
def fast_open(task):
    with socket.socket() as ours:
        ours.sendto(b"fast-open", socket.MSG_FASTOPEN, ("127.0.0.1", task["tcp"]))


def opening(name, family, kind, protocol=0):
    attempt(name)(lambda task: socket.socket(family, kind, protocol).close())


opening("vsock", 40, STREAM)
opening("vsock-datagram", 40, DATAGRAM)
opening("netlink", 16, socket.SOCK_RAW, 0)
opening("netlink-audit", 16, socket.SOCK_RAW, 9)
opening("netlink-uevent", 16, socket.SOCK_RAW, 15)
opening("packet", 17, socket.SOCK_RAW, 0x0300)
opening("raw-icmp", socket.AF_INET, socket.SOCK_RAW, 1)
opening("alg", 38, socket.SOCK_SEQPACKET)
opening("bluetooth", 31, socket.SOCK_RAW, 1)
opening("xdp", 44, socket.SOCK_RAW)
opening("key", 15, socket.SOCK_RAW, 2)
opening("sctp", socket.AF_INET, STREAM, 132)
opening("sctp-one-to-many", socket.AF_INET, socket.SOCK_SEQPACKET, 132)
opening("dccp", socket.AF_INET, 6, 33)
opening("udp-lite", socket.AF_INET, DATAGRAM, 136)


@attempt("socketpair-vsock")
def socketpair_vsock(task):
    socket.socketpair(40, STREAM)


class Ring:
    """As little of io_uring as it takes to have the kernel make a socket and connect it."""

    ENTER_GETEVENTS, OP_CONNECT, OP_SEND, OP_SOCKET = 1, 16, 26, 45

    def __init__(self):
        params = ctypes.create_string_buffer(120)
        self.fd = call("io_uring_setup", 4, params)
        self.sq, self.cq = struct.unpack_from("10I", params, 40), struct.unpack_from("10I", params, 80)
        entries, cq_entries = struct.unpack_from("II", params, 0)
        size = max(self.sq[6] + entries * 4, self.cq[5] + cq_entries * 16)
        self.ring = mmap.mmap(self.fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
        self.requests = mmap.mmap(
            self.fd, entries * 64, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0x10000000
        )

    def ask(self, operation, fd, address=0, offset=0, length=0, flags=0):
        request = struct.pack("BBHiQQIIQ", operation, 0, 0, fd, offset, address, length, flags, 0).ljust(64, b"\0")
        tail, mask, array = self.sq[1], self.sq[2], self.sq[6]
        at = struct.unpack_from("I", self.ring, tail)[0]
        slot = at & struct.unpack_from("I", self.ring, mask)[0]
        self.requests[slot * 64 : slot * 64 + 64] = request
        struct.pack_into("I", self.ring, array + slot * 4, slot)
        struct.pack_into("I", self.ring, tail, at + 1)
        call("io_uring_enter", self.fd, 1, 1, self.ENTER_GETEVENTS, None, 0)
        seen = struct.unpack_from("I", self.ring, self.cq[0])[0]
        place = self.cq[5] + (seen & struct.unpack_from("I", self.ring, self.cq[2])[0]) * 16
        result = struct.unpack_from("Qi", self.ring, place)[1]
        struct.pack_into("I", self.ring, self.cq[0], seen + 1)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result


@attempt("uring-connect")
def uring_connect(task):
    """A socket that nobody asked socket(2) for, and a connection without connect(2)."""
    ring = Ring()
    fd = ring.ask(Ring.OP_SOCKET, socket.AF_INET, offset=STREAM)
    where = ctypes.create_string_buffer(struct.pack("=HHI8x", socket.AF_INET, socket.htons(task["tcp"]), 0x0100007F))
    ring.ask(Ring.OP_CONNECT, fd, address=ctypes.addressof(where), offset=16)
    word = ctypes.create_string_buffer(b"uring-connect")
    ring.ask(Ring.OP_SEND, fd, address=ctypes.addressof(word), length=13)


@attempt("int80-socket")
def int80_socket(task):
    """The call of 32-bit programs, whose numbers a filter for 64 bits would take for something else."""
    from surface import int80

    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "x86_64 only")
    result = int80(359, socket.AF_INET, STREAM, 0)
    if result < 0:
        raise OSError(-result, os.strerror(-result))


@attempt("resolve-and-connect")
def resolve_and_connect(task):
    """By name, as most programs do: /etc/hosts and all."""
    with first(
        lambda name=name: socket.create_connection((name, task["tcp"]), WAIT_S)
        for name in ("localhost", "ip6-localhost", socket.gethostname(), "host.docker.internal")
    ) as ours:
        ours.sendall(b"resolve-and-connect")
