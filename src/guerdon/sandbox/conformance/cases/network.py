"""Abuse cases: the network."""

from __future__ import annotations

from functools import partial

from guerdon.sandbox.conformance.case import Case
from guerdon.sandbox.conformance.machine import lacks

__all__ = ["NETWORK"]

_case = partial(Case, group="network")

NETWORK: tuple[Case, ...] = (
    _case(
        name="TCP connection",
        proves="no server of the host is reached",
        program="refused(connect=lambda: socket.create_connection(('127.0.0.1', host['tcp']), 1))",
    ),
    _case(
        name="TCP over IPv6",
        proves="the other address family is closed too",
        unless=lambda: lacks("socket", "AF_INET6"),
        program="refused(connect=lambda: socket.create_connection(('::1', host['tcp6']), 1))",
    ),
    _case(
        name="TCP to the world",
        proves="nothing beyond the host is reached",
        program="""
        # An address that is kept for documentation: nobody is there.
        refused(connect=lambda: socket.create_connection(("192.0.2.1", 80), 0.5))
        """,
    ),
    _case(
        name="UDP datagram",
        proves="no datagram comes to the host",
        program="""
        def send():
            line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            line.connect(("127.0.0.1", host["udp"]))
            # Where nobody listens, the second one is told so.
            return line.send(b"guerdon"), line.send(b"guerdon")
        refused(send=send)
        """,
    ),
    _case(
        name="DNS",
        proves="no name is looked up, and none carries data out",
        program="""
        def query():
            line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            line.connect(("192.0.2.53", 53))
            head, kind = bytes.fromhex("1234 0100 0001 0000 0000 0000"), bytes.fromhex("0001 0001")
            return line.send(head + b"\\7example\\3org\\0" + kind)
        def look_up():
            try:
                return socket.getaddrinfo("example.org", 80)
            except socket.gaierror as error:
                raise PermissionError(errno.EPERM, str(error))
        refused(query=query, look_up=look_up)
        """,
    ),
    _case(
        name="MPTCP, SCTP, UDP-Lite",
        proves="the rarer transports are no way around",
        program="""
        def connect(kind, protocol):
            line = socket.socket(socket.AF_INET, kind, protocol)
            line.settimeout(1)
            return line.connect(("127.0.0.1", host["tcp"]))
        refused(
            mptcp=lambda: connect(socket.SOCK_STREAM, 262),
            sctp=lambda: connect(socket.SOCK_STREAM, 132),
            udplite=lambda: connect(socket.SOCK_DGRAM, 136),
        )
        """,
    ),
    _case(
        name="listening on TCP",
        proves="nobody is served on the host's addresses",
        program="""
        def listen():
            line = socket.socket()
            try:
                line.bind(("127.0.0.1", host["tcp"]))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    broken("the port of the host's server is taken: it is the host's network")
                raise
            # Nobody has that port here: this is a network of its own.
            raise PermissionError(errno.EADDRNOTAVAIL, "")
        refused(listen=listen)
        """,
    ),
    _case(
        name="listening on UDP",
        proves="no datagram is taken on the host's addresses",
        program="""
        def listen():
            line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                line.bind(("127.0.0.1", host["udp"]))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    broken("the port of the host's server is taken: it is the host's network")
                raise
            raise PermissionError(errno.EADDRNOTAVAIL, "")
        refused(listen=listen)
        """,
    ),
    _case(
        name="Unix socket by path",
        proves="no server of the host is reached through a file, such as Docker's",
        program="""
        def connect(kind, path):
            return socket.socket(socket.AF_UNIX, kind).connect(path)
        refused(
            stream=lambda: connect(socket.SOCK_STREAM, host["stream"]),
            datagram=lambda: connect(socket.SOCK_DGRAM, host["datagram"]),
        )
        """,
    ),
    _case(
        name="abstract Unix socket",
        proves="no server of the host is reached by a name without a file",
        program="""
        name = "\\0" + host["abstract"]
        refused(connect=lambda: socket.socket(socket.AF_UNIX).connect(name))
        """,
    ),
    _case(
        name="listening on an abstract name",
        proves="nobody is served under a name of the host",
        program="""
        def listen():
            line = socket.socket(socket.AF_UNIX)
            try:
                line.bind("\\0" + host["abstract"])
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    broken("the name of the host's server is taken: it is the host's")
                raise
            raise PermissionError(errno.EADDRNOTAVAIL, "")
        refused(listen=listen)
        """,
    ),
    _case(
        name="datagram pair to a path",
        proves="a pair of sockets, which need no network, sends nowhere else",
        program="""
        def send(kind):
            mine, _ = socket.socketpair(socket.AF_UNIX, kind)
            return mine.sendto(b"guerdon", host["datagram"])
        refused(
            "EISCONN EPROTOTYPE",
            datagram=lambda: send(socket.SOCK_DGRAM),
            packet=lambda: send(socket.SOCK_SEQPACKET),
            stream=lambda: send(socket.SOCK_STREAM),
        )
        """,
    ),
    _case(
        name="pair taken apart and connected",
        proves="a socket of a pair is never connected to another",
        program="""
        def connect(kind, path):
            mine, _ = socket.socketpair(socket.AF_UNIX, kind)
            nowhere = (ctypes.c_char * 16)()  # AF_UNSPEC: an end to the connection
            libc.connect(mine.fileno(), nowhere, 16)
            return mine.connect(path)
        refused(
            "EISCONN EINVAL",
            datagram=lambda: connect(socket.SOCK_DGRAM, host["datagram"]),
            stream=lambda: connect(socket.SOCK_STREAM, host["stream"]),
        )
        """,
    ),
    _case(
        name="raw sockets",
        proves="no packet is made or heard by hand",
        program="""
        refused(
            icmp=lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
            raw=lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
            packet=lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300),
        )
        """,
    ),
    _case(
        name="AF_ALG",
        proves="the kernel's cryptography, a way in of old, isn't spoken to",
        program="refused(socket=lambda: socket.socket(38, socket.SOCK_SEQPACKET))",
    ),
    _case(
        name="rare socket families",
        proves="no hypervisor, key store or bus is spoken to",
        program="""
        def make(family, kind):
            return socket.socket(family, kind)
        refused(
            vsock=lambda: make(40, socket.SOCK_STREAM),
            key=lambda: make(15, socket.SOCK_RAW),
            tipc=lambda: make(30, socket.SOCK_SEQPACKET),
            bluetooth=lambda: make(31, socket.SOCK_RAW),
            can=lambda: make(29, socket.SOCK_RAW),
            xdp=lambda: make(44, socket.SOCK_RAW),
        )
        """,
    ),
    _case(
        name="io_uring",
        proves="the queue that carries calls past a filter can't be made",
        unless=lambda: lacks("system call", "io_uring_setup"),
        program="""
        parameters = (ctypes.c_char * 120)()
        refused(setup=lambda: call("io_uring_setup", 4, parameters))
        """,
    ),
)
