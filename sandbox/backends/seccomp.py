"""Which system calls a tool of the process backend may make, as a BPF program. Built here, loaded by `child`.

Written by hand because the program is small and a library would have to be built against headers of its own. An
allow-list by range: calls this file has never heard of answer ENOSYS, as an older kernel would. The known dangerous
ones answer EPERM, `clone3` answers ENOSYS (its flags lie in memory, where BPF cannot look, and libc then uses
`clone`), and everything from another ABI (x32, i386) kills the process.
"""

import errno
import platform
import struct
from collections.abc import Iterable, Mapping

_LD_W_ABS, _JMP_JEQ, _JMP_JGE, _JMP_JSET, _ALU_AND, _RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NR, _ARCH, _ARG0, _ARG1 = 0, 4, 16, 24  # offsets in seccomp_data; the low halves on the machines we know
_X32_BIT = 0x40000000

_NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}
_FAMILIES_ALLOWED = (1, 2, 10)  # unix, and the two of IP, which lead nowhere in an empty network namespace
_SOCKET_TYPE_MASK, _SOCK_RAW, _SOCK_PACKET = 0xF, 3, 10
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

# Name: (x86_64, aarch64); None where the architecture has no such call.
DENIED: Mapping[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "execveat": (322, 281),
    "personality": (135, 92),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "iopl": (172, None),
    "ioperm": (173, None),
    "syslog": (103, 116),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "uselib": (134, None),
    "modify_ldt": (154, None),
}
_CLONE, _SOCKET, _IOCTL, _CLONE3 = (56, 220), (41, 198), (16, 29), (435, 435)
_KNOWN_BELOW = (335, 295)  # the end of the old tables
# Calls above it that are harmless and that libc or Python use.
_NEWER_ALLOWED = (424, 434, 436, 437, 439, 441, 444, 445, 446, 448, 449, 450, 451, 452, 454, 455, 456)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class UnknownArchitecture(OSError):
    pass


def filter_program(machine: str | None = None, *, unix_sockets: bool = True) -> bytes:
    """The BPF program for this machine: eight bytes an instruction.

    Landlock does not guard the connecting to a socket in the file system: where nothing else hides those of the host,
    there must be no unix sockets at all.
    """
    name = machine or platform.machine()
    if name not in _ARCHITECTURES:
        raise UnknownArchitecture(errno.ENOSYS, f"no table of system calls for {name}")
    column, audit = _ARCHITECTURES[name]
    program = [
        (_LD_W_ABS, 0, 0, _ARCH),
        *_unless(_JMP_JEQ, audit, _KILL_PROCESS),
        (_LD_W_ABS, 0, 0, _NR),
        *_when(_JMP_JGE, _X32_BIT, _KILL_PROCESS),
    ]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            program += _when(_JMP_JEQ, number, _error(errno.EPERM))
    program += _when(_JMP_JEQ, _CLONE3[column], _error(errno.ENOSYS))
    program += _on(_CLONE[column], [(_LD_W_ABS, 0, 0, _ARG0), *_when(_JMP_JSET, _NAMESPACE_FLAGS, _error(errno.EPERM))])
    program += _on(_SOCKET[column], _socket_rules(_FAMILIES_ALLOWED if unix_sockets else _FAMILIES_ALLOWED[1:]))
    program += _on(_IOCTL[column], [(_LD_W_ABS, 0, 0, _ARG1), *_each(_TERMINAL_INJECTION, _error(errno.EPERM))])
    program += _each(_NEWER_ALLOWED, _ALLOW)
    program += _when(_JMP_JGE, _KNOWN_BELOW[column], _error(errno.ENOSYS))
    program.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


_Instruction = tuple[int, int, int, int]


def _error(number: int) -> int:
    return _ERRNO | number


def _when(test: int, value: int, verdict: int) -> list[_Instruction]:
    return [(test, 0, 1, value), (_RET, 0, 0, verdict)]


def _unless(test: int, value: int, verdict: int) -> list[_Instruction]:
    return [(test, 1, 0, value), (_RET, 0, 0, verdict)]


def _each(values: Iterable[int], verdict: int) -> list[_Instruction]:
    return [instruction for value in values for instruction in _when(_JMP_JEQ, value, verdict)]


def _on(number: int, rules: list[_Instruction]) -> list[_Instruction]:
    """`rules` look at arguments of one call and then allow it; for all other calls they are jumped over."""
    body = [*rules, (_RET, 0, 0, _ALLOW)]
    return [(_JMP_JEQ, 0, len(body), number), *body]


def _socket_rules(allowed: tuple[int, ...]) -> list[_Instruction]:
    families = [(_LD_W_ABS, 0, 0, _ARG0)]
    for position, family in enumerate(allowed):
        families.append((_JMP_JEQ, len(allowed) - position, 0, family))
    kinds = [(_LD_W_ABS, 0, 0, _ARG1), (_ALU_AND, 0, 0, _SOCKET_TYPE_MASK)]
    return [
        *families,
        (_RET, 0, 0, _error(errno.EPERM)),
        *kinds,
        *_each((_SOCK_RAW, _SOCK_PACKET), _error(errno.EPERM)),
    ]
