//! The encrypted ways from one node to another: isthmus's agents, `ssh -L`, and
//! pairs of HAProxy and of stunnel with TLS. All with AES-128-GCM.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::account::{cpu_time, own_cpu_time};
use crate::confine::{Running, wait_for};
use crate::grid::{Bench, Node, words};
use crate::line_client::LineClient;

/// The port at which the job's server listens. It isn't [`SERVER_PORT`], as both servers share the
/// loopback interface.
pub(crate) const JOB_PORT: u16 = 7000;
/// The port on loopback at which the references' server listens.
const SERVER_PORT: u16 = 7001;
const SSH_PORT: u16 = 7002;
const HAPROXY_PORT: u16 = 7003;
const STUNNEL_PORT: u16 = 7004;
const HAPROXY_TLS_PORT: u16 = 7443;
const STUNNEL_TLS_PORT: u16 = 7444;
/// The cipher of HAProxy's and stunnel's TLS 1.3.
const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

/// A way between two nodes that is set up.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// The address that the client connects to.
    pub target: String,
    pub costs: Vec<Cost>,
    /// The tool's processes, which end with this value.
    pub _processes: Vec<Running>,
}

/// A process whose processor time counts as the tool's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cost {
    /// The process and its descendants count.
    Family(u32),
    /// The process alone counts, as an agent's descendants are the job's programs.
    Alone(u32),
}

