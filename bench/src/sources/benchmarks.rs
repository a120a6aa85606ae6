//! What each benchmark runs. What could change its figures counts, and nothing else.

/// A benchmark, with the sources that its figures depend on. A path that ends with a slash stands
/// for all files below it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Benchmark {
    pub name: &'static str,
    /// The packages whose programs and libraries run, with all packages that these are made of.
    pub programs: &'static [&'static str],
    /// Paths that run beside, or not at all, so that no figure depends on them.
    pub without: &'static [&'static [&'static str]],
    pub files: &'static [&'static [&'static str]],
}

/// What runs in a job, and the lab that it runs in.
const JOB: &[&str] = &["isthmus", "isthmus-lab", "isthmus-raw", "isthmus-shim"];
/// What measures in a job.
const IN_JOBS: &[&str] = &["bench/src/grid.rs", "bench/src/mpi.rs"];
/// Commands, pictures and pilots, which no measurement waits for.
const COMMANDS: &[&str] = &[
    "crates/agent/src/pilots/",
    "crates/batch/",
    "crates/cli/src/cancel.rs",
    "crates/cli/src/coll.rs",
    "crates/cli/src/doctor/",
    "crates/cli/src/grid.rs",
    "crates/cli/src/grid/",
    "crates/cli/src/jobs.rs",
    "crates/cli/src/jobs/",
    "crates/cli/src/join.rs",
    "crates/cli/src/lab.rs",
    "crates/cli/src/man.rs",
    "crates/cli/src/path.rs",
    "crates/cli/src/plan.rs",
    "crates/cli/src/status.rs",
    "crates/cli/src/status/",
    "crates/cli/src/trunks.rs",
    "crates/cli/src/up/",
    "crates/front/src/format.rs",
    "crates/front/src/output_file.rs",
    "crates/front/src/pages.rs",
    "crates/front/src/picture.rs",
    "crates/front/src/without_broker.rs",
    "crates/pilot/",
    "crates/profile/",
    "crates/run/src/allocation/",
    "crates/run/src/culprit.rs",
    "crates/run/src/pilots/",
    "crates/run/src/staging/",
    "crates/run/src/timing/",
    "crates/slurm/",
];
/// Commands and pictures of the lab.
const LAB_COMMANDS: &[&str] = &[
    "crates/lab/src/capture.rs",
    "crates/lab/src/capture/",
    "crates/lab/src/check.rs",
    "crates/lab/src/command/",
    "crates/lab/src/graph.rs",
    "crates/lab/src/graph/",
    "crates/lab/src/presets.rs",
    "crates/lab/src/presets/",
];
/// What has done its part once connections stand, where times or costs of those are measured: who takes
/// part in a job, and the calls by which it is set up.
const SET_UP: &[&str] = &[
    "crates/broker/",
    "crates/cli/src/lib.rs",
    "crates/front/",
    "crates/matching/",
    "crates/registry/",
    "crates/run/src/account.rs",
    "crates/run/src/alloc.rs",
    "crates/run/src/args.rs",
    "crates/run/src/candidates.rs",
    "crates/run/src/finish.rs",
    "crates/run/src/given.rs",
    "crates/run/src/hosts.rs",
    "crates/run/src/lib.rs",
    "crates/run/src/nodes.rs",
    "crates/run/src/placing/",
    "crates/run/src/preflight.rs",
    "crates/run/src/prepare.rs",
    "crates/run/src/profile.rs",
    "crates/run/src/programs.rs",
    CONTROL,
];
/// What joins nodes that don't reach each other, what finds the ways, and what starts programs and ends
/// them. Between nodes that reach each other nothing of it runs once connections stand.
const WAYS: &[&str] = &[
    "crates/agent/src/jobs/",
    "crates/agent/src/starting/",
    "crates/agent/src/uplink/",
    "crates/carry/src/released.rs",
    "crates/carry/src/splice/",
    "crates/gateway/",
    "crates/plan/",
    "crates/reach/",
    "crates/relay/",
    "crates/splice/",
];
/// The messages of the control plane.
const CONTROL: &str = "crates/wire/proto/";
/// What runs where figures are those of connections that stand.
const STANDING: &[&[&str]] = &[COMMANDS, LAB_COMMANDS, SET_UP];
/// What runs where set-up is a part of the figures.
const FROM_SET_UP: &[&[&str]] = &[COMMANDS, LAB_COMMANDS];

/// The programs at both ends of a contest.
const TRAFFIC: &[&str] = &[
    "bench/src/account.rs",
    "bench/src/contest.rs",
    "bench/src/line_client.rs",
    "bench/src/traffic.rs",
    "bench/src/traffic/",
];
/// The library for MPI.
const MPI: &[&str] = &["mpi/Makefile", "mpi/front/", "mpi/back/"];
/// What of the library for MPI the program that times collectives never calls: topologies, Fortran,
/// and large counts. The simulator does without them, too (mpi/Makefile).
const NOT_IN_COLLTIME: &[&str] = &[
    "mpi/back/cart.c",
    "mpi/back/edges.c",
    "mpi/back/fortran.c",
    "mpi/back/fortran.h",
    "mpi/back/graph.c",
    "mpi/back/guided.c",
    "mpi/back/large.c",
    "mpi/back/large.h",
    "mpi/back/large_v.c",
    "mpi/back/partition.c",
    "mpi/back/partition.h",
    "mpi/back/permuted.c",
    "mpi/back/permuted.h",
    "mpi/back/reorder.c",
    "mpi/back/reorder.h",
    "mpi/back/unweighted.c",
    "mpi/back/unweighted.h",
];
/// What of the library for MPI runs in collectives, and not when a program begins.
const NOT_AT_START: &[&str] = &[
    "mpi/back/collectives/",
    "mpi/back/cost_own.c",
    "mpi/back/cost_native.c",
    "mpi/back/openmpi.c",
    "mpi/back/openmpi.h",
];
/// Ping-pongs of MPI.
const PING_PONG: &[&str] = &["apps/Makefile", "apps/pingpong.c"];
const COLLTIME: &[&str] = &["apps/Makefile", "apps/pause.h", "apps/colltime.c"];
const CONNECT: &[&str] =
    &["bench/src/connect.rs", "bench/src/connect/", "bench/src/tunnel.rs", "bench/programs/connect.py"];

/// All benchmarks.
pub(super) const BENCHMARKS: [Benchmark; 18] = [
    Benchmark {
        name: "coll",
        programs: JOB,
        without: &[COMMANDS, LAB_COMMANDS, SET_UP, WAYS, NOT_IN_COLLTIME],
        files: &[
            IN_JOBS,
            MPI,
            COLLTIME,
            &[
                "bench/src/coll.rs",
                "bench/src/coll/",
                "bench/grids/coll.toml",
                "bench/grids/coll-clusters.toml",
            ],
        ],
    },
    Benchmark {
        name: "connect",
        programs: JOB,
        without: FROM_SET_UP,
        files: &[
            IN_JOBS,
            TRAFFIC,
            CONNECT,
            PING_PONG,
            &[
                "bench/src/nebula.rs",
                "bench/src/served.rs",
                "bench/src/wireguard.rs",
                "bench/grids/connect-besides.toml",
                "bench/grids/connect-near.toml",
                "bench/grids/connect-far.toml",
            ],
        ],
    },
    Benchmark {
        name: "direct",
        programs: JOB,
        without: STANDING,
        files: &[
            IN_JOBS,
            TRAFFIC,
            PING_PONG,
            &["bench/src/direct.rs", "bench/src/served.rs", "bench/src/tunnel.rs", "bench/grids/lan.toml"],
        ],
    },
    Benchmark {
        name: "lab",
        programs: &["isthmus-lab"],
        without: &[LAB_COMMANDS],
        files: &[&["bench/src/lab.rs", "bench/src/lab/"]],
    },
    Benchmark {
        name: "nas",
        programs: JOB,
        // The library chooses by what the registry has of paths.
        without: &[COMMANDS, LAB_COMMANDS],
        files: &[
            IN_JOBS,
            MPI,
            &[
                "bench/src/connect.rs",
                "bench/src/nas.rs",
                "bench/src/nas/",
                "bench/grids/nas.toml",
                "bench/grids/nas-site-trunk.toml",
                "bench/grids/nas-ways.toml",
                "bench/programs/salt.in",
                "apps/Makefile",
                "apps/pause.h",
                "apps/nas.c",
            ],
        ],
    },
    Benchmark {
        name: "patterns",
        programs: JOB,
        without: STANDING,
        files: &[
            IN_JOBS,
            TRAFFIC,
            &[
                "bench/src/connect.rs",
                "bench/src/patterns.rs",
                "bench/src/relay.rs",
                "bench/src/tunnel.rs",
                "bench/src/patterns/",
                "bench/programs/patterns-job.sh",
                "bench/grids/patterns.toml",
            ],
        ],
    },
    Benchmark {
        name: "programs",
        programs: JOB,
        without: STANDING,
        files: &[
            IN_JOBS,
            &[
                "bench/src/programs.rs",
                "bench/src/tunnel.rs",
                "bench/programs/ocean.py",
                "bench/grids/ocean.toml",
                "bench/grids/ocean-without-bbr.toml",
            ],
        ],
    },
    Benchmark {
        name: "pilot",
        programs: JOB,
        without: &[LAB_COMMANDS],
        files: &[
            IN_JOBS,
            &[
                "bench/src/pilot.rs",
                "bench/src/pilot/",
                "bench/src/nas.rs",
                "bench/grids/pilot.toml",
                "bench/grids/pilot-two.toml",
                "bench/programs/melt.in",
                "apps/Makefile",
                "apps/pause.h",
                "apps/nas.c",
            ],
        ],
    },
    Benchmark {
        name: "rails",
        programs: JOB,
        without: STANDING,
        files: &[IN_JOBS, TRAFFIC, &["bench/src/rails.rs", "bench/src/tunnel.rs", "bench/grids/rails.toml"]],
    },
    Benchmark {
        name: "workers",
        programs: &["isthmus", "isthmus-lab", "isthmus-pool", "isthmus-raw", "isthmus-shim"],
        without: STANDING,
        files: &[
            IN_JOBS,
            &[
                "bench/src/workers.rs",
                "bench/programs/tasks.py",
                "bench/grids/workers-near.toml",
                "bench/grids/workers-far.toml",
                "mpi/python/isthmus_pool.py",
            ],
        ],
    },
    Benchmark {
        name: "ray2mesh",
        programs: &[],
        without: &[NOT_IN_COLLTIME],
        files: &[
            MPI,
            &[
                "apps/ray2mesh/",
                "bench/src/ray2mesh.rs",
                "bench/src/simulate/platform.rs",
                "bench/src/simulate/platforms.rs",
                "bench/src/simulate/smpi.rs",
                "mpi/smpi/",
            ],
        ],
    },
    Benchmark {
        name: "relay",
        programs: JOB,
        without: STANDING,
        files: &[
            IN_JOBS,
            TRAFFIC,
            &[
                "bench/src/relay.rs",
                "bench/src/encrypted.rs",
                "bench/src/tunnel.rs",
                "bench/src/wireguard.rs",
                "bench/grids/two-near.toml",
            ],
        ],
    },
    Benchmark {
        name: "simulate",
        programs: JOB,
        without: &[COMMANDS, LAB_COMMANDS, SET_UP, WAYS, NOT_IN_COLLTIME],
        files: &[
            IN_JOBS,
            MPI,
            COLLTIME,
            &[
                "mpi/smpi/",
                "bench/src/coll.rs",
                "bench/src/simulate.rs",
                "bench/src/simulate/",
                "bench/grids/coll.toml",
            ],
        ],
    },
    Benchmark {
        name: "site-trunk",
        programs: JOB,
        without: STANDING,
        files: &[
            IN_JOBS,
            TRAFFIC,
            &[
                "bench/src/site_trunk.rs",
                "bench/src/tcp.rs",
                "bench/src/tunnel.rs",
                "bench/grids/site-trunk.toml",
                "bench/grids/site-trunk-far.toml",
            ],
        ],
    },
    Benchmark {
        name: "slow",
        programs: JOB,
        without: &[COMMANDS, LAB_COMMANDS, NOT_IN_COLLTIME],
        files: &[
            IN_JOBS,
            TRAFFIC,
            CONNECT,
            MPI,
            COLLTIME,
            &["bench/src/slow.rs", "bench/src/coll.rs", "bench/grids/slow.toml"],
        ],
    },
    Benchmark {
        name: "shim",
        programs: JOB,
        without: FROM_SET_UP,
        files: &[
            IN_JOBS,
            &[
                "bench/src/shim.rs",
                "bench/programs/shim.c",
                "bench/programs/shim-job.sh",
                "bench/grids/two-far.toml",
            ],
        ],
    },
    Benchmark {
        name: "trunk",
        programs: &["isthmus-carry", "isthmus-lab", "isthmus-trunk"],
        without: &[LAB_COMMANDS, &[CONTROL]],
        files: &[&[
            "bench/src/account.rs",
            "bench/src/tcp.rs",
            "bench/src/trunk.rs",
            "bench/src/trunk/",
            "bench/src/tunnel.rs",
        ]],
    },
    Benchmark {
        name: "start",
        programs: JOB,
        without: &[COMMANDS, LAB_COMMANDS, NOT_AT_START, NOT_IN_COLLTIME],
        files: &[
            IN_JOBS,
            MPI,
            &[
                "bench/src/start.rs",
                "bench/src/start/",
                "bench/grids/lan.toml",
                "bench/grids/two-open.toml",
                "apps/Makefile",
                "apps/init.c",
            ],
        ],
    },
];
