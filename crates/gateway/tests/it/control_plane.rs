//! Broker, gateways and enrolment together, over real TLS on loopback.

use std::time::{Duration, SystemTime};

use isthmus_identity::credentials::SigningRequest;
use isthmus_identity::signed;
use isthmus_identity::token::{BearerToken, Invitation, JoinToken};
use isthmus_identity::{Authority, Credentials, Role};
use isthmus_plan::Remedy;
use isthmus_rpc::{enrol, grpc, renewal};
use isthmus_service::mac::Secret;
use isthmus_wire::bounds::ENROLMENT_BYTES;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{
    self, Dial, attach_down, attach_up, dial_answer, dial_request, rendezvous_reply, rendezvous_request,
};
use isthmus_wire::reflect;
use isthmus_wire::ticket::{Side, Ticket};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::Code;

use crate::grid::{Attachment, Grid, address, list, soon};

#[tokio::test]
async fn tokens_are_good_once() {
    let grid = Grid::start().await;
    let token = grid.token(Role::Gateway, Some("alpha"), None);
    let credentials = enrol::join(&token, None, None).await.unwrap();
    assert_eq!(credentials.identity().server_name(), "gateway.alpha");
    assert_eq!(credentials.upstream(), grid.broker_address.to_string());
    let again = enrol::join(&token, None, None).await.unwrap_err().to_string();
    assert!(again.contains("used before"), "{again}");
}

#[tokio::test]
async fn bad_tokens_are_refused() {
    let grid = Grid::start().await;
    let gateway = grid.gateway("alpha").await;
    let via = gateway.address.to_string();
    let state = grid.state();
    let mint = |invitation: &Invitation| {
        JoinToken::mint(&state.join_key, state.authority.certificate(), invitation).unwrap()
    };
    let agent = |site, name| grid.invitation(Role::Agent, Some(site), name);
    let expired = SystemTime::now() - Duration::from_secs(600);
    let named = |name: &str| Some(name.parse().unwrap());

    for (what, token, name, via, want) in [
        (
            "expired",
            mint(&Invitation { expires: expired, ..agent("alpha", Some("n1")) }),
            None,
            Some(&via),
            "expired 10 min ago",
        ),
        ("another site's", mint(&agent("beta", Some("n1"))), None, Some(&via), "cannot reach gateway.beta"),
        (
            "another name's",
            mint(&agent("alpha", Some("n1"))),
            named("n2"),
            Some(&via),
            "for the name n1, not n2",
        ),
        ("without a name", mint(&agent("alpha", None)), None, Some(&via), "needs a name"),
        ("without a gateway", mint(&agent("alpha", Some("n1"))), None, None, "--via HOST"),
        (
            "cut short",
            mint(&agent("alpha", Some("n1"))).replace("isthmus-token-1.e", ""),
            None,
            Some(&via),
            "not a join token",
        ),
    ] {
        let error =
            soon(what, enrol::join(&token, name, via.map(String::as_str))).await.unwrap_err().to_string();
        assert!(error.contains(want), "{what}: {error}");
    }

    // A forged token that names this grid's broker: its holder finds that the broker's authority is
    // another.
    let forger = Authority::create("demo", SystemTime::now()).unwrap();
    let forge = |authority: &Authority| {
        let invitation = grid.invitation(Role::Gateway, Some("beta"), None);
        JoinToken::mint(&Secret::random(), authority.certificate(), &invitation).unwrap()
    };
    let forged = forge(&forger);
    let error = enrol::join(&forged, None, None).await.unwrap_err().to_string();
    assert!(error.contains("cannot reach broker"), "{error}");

    // A forged token with the grid's own authority: only the broker can tell.
    let channel =
        grpc::connect(&grid.broker_address.to_string(), "broker", &gateway.credentials).await.unwrap();
    let request = join_request(&forge(&state.authority), "");
    let status = EnrolmentClient::new(channel).join(request).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::PermissionDenied,
            "the join token was not made by this grid's broker, or the request was altered on its way"
        )
    );
}

