"""Flower's commands without their imports: each is a fork of one process that has imported Flower already.

A process of Flower's imports for more than a second, and every message to a node starts one. A folder of commands that
comes first on the PATH has them by their own names. Such a command hands its words, folder, environment and open files
to the process that listens; of this a fork runs what the command would have run, in a session of its own. The two live
and die together: signals are passed on, the status of the fork is the command's, and where the command is killed, so
is the fork's group, with all commands that it has started. Of this package is imported beforehand what a test names,
and nothing else: an app that brings the package along imports its own.

A fork also waits for less: a SuperNode looks for messages every three seconds, and is given up after a minute.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from importlib.metadata import entry_points
from pathlib import Path

BEFOREHAND = ("numpy", "scipy.linalg", "scipy.sparse", "cryptography.hazmat.primitives.asymmetric.ec", "httpcore")
PAUSES = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}  # seconds; Flower's own variable
COMMANDS = (
    *("flwr", "flower-superlink", "flower-supernode", "flower-superexec"),
    *("flwr-clientapp", "flwr-serverapp", "flwr-simulation"),
)

COMMAND = """#!{python} -ISE
import json, os, signal, socket, struct, sys
there = socket.socket(socket.AF_UNIX)
there.connect({address!r})
order = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(there, [struct.pack("Q", len(order))], [0, 1, 2])
there.sendall(order)
(fork,) = struct.unpack("q", there.recv(8, socket.MSG_WAITALL))
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: os.kill(fork, number))
(status,) = struct.unpack("q", there.recv(8, socket.MSG_WAITALL))
sys.exit(status)
"""


class Forks:
    """The process that listens, and the folder of the commands, `bin`; `modules` are imported beforehand too."""

    def __init__(self, environment, modules=()):
        # a short path, because the address of a socket is limited
        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        address = str(Path(self._folder.name) / "socket")
        self.bin = Path(self._folder.name) / "bin"
        self.bin.mkdir()
        for name in COMMANDS:
            (self.bin / name).write_text(COMMAND.format(python=sys.executable, address=address))
            (self.bin / name).chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, __file__, address, *modules],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        if not self._process.stdout.read(1):  # it listens
            raise RuntimeError(f"the process to fork from has ended with status {self._process.wait()}")

    def close(self):
        """End the process that listens; its forks end with their commands."""
        self._process.terminate()
        self._process.communicate(timeout=300)
        self._folder.cleanup()


def _hasten():
    """Have a tenth of a SuperNode's pauses, and the shortest heartbeat that a SuperLink takes."""
    constant = importlib.import_module("flwr.common.constant")
    # set for everything that is imported from now on
    constant.HEARTBEAT_DEFAULT_INTERVAL = constant.HEARTBEAT_MIN_INTERVAL
    node = importlib.import_module("flwr.supernode.start_client_internal")
    node.time = types.SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 10))


def listen(address, modules):
    """Answer commands until the end; a fork becomes one."""
    _hasten()
    found = {each.name: each for each in entry_points(group="console_scripts") if each.name in COMMANDS}
    for name in (*BEFOREHAND, *(each.module for each in found.values()), *modules):
        importlib.import_module(name)
    gc.freeze()  # Otherwise a fork's garbage collection would touch and copy all imported objects.
    commands, ended = {}, {}  # connections for commands and for exit statuses, by process

    def tell():
        """Reap what has ended and tell its status."""
        while commands:
            try:
                fork, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not fork:
                break
            ended[fork] = os.waitstatus_to_exitcode(status)
        for fork in ended.keys() & commands.keys():
            with commands.pop(fork) as there:
                _send(there, ended.pop(fork) % 256)

    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    # Signals are ignored here, so that `tell` is not called within itself.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        os.write(1, b"1")
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        while True:
            ready, _, _ = select.select([listener, woken], [], [])
            if woken in ready:
                woken.recv(4096)
            tell()
            if listener not in ready:
                continue
            there, _ = listener.accept()
            fork = os.fork()
            if not fork:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                break
            commands[fork] = there
    woken.close()
    waker.close()
    for other in commands.values():
        other.close()
    _end(_become(there, found))


def _become(there, found):
    """Take over the words, the folder, the environment and the files of a command; its entry point."""
    os.setsid()
    size, files, _, _ = socket.recv_fds(there, 8, 3)
    order = there.recv(struct.unpack("Q", size)[0], socket.MSG_WAITALL)
    sys.argv[:], folder, environment = json.loads(order)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment | PAUSES)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    threading.Thread(target=_end_with, args=(there,), daemon=True).start()
    _send(there, os.getpid())
    return found[Path(sys.argv[0]).name].load()


def _end(command):
    """Run it to its end, as multiprocessing does: a whole interpreter's takes seconds after a fork."""
    status = 1
    try:
        status = command() or 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            sys.stderr.write(f"{ended.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _end_with(there):
    there.recv(1)  # Nothing arrives here except the end.
    os.killpg(0, signal.SIGKILL)


def _send(there, number):
    with contextlib.suppress(OSError):  # The command has already ended.
        there.sendall(struct.pack("q", number))


if __name__ == "__main__":
    listen(sys.argv[1], sys.argv[2:])
