"""What ordinary scripts do, and must be able to do wherever they run."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.request
import venv
from multiprocessing import Pool

NEEDS = {}


def need(function):
    NEEDS[function.__name__] = function
    return function


@need
def subprocess_and_pipe():
    done = subprocess.run("echo one | tr o O", shell=True, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"One\n"


@need
def threads():
    found = []
    started = [threading.Thread(target=found.append, args=(number,)) for number in range(8)]
    [each.start() for each in started]
    [each.join() for each in started]
    assert sorted(found) == list(range(8))


@need
def asyncio_with_a_program():
    async def story():
        process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        return (await process.communicate(b"there and back"))[0]

    assert asyncio.run(story()) == b"there and back"


@need
def temporary_files():
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "x"), "w+", encoding="utf-8") as file:
        file.write("x")
    with tempfile.TemporaryFile() as file:
        file.write(b"x")


@need
def sqlite():
    path = os.path.join(os.environ["WORK_DIR"], "x.db")
    with sqlite3.connect(path) as database:
        database.execute("pragma journal_mode=delete")
        database.execute("create table t (x)")
        database.execute("insert into t values (1)")
        assert database.execute("select x from t").fetchall() == [(1,)]


@need
def ssl_and_certificates():
    import ssl

    ssl.create_default_context()
    assert urllib.request.Request("https://example.invalid").host == "example.invalid"


@need
def random_and_null():
    assert len(os.urandom(8)) == 8
    with open("/dev/urandom", "rb") as file, open("/dev/null", "wb") as sink:
        sink.write(file.read(8))


@need
def socketpair():
    one, other = socket.socketpair()
    one.sendall(b"x")
    assert other.recv(1) == b"x"


@need
def write_where_it_stands():
    """`out/x` from the skill's root is the workspace's out/."""
    with open(os.path.join(os.environ["SKILL_DIR"], "out", "from-here.txt"), "w", encoding="utf-8") as file:
        file.write("x")
    assert os.path.exists(os.path.join(os.environ["OUTPUT_DIR"], "from-here.txt"))
    for place in ("WORK_DIR", "OUTPUT_DIR", "RUN_DIR"):
        with open(os.path.join(os.environ[place], "mine"), "w", encoding="utf-8") as file:
            file.write("x")


@need
def own_environment():
    """.venv/ of the skill is writable; what is in it can be imported."""
    folder = os.path.join(os.environ["SKILL_DIR"], ".venv")
    with open(os.path.join(folder, "planted.py"), "w", encoding="utf-8") as file:
        file.write("value = 42")
    done = subprocess.run(
        [sys.executable, "-c", "import planted; print(planted.value)"],
        env={**os.environ, "PYTHONPATH": folder},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout.strip() == b"42"
    assert venv.EnvBuilder


@need
def package_in_a_read_only_prefix():
    """Somebody installed it where we can only read."""
    folder = os.environ["READABLE"]
    sys.path.insert(0, folder)
    import readonly_package

    assert readonly_package.value == 7


@need
def links_and_modes():
    folder = tempfile.mkdtemp(dir=os.environ["WORK_DIR"])
    os.symlink("x", os.path.join(folder, "link"))
    with open(os.path.join(folder, "x"), "w", encoding="utf-8") as file:
        file.write("x")
    os.link(os.path.join(folder, "x"), os.path.join(folder, "y"))
    os.chmod(os.path.join(folder, "x"), 0o755)
    os.rename(os.path.join(folder, "y"), os.path.join(folder, "z"))
    shutil.rmtree(folder)


@need
def shell_redirections():
    script = (
        'cat <<E > "$WORK_DIR/here"\ntext\nE\ngrep -c text < "$WORK_DIR/here" && echo x >/dev/stderr && date >/dev/null'
    )
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)


@need
def loopback():
    """A server and a client of its own."""
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname(), 5) as client:
        client.sendall(b"x")
        assert server.accept()[0].recv(1) == b"x"


@need
def unix_socket_of_its_own():
    path = os.path.join(os.environ["WORK_DIR"], "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen(1)
        client.connect(path)


def double(number):
    return 2 * number


@need
def multiprocessing():
    with Pool(2) as pool:
        assert pool.map(double, [1, 2]) == [2, 4]


@need
def node():
    if shutil.which("node") is None:
        raise LookupError("there is no node here")
    done = subprocess.run(["node", "-e", "console.log(6*7)"], stdout=subprocess.PIPE, check=True)
    assert done.stdout.strip() == b"42"


if __name__ == "__main__":
    said = {}
    for name, function in NEEDS.items():
        try:
            function()
            said[name] = "works"
        except LookupError as error:
            said[name] = f"absent: {error}"
        except BaseException as error:
            said[name] = f"broken: {error!r}"
    print(json.dumps(said))