#[tokio::test]
async fn a_gateway_enrols_agents_of_its_own_site_only() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let authority = grid.state().authority.certificate().clone();
    let channel =
        grpc::connect_unidentified(&alpha.address.to_string(), "gateway.alpha", authority).await.unwrap();
    for (role, site, name) in [
        (Role::Agent, Some("beta"), Some("n1")),
        (Role::Gateway, Some("alpha"), None),
        (Role::Relay, None, Some("r1")),
    ] {
        let request = join_request(&grid.token(role, site, name), "");
        let status = EnrolmentClient::new(channel.clone()).join(request).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{role}");
        assert!(status.message().starts_with("this gateway enrols agents of site alpha"), "{status}");
    }
}

/// Callers of `Join` have no certificate, so any host can send a request.
#[tokio::test]
async fn requests_to_join_are_bounded() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let authority = grid.state().authority.certificate().clone();
    for (address, name) in [(grid.broker_address, "broker"), (alpha.address, "gateway.alpha")] {
        let channel =
            grpc::connect_unidentified(&address.to_string(), name, authority.clone()).await.unwrap();
        let request =
            proto::JoinRequest { token: "x".repeat(ENROLMENT_BYTES), ..proto::JoinRequest::default() };
        let status = EnrolmentClient::new(channel).join(request).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{name}: {status}");
    }
}

