//! Ray2mesh (apps/ray2mesh) over sites: each way to spread its rays gives the same.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Shared, SharedWorld, isthmus, root};

static GRID: Shared = Shared::new("four-sites");

const HEAD: &str = "n1.alpha";
const NODES: &str = "n1.alpha,n1.beta,n1.gamma";
const RADIUS_KM: f64 = 6371.0;
/// Speeds of P and S, in km/s, which are the same everywhere: rays are straight.
const SPEEDS: [f64; 2] = [10.0, 5.0];
/// Longitude, latitude and depth in km.
const EVENTS: [(f64, f64, f64); 4] =
    [(0.0, 0.0, 0.0), (120.5, -33.25, 600.0), (-179.9, 89.0, 35.0), (10.0, -89.5, 120.0)];
/// Longitude and latitude: also where an earthquake is, and at its antipode.
const STATIONS: [(f64, f64); 6] =
    [(0.0, 0.0), (180.0, 0.0), (45.0, 45.0), (-120.0, 12.0), (121.0, -33.0), (0.0, -90.0)];

fn write_survey(directory: &Path) -> Result<()> {
    let [p, s] = SPEEDS;
    let model = format!("A homogeneous Earth\ndepth P S\n0 {p} {s}\n2891 {p} {s}\n{RADIUS_KM} {p} {s}\n");
    let events: String = EVENTS
        .iter()
        .map(|(longitude, latitude, depth)| {
            format!("{longitude}\t{latitude}\t2020\t1\t1\t6\t{depth}\t0\t0\t0\n")
        })
        .collect();
    let stations: String = STATIONS
        .iter()
        .enumerate()
        .map(|(number, (longitude, latitude))| format!("XX|S{number}|{latitude}|{longitude}|0|here||\n"))
        .collect();
    fs::write(directory.join("model.tvel"), model)?;
    fs::write(directory.join("events.zmap"), events)?;
    fs::write(directory.join("stations.txt"), format!("#Network|Station|...\n{stations}"))?;
    Ok(())
}

/// A place in space, in km.
fn place(longitude: f64, latitude: f64, radius: f64) -> [f64; 3] {
    let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
    [
        radius * latitude.cos() * longitude.cos(),
        radius * latitude.cos() * longitude.sin(),
        radius * latitude.sin(),
    ]
}

/// The distance of each event and station, in a straight line.
fn distances() -> Vec<f64> {
    let of = |event: &(f64, f64, f64)| {
        let from = place(event.0, event.1, RADIUS_KM - event.2);
        STATIONS.map(|(longitude, latitude)| {
            let to = place(longitude, latitude, RADIUS_KM);
            from.iter().zip(to).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
        })
    };
    EVENTS.iter().flat_map(of).collect()
}

fn program() -> String {
    isthmus().with_file_name("ray2mesh").display().to_string()
}

/// Runs it over three sites, and returns what it wrote.
fn run(world: &SharedWorld, options: &[&str]) -> Result<[String; 2]> {
    let survey = world.directory.path();
    let out = survey.join("out");
    fs::create_dir_all(&out)?;
    let launcher = Mpi::OpenMpi.launcher();
    let mpirun =
        [&launcher, "-n", "13", "--oversubscribe", "--map-by", "node", "--mca", "mpi_yield_when_idle", "1"];
    let files =
        ["model.tvel", "events.zmap", "stations.txt"].map(|name| survey.join(name).display().to_string());
    let (program, out) = (program(), out.display().to_string());
    let words = [
        &mpirun[..],
        &[&program, "--chunk", "2", "--out", &out],
        options,
        &files.each_ref().map(String::as_str),
    ]
    .concat();
    let output = world.run(HEAD, &["--nodes", NODES], &words)?;
    ensure!(output.status == 0, "{options:?}: {}", output.whole());
    // Four ranks at each site, and the master: all but it have a boss.
    let bosses = if options.contains(&"hierarchical") { "3 bosses" } else { "0 bosses" };
    ensure!(output.stdout.contains(bosses), "{options:?}: {}", output.whole());
    let read = |name: &str| fs::read_to_string(Path::new(&out).join(name)).context("nothing was written");
    Ok([read("times.csv")?, read("coverage.vtk")?])
}

