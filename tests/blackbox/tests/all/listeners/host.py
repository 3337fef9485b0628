"""Plays a host of one kind in a network namespace: host.py KIND SNOWMINT FOLDER

Serves `[::]` there and prints, for each family, the address that the access log has for a client of it, or the reason why there is
no answer; last, the address of the listener. Run by `unshare -rn`.
"""

import ctypes
import errno
import fcntl
import json
import os
import platform
import socket
import struct
import subprocess
import sys
import time

KIND, SNOWMINT, FOLDER = sys.argv[1:]
PORT = 8080
SYSCTLS = "/proc/sys/net/ipv6"


def set_sysctl(name, value):
    with open(f"{SYSCTLS}/{name}", "w") as file:
        file.write(value)


def forbid_ipv6_sockets():
    """As in a kernel that was started with ipv6.disable=1: a seccomp filter for this process and its children."""
    number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
    load, equal, answer = 0x20, 0x15, 0x06
    program = [
        (load, 0, 0, 0), (equal, 0, 3, number),
        (load, 0, 0, 16), (equal, 0, 1, socket.AF_INET6),
        (answer, 0, 0, 0x00050000 | errno.EAFNOSUPPORT), (answer, 0, 0, 0x7FFF0000),
    ]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code)
    filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, by_filter = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(seccomp, by_filter, filter, 0, 0):
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


def remove_ipv4():
    """The empty address takes the place of 127.0.0.1."""
    request = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, bytes(4))
    fcntl.ioctl(socket.socket(), 0x8916, request)


# lo is down in a new namespace.
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 1))
{
    "both": lambda: None,
    "apart by default": lambda: set_sysctl("bindv6only", "1"),
    "without IPv6 addresses": lambda: set_sysctl("conf/all/disable_ipv6", "1"),
    "without IPv6": forbid_ipv6_sockets,
    "without IPv4": remove_ipv4,
}[KIND]()

command = [SNOWMINT, "serve", "--http", f"[::]:{PORT}", "--resp", "off", "--insecure", "--access-log", "--log-format", "json"]
log = open(f"{FOLDER}/log", "w+")
environment = {name: value for name, value in os.environ.items() if not name.startswith("SNOWMINT_")}
node = subprocess.Popen([*command, "--data", f"{FOLDER}/data"], stdout=log, stderr=log, env=environment)


def lines():
    with open(log.name) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def give_up(why):
    node.kill()
    sys.exit(f"{why}:\n{open(log.name).read()}")


def wait_for(condition, what):
    for _ in range(600):
        if found := condition():
            return found
        if node.poll() is not None:
            give_up("the node ended")
        time.sleep(0.05)
    give_up(what)


said = lambda text: [it for it in lines() if text in it.get("message", "")]
wait_for(lambda: said("ready: ids are served"), "not ready")
peers = lambda: [it["peer"] for it in lines() if it.get("target") == "snowmint::access"]
for family in ("127.0.0.1", "::1"):
    before = len(peers())
    try:
        client = socket.create_connection((family, PORT), timeout=10)
    except OSError as error:
        print(f"{family}: {errno.errorcode[error.errno]}")
        continue
    client.sendall(b"GET /v1/ids/default?format=text HTTP/1.1\r\nhost: ids\r\nconnection: close\r\n\r\n")
    answer = client.makefile("rb").read()
    if not answer.startswith(b"HTTP/1.1 200 "):
        give_up(f"{family} got {answer}")
    peer = wait_for(lambda: peers()[before:], "no line in the access log")[0]
    print(f"{family}: from {peer.rsplit(':', 1)[0]}")
print("listens on", said("ready: ids are served")[0]["http"])
node.terminate()
if node.wait() != 0:
    give_up(f"the node ended with {node.returncode}")
