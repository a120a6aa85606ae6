//! A unit of the user's systemd for a service: its name and its text. Plain data.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use isthmus_front::state::{default_state, host_directory};

use crate::service::Service;

/// First line of a unit that is this program's to replace and to remove.
pub(super) const MARK: &str = "# Written by `isthmus up --user-unit`; `isthmus down` removes it.";

/// What a unit is made of: what it starts, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit<'a> {
    pub(super) service: Service,
    /// Path of the `isthmus` that the unit runs.
    pub(super) program: &'a Path,
    /// The service's state directory.
    pub(super) directory: &'a Path,
    /// The host name of this machine.
    pub(super) host: &'a str,
    /// Path of the service's log.
    pub(super) log: &'a Path,
    /// Variables of the service, beside those that the user's systemd has.
    pub(super) environment: &'a [(&'a str, String)],
}

impl Unit<'_> {
    /// The unit's name. Hosts may share a home, and with it the directory of units. So the name has
    /// the host's, and that of a state directory which isn't the host's usual one.
    pub(super) fn name(&self) -> String {
        name(self.service, self.host, self.directory, &default_state())
    }

    /// The unit's text.
    ///
    /// # Errors
    /// If a path or a variable can't be written in a unit.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let Self { service, program, directory, host, log, environment } = *self;
        let name = service.name();
        let mut command = word(text_of(program)?, false);
        for argument in [&[name][..], service.options(), &["--state", text_of(directory)?]].concat() {
            command += &format!(" {}", word(argument, true));
        }
        let (host, log) = (specifiers(host), specifiers(text_of(log)?));
        let mut variables = String::new();
        for (name, value) in environment {
            ensure!(!value.chars().any(char::is_control), "{name} can't be written in a unit: {value:?}");
            variables += &format!("Environment={}\n", word(&format!("{name}={value}"), false));
        }
        Ok(format!(
            "{MARK}\n\
             [Unit]\n\
             Description=isthmus {name} of this host\n\
             Documentation=man:isthmus-{name}(1)\n\
             # Other hosts may have the same home.\n\
             ConditionHost={host}\n\
             \n\
             [Service]\n\
             Type=notify\n\
             ExecStart={command}\n\
             {variables}\
             {}\
             Restart=on-failure\n\
             RestartSec=5\n\
             TimeoutStopSec=25\n\
             StandardOutput=append:{log}\n\
             StandardError=append:{log}\n\
             \n\
             [Install]\n\
             WantedBy=default.target\n",
            of_service(service)
        ))
    }
}

/// The settings that the units of packaging/systemd have for a service.
fn of_service(service: Service) -> &'static str {
    match service {
        Service::Broker => "LimitNOFILE=65536\nMemoryMax=50%\nTasksMax=2048\n",
        Service::Gateway | Service::Relay => {
            "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'\nLimitNOFILE=65536\nMemoryMax=50%\nTasksMax=2048\n"
        }
        // Programs run in it.
        Service::Agent => {
            "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'\nTasksMax=infinity\nOOMPolicy=continue\n"
        }
    }
}

fn name(service: Service, host: &str, directory: &Path, usual: &Path) -> String {
    let (service, host) = (service.name(), host_directory(host));
    if directory == usual || directory.parent() == Some(usual) {
        return format!("isthmus-{service}-{host}.service");
    }
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    format!("isthmus-{service}-{host}-{:08x}.service", hasher.finish() >> 32)
}

/// Whether a text is the name of a unit as [`Unit::name`] makes it, and nothing else.
pub(super) fn is_name(text: &str) -> bool {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.starts_with("isthmus-") && text.ends_with(".service") && text.bytes().all(safe)
}

fn text_of(path: &Path) -> anyhow::Result<&str> {
    let text = path.to_str().with_context(|| format!("{} is no text, as units need it", path.display()))?;
    let plain = path.is_absolute() && !text.chars().any(char::is_control);
    ensure!(plain, "{text:?} can't be named in a unit: it has control characters, or isn't absolute");
    Ok(text)
}

/// A word quoted for the command line of a unit (systemd.service(5)). Variables are replaced in
/// arguments, and not in the path of the program.
fn word(text: &str, is_argument: bool) -> String {
    let escaped = specifiers(text).replace('\\', "\\\\").replace('"', "\\\"");
    let escaped = if is_argument { escaped.replace('$', "$$") } else { escaped };
    format!("\"{escaped}\"")
}