#[tokio::test]
async fn nodes_find_one_another_and_receive_changes() {
    let grid = Grid::start().await;
    let (alpha, beta, gamma) =
        (grid.gateway("alpha").await, grid.gateway("beta").await, grid.gateway("gamma").await);
    let n1 = grid.agent(&alpha, "n1").await;
    let (mut n1_attached, n1_address) = n1.up("10.0.0.1:7730").await;
    let n2 = grid.agent(&alpha, "n2").await;
    let (_n2_attached, n2_address) = n2.up("10.0.0.2:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (far_attached, far_address) = far.up("10.0.0.1:7730").await;
    let friend = grid.agent(&gamma, "n1").await;
    let (_friend_attached, _) = friend.up("10.0.0.1:7730").await;
    assert_eq!((n1_address, n2_address, far_address), (address(1, 1), address(1, 2), address(2, 1)));
    let (_relay, _) = grid.relay("r1").await;

    assert_eq!(n1.plan("n2.alpha").await, (vec![Dial::Direct], false));
    assert_eq!(n1.plan("n1.beta").await, (vec![Dial::Relay], true));
    assert_eq!(n1.plan("n1.gamma").await, (vec![Dial::Relay], false), "a trusted pair");
    assert_eq!(n1.lookup("n9.beta").await.unwrap_err().code(), Code::NotFound);

    // The node moves: the agent that looked it up is notified, and finds it again.
    drop(far_attached);
    assert_eq!(n1_attached.changed().await, far_address);
    let (_moved, again) = far.up("10.0.0.77:7730").await;
    assert_eq!(again, far_address, "addresses are kept");
    loop {
        // Down and up are two changes. Between them the lookup shows it as down.
        let node = n1.lookup("n1.beta").await.unwrap().node.unwrap();
        if node.up {
            assert_eq!(node.address, "10.0.0.77:7730");
            break;
        }
        assert_eq!(n1_attached.changed().await, far_address);
    }
}

#[tokio::test]
async fn a_rendezvous_reaches_the_other_agent() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let near = grid.agent(&alpha, "n1").await;
    let (_near_attached, near_address) = near.up("10.0.0.1:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (mut far_attached, far_address) = far.up("10.0.0.1:7730").await;
    let way = rendezvous_request::Way::Relay(rendezvous_request::Relay::default());
    let request = proto::RendezvousRequest {
        destination: far_address,
        initiator: near_address,
        way: Some(way),
        ..Default::default()
    };
    let refused = near.client.clone().rendezvous(request.clone()).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::Unavailable, "no relay is attached to the broker")
    );
    assert_eq!(grpc::told(&refused).remedy, Some(Remedy::StartRelay));

    let (_relay, key) = grid.relay("r1").await;
    let reply = near.client.clone().rendezvous(request.clone()).await.unwrap().into_inner();
    let attach_down::Kind::Dial(dial) = far_attached.next().await else { panic!("not a request to dial") };
    assert_eq!((dial.node.as_str(), dial.initiator), ("n1", near_address));
    let (Some(rendezvous_reply::Way::Relay(near_at)), Some(dial_request::Way::Relay(far_at))) =
        (reply.way, dial.way)
    else {
        panic!("not a relay")
    };
    assert_eq!((&near_at.name, &near_at.address), (&far_at.name, &far_at.address));
    let open = |bytes: &[u8]| {
        let (ticket, mac) = Ticket::decode(bytes.try_into().unwrap()).unwrap();
        assert!(Secret::from_slice(&key).unwrap().verify(&ticket.signed_bytes(), &mac));
        ticket
    };
    let (ours, theirs) = (open(&near_at.ticket), open(&far_at.ticket));
    assert_eq!((ours.side, theirs.side), (Side::Initiator, Side::Acceptor));
    assert_eq!(ours.connection, theirs.connection);

    let stolen = proto::RendezvousRequest { initiator: far_address, ..request };
    let refused = near.client.clone().rendezvous(stolen).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn plans_follow_agents_findings() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let near = grid.agent(&alpha, "n1").await;
    let (near_attached, _) = near.up("10.0.0.1:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (far_attached, _) = far.up("10.0.0.1:7730").await;
    let (_relay, _) = grid.relay("r1").await;
    assert_eq!(near.plan("n1.beta").await, (vec![Dial::Relay], true));
    let seen = || {
        attach_up::Kind::Seen(proto::Seen {
            mapping: proto::Mapping::EndpointIndependent.into(),
            address: "192.0.2.1".to_owned(),
            way_out: proto::WayOut::Yes.into(),
            ..proto::Seen::default()
        })
    };
    far_attached.send(seen()).await;
    near_attached.send(seen()).await;
    soon("both are known", async {
        while near.plan("n1.beta").await.0 != [Dial::Punch, Dial::Relay] {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let explained = near.explain("n1.beta", "n1.alpha").await.unwrap();
    assert_eq!(explained.plan.unwrap().steps[0].dial(), Dial::Punch);
    assert_eq!(explained.initiator.unwrap().seen.unwrap().address, "192.0.2.1");
    let unknown = near.explain("n1.beta", "n9.alpha").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

/// A relay may be down while an agent reports that its node can't dial out. The agent doesn't
/// repeat its report.
#[tokio::test]
async fn a_node_without_a_way_out_is_believed_once_a_relay_answers_its_gateway() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let near = grid.agent(&alpha, "n1").await;
    let (near_attached, _) = near.up("10.0.0.1:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (_far_attached, _) = far.up("10.0.0.1:7730").await;
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_relay, _) = grid.relay_at("r1", &relay.local_addr().unwrap().to_string()).await;
    let (asked_tx, mut asked_rx) = watch::channel(0);
    let (is_up_tx, is_up_rx) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut stream, from) = relay.accept().await.unwrap();
            asked_tx.send_modify(|asked| *asked += 1);
            if *is_up_rx.borrow() {
                stream.read_exact(&mut [0; reflect::QUESTION_LEN]).await.unwrap();
                stream.write_all(&reflect::encode_answer(from)).await.unwrap();
            }
        }
    });
    let enclosed = proto::Seen { way_out: proto::WayOut::No.into(), ..proto::Seen::default() };
    near_attached.send(attach_up::Kind::Seen(enclosed)).await;
    soon("the relay is asked in vain", asked_rx.wait_for(|asked| *asked > 0)).await.unwrap();
    let way_out = || async {
        let explained = near.explain("n1.alpha", "n1.beta").await.unwrap();
        explained.initiator.unwrap().seen.unwrap_or_default().way_out()
    };
    assert_ne!(way_out().await, proto::WayOut::No);
    is_up_tx.send_replace(true);
    soon("the agent is believed", async {
        while way_out().await != proto::WayOut::No {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn both_sides_of_a_punch_receive_the_others_address() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let near = grid.agent(&alpha, "n1").await;
    let (_near_attached, near_address) = near.up("10.0.0.1:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (mut far_attached, far_address) = far.up("10.0.0.1:7730").await;
    let (_relay, _) = grid.relay("r1").await;
    let punch = rendezvous_request::Punch {
        rendezvous: vec![7; 16],
        address: "192.0.2.1:4000".to_owned(),
        ask: false,
        signature: vec![1; 72],
    };
    let request = proto::RendezvousRequest {
        destination: far_address,
        initiator: near_address,
        way: Some(rendezvous_request::Way::Punch(punch)),
        ..Default::default()
    };
    for (answer, want) in [
        (
            dial_answer::Result::Address("192.0.2.2:4001".to_owned()),
            Ok(("192.0.2.2:4001".to_owned(), vec![2; 72])),
        ),
        (
            dial_answer::Result::Failure("no relay can be asked".to_owned()),
            Err("the other side: no relay can be asked".to_owned()),
        ),
    ] {
        let (mut client, request) = (near.client.clone(), request.clone());
        let asking = tokio::spawn(async move { client.rendezvous(request).await });
        let attach_down::Kind::Dial(dial) = far_attached.next().await else {
            panic!("not a request to dial")
        };
        let Some(dial_request::Way::Punch(punch)) = dial.way else { panic!("{dial:?}") };
        assert_eq!(punch.address, "192.0.2.1:4000");
        assert_eq!((punch.rendezvous.clone(), punch.reflectors.len()), (vec![7; 16], 1));
        assert_eq!(punch.signature, [1; 72], "as the initiator has signed it");
        let signature = vec![2; 72];
        let answer = proto::DialAnswer { rendezvous: punch.rendezvous, result: Some(answer), signature };
        far_attached.send(attach_up::Kind::DialAnswer(answer)).await;
        let found = soon("an answer", asking).await.unwrap();
        let found = found.map(|reply| match reply.into_inner() {
            proto::RendezvousReply {
                way: Some(rendezvous_reply::Way::AcceptorAddress(address)),
                signature,
                ..
            } => (address, signature),
            other => panic!("{other:?}"),
        });
        assert_eq!(found.map_err(|status| status.message().to_owned()), want);
    }
}

#[tokio::test]
async fn a_syn_is_carried_and_nothing_else() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let near = grid.agent(&alpha, "n1").await;
    let (_near_attached, near_address) = near.up("192.0.2.1:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (mut far_attached, far_address) = far.up("198.51.100.1:7730").await;
    let syn = isthmus_raw::Syn {
        source: "192.0.2.1:4000".parse().unwrap(),
        destination: "198.51.100.1:7730".parse().unwrap(),
        sequence: 1,
        window: 1000,
        options: isthmus_raw::syn::Options::default(),
    }
    .to_bytes();
    let ask = |syn: Vec<u8>| {
        let mut client = near.client.clone();
        let traverse = rendezvous_request::Traverse { rendezvous: vec![7; 16], syn };
        let request = proto::RendezvousRequest {
            destination: far_address,
            initiator: near_address,
            way: Some(rendezvous_request::Way::Traverse(traverse)),
            ..Default::default()
        };
        tokio::spawn(async move { client.rendezvous(request).await.map(drop) })
    };
    for (bytes, want) in [
        (vec![0x45; 61], "a SYN of 61 bytes"),
        (syn[..39].to_vec(), "no SYN to carry: cut off after 39 bytes"),
    ] {
        let refused = soon("an answer", ask(bytes)).await.unwrap().unwrap_err();
        let want = format!("malformed request for a rendezvous: {want}");
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, want.as_str()));
    }
    let failed = dial_answer::Result::Failure("no right".to_owned());
    for (answer, want) in [
        (dial_answer::Result::TakenIn(proto::TakenIn {}), Ok(())),
        (failed, Err("the other side: no right".to_owned())),
    ] {
        let asking = ask(syn.clone());
        let attach_down::Kind::Dial(dial) = far_attached.next().await else {
            panic!("not a request to dial")
        };
        assert_eq!(dial.initiator, near_address);
        let Some(dial_request::Way::Traverse(traverse)) = dial.way else { panic!("{dial:?}") };
        assert_eq!(traverse.syn, syn);
        let (rendezvous, signature) = (traverse.rendezvous, Vec::new());
        let answer = proto::DialAnswer { rendezvous, result: Some(answer), signature };
        far_attached.send(attach_up::Kind::DialAnswer(answer)).await;
        let found = soon("an answer", asking).await.unwrap();
        assert_eq!(found.map_err(|status| status.message().to_owned()), want);
    }
}

#[tokio::test]
async fn attachments_that_are_refused() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let agent = grid.agent(&alpha, "n1").await;
    let hello = || attach_up::Kind::NodeUp(proto::NodeUp::default());
    let connect = async |at: std::net::SocketAddr, name: &str, credentials: &Credentials| {
        RegistryClient::new(grpc::connect(&at.to_string(), name, credentials).await.unwrap())
    };
    let at_beta = connect(beta.address, "gateway.beta", &agent.credentials).await;
    let at_broker = connect(grid.broker_address, "broker", &agent.credentials).await;
    let gateway_at_alpha = connect(alpha.address, "gateway.alpha", &beta.credentials).await;
    let admin_at_broker = connect(grid.broker_address, "broker", &grid.admin()).await;
    for (what, client, want) in [
        (
            "an agent at another site's gateway",
            at_beta,
            "serves the agents of its own site, and not agent n1.alpha",
        ),
        ("an agent at the broker", at_broker, "must attach to the gateway of site alpha"),
        (
            "a gateway at a gateway",
            gateway_at_alpha,
            "gateway.beta may not call Registry/Attach at a gateway; agents may",
        ),
        (
            "an admin",
            admin_at_broker,
            "admin may not call Registry/Attach at the broker; gateways and relays may",
        ),
    ] {
        let status = Attachment::open(client, hello()).await.err().unwrap();
        assert_eq!(status.code(), Code::PermissionDenied, "{what}");
        assert!(status.message().contains(want), "{what}: {status}");
    }
    let mut agent_at_broker = connect(grid.broker_address, "broker", &agent.credentials).await;
    let lookup = agent_at_broker.lookup(proto::LookupRequest::default()).await.unwrap_err();
    assert_eq!(lookup.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_second_live_node_of_one_name_is_refused() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let agent = grid.agent(&alpha, "n1").await;
    let (mut first, _) = agent.up("10.0.0.1:7730").await;
    let mut second = agent.attach("10.0.0.2:7730").await;
    let attach_down::Kind::Refusal(refusal) = second.next().await else { panic!("not refused") };
    for part in ["10.0.0.1:7730", "10.0.0.2:7730", "another name"] {
        assert!(refusal.reason.contains(part), "{}", refusal.reason);
    }
    // The same agent replaces its former attachment.
    let (_third, _) = agent.up("10.0.0.1:7730").await;
    first.end().await;
}

#[tokio::test]
async fn without_the_broker_cached_contacts_work_and_others_wait_for_it() {
    let mut grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let near = grid.agent(&alpha, "n1").await;
    let (mut near_attached, _) = near.up("10.0.0.1:7730").await;
    let far = grid.agent(&beta, "n1").await;
    let (_far_attached, _) = far.up("10.0.0.1:7730").await;
    let other = grid.agent(&beta, "n2").await;
    let (_other_attached, other_address) = other.up("10.0.0.2:7730").await;
    assert_eq!(near.address_of("n1.beta").await, "10.0.0.1:7730");

    grid.stop_broker().await;
    assert_eq!(near.address_of("n1.beta").await, "10.0.0.1:7730", "cached");
    assert_eq!(near.address_of("n1.alpha").await, "10.0.0.1:7730", "of the own site");
    let (_, address) = tokio::join!(grid.start_broker(), near.address_of("n2.beta"));
    assert_eq!(address, "10.0.0.2:7730", "waited for the broker");
    assert_eq!(near_attached.changed().await, 0, "after a break contacts may be out of date");
    assert_eq!(other_address, near.lookup("n2.beta").await.unwrap().node.unwrap().virtual_address);
}

#[tokio::test]
async fn a_gateway_restarts_and_its_agents_come_back() {
    let grid = Grid::start().await;
    let (mut alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let near = grid.agent(&alpha, "n1").await;
    let (mut near_attached, near_address) = near.up("10.0.0.1:7730").await;
    alpha.restart().await;
    near_attached.end().await;
    let (_near_attached, again) = near.up("10.0.0.1:7730").await;
    assert_eq!(again, near_address);
    let far = grid.agent(&beta, "n1").await;
    let (_far_attached, _) = far.up("10.0.0.1:7730").await;
    assert_eq!(far.address_of("n1.alpha").await, "10.0.0.1:7730");
}

#[tokio::test]
async fn certificates_are_renewed_for_their_holder_only() {
    let grid = Grid::start().await;
    let (alpha, beta) = (grid.gateway("alpha").await, grid.gateway("beta").await);
    let agent = grid.agent(&alpha, "n1").await;
    for (name, credentials) in [("gateway", &alpha.credentials), ("agent", &agent.credentials)] {
        let directory = grid.directory(name);
        credentials.save(&directory).unwrap();
        let before = std::fs::read(directory.join("identity.pem")).unwrap();
        soon("renewal", renewal::renew(credentials, &directory, credentials.upstream())).await.unwrap();
        assert_ne!(std::fs::read(directory.join("identity.pem")).unwrap(), before, "{name}");
        assert_eq!(Credentials::load(&directory).unwrap().identity(), credentials.identity());
    }
    // The gateway serves with the renewed certificate.
    let again = grid.agent(&alpha, "n2").await;
    again.up("10.0.0.2:7730").await;

    let channel = grpc::connect(&grid.broker_address.to_string(), "broker", &beta.credentials).await.unwrap();
    let status = EnrolmentClient::new(channel).renew(proto::RenewRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "without a proof");
}

/// A captured gateway has its own key, all requests that it passes on, and the certificates of its
/// agents.
#[tokio::test]
async fn a_captured_gateway_is_none_of_its_agents() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let agent = grid.agent(&alpha, "n1").await;
    let uri = agent.credentials.identity().uri();
    let channel =
        grpc::connect(&grid.broker_address.to_string(), "broker", &alpha.credentials).await.unwrap();
    let mut broker = EnrolmentClient::new(channel);
    let (own, now) = (SigningRequest::new().unwrap(), SystemTime::now());

    // Joining: the request of an agent, altered.
    let request = join_request(&grid.token(Role::Agent, Some("alpha"), None), "n2");
    let changed = |change: &dyn Fn(&mut proto::JoinRequest)| {
        let mut request = request.clone();
        change(&mut request);
        request
    };
    for (what, altered) in [
        ("its own key", changed(&|it| it.signing_request.clone_from(&own.der))),
        ("another name", changed(&|it| it.name = "n3".to_owned())),
        ("without the HMAC", changed(&|it| it.mac.clear())),
    ] {
        let status = broker.join(altered).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{what}: {status}");
    }
    broker.join(request.clone()).await.unwrap();
    // Sent again, it gets a certificate for the agent's key again.
    let again = broker.join(request).await.unwrap().into_inner().certificate_pem;
    let unusable = Credentials::new(&own, &again, alpha.credentials.authority_pem(), "");
    assert!(unusable.is_err(), "the certificate is for the agent's key");

    // Renewing: the request of an agent, altered, and made without its key.
    let key = SigningRequest::new().unwrap();
    let request = signed::renewal::request(&agent.credentials, &key.der, now).unwrap();
    let made = signed::renewal::request(&alpha.credentials, &own.der, now).unwrap();
    let changed = |change: &dyn Fn(&mut proto::RenewRequest)| {
        let mut request = request.clone();
        change(&mut request);
        request
    };
    for (what, altered) in [
        ("its own key", changed(&|it| it.signing_request.clone_from(&own.der))),
        ("its own signature", changed(&|it| it.signature.clone_from(&made.signature))),
        (
            "the agent's certificate, its own key and signature",
            proto::RenewRequest { certificates: request.certificates.clone(), ..made.clone() },
        ),
    ] {
        let status = broker.renew(altered).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{what}: {status}");
    }
    let renewed = broker.renew(made).await.unwrap().into_inner().certificate_pem;
    let renewed = Credentials::new(&own, &renewed, alpha.credentials.authority_pem(), "").unwrap();
    assert_eq!(renewed.identity(), alpha.credentials.identity(), "its own certificate alone");
    let renewed = broker.renew(request).await.unwrap().into_inner().certificate_pem;
    let renewed = Credentials::new(&key, &renewed, alpha.credentials.authority_pem(), "").unwrap();
    assert_eq!(renewed.identity().uri(), uri, "as the agent asked");
}

/// A token without a name is good for a single name.
#[tokio::test]
async fn a_token_is_good_for_one_name() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let channel =
        grpc::connect(&grid.broker_address.to_string(), "broker", &alpha.credentials).await.unwrap();
    let mut broker = EnrolmentClient::new(channel);
    let token = grid.token(Role::Agent, Some("alpha"), None);
    let first = join_request(&token, "n1");
    broker.join(first.clone()).await.unwrap();
    let bearer = BearerToken::read(&token).unwrap();
    let second = bearer.request("n2".to_owned(), first.signing_request, false).unwrap();
    let status = broker.join(second).await.unwrap_err();
    assert!(status.message().contains("used before"), "{status}");
}

