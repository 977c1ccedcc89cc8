#![allow(unsafe_code)] // One ioctl attaches an open file to a tap interface; no safe wrapper of it is at hand.
//! A tap interface of Linux as a file: what is written goes into the interface, what it sends is read.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};
use nix::libc;

nix::ioctl_write_ptr_bad!(
    /// `TUNSETIFF`: attaches the file to the interface that the request names.
    tun_set_interface,
    libc::TUNSETIFF,
    libc::ifreq
);

/// Opens the tap interface `name` for whole frames, and makes it where it does not exist (which takes root); one that
/// was made here goes with the file.
pub(super) fn open(name: &str) -> Result<File> {
    const CLONE_DEVICE: &str = "/dev/net/tun";
    let mut request = request(name)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(CLONE_DEVICE)
        .with_context(|| format!("cannot open {CLONE_DEVICE}"))?;
    // SAFETY: the descriptor is open for the whole call, and `request` is a whole `ifreq` that nobody else knows, which
    // the kernel reads and writes.
    unsafe { tun_set_interface(file.as_raw_fd(), &raw mut request) }
        .with_context(|| format!("cannot attach to the tap interface {name}"))?;
    Ok(file)
}

fn request(name: &str) -> Result<libc::ifreq> {
    // SAFETY: `ifreq` is a C structure of integers and a union of such, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The name ends with a zero.
    let fits = (1..request.ifr_name.len()).contains(&name.len());
    ensure!(fits, "\"{name}\" is no name of an interface: 1 to 15 bytes");
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // Frames as they are on the wire, without a header before them.
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        for name in ["", "a-name-of-16-byte"] {
            let error = open(name).unwrap_err().to_string();
            assert!(error.contains("1 to 15 bytes"), "{error}");
        }
        assert!(request("fifteen-bytes-x").is_ok());
    }
}
