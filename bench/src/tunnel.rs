//! The encrypted ways from one node to another: isthmus's agents, `ssh -L`, and
//! a pair of HAProxy with TLS. All with AES-128-GCM.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::account::{cpu_time, own_cpu_time};
use crate::confine::{Running, wait_for};
use crate::grid::{Bench, Node};
use crate::line_client::LineClient;

/// Where the job's server listens; loopback is shared with the other one.
pub(crate) const JOB_PORT: u16 = 7000;
/// Where the server of the references listens, on loopback.
const SERVER_PORT: u16 = 7001;
const SSH_PORT: u16 = 7002;
const HAPROXY_PORT: u16 = 7003;
const TLS_PORT: u16 = 7443;

/// A way that stands.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// What the client connects to.
    pub target: String,
    costs: Vec<Cost>,
    _processes: Vec<Running>,
}

/// Whose processor time counts.
#[derive(Debug, Clone, Copy)]
enum Cost {
    /// The process and its descendants.
    Family(u32),
    /// The process alone: an agent's descendants are the job's programs.
    Alone(u32),
}

impl Tunnel {
    /// Processor time so far of all its processes at both ends.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.costs
            .iter()
            .map(|cost| match *cost {
                Cost::Family(pid) => cpu_time(pid),
                Cost::Alone(pid) => own_cpu_time(pid),
            })
            .sum()
    }

    /// The agents, for connections of a job.
    pub(crate) fn isthmus(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<Self> {
        Ok(Self {
            target: format!("{}:{JOB_PORT}", far.name),
            costs: vec![Cost::Alone(bench.agent(&near.name)?), Cost::Alone(bench.agent(&far.name)?)],
            _processes: Vec::new(),
        })
    }

    /// `ssh -L`, to the sshd of the second of the benchmark's nodes.
    pub(crate) fn ssh(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<Self> {
        let mut ssh = bench.lab().machine(&near.name)?.command(bench.ssh());
        ssh.args(["-N", "-c", "aes128-gcm@openssh.com", "-o", "ExitOnForwardFailure=yes"]);
        ssh.args(["-L", &format!("127.0.0.1:{SSH_PORT}:127.0.0.1:{SERVER_PORT}")]);
        ssh.arg(far.address.to_string());
        let ssh = start(ssh)?;
        wait_for_listener(bench, near, Ipv4Addr::LOCALHOST, SSH_PORT)?;
        Ok(Self {
            target: format!("127.0.0.1:{SSH_PORT}"),
            costs: vec![Cost::Family(ssh.0.id()), Cost::Family(bench.sshd(1)?)],
            _processes: vec![ssh],
        })
    }

    /// A pair of HAProxy: plain to the near one, TLS to the far one, plain to
    /// the server.
    pub(crate) fn haproxy(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<Self> {
        let at = |name: &str| bench.scratch().join(name).display().to_string();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"])
            .args([
                "-days",
                "2",
                "-subj",
                "/CN=far",
                "-addext",
                &format!("subjectAltName=IP:{}", far.address),
            ])
            .args(["-keyout", &at("tls.key"), "-out", &at("tls.crt")])
            .stderr(Stdio::null())
            .status()
            .context("cannot run openssl")?;
        ensure!(made.success(), "openssl made no certificate");
        fs::write(at("tls.pem"), fs::read_to_string(at("tls.crt"))? + &fs::read_to_string(at("tls.key"))?)?;
        let tls = "ssl-min-ver TLSv1.3 ciphersuites TLS_AES_128_GCM_SHA256";
        let near_part = format!(
            "bind 127.0.0.1:{HAPROXY_PORT}\n server far {}:{TLS_PORT} ssl verify required ca-file {} {tls}",
            far.address,
            at("tls.crt")
        );
        let far_part = format!(
            "bind {}:{TLS_PORT} ssl crt {} {tls}\n server program 127.0.0.1:{SERVER_PORT}",
            far.address,
            at("tls.pem")
        );
        let mut processes = Vec::new();
        for (node, part, address, port) in
            [(far, far_part, far.address, TLS_PORT), (near, near_part, Ipv4Addr::LOCALHOST, HAPROXY_PORT)]
        {
            let file = at(&format!("haproxy-{}.cfg", node.name));
            fs::write(&file, format!("{HAPROXY}listen tunnel\n {part}\n"))?;
            let mut haproxy = bench.lab().machine(&node.name)?.command("haproxy");
            haproxy.args(["-db", "-q", "-f", &file]);
            processes.push(start(haproxy)?);
            wait_for_listener(bench, node, address, port)?;
        }
        Ok(Self {
            target: format!("127.0.0.1:{HAPROXY_PORT}"),
            costs: processes.iter().map(|process| Cost::Family(process.0.id())).collect(),
            _processes: processes,
        })
    }
}

/// HAProxy as it does best here with TLS: larger buffers than by default save
/// time with several streams; it has as many threads as there are cores.
const HAPROXY: &str = "
global
    tune.bufsize 32768
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
";

/// The server of the references.
pub(crate) fn server(bench: &Bench, far: &Node) -> anyhow::Result<Running> {
    let mut serving = bench.lab().machine(&far.name)?.command(itself()?);
    serving.args(["traffic", "serve", "--listen", &format!("127.0.0.1:{SERVER_PORT}")]);
    let serving = start(serving)?;
    wait_for_listener(bench, far, Ipv4Addr::LOCALHOST, SERVER_PORT)?;
    Ok(serving)
}

/// The client of the references.
pub(crate) fn client(bench: &Bench, near: &Node) -> anyhow::Result<LineClient> {
    let mut client = bench.lab().machine(&near.name)?.command(itself()?);
    client.args(["traffic", "obey"]);
    LineClient::start(client)
}

/// This program.
pub(crate) fn itself() -> anyhow::Result<String> {
    Ok(std::env::current_exe().context("cannot find this program")?.display().to_string())
}

/// Starts a command without an input; it ends when the result is dropped.
pub(crate) fn start(mut command: Command) -> anyhow::Result<Running> {
    let child = command.stdin(Stdio::null()).spawn();
    Ok(Running(child.with_context(|| format!("cannot run {}", command.get_program().display()))?))
}

/// Waits until the node can connect to this listener.
pub(crate) fn wait_for_listener(
    bench: &Bench,
    node: &Node,
    address: Ipv4Addr,
    port: u16,
) -> anyhow::Result<()> {
    let address = SocketAddr::from((address, port));
    bench.lab().machine(&node.name)?.in_network(|| {
        wait_for(&format!("a listener at {address} in {}", node.name), || {
            std::net::TcpStream::connect(address).is_ok()
        })
    })?
}
