//! Names of hosts to addresses, by the C library's resolver: name servers, `/etc/hosts` and whatever else the host is set up for.
//!
//! The standard library does the same, but its error does not tell a name that does not exist from a name server that does not
//! answer, except in words of the C library.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// Why a name has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookUpError {
    /// There is no host of this name, or it has no address (`EAI_NONAME`, `EAI_NODATA`).
    #[error("there is no host of this name")]
    Unknown,
    /// Nobody could say, now or at all: a name server that is silent or refuses (`EAI_AGAIN`, `EAI_FAIL`), a host out of memory.
    #[error("{0}")]
    Failed(String),
}

/// The addresses of `name`. Blocks, for half a minute and more if a name server is silent.
///
/// # Errors
/// When there is no such host, and when nobody says whether there is.
pub fn look_up(name: &str) -> Result<Vec<IpAddr>, LookUpError> {
    // No host has such a name.
    let name = CString::new(name).map_err(|_| LookUpError::Unknown)?;
    // SAFETY: `addrinfo` is a C structure of integers and pointers, for which all zeros are valid values.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    // One entry for each address, instead of one for each kind of socket as well.
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list = ptr::null_mut();
    // SAFETY: the name ends with a zero byte, `hints` is set as above, and `list` is a place for a pointer.
    let code = unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut list) };
    if code != 0 {
        return Err(error_of(code));
    }
    let mut addresses = Vec::new();
    let mut next = list;
    // SAFETY: `getaddrinfo` succeeded, so `list` is a list of its own that ends with a null pointer. It is valid until it is
    // freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        addresses.extend(address_of(entry));
        next = entry.ai_next;
    }
    // SAFETY: the list came from `getaddrinfo`, and nothing refers to it any more.
    unsafe { libc::freeaddrinfo(list) };
    match addresses.is_empty() {
        true => Err(LookUpError::Unknown),
        false => Ok(addresses),
    }
}

fn address_of(entry: &libc::addrinfo) -> Option<IpAddr> {
    if entry.ai_addr.is_null() {
        return None;
    }
    match entry.ai_family {
        libc::AF_INET => {
            // SAFETY: an entry of this family has an address of this type. It may be at any alignment.
            let address = unsafe { ptr::read_unaligned(entry.ai_addr.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { ptr::read_unaligned(entry.ai_addr.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

fn error_of(code: libc::c_int) -> LookUpError {
    match code {
        libc::EAI_NONAME | libc::EAI_NODATA => LookUpError::Unknown,
        libc::EAI_SYSTEM => LookUpError::Failed(io::Error::last_os_error().to_string()),
        code => {
            // SAFETY: the text that it gives for any number is a constant of the C library.
            let text = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
            LookUpError::Failed(text.to_string_lossy().into_owned())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names() {
        assert_eq!(look_up("127.0.0.1"), Ok(vec![Ipv4Addr::LOCALHOST.into()]));
        assert_eq!(look_up("::1"), Ok(vec![Ipv6Addr::LOCALHOST.into()]));
        let local = look_up("localhost").unwrap();
        assert!(local.iter().all(IpAddr::is_loopback), "{local:?}");
        assert_eq!(look_up("a\0b"), Err(LookUpError::Unknown));
    }

    #[test]
    fn what_is_unknown_is_told_from_what_nobody_says() {
        assert_eq!(error_of(libc::EAI_NONAME), LookUpError::Unknown);
        let LookUpError::Failed(text) = error_of(libc::EAI_AGAIN) else {
            panic!("a name server that is silent knows nothing");
        };
        assert!(!text.is_empty());
    }
}
