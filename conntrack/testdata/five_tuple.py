"""Vectors of Hash5Tuple: flows, their bytes, XXH64 of these. Prints five_tuple.json."""
import ipaddress
import json
import struct

import xxhash

FLOWS = [
    ("tcp4", 6, "10.1.2.3:45678", "192.0.2.1:443"),
    ("udp4", 17, "10.1.2.3:45678", "192.0.2.1:443"),
    ("sctp4", 132, "10.1.2.3:45678", "192.0.2.1:443"),
    ("tcp4 other source port", 6, "10.1.2.3:45679", "192.0.2.1:443"),
    ("tcp4 swapped", 6, "192.0.2.1:443", "10.1.2.3:45678"),
    ("tcp4 lowest", 6, "0.0.0.0:0", "0.0.0.0:0"),
    ("tcp4 highest", 6, "255.255.255.255:65535", "255.255.255.255:65535"),
    ("tcp4 from a dual-stack socket", 6, "[::ffff:10.1.2.3]:45678", "[::ffff:192.0.2.1]:443"),
    ("tcp4 half mapped", 6, "[::ffff:10.1.2.3]:45678", "192.0.2.1:443"),
    ("tcp6", 6, "[2001:db8::1]:45678", "[2001:db8:ffff::2]:443"),
    ("udp6", 17, "[2001:db8::1]:45678", "[2001:db8:ffff::2]:443"),
    ("udp6 loopback", 17, "[::1]:1", "[::1]:53"),
    ("udp6 lowest", 17, "[::]:0", "[::]:0"),
    ("tcp6 highest", 6, "[" + ":".join(["ffff"] * 8) + "]:65535", "[" + ":".join(["ffff"] * 8) + "]:65535"),
    ("udp6 link-local with a scope", 17, "[fe80::1%2]:5353", "[fe80::2%2]:5353"),
]
SEEDS = [0, 1, 0x9e3779b97f4a7c15]


def split(s):
    host, port = s.rsplit(":", 1)
    a = ipaddress.ip_address(host.strip("[]").split("%")[0])
    if a.version == 6 and a.ipv4_mapped:
        a = a.ipv4_mapped
    return a, int(port)


vectors = []
for name, proto, src, dst in FLOWS:
    (s, sp), (d, dp) = split(src), split(dst)
    data = s.packed + d.packed + struct.pack(">HHB3x", sp, dp, proto)
    assert len(data) in (16, 40)
    for seed in SEEDS:
        vectors.append({"name": name, "proto": proto, "src": src, "dst": dst, "bytes": data.hex(),
                        "seed": "%016x" % seed, "hash": "%016x" % xxhash.xxh64_intdigest(data, seed)})
print("[\n" + ",\n".join(json.dumps(v) for v in vectors) + "\n]")
