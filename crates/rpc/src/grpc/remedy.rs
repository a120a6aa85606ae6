//! What a person can do about a failed call, as metadata of the call's status.

use isthmus_plan::{Remedy, Told};
use isthmus_wire::proto;
use tonic::Status;

use crate::enums::{remedy_from_wire, remedy_to_wire};

/// The key of the metadata. Its value is the number of a remedy of the protocol.
const KEY: &str = "isthmus-remedy";

/// A status that also says what a person can do.
pub fn with_remedy(mut status: Status, remedy: Option<Remedy>) -> Status {
    if let Some(remedy) = remedy {
        status.metadata_mut().insert(KEY, i32::from(remedy_to_wire(remedy)).into());
    }
    status
}

/// Why a call failed, as [`reason`](super::reason) has it, and what a person can do. Calls that pass
/// over gateways keep it.
pub fn told(status: &Status) -> Told {
    let number = status.metadata().get(KEY).and_then(|value| value.to_str().ok()?.parse::<i32>().ok());
    let remedy = number.and_then(|number| remedy_from_wire(proto::Remedy::try_from(number).ok()?));
    Told { text: super::reason(status), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_passes_its_remedy_on() {
        let status = || Status::unavailable("no relay");
        for remedy in [None, Some(Remedy::StartRelay), Some(Remedy::AllowRawPackets)] {
            let sent = with_remedy(status(), remedy).into_http::<()>();
            let received = Status::from_header_map(sent.headers()).unwrap();
            assert_eq!(told(&received), Told { text: "no relay".to_owned(), remedy });
        }
        for value in ["", "x", "0", "99", "-1"] {
            let mut status = status();
            status.metadata_mut().insert(KEY, value.parse().unwrap());
            assert_eq!(told(&status).remedy, None, "{value}");
        }
    }
}