/// Rays are straight in an Earth that is the same everywhere: their times and lengths are known.
fn check(times: &str, coverage: &str) -> Result<()> {
    let mut lines = times.lines();
    ensure!(lines.next() == Some("event,station,depth_km,distance_deg,P,PKP,S"), "{times}");
    let want = distances();
    ensure!(times.lines().count() == want.len() + 1, "{times}");
    let mut length = 0.0;
    for (line, distance) in lines.zip(&want) {
        let found: Vec<_> = line.split(',').collect();
        for (column, speed) in [(4, SPEEDS[0]), (6, SPEEDS[1])] {
            let time: f64 = found[column].parse().with_context(|| format!("no ray in {line}"))?;
            ensure!((time - distance / speed).abs() < 0.01, "{line}: {} s", distance / speed);
            length += distance;
        }
        ensure!(found[5].is_empty(), "nothing goes through a core that isn't there: {line}");
    }
    let (_, lengths) =
        coverage.split_once("SCALARS length_km double 1\nLOOKUP_TABLE default\n").context("none")?;
    let sum: f64 = lengths.lines().map(|line| line.parse::<f64>().unwrap_or(f64::NAN)).sum();
    ensure!((sum / length - 1.0).abs() < 1e-4, "{sum} km in the cells, and {length} km of rays");
    Ok(())
}

/// Two ranks on this machine, without isthmus.
fn here() -> Command {
    let mut command = Command::new(Mpi::OpenMpi.launcher());
    command.args(["--oversubscribe", "--allow-run-as-root", "--mca", "btl", "self,vader", "-n", "2"]);
    command.arg(program());
    command
}

#[test]
fn each_way_to_spread_rays_gives_the_same() -> Result<()> {
    let world = GRID.take()?;
    write_survey(world.directory.path())?;
    let vanilla = run(&world, &[])?;
    check(&vanilla[0], &vanilla[1])?;
    for spread in ["hierarchical", "pool"] {
        let found = run(&world, &["--spread", spread])?;
        ensure!(found == vanilla, "{spread}: something else than vanilla");
    }
    world.expect_clean()
}

#[test]
fn what_is_wrong_is_said_once_before_anything_starts() -> Result<()> {
    let directory = tempfile::tempdir()?;
    write_survey(directory.path())?;
    let at = |name: &str| directory.path().join(name).display().to_string();
    let [model, events, stations] = ["model.tvel", "events.zmap", "stations.txt"].map(at);
    let bad = at("bad");
    fs::write(&bad, "1 2\n\n0 10 5\n")?;
    for (words, want) in [
        (vec!["--chunk", "0", &model, &events, &stations], "--chunk is 1 to 100000, not 0"),
        (vec!["--spread", "x", &model, &events, &stations], "--spread is vanilla, hierarchical or pool"),
        (vec![&model, &events], "usage: ray2mesh"),
        (vec!["missing", &events, &stations], "missing: No such file or directory"),
        (vec![&bad, &events, &stations], "bad: a model needs depths from 0 to the centre"),
        (vec![&model, &bad, &stations], "bad: line 1: it has no seven numbers"),
        (vec![&model, &events, &bad], "bad: line 1: it isn't Network|Station|Latitude|Longitude"),
    ] {
        let output = here().args(&words).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(errors.matches(want).count() == 1, "{words:?}: {errors}");
        ensure!(output.status.code() == Some(2), "{words:?}: {}", output.status);
    }
    Ok(())
}

/// Times and cells are those of ObsPy's TauP, in the Earth ak135.
#[test]
#[ignore = "needs ObsPy, which `scripts/setup test-all` installs"]
fn rays_are_those_of_taup() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (survey, out) = (directory.path().join("survey"), directory.path().join("out"));
    fs::create_dir(&out)?;
    let python = |script: &str| {
        let mut command = Command::new(root().join("target/obspy/bin/python"));
        command.arg(root().join("apps/ray2mesh").join(script)).arg(&survey);
        command
    };
    let files = ["model.tvel", "events.zmap", "stations.txt"].map(|name| survey.join(name));
    for mut command in [
        {
            let mut command = python("survey.py");
            command.args(["--events", "8", "--stations", "24", "--seed", "5"]);
            command
        },
        {
            let mut command = here();
            command.arg("--out").arg(&out).args(&files);
            command
        },
        {
            let mut command = python("check.py");
            command.arg(&out).arg("--coverage");
            command
        },
        {
            let mut command = python("picture.py");
            command.arg(&out).arg(out.join("rays.png"));
            command
        },
    ] {
        let output = command.output()?;
        ensure!(output.status.success(), "{command:?}: {output:?}");
    }
    ensure!(fs::metadata(out.join("rays.png"))?.len() > 10_000, "the picture is empty");
    Ok(())
}
