//! The help of `isthmus lab`: commands in groups, so that they are found.

/// The help page of `isthmus lab`. Its line for each command is the first line of that command's
/// own help, which a test checks.
pub(super) const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

Labs:
  up        Bring an emulated grid up, from a file or a preset
  status    Show machines, services, links and what is broken
  logs      Print the logs of a lab's services
  down      End a lab: nothing of it is left
  check     Find out whether you can run labs here, and why not
  presets   List ready-made grids, or print one
  graph     Draw a grid as SVG

In a machine:
  exec      Run a command in a machine of the lab
  shell     Open a shell in a machine of the lab
  capture   Write the packets that pass a link as pcap

Faults:
  cut       Have links carry nothing, in either direction
  heal      Have links carry packets again
  set       Change what a link does to packets
  flap      Cut and heal a link in turn
  kill      Kill the processes of a machine, or one service
  freeze    Stop all processes of a machine
  thaw      Have the processes of a machine go on
  nat       Have NATs forget mappings, restart or change address

Options:
{options}{after-help}";

/// The text of the help page after the options.
pub(super) const AFTER: &str = "\
Links are called like their SITE or HOST, machines NODE.SITE, HOST, router.SITE,
carrier.SITE or wan.
`isthmus lab COMMAND --help` has the details.";

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::*;
    use crate::command::LabCommand;

    #[test]
    fn every_command_is_in_the_help_once_with_its_own_words() {
        let command = LabCommand::augment_subcommands(clap::Command::new("lab"));
        let shown: Vec<_> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
        let listed = TEMPLATE.lines().filter(|line| line.starts_with("  ")).count();
        assert_eq!(listed, shown.len());
        for sub in shown {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            let line = format!("  {:10}{about}\n", sub.get_name());
            assert!(TEMPLATE.contains(&line), "{line}");
        }
    }
}