/// A text quoted so that systemd replaces nothing in it (systemd.unit(5), "Specifiers").
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit<'a>(service: Service, directory: &'a str, log: &'a str) -> Unit<'a> {
        let (program, directory) = (Path::new("/opt/isthmus 1/bin/isthmus"), Path::new(directory));
        let (host, log) = ("Login1.example.org", Path::new(log));
        Unit { service, program, directory, host, log, environment: &[] }
    }

    #[test]
    fn variables_are_quoted() {
        let of = |value: &str| {
            let environment = [("PATH", value.to_owned())];
            Unit { environment: &environment, ..unit(Service::Agent, "/s", "/s/log") }.text()
        };
        let text = of("/opt/slurm 1/bin:/a$b:/100%:/\"x").unwrap();
        let line = "Environment=\"PATH=/opt/slurm 1/bin:/a$b:/100%%:/\\\"x\"";
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
        assert!(of("/a\nExecStart=/bin/sh").is_err());
    }

    #[test]
    fn a_unit_has_the_service_s_command() {
        let text = unit(Service::Agent, "/home/a$b/100%/\"x\\", "/home/100%/log").text().unwrap();
        for line in [
            MARK,
            "ExecStart=\"/opt/isthmus 1/bin/isthmus\" \"agent\" \"--state\" \"/home/a$$b/100%%/\\\"x\\\\\"",
            "ConditionHost=Login1.example.org",
            "StandardError=append:/home/100%%/log",
            "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'",
            "OOMPolicy=continue",
            "WantedBy=default.target",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        let broker = unit(Service::Broker, "/s", "/s/log").text().unwrap();
        assert!(broker.contains("\"broker\" \"--with-relay\" \"--state\" \"/s\"") && !broker.contains("HUP"));
        for odd in ["/home/a\nExecStart=/bin/sh", "relative"] {
            assert!(unit(Service::Agent, odd, "/log").text().is_err(), "{odd:?}");
        }
    }

    /// The settings that the packaged units have for a service are in the users' units as well.
    #[test]
    fn units_agree_with_the_packaged_ones() {
        for service in [Service::Agent, Service::Gateway, Service::Relay, Service::Broker] {
            let name = service.name();
            let path =
                format!("{}/../../packaging/systemd/isthmus-{name}.service", env!("CARGO_MANIFEST_DIR"));
            let packaged = std::fs::read_to_string(path).unwrap();
            let ours = unit(service, "/s", "/s/log").text().unwrap();
            // Programs run in an agent's unit.
            assert_eq!(packaged.contains("\nMemoryMax="), service != Service::Agent, "{name}");
            let keys = ["Type", "ExecReload", "Restart", "RestartSec", "LimitNOFILE", "OOMPolicy"];
            for key in [&keys[..], &["MemoryMax", "TasksMax"]].concat() {
                let of = |text: &str| {
                    let begins = |line: &&str| line.split_once('=').is_some_and(|(found, _)| found == key);
                    text.lines().find(begins).map(str::to_owned)
                };
                assert_eq!(of(&ours), of(&packaged), "{name}: {key}");
            }
        }
    }

    #[test]
    fn each_host_and_state_directory_has_a_unit() {
        let usual = Path::new("/home/ada/.local/state/isthmus/login1");
        let of = |service, host: &str, directory: &str| {
            let name = name(service, host, Path::new(directory), usual);
            assert!(is_name(&name), "{name}");
            name
        };
        let own = usual.to_str().unwrap();
        assert_eq!(of(Service::Gateway, "login1.example.org", own), "isthmus-gateway-login1.service");
        let node = format!("{own}/node");
        assert_eq!(of(Service::Agent, "login1", &node), "isthmus-agent-login1.service");
        let (one, two) = (of(Service::Agent, "login1", "/a"), of(Service::Agent, "login1", "/b"));
        assert!(one != two && one.starts_with("isthmus-agent-login1-"), "{one} {two}");
        assert!(of(Service::Agent, "My_Host.example", own) != of(Service::Agent, "My_Host.other", own));
        for text in
            ["isthmus-agent.service\nx", "../isthmus-agent.service", "sshd.service", "isthmus-a/b.service"]
        {
            assert!(!is_name(text), "{text}");
        }
    }
}
