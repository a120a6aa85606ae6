//! Upgrades in place, as the services of this command take part in them.

use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use isthmus_service::upgrade::{Hangups, Inherited, Program, Upgrades, choose};
use isthmus_wire::upgrade;

use crate::config::Config;
use crate::service::{Prepared, Service, ServiceArgs};

/// What a service that can be replaced knows before it begins to serve: its program, and what a
/// former program has left to it.
#[derive(Debug)]
pub(crate) struct Before {
    service: upgrade::Service,
    program: Program,
    inherited: Option<Inherited>,
}

/// What a service that can be replaced knows before it begins to serve; `None` if it can't be
/// replaced. A service that was started in a terminal can't: it ends by SIGHUP, which the
/// terminal's end sends.
///
/// # Errors If what a former program has left can't be used, or that was another service.
///
/// # Safety
/// The process must have no other thread, and own no descriptor but standard input,
/// output and errors.
pub(crate) unsafe fn before(service: Service) -> anyhow::Result<Option<Before>> {
    let service = match service {
        Service::Gateway => upgrade::Service::Gateway,
        Service::Relay => upgrade::Service::Relay,
        Service::Agent => upgrade::Service::Agent,
        Service::Broker => return Ok(None),
    };
    let program = Program::of_this_process().context("cannot find this program")?;
    // SAFETY: as the caller has promised.
    let inherited = unsafe { Inherited::take() }?;
    if let Some(inherited) = inherited.as_ref().filter(|inherited| inherited.service != service) {
        bail!("the former program of this process was a {:?}, and this is a {service:?}", inherited.service);
    }
    if inherited.is_none() && std::io::stdin().is_terminal() {
        return Ok(None);
    }
    if service != upgrade::Service::Agent {
        // Programs that an agent starts would begin with SIGHUP blocked.
        Hangups::block().context("cannot block SIGHUP")?;
    }
    Ok(Some(Before { service, program, inherited }))
}

/// Whether and how the service can be upgraded, once the configuration is known.
pub(crate) fn upgrades(before: Option<Before>, service: Service, config: &Config) -> Arc<Upgrades> {
    let Some(Before { service: kind, program, inherited }) = before else {
        return Arc::new(Upgrades::none());
    };
    if let Some(inherited) = &inherited {
        let (listeners, pairs) = inherited.counts();
        tracing::info!(listeners, pairs, "takes the place of a former program");
    }
    Arc::new(Upgrades::new(kind, program, inherited, &wanted(service, config)))
}

/// The addresses at which a service listens that can be replaced.
fn wanted(service: Service, config: &Config) -> Vec<SocketAddr> {
    match service {
        Service::Gateway => config.gateway.listening().collect(),
        Service::Relay => vec![config.relay.listen],
        Service::Broker | Service::Agent => Vec::new(),
    }
}

/// Checks that this program can take the place of a running service, and tells that service so. The
/// service has listeners at the addresses `held`.
///
/// # Errors What would keep this program from serving.
pub(crate) async fn check(service: Service, args: &ServiceArgs, held: &[SocketAddr]) -> anyhow::Result<()> {
    let Prepared { config, credentials, .. } = Prepared::load(service, args)?;
    match (service, credentials) {
        (Service::Gateway, _) => config.gateway.check()?,
        (Service::Agent, Some(credentials)) => isthmus_agent::check(&config.agent, &credentials).await?,
        (Service::Agent | Service::Relay, _) => {}
        (Service::Broker, _) => bail!("a broker isn't upgraded in place: restart it"),
    }
    let wanted = wanted(service, &config);
    let chosen = choose(held, &wanted);
    for (address, _) in wanted.iter().zip(&chosen).filter(|(_, chosen)| chosen.is_none()) {
        let closed = held.iter().enumerate().filter(|(number, _)| !chosen.contains(&Some(*number)));
        check_free(*address, &closed.map(|(_, address)| *address).collect::<Vec<_>>())?;
    }
    writeln!(std::io::stdout(), "{}", upgrade::answer())?;
    Ok(())
}

/// Checks that a listener can be opened at an address, once those at `closed` are closed.
fn check_free(address: SocketAddr, closed: &[SocketAddr]) -> anyhow::Result<()> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error)
            if error.kind() == ErrorKind::AddrInUse
                && closed.iter().any(|other| other.port() == address.port()) =>
        {
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_free_or_becomes_so() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap();
        let error = check_free(taken, &[]).unwrap_err();
        assert!(error.to_string().contains(&taken.to_string()), "{error:#}");
        check_free(taken, &[SocketAddr::new("0.0.0.0".parse().unwrap(), taken.port())]).unwrap();
        drop(listener);
        check_free(taken, &[]).unwrap();
        check_free("192.0.2.1:7710".parse().unwrap(), &[taken]).unwrap_err();
    }
}