impl Tunnel {
    /// Processor time so far of all the tool's processes at both ends.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.costs
            .iter()
            .map(|cost| match *cost {
                Cost::Family(pid) => cpu_time(pid),
                Cost::Alone(pid) => own_cpu_time(pid),
            })
            .sum()
    }

    /// The tunnel of isthmus's agents, for connections of a job.
    pub(crate) fn isthmus(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<Self> {
        Ok(Self {
            target: format!("{}:{JOB_PORT}", far.name),
            costs: vec![Cost::Alone(bench.agent(&near.name)?), Cost::Alone(bench.agent(&far.name)?)],
            _processes: Vec::new(),
        })
    }

    /// The tunnel of `ssh -L`, to the sshd of the benchmark's second node.
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

    /// The tunnel of two HAProxy. Connections are plain to the near one, TLS between them, and
    /// plain to the server.
    pub(crate) fn haproxy(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<Self> {
        let [to_far, at_far] = haproxy_tls(bench);
        let near_part =
            format!("bind 127.0.0.1:{HAPROXY_PORT}\n server far {}:{HAPROXY_TLS_PORT} {to_far}", far.address);
        let far_part = format!(
            "bind {}:{HAPROXY_TLS_PORT} {at_far}\n server program 127.0.0.1:{SERVER_PORT}",
            far.address
        );
        let listen = |part: String| format!("{HAPROXY}listen tunnel\n {part}\n");
        let parts = [
            (far, listen(far_part), (far.address, HAPROXY_TLS_PORT)),
            (near, listen(near_part), (Ipv4Addr::LOCALHOST, HAPROXY_PORT)),
        ];
        Self::pair(bench, ("haproxy", &["-db", "-q", "-f"]), parts)
    }

    /// The tunnel of two stunnel. Connections are plain to the near one, TLS between them, and
    /// plain to the server.
    pub(crate) fn stunnel(bench: &Bench, near: &Node, far: &Node) -> anyhow::Result<Self> {
        let at = |name: &str| bench.scratch().join(name).display().to_string();
        let far_part = format!(
            "accept = {}:{STUNNEL_TLS_PORT}\nconnect = 127.0.0.1:{SERVER_PORT}\ncert = {}\n",
            far.address,
            at("tls.pem")
        );
        let near_part = format!(
            "client = yes\naccept = 127.0.0.1:{STUNNEL_PORT}\nconnect = {}:{STUNNEL_TLS_PORT}\n\
             verifyChain = yes\nCAfile = {}\n",
            far.address,
            at("tls.crt")
        );
        let service = |part: String| {
            format!("{STUNNEL}[tunnel]\n{part}sslVersionMin = TLSv1.3\nciphersuites = {CIPHER}\n")
        };
        let parts = [
            (far, service(far_part), (far.address, STUNNEL_TLS_PORT)),
            (near, service(near_part), (Ipv4Addr::LOCALHOST, STUNNEL_PORT)),
        ];
        Self::pair(bench, ("stunnel", &[]), parts)
    }

    /// Starts two processes of a tool, each with its node, its configuration and the address at
    /// which it listens. The client connects to the last one.
    fn pair(
        bench: &Bench,
        (tool, options): (&str, &[&str]),
        parts: [(&Node, String, (Ipv4Addr, u16)); 2],
    ) -> anyhow::Result<Self> {
        let (mut processes, mut target) = (Vec::new(), String::new());
        for (node, config, (address, port)) in parts {
            let file = bench.scratch().join(format!("{tool}-{}.conf", node.name));
            fs::write(&file, config)?;
            let mut command = bench.lab().machine(&node.name)?.command(tool);
            command.args(options).arg(&file);
            processes.push(start(command)?);
            wait_for_listener(bench, node, address, port)?;
            target = format!("{address}:{port}");
        }
        let costs = processes.iter().map(|process| Cost::Family(process.0.id())).collect();
        Ok(Self { target, costs, _processes: processes })
    }
}

/// Makes the far end's certificate and key for the tools that use TLS: `tls.crt`, `tls.key`, and
/// both in `tls.pem`.
pub(crate) fn certificate(bench: &Bench, far: &Node) -> anyhow::Result<()> {
    let at = |name: &str| bench.scratch().join(name).display().to_string();
    let names = format!("subjectAltName=IP:{}", far.address);
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"])
        .args(["-days", "2", "-subj", "/CN=far", "-addext", &names])
        .args(["-keyout", &at("tls.key"), "-out", &at("tls.crt")])
        .stderr(Stdio::null())
        .status()
        .context("cannot run openssl")?;
    ensure!(made.success(), "openssl made no certificate");
    let both = fs::read_to_string(at("tls.crt"))? + &fs::read_to_string(at("tls.key"))?;
    Ok(fs::write(at("tls.pem"), both)?)
}

/// The beginning of HAProxy's configuration, with which it does best with TLS here. Larger buffers
/// than by default save time with several streams. It has as many threads as there are cores.
pub(crate) const HAPROXY: &str = "
global
    tune.bufsize 32768
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
";

/// How two HAProxy speak TLS, by the [`certificate`]: the options of the near one's `server`, and of
/// the far one's `bind`.
pub(crate) fn haproxy_tls(bench: &Bench) -> [String; 2] {
    let at = |name: &str| bench.scratch().join(name).display().to_string();
    let tls = format!("ssl-min-ver TLSv1.3 ciphersuites {CIPHER}");
    [
        format!("ssl verify required ca-file {} {tls}", at("tls.crt")),
        format!("ssl crt {} {tls}", at("tls.pem")),
    ]
}

/// The beginning of stunnel's configuration. stunnel has a thread for each connection.
const STUNNEL: &str = "
foreground = yes
pid =
debug = warning
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
";

/// Starts a job on two nodes, whose server is on the far one at [`JOB_PORT`]. Returns its client.
/// `options` are those of `isthmus run`.
pub(crate) fn job(bench: &Bench, near: &Node, far: &Node, options: &str) -> anyhow::Result<LineClient> {
    placed_job(bench, near, far, options, "")
}

/// [`job`], whose programs run where `place` says, an option of both.
pub(crate) fn placed_job(
    bench: &Bench,
    near: &Node,
    far: &Node,
    options: &str,
    place: &str,
) -> anyhow::Result<LineClient> {
    let (isthmus, program) = (bench.isthmus().display(), itself()?);
    let (near, far) = (&near.name, &far.name);
    let job = format!(
        "{isthmus} run --quiet {options} --nodes {near},{far} -- mpirun.openmpi \
         -n 1 --host {near} {program} traffic obey {place} : \
         -n 1 --host {far} {program} traffic serve {place} --listen 0.0.0.0:{JOB_PORT}"
    );
    LineClient::start(bench.standing(near, &words(&job))?)
}

/// Starts the server of the references.
pub(crate) fn server(bench: &Bench, far: &Node) -> anyhow::Result<Running> {
    let mut serving = bench.lab().machine(&far.name)?.command(itself()?);
    serving.args(["traffic", "serve", "--listen", &format!("127.0.0.1:{SERVER_PORT}")]);
    let serving = start(serving)?;
    wait_for_listener(bench, far, Ipv4Addr::LOCALHOST, SERVER_PORT)?;
    Ok(serving)
}

/// Starts the client of the references.
pub(crate) fn client(bench: &Bench, near: &Node) -> anyhow::Result<LineClient> {
    let mut client = bench.lab().machine(&near.name)?.command(itself()?);
    client.args(["traffic", "obey"]);
    LineClient::start(client)
}

/// Path of this program.
pub(crate) fn itself() -> anyhow::Result<String> {
    Ok(std::env::current_exe().context("cannot find this program")?.display().to_string())
}

/// Starts a command without an input. The process ends when the result is dropped.
pub(crate) fn start(mut command: Command) -> anyhow::Result<Running> {
    let child = command.stdin(Stdio::null()).spawn();
    Ok(Running(child.with_context(|| format!("cannot run {}", command.get_program().display()))?))
}

/// Waits until a program in the node can connect to the address.
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
