#!/usr/bin/env python3
"""Makes a wheel of an installed tree, for machines where nobody is root.

pip puts what is in `scripts` into bin, and what is in `data` beside bin: so the command
finds its libraries in ../lib/isthmus. The Python modules are where `import` looks.
"""

import argparse
import base64
import hashlib
import os
import re
import time
import zipfile
from pathlib import Path

# Without root nobody can give this its right.
LEFT_OUT = {"isthmus-raw"}
SHARED = ["lib/isthmus", "include", "share/man", "share/bash-completion", "share/zsh", "share/fish"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("tree", "readme", "version", "machine", "glibc", "to"):
        parser.add_argument(f"--{name}", required=True)
    return parser.parse_args()


def contents(args, tag, name):
    """Path, bytes and mode of each file but RECORD."""
    tree = Path(args.tree)
    info, data = f"{name}.dist-info", f"{name}.data"
    yield f"{data}/scripts/isthmus", (tree / "bin/isthmus").read_bytes(), 0o755
    for module in sorted((tree / "share/isthmus/python").glob("*.py")):
        yield module.name, module.read_bytes(), 0o644
    for directory in SHARED:
        for file in sorted((tree / directory).rglob("*")):
            if file.is_file() and file.name not in LEFT_OUT:
                path = f"{data}/data/{file.relative_to(tree)}"
                yield path, file.read_bytes(), file.stat().st_mode & 0o777
    for file in sorted((tree / "share/doc/isthmus").glob("LICENSE-*")):
        yield f"{info}/licenses/{file.name}", file.read_bytes(), 0o644
    readme = Path(args.readme).read_text(encoding="utf-8")
    metadata = [
        "Metadata-Version: 2.4",
        "Name: isthmus",
        f"Version: {python_version(args.version)}",
        "Summary: Unmodified MPI programs as one job over several clusters",
        "License-Expression: Apache-2.0 OR MIT",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        # isthmus_mpi asks the MPI of programs in Python, which not every user has.
        "Provides-Extra: mpi",
        "Requires-Dist: mpi4py; extra == 'mpi'",
        "Description-Content-Type: text/markdown",
    ]
    yield f"{info}/METADATA", ("\n".join(metadata) + "\n\n" + readme).encode(), 0o644
    wheel = ["Wheel-Version: 1.0", "Generator: isthmus", "Root-Is-Purelib: false", f"Tag: {tag}"]
    yield f"{info}/WHEEL", ("\n".join(wheel) + "\n").encode(), 0o644


def python_version(version):
    """1.2.0-rc.1 as 1.2.0rc1 (PEP 440)."""
    return re.sub(r"-([a-z]+)\.?", r"\1", version)


def record(path, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


def main():
    args = arguments()
    # PEP 600: the release of the C library that the binaries need.
    tag = f"py3-none-manylinux_{args.glibc.replace('.', '_')}_{args.machine}"
    name = f"isthmus-{python_version(args.version)}"
    when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    listed = ""
    with zipfile.ZipFile(Path(args.to) / f"{name}-{tag}.whl", "w") as wheel:

        def add(path, content, mode):
            entry = zipfile.ZipInfo(path, when)
            entry.create_system = 3  # Unix, so that the mode counts
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)

        for path, content, mode in contents(args, tag, name):
            add(path, content, mode)
            listed += record(path, content)
        own = f"{name}.dist-info/RECORD"
        add(own, (listed + f"{own},,\n").encode(), 0o644)
    print(f"{name}-{tag}.whl")


if __name__ == "__main__":
    main()
