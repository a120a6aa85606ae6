//! Programs that others start are carried, with any environment. Programs that
//! can't be carried are refused, or named in a warning.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Shared, World, write_program};

static GRID: Shared = Shared::new("four-sites");

/// The option for two nodes at two sites behind NATs.
const NODES: [&str; 2] = ["--nodes", "n1.alpha,n1.beta"];

/// Shell script that starts its arguments with an environment in which only the launcher's own
/// variables are left.
const CLEARED: &str = r#"exec env -i $(env | grep -E '^(OMPI|PMIX)_[A-Za-z0-9_]*=[^ "{}]*$') "$0""#;
const PYTHON: &str = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))";
const PYTHON_WITHOUT: &str = "import os, subprocess, sys
kept = {name: value for name, value in os.environ.items() if name != 'LD_PRELOAD'}
sys.exit(subprocess.call(sys.argv[1:], env=kept))";
const PYTHON_SPAWN: &str = "import os, sys
kept = {name: value for name, value in os.environ.items() if name != 'LD_PRELOAD'}
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], kept)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";

/// Runs an MPI program over two sites, in which a wrapper starts each rank.
fn wrapped(wrapper: &[&str]) -> Result<()> {
    let world = GRID.take()?;
    let (launcher, hello) = (Mpi::OpenMpi.launcher(), Mpi::OpenMpi.program("hello"));
    let mut words = vec![launcher.as_str(), "-n", "2", "--map-by", "node"];
    words.extend(wrapper);
    words.push(&hello);
    let output = world.run("n1.alpha", &NODES, &words)?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    for line in ["rank 0 of 2 on n1.alpha", "rank 1 of 2 on n1.beta"] {
        ensure!(output.stdout.contains(line), "{}", output.whole());
    }
    ensure!(!output.stderr.contains("not carried"), "{}", output.whole());
    world.expect_clean()
}

