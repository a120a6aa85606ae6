//! Which version of the protocol two ends use. A client sends the range that it
//! supports with every call, as HTTP's `user-agent`. A server sends its own range
//! with the answer to an attachment and to `Hold`.

use isthmus_wire::protocol::{SPOKEN, Speaker};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status};

/// The metadata in which a server names its range of versions.
const HEADER: &str = "isthmus-protocol";

/// The versions that this build supports.
pub(crate) fn own() -> Speaker {
    Speaker { isthmus: env!("CARGO_PKG_VERSION").to_owned(), versions: SPOKEN }
}

/// The version that this server, named `own_name`, and its caller use.
///
/// # Errors
/// `FAILED_PRECONDITION` if they have none in common, with both ranges and the end to be upgraded.
pub fn check_caller<T>(own_name: &str, caller: &str, request: &Request<T>) -> Result<u32, Status> {
    agree(own_name, caller, request.metadata(), "user-agent")
}

/// Names this server's range of versions in a response.
pub fn with_versions<T>(mut response: Response<T>) -> Response<T> {
    if let Ok(value) = MetadataValue::try_from(own().to_string()) {
        response.metadata_mut().insert(HEADER, value);
    }
    response
}

/// The version that this client, named `own_name`, and the server of a response
/// use.
///
/// # Errors
/// As [`check_caller`].
pub fn check_server<T>(own_name: &str, server: &str, response: &Response<T>) -> Result<u32, Status> {
    agree(own_name, server, response.metadata(), HEADER)
}

fn agree(own_name: &str, other_name: &str, metadata: &MetadataMap, key: &str) -> Result<u32, Status> {
    let named = metadata.get(key).and_then(|value| value.to_str().ok());
    let other = named.unwrap_or_default().parse::<Speaker>().map_err(|_| {
        Status::failed_precondition(format!(
            "{other_name} names no version of isthmus' protocol; {own_name} is {}; upgrade isthmus at {other_name}",
            own()
        ))
    })?;
    let agreed = own().agree(own_name, other_name, &other);
    agreed.map_err(|error| Status::failed_precondition(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_find_the_same_version_or_the_same_refusal() {
        let mut request = Request::new(());
        let unnamed = check_caller("the broker", "relay r1", &request).unwrap_err();
        assert!(unnamed.message().contains("upgrade isthmus at relay r1"), "{unnamed}");
        request.metadata_mut().insert("user-agent", own().to_string().parse().unwrap());
        assert_eq!(check_caller("the broker", "relay r1", &request).unwrap(), SPOKEN.max);
        let newer = format!("isthmus/9.0.0 protocol/{0}-{0} tonic/0.14", SPOKEN.max + 1);
        request.metadata_mut().insert("user-agent", newer.parse().unwrap());
        let refused = check_caller("the broker", "relay r1", &request).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert!(refused.message().ends_with("upgrade isthmus at the broker"), "{refused}");

        assert!(check_server("relay r1", "the broker", &Response::new(())).is_err());
        let response = with_versions(Response::new(()));
        assert_eq!(check_server("relay r1", "the broker", &response).unwrap(), SPOKEN.max);
    }
}
