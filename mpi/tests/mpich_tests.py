"""MPICH's own tests of collectives: fetched, unpacked, read and compiled."""

import hashlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mpis import MPIS, OUT, ROOT

# Debian's source package of MPICH, and its checksum in mpich_4.0.2-3.dsc.
SOURCE = "mpich_4.0.2.orig.tar.xz"
SHA256 = "b27039f964afeb6b8a3e009c56b441cbe368c26d6d6476ad3bb7190996875860"
CACHE = ROOT.parent / "target/mpich-tests"
TESTS = CACHE / "mpich-4.0.2/test/mpi"

# What their configure would find of this compiler and of every MPI here. Their programs have one thread each.
CONFIGURATION = """
#define THREAD_PACKAGE_NAME THREAD_PACKAGE_NONE
#define HAVE_STDARG_H 1
#define HAVE_STDINT_H 1
#define HAVE_STDLIB_H 1
#define HAVE_STRING_H 1
#define HAVE_UNISTD_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_GETRUSAGE 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_RESOURCE_H 1
#define HAVE_MPI_WIN_CREATE 1
#define HAVE_LONG_LONG 1
#define HAVE_LONG_DOUBLE 1
#define HAVE_FLOAT__COMPLEX 1
#define HAVE_DOUBLE__COMPLEX 1
#define HAVE_LONG_DOUBLE__COMPLEX 1
#define USE_LONG_DOUBLE_COMPLEX 1
#define SIZEOF_INT 4
#define SIZEOF_LONG 8
#define SIZEOF_LONG_LONG 8
#define SIZEOF_SHORT 2
#define SIZEOF_VOID_P 8
#define SIZEOF_MPI_OFFSET 8
#define POINTERINT_t long
"""
# Names that MPI-3.0 has removed, and that Open MPI's header refuses.
REPLACEMENTS = """
#undef MPI_Type_hvector
#undef MPI_Type_hindexed
#undef MPI_Type_struct
#define MPI_Type_hvector MPI_Type_create_hvector
#define MPI_Type_hindexed MPI_Type_create_hindexed
#define MPI_Type_struct MPI_Type_create_struct
"""
# Open MPI refuses operations on types for which the standard doesn't define them.
STRICT = {"openmpi", "openmpi5"}


@dataclass(frozen=True)
class Test:
    """A line of their testlist."""

    program: str
    ranks: int
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([self.program, str(self.ranks), *self.arguments])


def checked(file: Path) -> Path:
    """The file, if it is the one that the checksum is of."""
    if hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{file} isn't {SOURCE}: its SHA-256 isn't {SHA256}")
    return file


def fetched() -> Path:
    """The source package, which lies beside the binary one that apt would take."""
    file = CACHE / SOURCE
    if file.exists():
        return checked(file)
    printed = subprocess.run(
        ["apt-get", "download", "--print-uris", "mpich"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    place = re.match(r"'([^']+)/[^/']+'", printed)
    if not place:
        sys.exit(f"apt doesn't say where mpich is, but: {printed!r}; give {SOURCE} with --source")
    part = file.with_suffix(".part")
    download = ["/usr/lib/apt/apt-helper", "download-file", f"{place[1]}/{SOURCE}", str(part), f"SHA256:{SHA256}"]
    if subprocess.run(download).returncode != 0:
        sys.exit(f"{place[1]}/{SOURCE} can't be fetched; give the file with --source")
    part.rename(file)
    return checked(file)


def unpack(source: Path | None) -> None:
    """Puts their tests into TESTS, with the files that their configure would have made."""
    done = CACHE / "unpacked"
    if not done.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        file = checked(source) if source else fetched()
        wanted = [f"mpich-4.0.2/{name}" for name in ("COPYRIGHT", "test/mpi")]
        subprocess.run(["tar", "-C", CACHE, "-xJf", file, *wanted], check=True)
        done.touch()
    for name, text in (("dtpools/dtpoolsconf.h", REPLACEMENTS), ("include/mpitestconf.h", CONFIGURATION)):
        header = TESTS / name
        # Programs that are older than these are compiled anew.
        if not header.exists() or header.read_text() != f"#pragma once\n{text}":
            header.write_text(f"#pragma once\n{text}")


def listed() -> list[Test]:
    """The tests of their testlist, but for those that need 20 GB (`@largetest@`)."""
    tests = []
    for line in (TESTS / "coll/testlist.in").read_text().splitlines():
        word = line.split()
        if word and word[0][0] not in "#@":
            tests.append(Test(word[0], int(word[1]), tuple(w[4:] for w in word[2:] if w.startswith("arg="))))
    # Twice the same line is one test.
    return list(dict.fromkeys(tests))


def rules() -> dict[str, tuple[str, list[str]]]:
    """Program: source and definitions, where their Makefile has a rule of its own."""
    text = (TESTS / "coll/Makefile.am").read_text()
    sources = dict(re.findall(r"^(\w+)_SOURCES *= *(\S+)$", text, re.MULTILINE))
    flags = dict(re.findall(r"^(\w+)_CPPFLAGS *= *(.*)$", text, re.MULTILINE))
    return {
        name: (sources.get(name, f"{name}.c"), [f for f in flags.get(name, "").split() if f.startswith("-D")])
        for name in sources.keys() | flags.keys()
    }


def directory(mpi: str) -> Path:
    """Where the programs for an MPI are."""
    return OUT / "check" / mpi / "mpich-coll"


def compile_all(mpi: str, programs: list[str], jobs: int) -> dict[str, str]:
    """Compiles what isn't there yet. Returns what the compiler said of those that it refused."""
    place = directory(mpi)
    place.mkdir(parents=True, exist_ok=True)
    flags = ["-O0", "-g", "-w", f"-I{TESTS}/include", f"-I{TESTS}/dtpools/include"]
    flags += ["-DUSE_STRICT_MPI"] if mpi in STRICT else []
    age, own = (TESTS / "include/mpitestconf.h").stat().st_mtime, rules()

    def compiled(to: Path, *arguments: str | Path) -> str:
        if to.exists() and to.stat().st_mtime > age:
            return ""
        done = subprocess.run(
            [MPIS[mpi][0], *flags, "-o", to, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return "" if done.returncode == 0 else done.stdout.decode(errors="replace")

    def program(name: str) -> str:
        source, definitions = own.get(name, (f"{name}.c", []))
        return compiled(place / name, *definitions, TESTS / "coll" / source, *objects, "-lm")

    sources = [TESTS / "util" / f"{name}.c" for name in ("mtest", "mtest_common", "mtest_single", "dtypes")]
    sources += sorted((TESTS / "dtpools/src").glob("*.c"))
    objects = [place / f"{file.stem}.o" for file in sources]
    with ThreadPoolExecutor(jobs) as pool:
        for wrong in pool.map(lambda pair: compiled(pair[0], "-c", pair[1]), zip(objects, sources)):
            if wrong:
                sys.exit(f"{mpi}: MPICH's tests don't compile:\n{wrong}")
        said = dict(zip(programs, pool.map(program, programs)))
    refused = {name: wrong for name, wrong in said.items() if wrong}
    if len(refused) == len(programs):
        sys.exit(f"{mpi}: none of MPICH's tests compiles; the last:\n{refused[programs[-1]]}")
    return refused
