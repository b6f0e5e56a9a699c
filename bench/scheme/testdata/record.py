#!/usr/bin/env python3
"""Records where other balancers put keys, into ketama.json, nginx.json and redis.json beside this file.

Needs libmemcached11, nginx, redis-server and redis-tools (Debian) and the ports 21801 to 21820 (and, for the
cluster's bus, 31801 to 31806) of loopback. Nothing of Guideway is used: the programs themselves are asked.
"""
import ctypes, http.client, json, os, shutil, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
KEYS = ["%016x" % (i * 0x9E3779B97F4A7C15 % 2**64) for i in range(400)]


def write(name, source, vectors):
    with open(os.path.join(HERE, name), "w") as f:
        f.write('{"source":%s,"keys":%s,"vectors":[\n' % (json.dumps(source), json.dumps(KEYS)))
        f.write(",\n".join(json.dumps(v, separators=(",", ":")) for v in vectors))
        f.write("\n]}\n")


def ketama():
    lib = ctypes.CDLL("libmemcached.so.11")
    lib.memcached_create.restype = ctypes.c_void_p
    lib.memcached_create.argtypes = [ctypes.c_void_p]
    lib.memcached_lib_version.restype = ctypes.c_char_p
    lib.memcached_behavior_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    lib.memcached_server_add_with_weight.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint16, ctypes.c_uint32]
    lib.memcached_generate_hash.restype = ctypes.c_uint32
    lib.memcached_generate_hash.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    KETAMA_WEIGHTED = 16  # MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED
    vectors = []
    for hosts in (
        [("10.0.1.%d" % i, 11211, 1) for i in range(1, 9)],
        [("10.0.1.%d" % i, 8080, 1) for i in range(1, 5)],
        [("10.0.1.%d" % i, 8080, 1) for i in range(1, 4)],
        [("10.0.1.%d" % i, 8000 + i, i) for i in range(1, 8)],
        [("10.0.1.%d" % i, 11211, w) for i, w in enumerate((600, 300, 200, 350, 1000, 800, 950, 100), 1)],
    ):
        memc = lib.memcached_create(None)
        assert lib.memcached_behavior_set(memc, KETAMA_WEIGHTED, 1) == 0
        for host, port, weight in hosts:
            assert lib.memcached_server_add_with_weight(memc, host.encode(), port, weight) == 0
        picks = [lib.memcached_generate_hash(memc, k.encode(), len(k)) for k in KEYS]
        vectors.append({"backends": [["%s:%d" % h[:2], h[2]] for h in hosts], "picks": picks})
    write("ketama.json", "libmemcached %s, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, memcached_generate_hash" % lib.memcached_lib_version().decode(), vectors)


def nginx():
    sets = [
        [("127.0.0.1:%d" % (21801 + i), 1) for i in range(3)],
        [("127.0.0.1:%d" % (21801 + i), 1) for i in range(10)],
        [("127.0.0.1:%d" % (21801 + i), i + 1) for i in range(6)],
        [("127.0.0.2:%d" % (21801 + i), 1 + 4 * (i == 2)) for i in range(5)],
    ]
    dir = tempfile.mkdtemp()
    conf = "daemon off; master_process off; pid %s/pid; error_log %s/log; events {}\nhttp { access_log off;\n" % (dir, dir)
    for t in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        conf += "%s_temp_path %s/%s;\n" % (t, dir, t)
    for i, s in enumerate(sets):
        conf += "upstream u%d { hash $arg_k consistent;\n" % i
        conf += "".join("  server %s weight=%d;\n" % b for b in s) + "}\n"
    conf += "server { listen 127.0.0.1:21820;\n"
    conf += "".join("  location /%d { proxy_pass http://u%d; }\n" % (i, i) for i in range(len(sets))) + "}\n"
    addresses = sorted({b[0] for s in sets for b in s})
    conf += "server {\n" + "".join("  listen %s;\n" % a for a in addresses) + '  return 200 "$server_addr:$server_port";\n}\n}\n'
    with open(dir + "/conf", "w") as f:
        f.write(conf)
    version = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.split(": ")[1].strip()
    proc = subprocess.Popen(["nginx", "-p", dir, "-c", dir + "/conf"])
    try:
        vectors = []
        for attempt in range(100):
            try:
                http.client.HTTPConnection("127.0.0.1", 21820).connect()
                break
            except OSError:
                time.sleep(0.1)
        c = http.client.HTTPConnection("127.0.0.1", 21820)
        for i, s in enumerate(sets):
            picks = []
            for k in KEYS:
                c.request("GET", "/%d?k=%s" % (i, k))
                picks.append([b[0] for b in s].index(c.getresponse().read().decode()))
            vectors.append({"backends": [list(b) for b in s], "picks": picks})
    finally:
        proc.terminate()
        proc.wait()
        shutil.rmtree(dir)
    write("nginx.json", version + ", http upstream, hash $arg_k consistent", vectors)