/// A single token makes a site: its gateway and its nodes, of which there are as many as the token
/// says.
#[tokio::test]
async fn one_token_joins_a_site() {
    let grid = Grid::start().await;
    let invitation =
        Invitation { nodes: Some(2), gateways: 1, ..grid.invitation(Role::Agent, Some("alpha"), None) };
    let token = grid.mint(&invitation);
    let gateway = soon("joining", enrol::join_as(&token, None, None, true)).await.unwrap();
    assert_eq!(gateway.identity().uri(), "isthmus:///gateway/alpha/gateway/");
    let gateway = grid.gateway_as("alpha", gateway).await;
    let via = gateway.address.to_string();
    let join = async |name: &str| enrol::join(&token, name.parse().ok(), Some(&via)).await;
    assert_eq!(join("n1").await.unwrap().identity().uri(), "isthmus:///agent/alpha/n1/anna");
    join("n2").await.unwrap();
    let error = join("n3").await.unwrap_err().to_string();
    assert!(error.contains("good for 2 nodes") && error.contains("isthmus grid invite"), "{error}");
    // A node that has lost its identity joins again.
    join("n1").await.unwrap();
    let error = enrol::join_as(&token, "login2".parse().ok(), None, true).await.unwrap_err().to_string();
    assert!(error.contains("good for 1 gateway, and as many have joined"), "{error}");
    let single = grid.token(Role::Agent, Some("alpha"), None);
    let error = enrol::join_as(&single, None, None, true).await.unwrap_err().to_string();
    assert!(error.contains("not for a site and its gateways"), "{error}");
}

