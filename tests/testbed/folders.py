"""Folders for throwaway servers: a short path, open to the server's OS user, removed at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path

from tests.testbed.leftovers import remove_at_exit

# Linux's sockaddr_un.sun_path is 108 bytes with its closing zero.
LONGEST_SOCKET_PATH = 107


def new_folder(name: str = "pk") -> Path:
    """A new folder that ends with this process and that every user can look into."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    folder.chmod(0o755)
    remove_at_exit(folder)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder and all in it; nothing happens when it is gone."""
    shutil.rmtree(folder, ignore_errors=True)


def owned_folder(path: Path, user: str | None) -> Path:
    """Make the folder if needed, and ``user`` its owner (None: oneself)."""
    path.mkdir(parents=True, exist_ok=True)
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(path, entry.pw_uid, entry.pw_gid)
    return path


def socket_folder(folder: Path, socket_name: str, user: str | None) -> Path:
    """``folder``, or a new one owned by ``user`` where a socket's path in it would be too long."""
    if len(os.fsencode(folder / socket_name)) <= LONGEST_SOCKET_PATH:
        return folder
    short = Path(tempfile.mkdtemp(prefix="pk-", dir="/tmp"))
    short.chmod(0o755)
    remove_at_exit(short)
    return owned_folder(short, user)
