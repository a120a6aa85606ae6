"""The MPIs that the tests run under, where what they need is, the algorithms, and what the library reports."""

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = Path(os.environ.get("OUT", ROOT.parent / "target/mpi")).resolve()
FRONT = OUT / "libisthmus_mpi.so"
BIN_OPENMPI5 = Path(os.environ.get("BIN_OPENMPI5", ROOT.parent / "target/openmpi5/bin"))
BIN_MPICH = Path(os.environ.get("BIN_MPICH", ROOT.parent / "target/mpich/bin"))

# Name: compiler, launcher. Open MPI's ranks share few processors here, and must yield them.
OPENMPI4 = "mpirun.openmpi --oversubscribe --mca btl self,vader,tcp --mca hwloc_base_binding_policy none"
MPIS = {
    "openmpi": ("mpicc.openmpi", OPENMPI4),
    "openmpi5": (f"{BIN_OPENMPI5}/mpicc", f"{BIN_OPENMPI5}/mpirun --bind-to none --map-by :OVERSUBSCRIBE"),
    "mpich4": ("mpicc.mpich", "mpiexec.mpich"),
    "mpich": (f"{BIN_MPICH}/mpicc", f"{BIN_MPICH}/mpiexec"),
    "mpiabi": (f"{BIN_MPICH}/mpicc_abi", f"{BIN_MPICH}/mpiexec"),
}
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # Both MPIs warn of a /tmp that isn't usual.
    "TMPDIR": "/tmp",
}

# As reports and the documentation have them.
OPERATIONS = "barrier bcast reduce allreduce gather scatter allgather reduce_scatter alltoall".split()


@dataclass(frozen=True)
class Algorithm:
    """A line of back/algorithms.h."""

    operations: tuple[str, ...]
    traits: frozenset[str]


def algorithms() -> dict[str, Algorithm]:
    """All algorithms by name, as the library's own table has them."""
    text = (ROOT / "back/algorithms.h").read_text()
    rows = re.findall(r"^ +X\(\w+, (\w+), ([A-Z_| ]+), ([A-Z_| 0]+),", text, re.MULTILINE)
    found = {}
    for name, operations, traits in rows:
        named = tuple(operation.lower() for operation in operations.split(" | "))
        found[name] = Algorithm(tuple(OPERATIONS) if named == ("all",) else named, frozenset(traits.split(" | ")))
    assert len(found) == len(re.findall(r"^ +X\(", text, re.MULTILINE)) > 1, "back/algorithms.h can't be read"
    return found


ALGORITHMS = algorithms()
# The values of ISTHMUS_COLL that change something.
ASKED = [*(name for name in ALGORITHMS if name != "native"), "auto"]


def require(mpis: list[str]) -> None:
    """Ends the program if the library, or what an MPI needs, isn't there: each run would fail by itself."""
    if not FRONT.exists():
        sys.exit(f"{FRONT} isn't there: `make -C mpi` builds it; OUT names another directory")
    for mpi in mpis:
        compiler, launcher = MPIS[mpi][0], MPIS[mpi][1].split()[0]
        for what, program in (("compiler", compiler), ("launcher", launcher)):
            if shutil.which(program) is None:
                sys.exit(f"{mpi}: its {what} {program} isn't there: `scripts/setup test` installs it, and --mpi names others")


def topology(ranks: str, levels: dict[str, str] | None = None, short: bool = False) -> str:
    """A file for tests: the site of each rank, one letter each, and the places of sites at two levels above.

    Paths are slow, so that `auto` has something to gain: the more so, the wider the level that parts two sites. `short`
    ones hold little at a time, so that messages have to wait for each other.
    """

    def microseconds(a: str, b: str) -> int:
        places = [(levels or {}).get(site, "").split() for site in (a, b)]
        parted = [level for level, pair in enumerate(zip(*places)) if len(set(pair)) > 1]
        if short:
            return 1_000
        return {0: 100_000, 1: 20_000}[parted[0]] if parted else 5_000 if levels else 20_000

    sites = sorted(set(ranks))
    lines = ["isthmus topology 1"]
    if levels:
        lines.append("levels continent country")
    lines += [f"site {s} {(levels or {}).get(s, '')}".rstrip() for s in sites]
    lines += [f"node n.{s} {s}" for s in sites]
    rate = 5_000_000 if short else 50_000_000
    lines += [f"path {a} {b} {microseconds(a, b)} {rate}" for a in sites for b in sites if a < b]
    lines += [f"rank {i} n.{s}" for i, s in enumerate(ranks)]
    return "\n".join(lines) + "\n"


def counted(directory: Path) -> dict[tuple[str, str], int]:
    """Calls of all ranks, by operation and algorithm, from their reports."""
    calls: dict[tuple[str, str], int] = {}
    for report in directory.iterdir():
        for line in report.read_text().splitlines():
            word = line.split()
            if word[0] == "call":
                calls[word[1], word[2]] = calls.get((word[1], word[2]), 0) + int(word[3])
    return calls
