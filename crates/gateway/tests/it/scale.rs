//! Messages at the broker grow with sites, and no answer with nodes: a real
//! broker, 100 gateways that are attached to it, and the 10,000 nodes that they
//! announced, over TLS on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use isthmus_broker::state::State;
use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::signed::contact::sign_contact;
use isthmus_identity::{Credentials, Identity, Role};
use isthmus_rpc::grpc;
use isthmus_wire::bounds::{MESSAGE_BYTES, encoded_len};
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{self, attach_down, attach_up};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use crate::grid::{Grid, SOON, list, soon};

const SITES: usize = 100;
const NODES: usize = 100;
/// How long messages are counted while nothing changes.
const IDLE: Duration = Duration::from_secs(3);

/// A gateway, as the broker sees it: it announces its nodes and counts messages.
struct Site {
    name: String,
    gateway: Identity,
    /// The credentials of its nodes' agents.
    agents: Vec<Credentials>,
    client: RegistryClient<Channel>,
    up_tx: mpsc::Sender<proto::AttachUp>,
    welcomed: watch::Receiver<usize>,
    /// Messages from the broker, except welcomes and orders to measure.
    received: Arc<AtomicUsize>,
    /// Orders to measure, without orders to be measured.
    ordered: Arc<AtomicUsize>,
    directories: watch::Receiver<proto::Directory>,
}

fn site_name(index: usize) -> String {
    format!("site{index:03}")
}

fn node(index: usize) -> proto::NodeUp {
    let sight = |relay: &str| proto::RelaySight {
        relay: relay.to_owned(),
        address: format!("{relay}.example.org:7720"),
        round_trip_us: 12_345,
        failure: String::new(),
    };
    let seen = proto::Seen {
        way_out: proto::WayOut::Yes.into(),
        relays: ["hub", "far"].map(sight).to_vec(),
        measured_unix_ms: 1,
        ..proto::Seen::default()
    };
    proto::NodeUp {
        node: format!("node{index:03}"),
        address: format!("10.0.0.{index}:7730"),
        host_name: format!("node{index:03}.cluster.example.org"),
        owner: if index.is_multiple_of(10) { "anna" } else { "bob" }.to_owned(),
        slots: 64,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        architecture: "x86_64".to_owned(),
        seen: Some(seen),
        ..proto::NodeUp::default()
    }
}

/// The identity of a node's agent.
fn member(site: usize, index: usize) -> Identity {
    let proto::NodeUp { node, owner, .. } = node(index);
    let (site, node) = (site_name(site).parse().unwrap(), node.parse().unwrap());
    Identity::new(Role::Agent, Some(site), Some(node), Some(owner.parse().unwrap())).unwrap()
}

fn issue(state: &State, identity: &Identity) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let certificate = state.authority.sign(identity, request.public_key(), SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, state.authority.certificate_pem(), &state.grid.address).unwrap()
}

/// A node's announcement, signed by its agent for its gateway.
fn announced(agent: &Credentials, gateway: &Identity, up: proto::NodeUp) -> attach_up::Kind {
    let attachment = up.attachment;
    let signed = sign_contact(agent, gateway, (attachment, [1; 16]), vec![up.address.clone()]).unwrap();
    attach_up::Kind::NodeUp(proto::NodeUp { signed: Some(signed), ..up })
}

