//! Round trip and bandwidth to another node, over a connection opened along the plan
//! like any other. TLS proves that both ends are agents of the grid.
//!
//! | module | what |
//! |---|---|
//! | `exchange` | the protocol over the connection |
//! | `holes` | whether large packets vanish |
//! | `doubt` | whether a node is reached directly though a relay did not reach it |
//! | `serving` | serves measurements of other nodes, as the broker orders them |
mod doubt;
mod exchange;
pub(crate) mod holes;
pub(crate) mod serving;

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use exchange::{Measured, measure};
use isthmus_carry::TcpInfo;
use isthmus_plan::limits;
use isthmus_reach::ControlPlane;
use isthmus_reach::Purpose;
use isthmus_service::clock::micros;
use isthmus_service::clock::unix_ms;
use isthmus_wire::proto::{self, attach_up};
use tokio::sync::{Mutex, mpsc};

use crate::jobs::node::Node;

/// How long a measurement may take over an open connection, on a way of usual length. The other
/// side has the same limit.
const DEADLINE: Duration = Duration::from_secs(15);
/// How many round trips the opening of a connection takes at least: TCP's and TLS's.
const OPENING: u32 = 2;
/// How long the opening of the connection may take, over every step of a plan.
const REACH_DEADLINE: Duration = Duration::from_secs(40);
/// Most orders to measure that wait for the present measurement to end.
const WAITING: usize = 256;
/// Most characters of a failure's text that are sent.
const MOST_TEXT: usize = 1000;

/// Measures as the broker orders, and notes the broker's orders that let others measure this node.
/// A new order replaces a measurement in the background. Never returns.
pub(crate) async fn carry_out(node: &Arc<Node>, orders: &Mutex<mpsc::Receiver<proto::MeasureOrder>>) {
    let mut orders = orders.lock().await;
    let mut waiting = VecDeque::new();
    loop {
        let order = match waiting.pop_front() {
            Some(order) => order,
            None => next(node, &mut orders).await,
        };
        let measuring = report_or_hole(node, &order);
        tokio::pin!(measuring);
        let report = loop {
            tokio::select! {
                report = &mut measuring => break Some(report),
                later = next(node, &mut orders), if waiting.len() < WAITING => {
                    waiting.push_back(later);
                    if order.background {
                        break None;
                    }
                }
            }
        };
        if let Some(report) = report {
            node.upstream().send(attach_up::Kind::Measured(report)).await;
        }
    }
}

/// The next order to measure. Notes the orders that come before it and let others measure this
/// node.
async fn next(node: &Node, orders: &mut mpsc::Receiver<proto::MeasureOrder>) -> proto::MeasureOrder {
    loop {
        match orders.recv().await {
            Some(order) if order.initiator.is_empty() => return order,
            Some(order) => node.measuring().ordered(&order),
            // The agent ends.
            None => std::future::pending().await,
        }
    }
}

/// Measures as ordered, and reports. If a user waits and large packets vanish on the way, reports
/// that instead.
async fn report_or_hole(node: &Node, order: &proto::MeasureOrder) -> proto::PathReport {
    let destination = Ipv4Addr::from(order.destination);
    let measured = tokio::select! {
        biased;
        report = report(node, order) => return report,
        hole = holes::find(node, destination), if !order.background => hole,
    };
    let mut report = begun(node, order).await;
    let on = format!("between {} and {}", report.from, report.to);
    report.failure = shortened(&measured.text(&on));
    report.measured_unix_ms = unix_ms();
    report
}

/// A report with the names of both ends, and without measurements.
async fn begun(node: &Node, order: &proto::MeasureOrder) -> proto::PathReport {
    let name = node.upstream().contact(order.destination.into(), REACH_DEADLINE.into()).await;
    let to = name.ok().and_then(|found| found.node.as_ref().map(|node| node.name.clone()));
    proto::PathReport {
        from: node.name().to_string(),
        to: to.unwrap_or_default(),
        route: proto::Route::EndToEnd.into(),
        background: order.background,
        ..proto::PathReport::default()
    }
}

async fn report(node: &Node, order: &proto::MeasureOrder) -> proto::PathReport {
    let destination = Ipv4Addr::from(order.destination);
    let mut report = begun(node, order).await;
    let reaching = node.dialer().reach(destination, Purpose::tls(&node.tls().measure, None));
    match tokio::time::timeout(REACH_DEADLINE, reaching).await {
        Ok(Ok(reached)) => {
            report.route = reached.route.into();
            report.dial = reached.dial.into();
            report.relay = reached.relay;
            report.failed = reached.failures.iter().map(|reason| shortened(reason)).collect();
            report.setup_us = micros(reached.setup);
            // The other end decides for itself whether it allows transfers.
            let transfers = !order.background || order.transfer && node.jobs().is_empty();
            let measuring = async {
                let mut stream = reached.carrier.encrypted()?;
                let measured = measure(&mut stream, transfers).await?;
                // The socket is a TCP socket.
                let tcp = TcpInfo::of(stream.get_ref().0).unwrap_or_default();
                io::Result::Ok((measured, tcp))
            };
            let deadline = 2 * limits::grown(DEADLINE, Some(reached.setup / OPENING));
            match tokio::time::timeout(deadline, measuring).await {
                Ok(Ok((measured, tcp))) => note(&mut report, measured, &tcp),
                Ok(Err(error)) => {
                    report.failure = format!("the connection broke while it was measured: {error}")
                }
                Err(_) => report.failure = format!("no measurement within {deadline:?}"),
            }
        }
        Ok(Err(error)) => report.failure = shortened(&error.to_string()),
        Err(_) => report.failure = format!("no connection within {REACH_DEADLINE:?}"),
    }
    report.measured_unix_ms = unix_ms();
    if order.try_direct {
        report.direct = Some(doubt::try_directly(node, destination).await);
    }
    report
}

fn note(report: &mut proto::PathReport, measured: Measured, tcp: &TcpInfo) {
    report.round_trip_us = micros(measured.round_trip).max(1);
    if let Some(bandwidth) = measured.bandwidth {
        report.sent_bytes_per_second = bandwidth.sent_bytes_per_second;
        report.received_bytes_per_second = bandwidth.received_bytes_per_second;
        report.loss_ppm = tcp.loss_ppm();
        report.transferred_unix_ms = unix_ms();
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}