/// The broker refuses a token for nodes, whatever the bearer's own program would do.
#[tokio::test]
async fn a_token_for_nodes_makes_no_gateway() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let invitation = Invitation {
        nodes: Some(16),
        owner: "bob".parse().ok(),
        ..grid.invitation(Role::Agent, Some("alpha"), None)
    };
    let token = grid.mint(&invitation);
    let error = enrol::join_as(&token, "login2".parse().ok(), None, true).await.unwrap_err().to_string();
    assert!(error.contains("for nodes of site alpha") && error.contains("--via"), "{error}");
    let bearer = BearerToken::read(&token).unwrap();
    for (at, server, want) in [
        (grid.broker_address, "broker", "the join token is for nodes of site alpha, and makes no gateway"),
        (alpha.address, "gateway.alpha", "a gateway joins at the broker"),
    ] {
        for name in ["gateway", "login2"] {
            let request = SigningRequest::new().unwrap();
            let request = bearer.request(name.to_owned(), request.der, true).unwrap();
            let authority = bearer.public.authority.clone();
            let channel = grpc::connect_unidentified(&at.to_string(), server, authority).await.unwrap();
            let status = EnrolmentClient::new(channel).join(request).await.unwrap_err();
            assert_eq!(status.code(), Code::PermissionDenied, "{server} {name}");
            assert!(status.message().contains(want), "{server} {name}: {status}");
        }
    }
    // The token isn't used up: a node joins by it.
    let via = alpha.address.to_string();
    let node = enrol::join(&token, "n1".parse().ok(), Some(&via)).await.unwrap();
    assert_eq!(node.identity().uri(), "isthmus:///agent/alpha/n1/bob");
}

