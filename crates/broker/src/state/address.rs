//! What may be a broker's address.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether a text is `HOST:PORT` with a port that isn't 0.
pub(super) fn is_address(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|number| number != 0) && !port.starts_with('+');
    text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port))
}

/// Whether a text is a host name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    // No name ends in a number (RFC 3696 section 2).
    let is_number =
        name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    text.len() <= 253 && name.split('.').all(is_part) && (!is_number || text.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in [
            "host:7700",
            "broker.example.org:443",
            "broker.example.org.:443",
            "my_host-1.x:1",
            "192.0.2.1:65535",
            "[2001:db8::1]:7700",
            "[::1]:1",
            "3com.example:1",
        ] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "host",
            "host:",
            ":7700",
            "host:0",
            "host:+1",
            "host:65536",
            "host:x",
            "http://foo:80/:7700",
            "http://foo:80",
            "foo bar:7700",
            "1.2.3.4/24:7700",
            "1.2.3:7700",
            "1.2.3.456:7700",
            "fe80::1:7700",
            "::1:7700",
            "[::1:7700",
            "[1.2.3.4]:7700",
            "a..b:7700",
            ".:7700",
            "h\u{f6}st:7700",
            "host\n:7700",
        ] {
            assert!(!is_address(bad), "{bad:?}");
        }
    }
}
