"""Abuse cases: the network."""

from __future__ import annotations

from tests.sandbox.conformance.case import CaseGroup

case = CaseGroup("network")

# The bodies of these functions are programs that run in the sandbox; see `CaseGroup`.
# fmt: off


@case("TCP connection")
def tcp_connection():
    """No server of the host is reached."""
    refused(connect=lambda: socket.create_connection(('127.0.0.1', host['tcp']), 1))


@case("TCP over IPv6")
def tcp_over_ipv6():
    """The other address family is closed too."""
    if host["tcp6"] is None:
        skip("this machine has no IPv6")
    refused(connect=lambda: socket.create_connection(('::1', host['tcp6']), 1))


@case("TCP to the world")
def tcp_to_the_world():
    """Nothing beyond the host is reached."""
    # An address reserved for documentation: no host has it.
    refused(connect=lambda: socket.create_connection(("192.0.2.1", 80), 0.5))


@case("UDP datagram")
def udp_datagram():
    """No datagram reaches the host."""
    def send():
        line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        line.connect(("127.0.0.1", host["udp"]))
        # Without a listener, the second one fails.
        return line.send(b"guerdon"), line.send(b"guerdon")
    refused(send=send)


@case("DNS")
def dns():
    """No name is looked up, and no query carries data out."""
    def query():
        line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        line.connect(("192.0.2.53", 53))
        head, kind = bytes.fromhex("1234 0100 0001 0000 0000 0000"), bytes.fromhex("0001 0001")
        return line.send(head + b"\7example\3org\0" + kind)
    def look_up():
        try:
            return socket.getaddrinfo("example.org", 80)
        except socket.gaierror as error:
            denied(str(error))
    refused(query=query, look_up=look_up)


@case("MPTCP, SCTP, UDP-Lite")
def mptcp_sctp_udp_lite():
    """Rare transports reach nothing either."""
    def connect(kind, protocol):
        line = socket.socket(socket.AF_INET, kind, protocol)
        line.settimeout(1)
        return line.connect(("127.0.0.1", host["tcp"]))
    refused(
        mptcp=lambda: connect(socket.SOCK_STREAM, 262),
        sctp=lambda: connect(socket.SOCK_STREAM, 132),
        udplite=lambda: connect(socket.SOCK_DGRAM, 136),
    )


@case("listening on TCP")
def listening_on_tcp():
    """No client is served at the host's addresses."""
    refused(listen=lambda: bind(socket.socket(), ("127.0.0.1", host["tcp"])))


@case("listening on UDP")
def listening_on_udp():
    """No datagram is received at the host's addresses."""
    line = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    refused(listen=lambda: bind(line(), ("127.0.0.1", host["udp"])))


@case("Unix socket by path")
def unix_socket_by_path():
    """No server of the host is reached through a file, such as Docker's."""
    def connect(kind, path):
        return socket.socket(socket.AF_UNIX, kind).connect(path)
    refused(
        stream=lambda: connect(socket.SOCK_STREAM, host["stream"]),
        datagram=lambda: connect(socket.SOCK_DGRAM, host["datagram"]),
    )


@case("abstract Unix socket")
def abstract_unix_socket():
    """No server of the host is reached by a name without a file."""
    name = "\0" + host["abstract"]
    refused(connect=lambda: socket.socket(socket.AF_UNIX).connect(name))


@case("listening on an abstract name")
def listening_on_an_abstract_name():
    """No client is served under a name of the host."""
    refused(listen=lambda: bind(socket.socket(socket.AF_UNIX), "\0" + host["abstract"]))


@case("datagram pair to a path")
def datagram_pair_to_a_path():
    """A socket of a pair, which needs no network, sends nowhere else."""
    def send(kind):
        mine, _ = socket.socketpair(socket.AF_UNIX, kind)
        return mine.sendto(b"guerdon", host["datagram"])
    refused(
        "EISCONN EPROTOTYPE",
        datagram=lambda: send(socket.SOCK_DGRAM),
        packet=lambda: send(socket.SOCK_SEQPACKET),
        stream=lambda: send(socket.SOCK_STREAM),
    )


@case("pair taken apart and connected")
def pair_taken_apart_and_connected():
    """A socket of a pair is never connected to another."""
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


@case("raw sockets")
def raw_sockets():
    """No raw packet is sent or received."""
    refused(
        icmp=lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        raw=lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
        packet=lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300),
    )


@case("AF_ALG")
def af_alg():
    """The kernel's cryptography, which has had holes, isn't reachable."""
    refused(socket=lambda: socket.socket(38, socket.SOCK_SEQPACKET))


@case("rare socket families")
def rare_socket_families():
    """No hypervisor, key store or bus is reachable."""
    families = {
        "vsock": (40, socket.SOCK_STREAM), "key": (15, socket.SOCK_RAW),
        "tipc": (30, socket.SOCK_SEQPACKET), "bluetooth": (31, socket.SOCK_RAW),
        "can": (29, socket.SOCK_RAW), "xdp": (44, socket.SOCK_RAW),
    }
    refused(**each(lambda family: socket.socket(*family), families))


@case("io_uring")
def io_uring():
    """The queue that makes system calls past a filter can't be made."""
    parameters = (ctypes.c_char * 120)()
    refused(setup=lambda: call("io_uring_setup", 4, parameters))