/// A name stays with its owner, and the refused join does not use up the token.
#[tokio::test]
async fn a_token_of_another_owner_takes_no_name() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let via = alpha.address.to_string();
    let anna = grid.agent(&alpha, "n1").await;
    let state = grid.state();
    let invitation =
        Invitation { owner: "berta".parse().ok(), ..grid.invitation(Role::Agent, Some("alpha"), None) };
    let token = JoinToken::mint(&state.join_key, state.authority.certificate(), &invitation).unwrap();
    let join = async |name: &str| enrol::join(&token, name.parse().ok(), Some(&via)).await;
    let error = join("n1").await.unwrap_err().to_string();
    for part in ["user anna", "user berta", "--name", "isthmus grid remove"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let berta = join("n2").await.unwrap();
    assert_eq!(berta.identity().uri(), "isthmus:///agent/alpha/n2/berta");
    // A reinstalled node of the same owner joins again.
    let again = grid.agent(&alpha, "n1").await;
    assert_eq!(again.credentials.identity(), anna.credentials.identity());
}

/// A further administrator joins at the broker under a name of its own, and renews.
#[tokio::test]
async fn there_may_be_several_administrators() {
    let grid = Grid::start().await;
    let token = grid.token(Role::Admin, None, Some("anna"));
    let anna = soon("joining", enrol::join(&token, None, None)).await.unwrap();
    assert_eq!(anna.identity().server_name(), "anna.admin");
    let channel = grpc::connect(&grid.broker_address.to_string(), "broker", &anna).await.unwrap();
    list(&RegistryClient::new(channel), Records::Sites(proto::SiteFilter::default())).await;
    for (name, credentials) in [("anna", &anna), ("first", &grid.admin())] {
        let directory = grid.directory(name);
        credentials.save(&directory).unwrap();
        let before = std::fs::read(directory.join("identity.pem")).unwrap();
        // The renewal is not due.
        let renewed = renewal::renew_alone(credentials, &directory, credentials.upstream()).await;
        assert!(!renewed.unwrap());
        soon("renewal", renewal::renew(credentials, &directory, credentials.upstream())).await.unwrap();
        assert_ne!(std::fs::read(directory.join("identity.pem")).unwrap(), before, "{name}");
    }
}

