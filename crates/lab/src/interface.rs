//! Requests about network interfaces (netdevice(7)).

/// A request to the kernel about the interface of this name, to be filled in or answered. `None` if
/// the name is longer than the kernel allows.
pub(crate) fn request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: ifreq is plain data, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // In the request, the name ends with a zero byte.
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Some(request)
}
