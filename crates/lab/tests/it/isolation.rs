//! What a machine of the lab has for itself, so that no program cheats past
//! the network.

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::common::{self, lab, labs_run_here, shell};

const TWINS: &str = r#"
    [[site]]
    name = "alpha"
    kind = "nat"
    subnet = "192.168.1.0/24"
    nodes = [{ name = "n1", host_name = "node1" }, { name = "n2" }]
    [[site]]
    name = "beta"
    kind = "nat"
    subnet = "192.168.1.0/24"
    nodes = [{ name = "n1", host_name = "node1" }]
"#;

#[test]
fn all_of_it_as_an_ordinary_user() {
    common::rerun_as_an_ordinary_user(module_path!(), &[]);
}

#[test]
fn machines_share_no_name_file_or_process() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(TWINS);
    let (one, two) = (lab.machine("n1.alpha").unwrap(), lab.machine("n2.alpha").unwrap());
    for directory in ["/dev/shm", "/tmp", "/run", "/var/tmp", "/var/lib/isthmus"] {
        assert_eq!(shell(one, &format!("echo mine > {directory}/file; cat {directory}/file")), "mine\n");
        assert_eq!(
            shell(two, &format!("test -e {directory}/file || echo nothing")),
            "nothing\n",
            "{directory}"
        );
        assert!(!std::path::Path::new(directory).join("file").exists(), "{directory} of the real machine");
    }
    // A System V segment made in one machine isn't there in the other.
    assert_eq!(shell(one, "ipcmk -M 4096 > /dev/null; ipcs -m | grep -c 4096"), "1\n");
    assert_eq!(shell(two, "ipcs -m | grep -c 4096 || true"), "0\n");
    // The lab's own first process, and what looks.
    let processes = shell(two, "ls -d /proc/[0-9]*");
    assert!(processes.starts_with("/proc/1\n") && processes.lines().count() <= 3, "{processes}");
    lab.down().unwrap();
}

#[test]
fn a_machine_knows_itself_and_nobody_else() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(TWINS);
    let here = std::fs::read_to_string("/etc/hosts").unwrap();
    for name in ["n1.alpha", "n1.beta"] {
        let machine = lab.machine(name).unwrap();
        assert_eq!(shell(machine, "hostname; cat /etc/hostname"), "node1\nnode1\n");
        assert_eq!(shell(machine, "getent ahostsv4 node1 | head -1 | cut -d' ' -f1"), "192.168.1.2\n");
        let hosts = shell(machine, "cat /etc/hosts");
        assert!(!hosts.contains("192.168.1.3"), "{hosts}");
        assert_eq!(shell(machine, "cat /etc/resolv.conf"), "");
        assert_eq!(shell(machine, "ls /sys/class/net | sort"), "eth0\nlo\n");
        assert_eq!(shell(machine, "echo $ISTHMUS_LAB_MACHINE"), format!("{name}\n"));
    }
    assert_eq!(std::fs::read_to_string("/etc/hosts").unwrap(), here, "the real machine's own");
    lab.down().unwrap();
}

#[test]
fn loopback_is_whole_and_the_world_is_out_of_reach() {
    if !labs_run_here() {
        return;
    }
    let lab = lab(TWINS);
    let machine = lab.machine("n1.alpha").unwrap();
    let twin = machine.in_network(|| TcpListener::bind("127.64.1.1:0")).unwrap().unwrap();
    let address = twin.local_addr().unwrap();
    machine.in_network(|| TcpStream::connect(address)).unwrap().unwrap();

    // An address of the real machine, found without sending anything.
    let outside = UdpSocket::bind("0.0.0.0:0").unwrap();
    let real = match outside.connect("192.0.2.1:9") {
        Ok(()) => match outside.local_addr().unwrap().ip() {
            std::net::IpAddr::V4(address) => address,
            std::net::IpAddr::V6(_) => unreachable!("bound to IPv4"),
        },
        // No network at all: then there is nothing to reach either.
        Err(_) => Ipv4Addr::new(192, 0, 2, 1),
    };
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for address in [real, Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(240, 64, 1, 1)] {
        let error = common::connect(machine, address, port, Duration::from_secs(2)).unwrap_err();
        assert_ne!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{address} answered");
    }
    lab.down().unwrap();
}
