//! What stands between two programs of different sites: the relay, and the
//! agents' encryption ([`crate::encrypted`]).
//!
//! The relay against HAProxy in TCP mode and socat: client – relay host –
//! server, three network namespaces and two veth cables without delay. What is
//! measured is the tool alone: the same client and server, the same cables.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use isthmus_carry::plane::Plane;
use isthmus_service::mac::Secret;
use isthmus_splice::admission::{self, Intake, Limits};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::account::cpu_time;
use crate::confine::{Host, Running};
use crate::contest::{self, Contest, InTurns, Messaging, Options, Streaming};
use crate::encrypted::Encrypted;
use crate::line_client::milliseconds;
use crate::rounds::Run;
use crate::tickets;
use crate::traffic::{Latency, Throughput};

const RELAY_FROM_CLIENT: &str = "10.0.1.2";
const RELAY_FROM_SERVER: &str = "10.0.2.2";
const SERVER: &str = "10.0.2.3:7000";
const SERVER_PORT: u16 = 7000;
const OURS_PORT: u16 = 7001;
const HAPROXY_PORT: u16 = 7002;
const SOCAT_PORT: u16 = 7003;

/// The beginning of HAProxy's configuration, with which it does best here. It decides itself when
/// to splice. Its buffer, which is also the size of its pipes' fillings, is larger than by default.
pub(crate) const HAPROXY: &str = "
global
    tune.bufsize 65536
defaults
    mode tcp
    option splice-auto
    timeout connect 5s
    timeout client 1h
    timeout server 1h
";

/// Size of socat's buffer in bytes, with which it does best here. Its default of 8 KiB makes it
/// four times slower.
const SOCAT_BUFFER: &str = "1048576";

/// The references, each with the argument that makes it print its version.
const REFERENCES: [(&str, &str); 5] = [
    ("haproxy", "-v"),
    ("socat", "-V"),
    ("ssh", "-V"),
    ("stunnel", "-version"),
    ("wireguard-go", "--version"),
];

/// The relay's data plane with a key from the standard input.
#[derive(Debug, Args)]
pub(crate) struct UnderTest {
    #[arg(long)]
    listen: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Ours,
    HaProxy,
    Socat,
}

impl Tool {
    const ALL: [Self; 3] = [Self::Ours, Self::HaProxy, Self::Socat];

    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "isthmus",
            Self::HaProxy => "HAProxy",
            Self::Socat => "socat",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Ours => OURS_PORT,
            Self::HaProxy => HAPROXY_PORT,
            Self::Socat => SOCAT_PORT,
        }
    }
}

/// All hosts and programs that run during a measurement of the relay.
struct Setup {
    client: Host,
    key: Secret,
    /// The server's standard input, which takes tickets that the server dials out with.
    server_stdin: ChildStdin,
    tools: Vec<(Tool, Running)>,
    _server: Running,
    _hosts: [Host; 2],
}

/// Measures, writes the results, and returns whether every bar holds.
///
/// # Errors
/// A reference isn't installed, or the results can't be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    for (tool, argument) in REFERENCES {
        Command::new(tool)
            .arg(argument)
            .output()
            .with_context(|| format!("cannot run {tool}; is it installed?"))?;
    }
    let tools = REFERENCES.map(|(tool, argument)| (tool.to_owned(), argument));
    let mut run = Run::begin("relay", &options.rounds, &tools)?;
    let duration = *options.duration;
    run.part(2, contest::cases::<Setup>(""), || Ok(InTurns { contest: Setup::new()?, duration }))?;
    run.part(1, contest::cases::<Encrypted>("encrypted, "), || {
        Ok(InTurns { contest: Encrypted::up()?, duration })
    })?;
    run.finish()
}

impl Setup {
    fn new() -> anyhow::Result<Self> {
        let [client, middle, server] = [Host::new()?, Host::new()?, Host::new()?];
        client.connect(&middle, "near", ("10.0.1.1/24", &format!("{RELAY_FROM_CLIENT}/24")))?;
        middle.connect(&server, "far", (&format!("{RELAY_FROM_SERVER}/24"), "10.0.2.3/24"))?;

        let mut serving = itself(&server)?;
        serving.args(["traffic", "serve", "--listen", SERVER]);
        serving.args(["--relay", &format!("{RELAY_FROM_SERVER}:{OURS_PORT}")]);
        let (serving, server_stdin) = start(serving)?;
        server.wait_for_listener(SERVER_PORT)?;

        let key = Secret::random();
        let mut ours = itself(&middle)?;
        ours.args(["relay-under-test", "--listen", &format!("0.0.0.0:{OURS_PORT}")]);
        let (ours, mut stdin) = start(ours)?;
        stdin.write_all(&key.expose())?;

        let mut haproxy = middle.command("haproxy");
        haproxy.args(["-db", "-q", "-f", "/dev/stdin"]);
        let (haproxy, mut stdin) = start(haproxy)?;
        write!(stdin, "{HAPROXY}listen relay\n    bind :{HAPROXY_PORT}\n    server server {SERVER}\n")?;
        drop(stdin);

        let mut socat = middle.command("socat");
        socat.args(["-b", SOCAT_BUFFER]);
        socat.arg(format!("TCP-LISTEN:{SOCAT_PORT},fork,reuseaddr,nodelay"));
        socat.arg(format!("TCP:{SERVER},nodelay"));
        let (socat, _) = start(socat)?;

        let tools = vec![(Tool::Ours, ours), (Tool::HaProxy, haproxy), (Tool::Socat, socat)];
        for tool in Tool::ALL {
            middle
                .wait_for_listener(tool.port())
                .with_context(|| format!("{} did not start; is it installed?", tool.name()))?;
        }
        Ok(Self { client, key, server_stdin, tools, _server: serving, _hosts: [middle, server] })
    }

