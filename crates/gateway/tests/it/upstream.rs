//! The way to the broker goes silent, as in a cut that TCP hasn't noticed. Another connection
//! works, and the gateway attaches over that one.

use std::net::SocketAddr;

use isthmus_identity::Role;
use isthmus_identity::token::{Invitation, JoinToken};
use isthmus_rpc::enrol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::Code;

use crate::grid::{Grid, soon};

/// Passes connections on, until those that stand go silent. The kernels acknowledge what is sent
/// all the same.
struct Way {
    address: SocketAddr,
    /// How many silences there were. Connections that began before the last of them are silent.
    silences: watch::Sender<usize>,
}

impl Way {
    async fn to(broker: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silences = watch::Sender::new(0);
        let told = silences.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(broker).await else { continue };
                let begun = *told.borrow();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(pass(near_in, far_out, (told.subscribe(), begun)));
                tokio::spawn(pass(far_in, near_out, (told.subscribe(), begun)));
            }
        });
        Self { address, silences }
    }

    fn go_silent(&self) {
        self.silences.send_modify(|count| *count += 1);
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (silences, begun): (watch::Receiver<usize>, usize),
) {
    let mut chunk = vec![0; 1 << 14];
    while let Ok(count) = from.read(&mut chunk).await
        && count > 0
    {
        if *silences.borrow() > begun {
            std::future::pending::<()>().await;
        }
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn calls_do_not_wait_for_a_silent_connection_beside_which_another_works() {
    let grid = Grid::start().await;
    let way = Way::to(grid.broker_address).await;
    let broker = way.address.to_string();
    let invitation = Invitation { broker, ..grid.invitation(Role::Gateway, Some("alpha"), None) };
    let state = grid.state();
    let token = JoinToken::mint(&state.join_key, state.authority.certificate(), &invitation).unwrap();
    let credentials = soon("joining", enrol::join(&token, None, None)).await.unwrap();
    let alpha = grid.gateway_as("alpha", credentials).await;
    let agent = grid.agent(&alpha, "n1").await;
    let (_attached, address) = agent.up("10.0.0.1:7730").await;

    assert_eq!(agent.lookup("n2.alpha").await.unwrap_err().code(), Code::NotFound);
    way.go_silent();
    // The answer is the broker's, within the time that the gateway gives a call.
    let answer = agent.lookup("n3.alpha").await.unwrap_err();
    assert_eq!(answer.code(), Code::NotFound, "{answer:?}");
    // The node that is attached there is known to the broker as before.
    let beta = grid.gateway("beta").await;
    let far = grid.agent(&beta, "n1").await;
    let (_far_attached, _) = far.up("10.0.0.1:7730").await;
    let node = far.lookup("n1.alpha").await.unwrap().node.unwrap();
    assert!(node.up && node.virtual_address == address, "{node:?}");
}
