"""A tool that tries to get out, forty-odd ways. Each probe runs in a process of its own and says what became of it.

Runs inside the sandboxes (process, docker, gvisor), so: standard library only. `reached` names the probes that got
through; `refused` says how the others were stopped. Where this machine's architecture has no such call, a probe passes.
"""

import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS = {
    "x86_64": {
        "ptrace": 101, "mount": 165, "umount2": 166, "pivot_root": 155, "unshare": 272, "setns": 308, "bpf": 321,
        "keyctl": 250, "add_key": 248, "userfaultfd": 323, "perf_event_open": 298, "io_uring_setup": 425,
        "process_vm_readv": 310, "personality": 135, "memfd_create": 319, "execveat": 322, "open_by_handle_at": 304,
        "reboot": 169, "init_module": 175, "syslog": 103, "clock_settime": 227, "sethostname": 170, "clone3": 435,
        "chroot": 161, "swapon": 167, "fsopen": 430,
    },
}  # fmt: skip


class Stopped(Exception):
    pass


def call(name: str, *arguments: object) -> int:
    number = CALLS.get(os.uname().machine, {}).get(name)
    if number is None:
        raise Stopped("no such call here")
    result = LIBC.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


# Files.
def read_shadow(given):
    return Path("/etc/shadow").read_text()[:20]


def read_host_secret(given):
    return Path(given["secret"]).read_text()


def list_host_secret_folder(given):
    return os.listdir(os.path.dirname(given["secret"]))


def write_system(given):
    Path("/usr/bin/agentflow-was-here").write_text("x")


def write_root(given):
    Path("/agentflow-was-here").write_text("x")


def write_tool_folder(given):
    Path(given["folder"], "agentflow-was-here").write_text("x")


def read_docker_socket(given):
    with socket.socket(socket.AF_UNIX) as out:
        out.connect(given["docker_socket"])


def setuid_gains_nothing(given):
    """A set-user-id program must not change who we are."""
    path = given.get("setuid") or "/usr/bin/su"
    said = subprocess.run([path], capture_output=True, text=True, timeout=5, stdin=subprocess.DEVNULL, check=False)
    if "uid=0" not in said.stdout and "euid=0" not in said.stdout:
        raise Stopped(said.stdout.strip() or said.stderr.strip() or f"exit {said.returncode}")


def link_outside(given):
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, "l")
        link.symlink_to(given["secret"])
        return link.read_text()


# Environment.
def inherited_environment(given):
    left = (
        set(os.environ) - set(given.get("environment", ())) - {"HOME"}
    )  # its own, as `test_every_call_has_a_home_of_its_own` sees
    if not left:
        raise Stopped("empty")
    return sorted(left)


def canary_in_environment(given):
    if given["canary"] not in str(os.environ) and given["canary"] not in _read("/proc/self/environ"):
        raise Stopped("not there")


def canary_of_worker(given):
    return given["canary"] if given["canary"] in _read(f"/proc/{given['worker']}/environ") else _stop("not there")


# Processes and signals.
def see_worker(given):
    os.stat(f"/proc/{given['worker']}/status")
    if Path(f"/proc/{given['worker']}/cmdline").read_bytes() == b"":
        raise Stopped("another process")
    if given["worker_name"].encode() not in Path(f"/proc/{given['worker']}/cmdline").read_bytes():
        raise Stopped("another process")


def signal_worker(given):
    if given["worker"] == os.getpid():
        raise Stopped("that is me")
    if given["worker_name"].encode() not in _bytes(f"/proc/{given['worker']}/cmdline"):
        try:
            os.kill(given["worker"], 0)
        except OSError as error:
            raise Stopped(error.strerror) from None
        raise Stopped("another process has that number")
    os.kill(given["worker"], 0)


def ptrace_parent(given):
    """PTRACE_SEIZE, which does not stop its victim: the probes go on."""
    call("ptrace", 0x4206, os.getppid(), 0, 0)


def read_memory_of_parent(given):
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    call("process_vm_readv", os.getppid(), ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0)


def raise_priority(given):
    os.setpriority(os.PRIO_PROCESS, 0, -10)


# Network.
def connect_worker_port(given):
    socket.create_connection(("127.0.0.1", given["port"]), timeout=2).close()


def connect_outside(given):
    socket.create_connection((given["address"], given["port"]), timeout=2).close()