impl Site {
    async fn attach(state: &State, index: usize) -> Self {
        let name = site_name(index);
        let identity = Identity::new(Role::Gateway, Some(name.parse().unwrap()), None, None).unwrap();
        let credentials = issue(state, &identity);
        let channel = grpc::connect(credentials.upstream(), "broker", &credentials).await.unwrap();
        let mut client = RegistryClient::new(channel);
        let (up_tx, up_rx) = mpsc::channel(NODES + 1);
        let hello = proto::GatewayUp {
            site: name.clone(),
            outside_address: format!("gateway.{name}.example.org:7740"),
            ..proto::GatewayUp::default()
        };
        let agents: Vec<_> = (0..NODES).map(|node| issue(state, &member(index, node))).collect();
        let nodes = agents.iter().enumerate().map(|(index, agent)| announced(agent, &identity, node(index)));
        for kind in std::iter::once(attach_up::Kind::GatewayUp(hello)).chain(nodes) {
            up_tx.send(proto::AttachUp { kind: Some(kind) }).await.unwrap();
        }
        let mut down = client.attach(ReceiverStream::new(up_rx)).await.unwrap().into_inner();
        let (welcomed_tx, welcomed) = watch::channel(0);
        let (directories_tx, directories) = watch::channel(proto::Directory::default());
        let (received, ordered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, orders) = (received.clone(), ordered.clone());
        tokio::spawn(async move {
            loop {
                let message = match down.message().await {
                    Ok(Some(message)) => message,
                    ended => return println!("an attachment ended: {:?}", ended.err()),
                };
                assert!(encoded_len(&message) < MESSAGE_BYTES);
                match message.kind.unwrap() {
                    attach_down::Kind::Welcome(_) => welcomed_tx.send_modify(|count| *count += 1),
                    attach_down::Kind::Directory(directory) => {
                        directories_tx.send_replace(directory);
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                    attach_down::Kind::Refusal(refusal) => println!("a node is refused: {refusal:?}"),
                    attach_down::Kind::Measure(order) => {
                        orders.fetch_add(usize::from(order.initiator.is_empty()), Ordering::SeqCst);
                    }
                    _ => drop(counted.fetch_add(1, Ordering::SeqCst)),
                }
            }
        });
        Self { name, gateway: identity, agents, client, up_tx, welcomed, received, ordered, directories }
    }

    async fn send(&self, kind: attach_up::Kind) {
        self.up_tx.send(proto::AttachUp { kind: Some(kind) }).await.unwrap();
    }

    /// Waits until the broker has welcomed this many nodes.
    async fn welcomed(&mut self, nodes: usize) {
        let waiting = self.welcomed.wait_for(|count| *count >= nodes);
        let all = matches!(tokio::time::timeout(4 * SOON, waiting).await, Ok(Ok(_)));
        let (count, name) = (*self.welcomed.borrow(), &self.name);
        assert!(all, "{count} of {nodes} nodes of {name} are welcomed within {:?}", 4 * SOON);
    }

    async fn lookup(&self, name: &str) -> proto::LookupReply {
        let request = proto::LookupRequest { name: name.to_owned(), ..Default::default() };
        soon("a lookup", self.client.clone().lookup(request)).await.unwrap().into_inner()
    }
}

fn received(sites: &[Site]) -> usize {
    sites.iter().map(|site| site.received.load(Ordering::SeqCst)).sum()
}

fn ordered(sites: &[Site]) -> usize {
    sites.iter().map(|site| site.ordered.load(Ordering::SeqCst)).sum()
}

/// Waits until gateways have received `want` messages, and a while more for others;
/// returns their number.
async fn received_since(sites: &[Site], before: usize, want: usize) -> usize {
    soon("the messages", async {
        while received(sites) - before < want {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    received(sites) - before
}

async fn a_page(client: &RegistryClient<Channel>, page_token: Vec<u8>, records: Records) -> proto::ListReply {
    let request = proto::ListRequest { page_token, records: Some(records), ..Default::default() };
    let reply = soon("a page", client.clone().list(request)).await.unwrap().into_inner();
    assert!(encoded_len(&reply) < MESSAGE_BYTES, "{}", encoded_len(&reply));
    reply
}

/// Answers with sums, pages and lookups are within the bound of a message.
async fn records(admin: &RegistryClient<Channel>) {
    let listed = a_page(admin, Vec::new(), Records::Sites(proto::SiteFilter::default())).await;
    println!("sums of all sites: {} bytes", encoded_len(&listed));
    assert_eq!((listed.sites.len(), listed.next_page_token.len()), (SITES, 0));
    let up: u32 = listed.sites.iter().map(|site| site.nodes_up).sum();
    let slots: u64 = listed.sites.iter().map(|site| site.slots).sum();
    assert_eq!((up as usize, slots as usize), (SITES * NODES, SITES * NODES * 64));

    let (mut pages, mut names, mut token) = (0, Vec::new(), Vec::new());
    loop {
        let reply =
            a_page(admin, token, Records::Nodes(proto::NodeFilter { seen: true, ..Default::default() }))
                .await;
        names.extend(reply.nodes.into_iter().map(|node| node.name));
        (pages, token) = (pages + 1, reply.next_page_token);
        if token.is_empty() {
            break;
        }
    }
    println!("all nodes, with their findings: {pages} pages");
    assert!(
        pages > 1
            && names.is_sorted_by_key(|name| name.split_once('.').map(|(node, site)| (site, node)).unwrap())
    );
    names.dedup();
    assert_eq!(names.len(), SITES * NODES);

    let own = proto::NodeFilter {
        sites: vec![site_name(7), site_name(8)],
        owner: "anna".to_owned(),
        up: true,
        ..Default::default()
    };
    let listed = a_page(admin, Vec::new(), Records::Nodes(own)).await;
    println!("one owner's nodes of two sites: {} bytes", encoded_len(&listed));
    assert_eq!((listed.nodes.len(), listed.next_page_token.len()), (20, 0));
}

/// A node's change goes to the gateways that looked it up, and to no others.
/// Findings that no plan depends on go to none.
async fn changes(sites: &mut [Site]) {
    let name = format!("node001.{}", sites[0].name);
    for site in &sites[1..4] {
        let found = site.lookup(&name).await;
        assert!(encoded_len(&found) < MESSAGE_BYTES);
        assert_eq!(found.node.unwrap().name, name);
    }
    for (what, port, want) in [("looked up by three", 7731_u16, 3), ("looked up by none since", 7732, 0)] {
        let before = received(sites);
        let attachment = port.into();
        let moved = proto::NodeUp { address: format!("10.0.9.9:{port}"), attachment, ..node(1) };
        let site = &sites[0];
        site.send(announced(&site.agents[1], &site.gateway, moved)).await;
        let expected = NODES + usize::from(port) - 7730;
        sites[0].welcomed(expected).await;
        let messages = received_since(sites, before, want).await;
        println!("messages for a change of a node {what}: {messages}");
        assert_eq!(messages, want, "{what}");
    }
    let before = received(sites);
    let found = |index| proto::NodeSeen { node: node(index).node, seen: node(index).seen };
    for site in sites.iter() {
        let nodes = (0..NODES).map(found).collect();
        site.send(attach_up::Kind::NodesSeen(proto::NodesSeen { nodes })).await;
    }
    let messages = received_since(sites, before, 0).await;
    println!("messages for new round trips of all nodes: {messages}, for {SITES} that were sent");
    assert_eq!(messages, 0);
}

/// The directory goes to every gateway once for many changes.
async fn sizes_of_the_directory(grid: &Grid, sites: &mut [Site]) {
    let before = received(sites);
    let mut relays = Vec::new();
    for index in 0..40 {
        relays.push(grid.relay(&format!("relay{index}")).await);
    }
    for site in sites.iter_mut() {
        let full = |directory: &proto::Directory| directory.relays.len() == 32;
        let directory = soon("the directory", site.directories.wait_for(full)).await.unwrap().clone();
        assert!(encoded_len(&directory) < MESSAGE_BYTES / 16, "{}", encoded_len(&directory));
    }
    let messages = received(sites) - before;
    println!("messages for 40 relays that attach one after another: {messages}");
    let client = sites[0].client.clone();
    assert_eq!(list(&client, Records::Relays(proto::RelayFilter::default())).await.relays.len(), 40);
}

/// Tests that count messages, which run one at a time: a busy machine makes some of its own.
mod alone {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ten_thousand_nodes_on_a_hundred_sites() {
        let members = (0..SITES).flat_map(|site| (0..NODES).map(move |node| member(site, node)));
        let grid = Grid::start_with(&members.collect::<Vec<_>>()).await;
        let state = grid.state();
        let started = Instant::now();
        let mut sites = Vec::new();
        for index in 0..SITES {
            sites.push(Site::attach(&state, index).await);
        }
        for site in &mut sites {
            site.welcomed(NODES).await;
        }
        println!("{SITES} gateways with {NODES} nodes each: {:?}", started.elapsed());
        let channel = grpc::connect(&grid.broker_address.to_string(), "broker", &grid.admin()).await.unwrap();
        let admin = RegistryClient::new(channel);

        records(&admin).await;

        // No message arrives without a change, but for orders to measure: a site takes
        // part in one measurement in 10 s.
        let before = (received(&sites), ordered(&sites));
        tokio::time::sleep(IDLE).await;
        let idle = (received(&sites) - before.0, ordered(&sites) - before.1);
        println!("messages in {IDLE:?} without a change: {}; orders to measure: {}", idle.0, idle.1);
        assert!(idle.0 == 0 && idle.1 <= SITES / 2, "{idle:?}");

        changes(&mut sites).await;
        sizes_of_the_directory(&grid, &mut sites).await;
        println!("all of it: {:?}", started.elapsed());
    }
}