/// A request to join, as the bearer of a token makes it.
fn join_request(token: &str, name: &str) -> proto::JoinRequest {
    let signing_request = SigningRequest::new().unwrap().der;
    BearerToken::read(token).unwrap().request(name.to_owned(), signing_request, false).unwrap()
}

#[tokio::test]
async fn the_whole_grid_is_listed() {
    let grid = Grid::start().await;
    let alpha = grid.gateway("alpha").await;
    let agent = grid.agent(&alpha, "n1").await;
    let (attached, _) = agent.up("10.0.0.1:7730").await;
    let (relay, _) = grid.relay("r1").await;
    relay
        .send(attach_up::Kind::RelayReport(proto::RelayReport { connections: 3, bytes: 4000, room: None }))
        .await;
    let job = proto::JobReport {
        job: "0a".repeat(16),
        nodes: vec!["n1.alpha".to_owned()],
        owner: "another-user".to_owned(),
        ..proto::JobReport::default()
    };
    attached.send(attach_up::Kind::Job(job)).await;

    let channel = grpc::connect(&grid.broker_address.to_string(), "broker", &grid.admin()).await.unwrap();
    let client = RegistryClient::new(channel);
    let jobs = || Records::Jobs(proto::JobFilter::default());
    let relays = || Records::Relays(proto::RelayFilter::default());
    soon("the reports", async {
        while list(&client, jobs()).await.jobs.is_empty()
            || list(&client, relays()).await.relays[0].bytes == 0
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let sites = list(&client, Records::Sites(proto::SiteFilter::default())).await;
    assert_eq!(
        (sites.grid.as_str(), sites.sites[0].name.as_str(), sites.sites[0].up),
        ("demo", "alpha", true)
    );
    assert_eq!((sites.sites[0].nodes_up, sites.sites[0].jobs), (1, 1));
    let nodes = list(&client, Records::Nodes(proto::NodeFilter::default())).await.nodes;
    assert_eq!((nodes[0].name.as_str(), nodes[0].owner.as_str()), ("n1.alpha", "anna"));
    let listed = list(&client, relays()).await.relays;
    assert_eq!((listed[0].connections, listed[0].bytes), (3, 4000));
    let listed = list(&client, jobs()).await;
    assert_eq!(listed.jobs[0].owner, "anna", "the owner is the one in its certificate");
    assert_eq!(agent.list(jobs()).await, listed, "over the gateway");

    drop(attached);
    soon("the job's end", async {
        while !list(&client, jobs()).await.jobs.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