def send_udp(given):
    """Something must really come back, or the packet went nowhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.settimeout(1)
        out.sendto(b"knock", (given["address"], given["udp"]))
        out.recv(10)


def abstract_socket(given):
    with socket.socket(socket.AF_UNIX) as out:
        out.connect("\0" + given["abstract"])


def raw_socket(given):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def packet_socket(given):
    socket.socket(17, socket.SOCK_RAW, 0).close()


def netlink_changes_routes(given):
    with socket.socket(16, socket.SOCK_RAW, 0) as out:
        out.settimeout(2)
        # RTM_NEWLINK on `lo` with nothing in it: who may configure networks gets an acknowledgement.
        head = struct.pack("=IHHII", 32, 16, 0x5, 1, 0) + struct.pack("=BxHiII", 0, 0, 1, 0, 0)
        out.send(head)
        said = struct.unpack_from("=i", out.recv(4096), 16)[0]
        if said:
            raise OSError(-said, os.strerror(-said))


def vsock(given):
    socket.socket(40, socket.SOCK_STREAM).close()


def resolve_names(given):
    return socket.getaddrinfo("example.com", 80)


def metadata_service(given):
    socket.create_connection(("169.254.169.254", 80), timeout=1).close()


# Devices.
def read_disk(given):
    for name in os.listdir("/dev"):
        if name.startswith(("vd", "sd", "nvme", "dm-", "mem", "kmem", "port", "kvm")):
            with open(f"/dev/{name}", "rb") as device:
                return device.read(16).hex()
    raise Stopped("no device")


def make_device(given):
    """A device that can be made must also work, or nothing was gained."""
    path = os.path.join(tempfile.mkdtemp(), "mem")
    os.mknod(path, 0o666 | 0x2000, os.makedev(1, 1))
    with open(path, "rb") as device:
        device.read(1)


def terminal_injection(given):
    import fcntl

    _, follower = os.openpty()
    os.setsid()
    fcntl.ioctl(follower, 0x540E, 0)
    fcntl.ioctl(follower, 0x5412, b"x")


# Kernel interfaces.
def mount_tmpfs(given):
    folder = tempfile.mkdtemp().encode()
    call("mount", b"none", folder, b"tmpfs", 0, 0)


def new_user_namespace(given):
    call("unshare", 0x10000000)
    return Path("/proc/self/uid_map").read_text()


def join_namespace(given):
    with open("/proc/1/ns/mnt") as namespace:
        call("setns", namespace.fileno(), 0)


def change_root(given):
    call("chroot", tempfile.mkdtemp().encode())


def load_bpf(given):
    call("bpf", 0, ctypes.create_string_buffer(128), 128)


def kernel_keyring(given):
    call("add_key", b"user", b"agentflow", b"x", 1, -2)


def user_faults(given):
    os.close(call("userfaultfd", 0))


def performance_counters(given):
    attribute = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 112, 0) + bytes(96))
    os.close(call("perf_event_open", attribute, 0, -1, -1, 0))


def io_uring(given):
    os.close(call("io_uring_setup", 4, ctypes.create_string_buffer(120)))


def kernel_log(given):
    """gVisor has a log of its own making; only the machine's would be something reached."""
    said = ctypes.create_string_buffer(4096)
    call("syslog", 3, said, 4096)
    if b"gVisor" in said.raw:
        raise Stopped("gVisor's own")


def set_clock(given):
    call("clock_settime", 0, struct.pack("=qq", 1, 0))


def set_host_name(given):
    call("sethostname", b"owned", 5)


def write_sysctl(given):
    Path("/proc/sys/kernel/core_pattern").write_text("|/tmp/x")


def trigger_sysrq(given):
    with open("/proc/sysrq-trigger", "wb", buffering=0):
        pass


def read_kernel_memory(given):
    with open("/proc/kcore", "rb") as memory:
        return memory.read(4).hex()


def personality(given):
    call("personality", 0x0040000)


def run_from_memory(given):
    """An executable that was never a file, so no file fence ever saw it."""
    descriptor = call("memfd_create", b"x", 0)
    os.write(descriptor, Path(sys.executable).resolve().read_bytes()[:4096])
    call("execveat", descriptor, b"", 0, 0, 0x1000)


def i386_calls(given):
    """`int 0x80` reaches the 32-bit table, which a filter of 64-bit numbers would misread."""
    import mmap

    if os.uname().machine != "x86_64":
        raise Stopped("not this architecture")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))  # getpid
    pid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    if pid != os.getpid():
        raise Stopped(f"answered {pid}")


