//! What isthmus is compared with: receivers without it, and two HAProxy on each
//! front-end, one of which encrypts what it sends to the other end.

use std::fs;
use std::net::Ipv4Addr;

use anyhow::Context as _;

use super::clusters::{FRONTS, HAPROXY_PORT, NODES, PLAIN_PORT, SEALED_HAPROXY_PORT, node};
use crate::confine::Running;
use crate::grid::Bench;
use crate::relay::HAPROXY;
use crate::tunnel::{self, itself, start, wait_for_listener};

/// Starts the receivers that work without isthmus.
pub(super) fn receivers(bench: &Bench) -> anyhow::Result<Vec<Running>> {
    let mut receivers = Vec::new();
    for site in ["plain-b", "into"] {
        for (number, port) in (1..=NODES).zip(PLAIN_PORT + 1..) {
            let node = node(bench, &format!("n{number}.{site}"))?;
            let mut serving = bench.lab().machine(&node.name)?.command(itself()?);
            serving.args(["traffic", "serve", "--listen", &format!("{}:{port}", node.address)]);
            receivers.push(start(serving)?);
            wait_for_listener(bench, node, node.address, port)?;
        }
    }
    Ok(receivers)
}

/// What two proxies do between the front-ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Between {
    /// They pass on plain bytes, which the kernel splices.
    Plain,
    /// They speak TLS, as those of [`tunnel`] do.
    Sealed,
}

/// Starts both HAProxy. The near one passes connections on to the far one at `beyond`, which passes
/// them on to the nodes.
pub(super) fn proxies(bench: &Bench, beyond: Ipv4Addr, between: Between) -> anyhow::Result<Vec<Running>> {
    let (head, first_port, [to_far, at_far]) = match between {
        Between::Plain => (HAPROXY, HAPROXY_PORT + 1, Default::default()),
        Between::Sealed => {
            tunnel::certificate(bench, node(bench, FRONTS[1])?)?;
            (tunnel::HAPROXY, SEALED_HAPROXY_PORT + 1, tunnel::haproxy_tls(bench))
        }
    };
    let mut processes = Vec::new();
    for (front, far) in FRONTS.into_iter().zip([false, true]) {
        let mut config = head.to_owned();
        for (number, port) in (1..=NODES).zip(first_port..) {
            let (bind, next) = if far {
                let receiver = node(bench, &format!("n{number}.into"))?.address;
                (at_far.as_str(), format!("{receiver}:{}", usize::from(PLAIN_PORT) + number))
            } else {
                ("", format!("{beyond}:{port} {to_far}"))
            };
            config += &format!("listen receiver{number}\n bind :{port} {bind}\n server next {next}\n");
        }
        let file = bench.scratch().join(format!("haproxy-{front}-{first_port}.cfg"));
        fs::write(&file, config)?;
        let mut haproxy = bench.lab().machine(front)?.command("haproxy");
        haproxy.args(["-db", "-q", "-f"]).arg(&file);
        processes.push(start(haproxy)?);
        let node = node(bench, front)?;
        wait_for_listener(bench, node, node.address, first_port)
            .context("HAProxy did not start; is it installed?")?;
    }
    Ok(processes)
}
