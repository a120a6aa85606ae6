//! What a site's batch scheduler says: which nodes it has, and when it would give some.

use std::time::Duration;

use anyhow::bail;
use isthmus_front::format::{count, site};
use isthmus_front::output::one_line;
use isthmus_rpc::grpc;
use isthmus_service::clock::humane;
use isthmus_wire::proto::local_client::LocalClient;
use isthmus_wire::proto::{NodesWanted, PilotOrder, SchedulerReply, SchedulerRequest, estimate};
use tokio::time::timeout;
use tonic::transport::Channel;

/// How long a scheduler may take to answer. The commands of schedulers that are away end sooner.
const ANSWER: Duration = Duration::from_secs(60);

/// Asks the scheduler of a site, through the agent that submits batch jobs there.
///
/// # Errors
/// Why there is no answer.
pub(crate) async fn ask(
    mut agent: LocalClient<Channel>,
    request: SchedulerRequest,
) -> Result<SchedulerReply, String> {
    match timeout(ANSWER, agent.scheduler(request)).await {
        Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
        Ok(Err(status)) => Err(grpc::reason(&status)),
        Ok(Ok(reply)) => Ok(reply.into_inner()),
    }
}

/// When schedulers would give what is ordered, in words, in the order of the orders. Nothing is
/// submitted.
///
/// # Errors
/// If a scheduler doesn't answer.
pub(crate) async fn starts_of(
    agent: &LocalClient<Channel>,
    orders: &[PilotOrder],
) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for order in orders {
        lines.push(start_of(agent.clone(), order).await?);
    }
    Ok(lines)
}

async fn start_of(agent: LocalClient<Channel>, order: &PilotOrder) -> anyhow::Result<String> {
    let wanted = order.wanted.clone().unwrap_or_default();
    let request = SchedulerRequest {
        node: order.node.clone(),
        virtual_address: order.virtual_address,
        estimate: Some(wanted.clone()),
    };
    let place = site(&order.node);
    match ask(agent, request).await {
        Ok(reply) => {
            let answer = reply.estimate.and_then(|estimate| estimate.kind);
            Ok(words((place, &reply.scheduler), &wanted, answer.as_ref()))
        }
        Err(reason) => bail!("the scheduler of {place} doesn't say when nodes would start: {reason}"),
    }
}

fn words((site, scheduler): (&str, &str), wanted: &NodesWanted, answer: Option<&estimate::Kind>) -> String {
    let nodes = count(wanted.nodes.into(), "node");
    let cores = match wanted.cores {
        0 => String::new(),
        cores => format!(" with {}", count(cores.into(), "core")),
    };
    let when = match answer {
        Some(estimate::Kind::StartsInSeconds(0)) => "at once".to_owned(),
        Some(estimate::Kind::StartsInSeconds(seconds)) => {
            format!("in about {}", humane(Duration::from_secs(*seconds)))
        }
        Some(estimate::Kind::Never(why)) => format!("never: {}", one_line(why)),
        Some(estimate::Kind::Unknown(why)) if !why.is_empty() => {
            format!("nobody knows when: {}", one_line(why))
        }
        Some(estimate::Kind::Unknown(_)) | None => "nobody knows when".to_owned(),
    };
    format!("{nodes}{cores} of {} at {site}: {when}", one_line(scheduler))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_told() {
        let wanted = NodesWanted { nodes: 2, cores: 4, ..NodesWanted::default() };
        for (answer, want) in [
            (Some(estimate::Kind::StartsInSeconds(0)), "at once"),
            (Some(estimate::Kind::StartsInSeconds(300)), "in about 5 min"),
            (Some(estimate::Kind::Never("too many".to_owned())), "never: too many"),
            (Some(estimate::Kind::Unknown("Priority".to_owned())), "nobody knows when: Priority"),
            (None, "nobody knows when"),
        ] {
            let text = words(("x", "Slurm"), &wanted, answer.as_ref());
            assert_eq!(text, format!("2 nodes with 4 cores of Slurm at x: {want}"));
        }
    }
}