# Inherited descriptors, capabilities.
def inherited_descriptors(given):
    """Beyond the three streams only pipes of our own making may be open."""
    extra = []
    for name in os.listdir("/proc/self/fd"):
        try:
            leads_to = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if int(name) > 2 and not leads_to.startswith(("pipe:", "/proc", "host:")):
            extra.append(leads_to)
    if not extra:
        raise Stopped("none")
    return extra


def capabilities(given):
    header, data = struct.pack("=Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    if LIBC.capget(header, data) != 0:
        raise Stopped("not told")
    effective, permitted, _, more_effective, more_permitted, _ = struct.unpack("=6I", data.raw)
    if not (effective or permitted or more_effective or more_permitted):
        raise Stopped("none")
    return [effective, permitted]


def being_root(given):
    if os.getuid() != 0:
        raise Stopped(f"user {os.getuid()}")


def regaining_privileges(given):
    if LIBC.prctl(39, 0, 0, 0, 0) == 1:
        raise Stopped("no new privileges")


PROBES = {
    "files": [
        *(read_shadow, read_host_secret, list_host_secret_folder, write_system, write_root, write_tool_folder),
        *(link_outside, read_docker_socket, setuid_gains_nothing),
    ],
    "environment": [inherited_environment, canary_in_environment, canary_of_worker],
    "processes": [see_worker, ptrace_parent, read_memory_of_parent, raise_priority],
    "signals": [signal_worker, terminal_injection],
    "network": [
        *(connect_worker_port, connect_outside, send_udp, abstract_socket, raw_socket, packet_socket),
        *(netlink_changes_routes, vsock, resolve_names, metadata_service),
    ],
    "devices": [read_disk, make_device],
    "kernel": [
        *(mount_tmpfs, new_user_namespace, join_namespace, change_root, load_bpf, kernel_keyring, user_faults),
        *(performance_counters, io_uring, kernel_log, set_clock, set_host_name, write_sysctl, trigger_sysrq),
        *(read_kernel_memory, personality, run_from_memory, i386_calls),
    ],
    "privileges": [inherited_descriptors, capabilities, being_root, regaining_privileges],
}


def _read(path):
    return _bytes(path).decode(errors="replace")


def _bytes(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _stop(why):
    raise Stopped(why)


def tried(probe, given):
    """In a child: what it does to itself stays there. (got through, what was seen)"""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(8)
        try:
            found = "1" + str(probe(given))[:150]
        except Stopped as stopped:
            found = "0" + str(stopped)[:150]
        except BaseException as error:
            found = "0" + f"{type(error).__name__}: {error}"[:150]
        os.write(writing, found.encode(errors="replace"))
        os._exit(0)
    os.close(writing)
    select.select([reading], [], [], 10)
    said = os.read(reading, 400).decode(errors="replace")
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not said:
        return False, f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended"
    return said[0] == "1", said[1:]


def run(given):
    wanted = given.get("only")
    found = {}
    for area, probes in PROBES.items():
        for probe in probes:
            if wanted is None or probe.__name__ in wanted:
                print(probe.__name__, file=sys.stderr, flush=True)  # if the sandbox ends here, its log says at which
                reached, said = tried(probe, given)
                found[probe.__name__] = {"area": area, "reached": reached, "said": said}
    return found


def leave_canary(given):
    """Write a mark wherever one can write, for the next call to look for."""
    for place in ("/sandbox", "/tmp", "/dev/shm", "/var/tmp", "/run", "/workspace"):
        try:
            Path(place, "canary").write_text(given["mark"])
        except OSError:
            continue
    os.environ["CANARY"] = given["mark"]
    return os.getuid()


def find_canary(given):
    found = []
    for place in ("/sandbox", "/tmp", "/dev/shm", "/var/tmp", "/run", "/workspace"):
        for folder, below, files in os.walk(place):
            below[:] = [name for name in below if not os.path.ismount(os.path.join(folder, name))]
            below[:] = [name for name in below if os.stat(os.path.join(folder, name)).st_dev == os.stat(place).st_dev]
            for name in files:
                if given["mark"].encode() in _bytes(os.path.join(folder, name)):
                    found.append(os.path.join(folder, name))
    if given["mark"] in str(os.environ):
        found.append("environment")
    return {"found": found, "user": os.getuid()}