macro_rules! wrappers {
    ($($(#[$ignored:meta])? $name:ident: $($word:expr),+;)*) => {
        $(#[test]
        $(#[$ignored])?
        fn $name() -> Result<()> {
            wrapped(&[$($word),+])
        })*
    };
}

wrappers! {
    #[ignore = "test-all"]
    by_env: "env", "COLOUR=blue";
    #[ignore = "test-all"]
    by_env_that_takes_the_library_out: "env", "-u", "LD_PRELOAD";
    by_env_with_nothing: "sh", "-c", CLEARED;
    #[ignore = "test-all"]
    by_sh: "sh", "-c", "\"$0\"; exit $?";
    by_bash_and_time: "bash", "-c", "time \"$0\"";
    #[ignore = "test-all"]
    by_timeout_nice_and_setsid: "timeout", "60", "nice", "setsid", "--wait";
    #[ignore = "test-all"]
    by_python: "/usr/bin/python3", "-c", PYTHON;
    #[ignore = "test-all"]
    by_python_with_an_environment_of_its_own: "/usr/bin/python3", "-c", PYTHON_WITHOUT;
    by_python_posix_spawn: "/usr/bin/python3", "-c", PYTHON_SPAWN;
    #[ignore = "test-all"]
    by_gdb: "gdb", "-q", "-batch", "-return-child-result", "-ex", "run", "--args";
    #[ignore = "test-all"]
    by_valgrind: "valgrind", "--quiet", "--error-exitcode=0";
    by_chroot_in_a_user_namespace: "unshare", "--map-root-user", "chroot", "/";
    by_bubblewrap: "bwrap", "--dev-bind", "/", "/";
}

const HI_C: &str = "#include <stdio.h>\nint main(void) { puts(\"hi\"); return 0; }\n";
const HI_GO: &str = "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hi\") }\n";

/// Compiles a program from a source text. Returns the program's path.
fn build(world: &World, name: &str, command: &[&str], source: &str, text: &str) -> Result<String> {
    let directory = world.directory.path();
    let (source, program) = (directory.join(source), directory.join(name));
    std::fs::write(&source, text)?;
    let [compiler, options @ ..] = command else { anyhow::bail!("no compiler") };
    let mut compile = Command::new(compiler);
    compile.args(options).arg("-o").arg(&program).arg(&source).env("CGO_ENABLED", "0");
    compile.env("GOCACHE", isthmus_e2e::target().join("tmp/go"));
    let status = compile.status().with_context(|| format!("cannot run {compiler}"))?;
    ensure!(status.success(), "{} does not compile", source.display());
    Ok(program.display().to_string())
}

/// Programs built with the address sanitizer, whose library wants to be the first. They are the
/// command, are started by others with options of their own, and are ranks.
#[test]
fn programs_with_the_address_sanitizer() -> Result<()> {
    let world = GRID.take()?;
    let program = build(&world, "hi-asan", &["cc", "-fsanitize=address"], "hi.c", HI_C)?;
    let own = "ASAN_OPTIONS=detect_leaks=0 \"$0\"; env -i ASAN_OPTIONS=detect_leaks=0 \"$0\"; env -i \"$0\"";
    for (words, times) in [(&[program.as_str()][..], 1), (&["sh", "-c", own, &program], 3)] {
        let output = world.run("n1.alpha", &NODES, words)?;
        let right = output.status == 0 && output.stdout == "hi\n".repeat(times);
        ensure!(right && !output.stderr.contains("ASan"), "{words:?}: {}", output.whole());
    }
    let source = isthmus_e2e::root().join("apps/hello.c");
    let compile = [
        "mpicc.openmpi",
        "-fsanitize=address",
        "-I",
        &isthmus_e2e::root().join("apps").display().to_string(),
    ];
    let text = std::fs::read_to_string(source)?;
    let program = build(&world, "hello-asan", &compile, "hello.c", &text)?;
    // Open MPI keeps memory at its end.
    let launcher = Mpi::OpenMpi.launcher();
    let words = [
        "env",
        "ASAN_OPTIONS=detect_leaks=0",
        &launcher,
        "-x",
        "ASAN_OPTIONS",
        "-n",
        "2",
        "--map-by",
        "node",
        &program,
    ];
    let output = world.run("n1.alpha", &NODES, &words)?;
    ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    world.expect_clean()
}

/// Checks that a program is refused as a rank before anything starts. Without the check, it starts,
/// and a warning names it.
fn refused_as_rank(world: &World, program: &str, reason: &str) -> Result<()> {
    let launcher = Mpi::OpenMpi.launcher();
    let words = [launcher.as_str(), "-n", "2", "--map-by", "node", program];
    let output = world.run("n1.alpha", &NODES, &words)?;
    ensure!(output.status == 125 && output.stdout.is_empty(), "{}", output.whole());
    for part in ["not started", "n1.alpha", "n1.beta", reason, "--no-check"] {
        ensure!(output.stderr.contains(part), "no {part:?} in {}", output.whole());
    }
    let options = [&NODES[..], &["--no-check"]].concat();
    let output = world.run("n1.alpha", &options, &words)?;
    ensure!(output.status == 0 && output.stdout.matches("hi").count() == 2, "{}", output.whole());
    for node in ["n1.alpha", "n1.beta"] {
        let warned = |line: &str| line.contains(&format!("warning: on {node}")) && line.contains(reason);
        ensure!(output.stderr.lines().any(warned), "nothing of {node} in {}", output.whole());
    }
    world.expect_clean()
}

/// Checks that a program runs as the command itself or started by it. A warning says that it isn't
/// carried.
fn warned_of_as_command(world: &World, program: &str, reason: &str) -> Result<()> {
    for words in [&[program][..], &["sh", "-c", "\"$0\"; true", program]] {
        let output = world.run("n1.alpha", &NODES, words)?;
        ensure!(output.status == 0 && output.stdout == "hi\n", "{}", output.whole());
        let warnings =
            output.stderr.lines().filter(|line| line.contains("warning:") && line.contains(reason));
        ensure!(warnings.count() == 1, "{words:?}: {}", output.whole());
    }
    let output = world.run("n1.alpha", &[&NODES[..], &["--quiet"]].concat(), &[program])?;
    ensure!(output.status == 0 && output.stderr.is_empty(), "{}", output.whole());
    world.expect_clean()
}

#[test]
fn static_programs() -> Result<()> {
    let world = GRID.take()?;
    let program = build(&world, "hi-static", &["cc", "-static"], "hi.c", HI_C)?;
    refused_as_rank(&world, &program, "linked statically")?;
    warned_of_as_command(&world, &program, "linked statically")?;
    let pie = build(&world, "hi-static-pie", &["cc", "-static-pie"], "hi.c", HI_C)?;
    warned_of_as_command(&world, &pie, "linked statically")
}

#[test]
#[ignore = "test-all"]
fn go_programs() -> Result<()> {
    let world = GRID.take()?;
    let program = build(&world, "hi-go", &["go", "build"], "hi.go", HI_GO)?;
    refused_as_rank(&world, &program, "written in Go")?;
    warned_of_as_command(&world, &program, "written in Go")
}

#[test]
fn setuid_programs() -> Result<()> {
    let world = GRID.take()?;
    let program = build(&world, "hi-setuid", &["cc"], "hi.c", HI_C)?;
    // Any other user than the agent's will do.
    let set =
        Command::new("sh").args(["-c", "chown 65534 \"$0\" && chmod 4755 \"$0\"", &program]).status()?;
    ensure!(set.success(), "cannot make {program} setuid");
    refused_as_rank(&world, &program, "setuid")?;
    warned_of_as_command(&world, &program, "setuid")
}

#[test]
fn programs_for_another_libc() -> Result<()> {
    let world = GRID.take()?;
    let program = build(&world, "hi-musl", &["musl-gcc"], "hi.c", HI_C)?;
    refused_as_rank(&world, &program, "another C library")?;
    let output = world.run("n1.alpha", &NODES, &[&program])?;
    ensure!(output.status == 125 && output.stderr.contains("not started"), "{}", output.whole());
    // The program's own loader would fail on isthmus's library, so the program runs without the
    // library.
    let output = world.run("n1.alpha", &NODES, &["sh", "-c", "\"$0\"; exit $?", &program])?;
    ensure!(output.status == 0 && output.stdout == "hi\n", "{}", output.whole());
    ensure!(output.stderr.contains("another C library"), "{}", output.whole());
    world.expect_clean()
}

#[test]
fn scripts_of_static_interpreters() -> Result<()> {
    let world = GRID.take()?;
    let interpreter = build(&world, "hi-interpreter", &["cc", "-static"], "hi.c", HI_C)?;
    let script = world.directory.path().join("script");
    write_program(&script, format!("#!{interpreter}\n").as_bytes(), 0o755)?;
    refused_as_rank(&world, &script.display().to_string(), "linked statically")
}

/// A user may leave the library out of a program.
#[test]
fn a_program_can_be_left_out() -> Result<()> {
    let world = GRID.take()?;
    let name = |words: &[&str]| -> Result<String> {
        Ok(world.run("n1.alpha", &[&NODES[..], &["--quiet"]].concat(), words)?.stdout)
    };
    ensure!(name(&["env", "-i", "hostname"])? == "n1.alpha\n", "it is carried");
    ensure!(name(&["env", "-i", "ISTHMUS_SHIM=off", "hostname"])? == "node1\n", "it is not carried");
    world.expect_clean()
}

/// The job's directory is below /run. A container without it has no way into the job.
#[test]
fn a_container_that_hides_the_job_is_warned_of() -> Result<()> {
    let world = GRID.take()?;
    let words = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/run", "hostname"];
    let output = world.run("n1.alpha", &[&NODES[..], &["--quiet"]].concat(), &words)?;
    ensure!(output.stdout == "node1\n", "{}", output.whole());
    ensure!(output.stderr.contains("cannot be preloaded"), "{}", output.whole());
    world.expect_clean()
}
