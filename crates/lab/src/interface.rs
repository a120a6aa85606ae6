//! Requests about network interfaces (netdevice(7)).

/// A request about the interface of a name, to be filled in or answered; none
/// if the name is longer than the kernel allows.
pub(crate) fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: ifreq is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // Its name ends with a zero.
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Some(request)
}