def redis():
    """A cluster that grows, shrinks and is weighted; after each step, the runs of slots of each node."""
    dir, procs, vectors = tempfile.mkdtemp(), [], []
    version = subprocess.run(["redis-cli", "--version"], capture_output=True, text=True).stdout.strip()
    port = lambda i: 21801 + i
    name = lambda i: "127.0.0.1:%d" % port(i)

    def cli(*args):
        p = subprocess.run(["redis-cli", *args], capture_output=True, text=True, timeout=120)
        assert p.returncode == 0, p.stdout + p.stderr
        return p.stdout

    def runs():
        out = []
        for first, last, node in sorted((int(a), int(b), n) for a, b, n in owned()):
            if out and out[-1][1] == node:
                continue
            out.append([first, node])
        return out

    def owned():
        for line in cli("-p", str(port(0)), "cluster", "nodes").splitlines():
            f = line.split()
            for r in f[8:]:
                a, _, b = r.partition("-")
                yield a, b or a, f[1].split("@")[0]

    def settle(nodes):
        """Waits until all nodes see the same owners, as redis-cli wants it."""
        for attempt in range(200):
            p = subprocess.run(["redis-cli", "--cluster", "check", name(0)], capture_output=True, text=True)
            if "All nodes agree" in p.stdout and "All 16384 slots covered" in p.stdout and "[WARNING]" not in p.stdout:
                counts = [len(cli("-p", str(port(i)), "cluster", "nodes").splitlines()) for i in nodes]
                if all(c == len(nodes) for c in counts):
                    return
            time.sleep(0.1)
        raise SystemExit("the cluster does not settle: " + p.stdout)

    def ids():
        return {f[1].split("@")[0]: f[0] for f in (l.split() for l in cli("-p", str(port(0)), "cluster", "nodes").splitlines())}

    try:
        for i in range(6):
            os.mkdir("%s/%d" % (dir, i))
            procs.append(subprocess.Popen(["redis-server", "--port", str(port(i)), "--cluster-enabled", "yes", "--save", "",
                "--cluster-node-timeout", "2000", "--dir", "%s/%d" % (dir, i), "--bind", "127.0.0.1", "--loglevel", "warning"], stdout=subprocess.DEVNULL))
        time.sleep(1)
        members = [0, 1, 2, 3]
        cli("--cluster", "create", *[name(i) for i in members], "--cluster-yes")
        settle(members)
        record = lambda weights: vectors.append({"backends": [[name(i), weights.get(i, 1)] for i in members], "runs": runs()})
        record({})
        # One more.
        cli("--cluster", "add-node", name(4), name(0))
        settle(range(5))
        cli("--cluster", "rebalance", name(0), "--cluster-use-empty-masters")
        members = [0, 1, 2, 3, 4]
        settle(members)
        record({})
        # One less.
        cli("--cluster", "rebalance", name(0), "--cluster-weight", ids()[name(1)] + "=0")
        settle(range(5))
        members = [0, 2, 3, 4]
        record({})
        # A heavier one.
        cli("--cluster", "del-node", name(0), ids()[name(1)])
        settle(members)
        cli("--cluster", "rebalance", name(0), "--cluster-weight", ids()[name(3)] + "=3")
        settle(members)
        record({3: 3})
    finally:
        for p in procs:
            p.terminate()
        for p in procs:
            p.wait()
        shutil.rmtree(dir)
    write("redis.json", version + ", --cluster create and --cluster rebalance", vectors)


if __name__ == "__main__":
    for what in sys.argv[1:] or ("ketama", "nginx", "redis"):
        globals()[what]()