    /// Process id of a tool.
    fn pid(&self, tool: Tool) -> anyhow::Result<u32> {
        let found = self.tools.iter().find(|(candidate, _)| *candidate == tool);
        found.map(|(_, running)| running.0.id()).context("no such tool")
    }

    /// Runs the client against a tool. If the tool is the relay, also has the server dial its end
    /// of each connection.
    fn client<T: DeserializeOwned>(
        &mut self,
        what: &str,
        tool: Tool,
        connections: usize,
        duration: Duration,
        arguments: &[&str],
    ) -> anyhow::Result<T> {
        let mut command = itself(&self.client)?;
        command.args(["traffic", what, &format!("{RELAY_FROM_CLIENT}:{}", tool.port())]);
        command.args(["--duration", &milliseconds(duration)]).args(arguments).stdout(Stdio::piped());
        if tool == Tool::Ours {
            command.arg("--tickets");
        }
        let (mut running, mut stdin) = start(command)?;
        if tool == Tool::Ours {
            for _ in 0..connections {
                let [initiator, acceptor] = tickets::pair(&self.key);
                stdin.write_all(&initiator)?;
                self.server_stdin.write_all(&acceptor)?;
            }
        }
        let mut printed = String::new();
        let mut stdout = running.0.stdout.take().context("no output")?;
        stdout.read_to_string(&mut printed)?;
        let status = running.0.wait()?;
        ensure!(status.success(), "measuring {} failed: {status}", tool.name());
        serde_json::from_str(&printed).with_context(|| format!("measuring {} gave {printed:?}", tool.name()))
    }
}

impl Contest for Setup {
    const NAMES: &'static [&'static str] = &[Tool::Ours.name(), Tool::HaProxy.name(), Tool::Socat.name()];

    fn latency(&mut self, tool: usize, duration: Duration) -> anyhow::Result<Messaging> {
        let tool = Tool::ALL[tool];
        let before = cpu_time(self.pid(tool)?)?;
        let found: Latency = self.client("ping", tool, 1, duration, &[])?;
        let spent = cpu_time(self.pid(tool)?)?.saturating_sub(before).as_secs_f64();
        ensure!(spent > 0.0, "{} carried messages in no processor time at all", tool.name());
        Ok(Messaging::new(found, spent))
    }

    fn streaming(&mut self, tool: usize, streams: usize, duration: Duration) -> anyhow::Result<Streaming> {
        let tool = Tool::ALL[tool];
        let pid = self.pid(tool)?;
        let before = cpu_time(pid)?;
        let number = streams.to_string();
        let Throughput { bytes, seconds } =
            self.client("stream", tool, streams, duration, &["--streams", &number])?;
        let spent = cpu_time(pid)?.saturating_sub(before).as_secs_f64();
        ensure!(spent > 0.0, "{} carried {bytes} bytes in no processor time at all", tool.name());
        Ok(Streaming::new(bytes, seconds, spent))
    }

    fn finish(self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A command that runs this program on a host.
fn itself(host: &Host) -> anyhow::Result<Command> {
    Ok(host.command(std::env::current_exe().context("cannot find this program")?))
}

fn start(mut command: Command) -> anyhow::Result<(Running, ChildStdin)> {
    let mut child = command
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let stdin = child.stdin.take().context("no standard input")?;
    Ok((Running(child), stdin))
}

/// Runs the data plane alone, without a broker.
///
/// # Errors
/// The data plane can't be started.
pub(crate) fn run_under_test(options: &UnderTest) -> anyhow::Result<()> {
    let mut key = [0; 32];
    std::io::stdin().read_exact(&mut key).context("no key on the standard input")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let workers = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let (plane, _failure_rx) = Plane::start(workers)?;
        let (_keys_tx, keys_rx) = watch::channel(Some(Secret::new(key).into()));
        let listener = TcpListener::bind(options.listen).await?;
        admission::serve(
            Intake::open(listener),
            Limits::default(),
            keys_rx,
            Arc::new(plane),
            Arc::default(),
            std::future::pending(),
        )
        .await;
        Ok(())
    })
}
