"""A program: forks a locked child for each job that comes in, which are lines of JSON.

It is started as a supervisor is: by an interpreter that finds only the standard library.
"""

# ruff: noqa: E402, F401

import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
import threading
import time
import traceback

who, paths = sys.argv[1], sys.argv[2:]
sys.path[:0] = paths

from guerdon.sandbox.locking import canaries, landlock, lock, privileges, rlimits, syscalls
from guerdon.sandbox.locking.syscalls import this_architecture

sys.path.insert(0, os.path.dirname(__file__))
from refused_numbers import REFUSED

sys.path.pop(0)

# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW,
# SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP: what Docker gives to root.
DOCKER = sum(1 << at for at in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))
# An ordinary user who may read everything: the interpreter can lie in root's own folder.
READING = 1 << 2

if who == "old":
    # The first Landlock, on a kernel that has a later one: the filter has to guard the rest.
    landlock.abi_version = lock.abi_version = lambda: 1
if who == "container":
    privileges._set_capabilities(DOCKER)
if who == "user" and os.geteuid() == 0:
    with contextlib.closing(privileges.ReservedUser()) as other:
        os.setgroups([])
        os.setresgid(*[other.uid] * 3)
        syscalls.prctl(privileges.PR_SET_KEEPCAPS, 1)
        os.setresuid(*[other.uid] * 3)
        privileges._set_capabilities(READING)
    syscalls.prctl(4, 1)  # PR_SET_DUMPABLE, which the change of user cleared
read = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *paths, "/dev/null"]
read += ["/lib", "/lib64", "/usr/lib", "/dev/urandom", "/etc/ld.so.cache", "/usr/share/zoneinfo"]
libraries = sysconfig.get_config_var("LIBDIR")
plan = lock.StrictLock([*read, *([libraries] if libraries else [])])
limits = {"cpu": None, "memory": 1 << 40, "processes": 1000, "file_bytes": 1 << 30}
architecture = this_architecture()


def number(call):
    return REFUSED[call][architecture.column] if call in REFUSED else architecture.number(call)


def make(number, *arguments):
    """Make a system call."""
    return syscalls.call("syscall", number, *arguments)


def attempt(code, names):
    try:
        exec(compile(code, "<attempt>", "exec"), names)
    except OSError as error:
        return {"error": type(error).__name__, "errno": errno.errorcode.get(error.errno, "")}
    except BaseException as error:
        return {"error": type(error).__name__, "traceback": traceback.format_exc()}
    return {"result": names.get("result")}


def child(job, writing):
    profile = job["profile"]
    names = {**globals(), "supervisor": os.getppid(), "folder": job["folder"]}
    if job["folder"]:
        os.chdir(job["folder"])
    if job["before"]:
        exec(job["before"], names)
    if profile == "program":
        plan.lock_program(limits)
    else:
        plan.lock_template(limits)
    if profile == "function_call":
        call = os.fork()
        if call:
            _, status = os.waitpid(call, 0)
            if os.WIFSIGNALED(status):
                os.write(writing, json.dumps({"signal": os.WTERMSIG(status)}).encode())
            os._exit(0)
        plan.lock_function_call(limits)
    names["parent"] = os.getppid()
    os.write(writing, json.dumps(attempt(job["code"], names)).encode())


def answer(job):
    job["folder"] = tempfile.mkdtemp() if job["folder"] else None
    if job["folder"] and plan.uid is not None:
        os.chown(job["folder"], plan.uid, plan.uid)
    reading, writing = os.pipe()
    with plan.fork(job["folder"]):
        pid = os.fork()
        if not pid:
            try:
                child(job, writing)
            except BaseException:
                broken = {"error": "Broken", "traceback": traceback.format_exc()}
                os.write(writing, json.dumps(broken).encode())
            finally:
                os._exit(0)
    os.close(writing)
    text = b""
    while part := os.read(reading, 1 << 16):
        text += part
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    outcome = json.loads(text) if text else {}
    if os.WIFSIGNALED(status):
        outcome["signal"] = os.WTERMSIG(status)
    if job["folder"]:
        outcome["files"] = sorted(os.listdir(job["folder"]))
        shutil.rmtree(job["folder"])
    return outcome


for line in sys.stdin:
    job = json.loads(line)
    outcome = attempt(job["here"], {**globals()}) if "here" in job else answer(job)
    print(json.dumps(outcome), flush=True)
