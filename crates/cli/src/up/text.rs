//! What `isthmus up` says.

use std::path::Path;
use std::time::SystemTime;

use isthmus_broker::state::ADMIN_DIRECTORY;
use isthmus_service::clock::humane;

use crate::relay::AGAIN;
use crate::service::Service;
use crate::standing::ServiceReport;

/// How a broker's relay is: words for the line that says that the broker runs, and a further line
/// if there is no relay. The further line tells why, and how the relay gets another port.
pub(super) fn relay(relay: Option<&ServiceReport>, directory: &Path) -> (&'static str, String) {
    match relay {
        Some(relay) if relay.attached => (", with a relay,", String::new()),
        found => {
            let reason = found.map(|relay| relay.reason.as_str()).filter(|reason| !reason.is_empty());
            let config = directory.join("isthmus.toml");
            let line = format!(
                "Its relay doesn't run, and is tried again every {}: {}.\n  \
                   at another port       in {}: [relay] listen = \"0.0.0.0:PORT\"; then isthmus down and isthmus up\n",
                humane(AGAIN),
                reason.unwrap_or("it isn't ready yet; its log has more"),
                config.display()
            );
            (" (without a relay)", line)
        }
    }
}

/// A message that a service is not attached: to what, for how long and why.
pub(super) fn not_attached(who: &str, upstream: &str, report: &ServiceReport, log: &Path) -> String {
    format!(
        "{who} runs, but is not attached to {upstream} {}. It goes on trying; its log is {}, and isthmus down stops it",
        report.why_not(SystemTime::now()),
        log.display()
    )
}

/// A message that a service's process is stopped, and what to do.
pub(super) fn stopped(who: &str, pid: u32) -> String {
    format!("{who} is stopped (process {pid}, as by SIGSTOP): kill -CONT {pid}")
}

/// A message that a member is revoked, and what to do.
pub(super) fn revoked(who: &str, option: &str) -> String {
    format!(
        "{who} is revoked: an administrator of the grid has had its certificate refused everywhere. With a new token \
         (isthmus grid invite) it becomes a member again: isthmus up{option} --token FILE"
    )
}

/// The line that tells how to have a unit run without a login.
pub(super) fn linger(lingers: bool) -> &'static str {
    if lingers {
        return "";
    }
    "  keep it running       loginctl enable-linger (without it, it ends with your last login, and starts with the \
     next one)\n"
}

/// The lines that tell what to do next.
pub(super) fn next(service: Service, directory: &Path, option: &str, is_node: bool) -> String {
    let stop = format!("  stop                  isthmus down{option}\n");
    let here = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let here = here.unwrap_or_else(|_| "FRONT-END".to_owned());
    let use_it =
        "  see what there is     isthmus status\n  run something         isthmus run -- mpirun -n 8 ./app\n";
    match service {
        Service::Broker => format!(
            "  invite a site         isthmus grid invite{option} --site SITE --owner USER --nodes N --gateways 1 --out SITE.token\n  \
               see what there is     isthmus status --state {}\n{stop}",
            directory.join(ADMIN_DIRECTORY).display()
        ),
        Service::Gateway if is_node => format!("{use_it}{stop}"),
        Service::Gateway => format!("  on each of its nodes  isthmus up --token FILE --via {here}\n{stop}"),
        Service::Agent => format!("{use_it}{stop}"),
        Service::Relay => stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_without_its_relay_says_so() {
        let state = Path::new("/state");
        let attached = ServiceReport { attached: true, ..ServiceReport::default() };
        assert_eq!(relay(Some(&attached), state), (", with a relay,", String::new()));
        let reason = "cannot listen on 0.0.0.0:7720: Address already in use".to_owned();
        for (found, want) in [
            (Some(ServiceReport { reason, ..ServiceReport::default() }), "cannot listen on 0.0.0.0:7720"),
            (Some(ServiceReport::default()), "it isn't ready yet"),
            (None, "it isn't ready yet"),
        ] {
            let (short, line) = relay(found.as_ref(), state);
            assert_eq!(short, " (without a relay)");
            for part in [want, "/state/isthmus.toml", "[relay] listen"] {
                assert!(line.contains(part), "{part}: {line}");
            }
        }
    }

    #[test]
    fn what_is_so_is_said_with_what_to_do() {
        let since = isthmus_service::clock::unix_seconds(SystemTime::now()) - 600;
        let report =
            ServiceReport { since, reason: "cannot reach broker".to_owned(), ..ServiceReport::default() };
        let said = not_attached("gateway.alpha", "the broker at b:7700", &report, Path::new("/state/log"));
        assert!(
            said.starts_with(
                "gateway.alpha runs, but is not attached to the broker at b:7700 for 10 min: cannot reach"
            ),
            "{said}"
        );
        assert!(revoked("agent n1.alpha", " --state /s").contains("isthmus up --state /s --token FILE"));
        assert!(linger(true).is_empty() && linger(false).contains("loginctl enable-linger"));
    }
}
