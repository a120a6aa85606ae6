//! Running a script on a host.

use crate::BatchError;
use crate::command::{Output, Runner};

/// Runs a script on a host by ssh (ssh_config(5)): it asks for no password, gives up what is silent,
/// leaves nothing in the background, and forwards nothing.
pub(crate) async fn on(
    runner: &Runner,
    options: &[String],
    address: &str,
    text: String,
) -> Result<Output, BatchError> {
    const OPTIONS: &[&str] = &[
        "BatchMode=yes",
        "ConnectTimeout=10",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        "ControlMaster=no",
        "ControlPath=none",
        "ForwardAgent=no",
        "ForwardX11=no",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        "LogLevel=ERROR",
    ];
    let mut arguments = vec!["-T".to_owned()];
    arguments.extend(OPTIONS.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]));
    arguments.extend(options.iter().cloned());
    arguments.extend([address.to_owned(), "exec sh -s".to_owned()]);
    let mut output = runner.run("ssh", &arguments, text.as_bytes()).await?;
    output.command = format!("ssh {address}");
    // ssh's own failures have this status (ssh(1)).
    if output.status.code() == Some(255) { Err(runner.unreachable(&output)) } else { Ok(output) }
}
